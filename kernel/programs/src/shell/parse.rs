//! From a line to a command, or to an error of one line. Pure.
//!
//! [`COMMANDS`] is the one list of commands: `help`, completion and hints come from it.
//! [`commands`](super::commands) carries them out.

use super::complete::nearest;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use runnext::go::Priority;
use runnext::program::Share;

/// A command of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Lists the commands; or describes one.
    Help(Option<String>),
    /// Lists all Gs.
    Ps,
    /// Shows all Ps, live.
    Top,
    /// Shows the scheduler, in a line or in detail.
    Sched {
        /// `-v`
        is_detailed: bool,
    },
    /// Starts or stops the recording of events.
    Trace(Trace),
    /// Runs a program, with its arguments.
    Run {
        /// Its name.
        program: String,
        /// Its share of the CPUs.
        share: Share,
        /// Its arguments.
        words: Vec<String>,
        /// `&`: the shell continues meanwhile.
        in_background: bool,
    },
    /// Shows or sets how many Ps run Gs.
    GoMaxProcs(Option<usize>),
    /// Measures the cost of an operation.
    Bench(String),
    /// Shows where a G waits.
    Stack(Which),
    /// Ends a G.
    Kill(Which),
    /// Sets the priority of a G.
    Nice(Which, Priority),
    /// Shows frames, heap, stacks.
    Mem,
    /// Shows interrupts by device and by CPU.
    Irq,
    /// Shows the log, or its last lines.
    Dmesg(Option<usize>),
    /// Switches the machine off.
    PowerOff,
    /// Restarts the machine.
    Reboot,
}

/// The G that a command selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// By its number.
    Number(u64),
    /// By its name: the first G with that name.
    Name(String),
}

/// The argument of `trace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// Record events.
    Start,
    /// Stop recording.
    Stop,
}

/// A command as `help` shows it.
pub struct Spec {
    /// Its first word.
    pub name: &'static str,
    /// Its arguments.
    pub arguments: &'static str,
    /// Its description.
    pub help: &'static str,
    parse: fn(&mut Words) -> Result<Command, Complaint>,
}

const fn spec(
    name: &'static str,
    arguments: &'static str,
    help: &'static str,
    parse: fn(&mut Words) -> Result<Command, Complaint>,
) -> Spec {
    Spec { name, arguments, help, parse }
}

/// All commands, in the order in which `help` shows them.
#[rustfmt::skip]
pub static COMMANDS: &[Spec] = &[
    spec("help", "[command]", "this list, or more about one command", |w| Ok(Command::Help(w.next()))),
    spec("ps", "", "the Gs: what each is, does, waits for and has used", |_| Ok(Command::Ps)),
    spec("top", "", "the Ps, live: load, queue, switches, steals; a key ends it", |_| Ok(Command::Top)),
    spec("sched", "[-v]", "the scheduler in a line, as Go's schedtrace; -v: G, M and P by name", sched),
    spec("trace", "start|stop", "note the scheduler's events from now on, or no longer", trace),
    spec("run", "<program> [share=<n>] [words] [&]", "a program and its arguments; Ctrl-C stops it, & lets it be", run),
    spec("gomaxprocs", "[n]", "how many Ps run Gs, or how many should from now on", gomaxprocs),
    spec("bench", "<name>", "what an operation costs here and now", |w| Ok(Command::Bench(w.need("which one?")?))),
    spec("stack", "<g>", "where the G with this number or name waits, by function", |w| w.g().map(Command::Stack)),
    spec("kill", "<g>", "ends the G with this number or name", |w| w.g().map(Command::Kill)),
    spec("nice", "<g> <priority>", "a G's priority: urgent, normal or background", nice),
    spec("mem", "", "memory: frames, heap, stacks", |_| Ok(Command::Mem)),
    spec("irq", "", "interrupts, by device and by CPU", |_| Ok(Command::Irq)),
    spec("dmesg", "[lines]", "what was printed since boot, or the last lines of it", dmesg),
    spec("poweroff", "", "ends the machine", |_| Ok(Command::PowerOff)),
    spec("reboot", "", "starts the machine again", |_| Ok(Command::Reboot)),
];

/// The names of all commands.
pub fn names() -> Vec<&'static str> {
    COMMANDS.iter().map(|spec| spec.name).collect()
}

/// The error of a line, and a correction. Prints as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The error.
    pub what: String,
    /// The correction.
    pub hint: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.hint)
    }
}

/// Parses a line; an empty one is no command.
pub fn parse(line: &str) -> Result<Option<Command>, Complaint> {
    let mut words = Words { words: split(line)?.into_iter(), spec: None };
    let Some(name) = words.next() else { return Ok(None) };
    let Some(spec) = COMMANDS.iter().find(|spec| spec.name == name) else {
        return Err(unknown(&name));
    };
    words.spec = Some(spec);
    let command = (spec.parse)(&mut words)?;
    match words.next() {
        None => Ok(Some(command)),
        Some(word) => Err(words.complaint(format!("`{}` is one word too many", shorten(&word)))),
    }
}

fn unknown(name: &str) -> Complaint {
    // Names from other systems that users type.
    const OTHERS: [(&str, &str); 6] = [
        ("exit", "poweroff"),
        ("quit", "poweroff"),
        ("shutdown", "poweroff"),
        ("free", "mem"),
        ("ls", "help"),
        ("threads", "ps"),
    ];
    let other = OTHERS.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours);
    let hint = match other.or_else(|| nearest(name, &names())) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "`help` lists what there is".to_string(),
    };
    Complaint { what: format!("no command `{}`", shorten(name)), hint }
}

/// A word for an error message: printable and not long.
fn shorten(word: &str) -> String {
    const SHOWN: usize = 30;
    let mut short: String = word.chars().take(SHOWN).collect();
    if short.len() < word.len() {
        short.push('\u{2026}');
    }
    short
}

fn sched(words: &mut Words) -> Result<Command, Complaint> {
    match words.next().as_deref() {
        None => Ok(Command::Sched { is_detailed: false }),
        Some("-v") => Ok(Command::Sched { is_detailed: true }),
        Some(word) => Err(words.complaint(format!("`{}` means nothing here", shorten(word)))),
    }
}

fn trace(words: &mut Words) -> Result<Command, Complaint> {
    match words.need("start or stop?")?.as_str() {
        "start" => Ok(Command::Trace(Trace::Start)),
        "stop" => Ok(Command::Trace(Trace::Stop)),
        word => Err(words.complaint(format!("`{}` means nothing here", shorten(word)))),
    }
}

fn run(words: &mut Words) -> Result<Command, Complaint> {
    let program = words.need("which program?")?;
    let share = words.share()?;
    let mut words: Vec<_> = words.words.by_ref().collect();
    let in_background = words.pop_if(|last| last == "&").is_some();
    Ok(Command::Run { program, share, words, in_background })
}

fn gomaxprocs(words: &mut Words) -> Result<Command, Complaint> {
    words.number("a number of Ps, from 1 on", 1).map(Command::GoMaxProcs)
}

fn nice(words: &mut Words) -> Result<Command, Complaint> {
    let g = words.g()?;
    let word = words.need("urgent, normal or background?")?;
    match Priority::ALL.into_iter().find(|priority| priority.as_str() == word) {
        Some(priority) => Ok(Command::Nice(g, priority)),
        None => Err(words.complaint(format!("`{}` is no priority", shorten(&word)))),
    }
}

fn dmesg(words: &mut Words) -> Result<Command, Complaint> {
    words.number("a number of lines, from 1 on", 1).map(Command::Dmesg)
}

/// The words after a command.
struct Words {
    words: alloc::vec::IntoIter<String>,
    spec: Option<&'static Spec>,
}

impl Words {
    fn next(&mut self) -> Option<String> {
        self.words.next()
    }

    fn need(&mut self, question: &str) -> Result<String, Complaint> {
        self.next().ok_or_else(|| self.complaint(question.to_string()))
    }

    /// A number, if there is one.
    fn number(&mut self, wanted: &str, least: usize) -> Result<Option<usize>, Complaint> {
        let Some(word) = self.next() else { return Ok(None) };
        match word.parse() {
            Ok(number) if number >= least => Ok(Some(number)),
            _ => Err(self.complaint(format!("`{}` is not {wanted}", shorten(&word)))),
        }
    }

    /// A share, if the next word says one: `share=300`.
    fn share(&mut self) -> Result<Share, Complaint> {
        let said = self.words.as_slice().first().and_then(|word| word.strip_prefix("share="));
        let Some(parsed) = said.map(str::parse) else { return Ok(Share::DEFAULT) };
        let word = self.next().unwrap_or_default();
        parsed.map_err(|error| self.complaint(format!("`{}`: {error}", shorten(&word))))
    }

    /// A G by its number or its name, as `ps` shows them.
    fn g(&mut self) -> Result<Which, Complaint> {
        let word = self.need("which G? `ps` shows their numbers")?;
        let digits = word.strip_prefix(['g', 'G']).unwrap_or(&word);
        if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
            return Ok(Which::Name(word));
        }
        let number = digits.parse().map(Which::Number);
        number.map_err(|_| self.complaint(format!("`{}` is not the number of a G", shorten(&word))))
    }

    fn complaint(&self, what: String) -> Complaint {
        let hint = match self.spec {
            Some(Spec { name, arguments: "", .. }) => format!("usage: {name}"),
            Some(Spec { name, arguments, .. }) => format!("usage: {name} {arguments}"),
            None => "`help` lists what there is".to_string(),
        };
        Complaint { what, hint }
    }
}

/// Splits at spaces; text in quotes stays together.
fn split(line: &str) -> Result<Vec<String>, Complaint> {
    let mut words = Vec::new();
    let mut letters = line.chars().peekable();
    loop {
        while letters.next_if(|letter| letter.is_whitespace()).is_some() {}
        if letters.peek().is_none() {
            return Ok(words);
        }
        let mut word = String::new();
        while let Some(letter) = letters.next_if(|letter| !letter.is_whitespace()) {
            match letter {
                '"' | '\'' => loop {
                    match letters.next() {
                        Some(end) if end == letter => break,
                        Some(inside) => word.push(inside),
                        None => {
                            return Err(Complaint {
                                what: "a quote is not closed".to_string(),
                                hint: format!("end it with another {letter}"),
                            });
                        }
                    }
                },
                letter => word.push(letter),
            }
        }
        words.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn complaint(line: &str) -> String {
        let text = parse(line).expect_err(line).to_string();
        assert!(!text.contains('\n'), "{text:?}");
        text
    }

    #[test]
    fn every_command_of_the_list_can_be_typed() {
        let g = Some(Command::Stack(Which::Number(7)));
        assert_eq!(parse("stack 7").as_ref(), Ok(&g));
        assert_eq!(parse("stack g7"), Ok(g));
        assert_eq!(parse("sched -v"), Ok(Some(Command::Sched { is_detailed: true })));
        assert_eq!(parse("trace stop"), Ok(Some(Command::Trace(Trace::Stop))));
        assert_eq!(parse("gomaxprocs 3"), Ok(Some(Command::GoMaxProcs(Some(3)))));
        assert_eq!(parse("kill gate"), Ok(Some(Command::Kill(Which::Name("gate".into())))));
        let run = |in_background| Command::Run {
            program: "echo".into(),
            share: Share::DEFAULT,
            words: vec!["a b".into(), "c".into()],
            in_background,
        };
        assert_eq!(parse(" run echo  'a b' c "), Ok(Some(run(false))));
        assert_eq!(parse("run echo 'a b' c &"), Ok(Some(run(true))));
        let share = Share::new(300).expect("in range");
        let words = vec!["share=1".into()];
        let run = Command::Run { program: "hog".into(), share, words, in_background: false };
        assert_eq!(parse("run hog share=300 share=1"), Ok(Some(run)));
        for spec in COMMANDS {
            let line = match spec.arguments {
                "<g>" => format!("{} 1", spec.name),
                "<g> <priority>" => format!("{} 1 urgent", spec.name),
                "start|stop" | "<name>" | "<program> [share=<n>] [words] [&]" => {
                    format!("{} start", spec.name)
                }
                _ => spec.name.to_string(),
            };
            assert!(matches!(parse(&line), Ok(Some(_))), "{line}");
        }
        assert_eq!(parse("  "), Ok(None));
    }

    #[test]
    fn bad_input_gets_one_line_with_a_hint() {
        for bad in ["0", "10001", "-5", "", "x"] {
            let usage = "usage: run <program> [share=<n>] [words] [&]";
            let what = format!("`share={bad}`: a share is a number from 1 to 10000; {usage}");
            assert_eq!(complaint(&format!("run hog share={bad} 60")), what);
        }
        assert_eq!(complaint("hepl"), "no command `hepl`; did you mean `help`?");
        assert_eq!(complaint("exit"), "no command `exit`; did you mean `poweroff`?");
        assert_eq!(complaint("frobnicate"), "no command `frobnicate`; `help` lists what there is");
        assert_eq!(complaint("trace"), "start or stop?; usage: trace start|stop");
        let usage = "usage: nice <g> <priority>";
        assert_eq!(complaint("nice 1 high"), format!("`high` is no priority; {usage}"));
        assert_eq!(complaint("ps x"), "`x` is one word too many; usage: ps");
        assert!(complaint("gomaxprocs 0").contains("is not a number of Ps"));
        assert!(complaint("kill -1").contains("is not the number of a G"));
        assert!(complaint("stack 99999999999999999999999").contains("is not the number of a G"));
        assert!(complaint("run 'a").contains("a quote is not closed"));
        assert!(complaint(&"x".repeat(10_000)).len() < 200);
    }

    /// Lines of every kind: random bytes, and commands with an error in them.
    #[test]
    fn any_line_is_a_command_or_a_complaint() {
        let mut state = 7u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        let mut commands = 0;
        for _ in 0..if cfg!(miri) { 200 } else { 50_000 } {
            let mut line = String::new();
            if random(2) == 0 {
                line.push_str(COMMANDS[random(COMMANDS.len())].name);
                line.push(' ');
            }
            for _ in 0..random(12) {
                line.push(match random(4) {
                    0 => char::from(random(128) as u8),
                    1 => ['"', '\'', ' ', '-', 'g', '\t'][random(6)],
                    2 => char::from(b'0' + random(10) as u8),
                    _ => char::from_u32(random(0x11_0000) as u32).unwrap_or('\u{fffd}'),
                });
            }
            match parse(&line) {
                Ok(command) => commands += usize::from(command.is_some()),
                Err(complaint) => {
                    let text = complaint.to_string();
                    assert!(text.len() < 400, "{line:?}: {text:?}");
                }
            }
        }
        assert!(cfg!(miri) || commands > 1000, "the lines are not all nonsense: {commands}");
    }
}
