//! Boots one machine with a list of workloads and reads what they report.
//!
//! Ours and Go's get the same QEMU and the same flags; they differ in what is
//! booted. `measure` decides which machines to boot and what to make of their figures.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, Result, bail};
use boot::cores::{self, Cores};
use boot::host::Qemu;
use boot::qemu::{Firmware, Machine, VIRTUAL_CLOCKS};

use crate::locked::Plugin;

/// The memory of a machine that is told nothing else.
pub const USUAL_MEM: &str = "1G";
/// The oldest QEMU that gets Linux up on several CPUs that are counted: before, a
/// CPU that was at the end of its turn because a timer was due left nothing to the
/// others, and Linux, whose first CPU waits for the second without a pause, hung.
const OLDEST_FOR_LINUX: u32 = 8;

/// What is booted.
#[derive(Clone, Debug)]
pub enum System {
    /// Our kernel with its workloads.
    Ours {
        /// A BIOS image.
        image: PathBuf,
        /// The kernel in it, with its symbols.
        program: PathBuf,
    },
    /// Linux with the Go program as `/init`.
    Go {
        /// The kernel.
        kernel: PathBuf,
        /// The initramfs.
        initrd: PathBuf,
        /// What is in that, with its symbols.
        program: PathBuf,
    },
}

/// How the cost of an operation is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// By the machine's clock.
    Clock,
    /// By its clock, and its CPUs take short turns, so that they work side by side. While
    /// one of them runs, the clock advances by what all of them execute and nothing else.
    Turns,
    /// By the plugin, which counts what all CPUs execute: they halt in between, and the
    /// clock jumps.
    Executed,
}

/// The turns of [`Reading::Turns`], as in the tests of machines (`tests`, `VIRTUAL_WORDS`). All
/// CPUs share the 400 µs.
const TURN_WORDS: &str = "turns=400 seed=1";

/// The machine that it is booted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of CPUs.
    pub cpus: u32,
    /// Whether a virtual nanosecond is an instruction.
    pub is_counted: bool,
    /// In QEMU's notation. Given to the guest at once, so that neither pays for
    /// what the host does when a page is touched for the first time.
    pub mem: String,
    /// How what it costs is read.
    pub reading: Reading,
    /// Words for the command line of our kernel.
    pub boot: String,
}

impl Shape {
    /// One CPU whose instructions are counted.
    pub fn counted() -> Self {
        Shape {
            cpus: 1,
            is_counted: true,
            mem: USUAL_MEM.into(),
            reading: Reading::Clock,
            boot: String::new(),
        }
    }

    /// Whether its memory is more than is usual. Two such at a time are too much for
    /// many hosts, since all of it is taken at once.
    pub fn is_large(&self) -> bool {
        self.mem != USUAL_MEM
    }

    /// Whether its CPUs take turns in which instructions are counted. That takes a
    /// newer QEMU.
    pub fn is_wide(&self) -> bool {
        self.is_counted && self.cpus > 1
    }

    /// The QEMU that it runs in, by the rule of [`Machine::command`].
    pub(crate) fn binary(&self) -> PathBuf {
        if self.is_wide() { newest_qemu() } else { Qemu::installed().binary }
    }
}

/// What was reported for one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The row's name.
    pub row: String,
    /// What each operation took in nanoseconds, or the figure as it stands.
    pub value: f64,
    /// The locked instructions of each operation, if they were counted.
    pub locked: Option<f64>,
}

/// A line of the guest's that has a figure.
#[derive(Debug, PartialEq)]
struct Report {
    row: String,
    value: f64,
    /// How many operations it was, if it is about operations.
    operations: Option<f64>,
}

/// How long a machine may take. The slowest are Go's million on one CPU and its
/// hogs on four; on a busy host either can take a quarter of an hour.
const LIMIT: Duration = Duration::from_secs(2400);

impl System {
    /// The name in tables and results.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ours { .. } => "ours",
            Self::Go { .. } => "go",
        }
    }

    /// Whether it is our kernel.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Ours { .. })
    }

    /// What has the symbols of the workloads.
    pub fn program(&self) -> &Path {
        match self {
            Self::Ours { program, .. } | Self::Go { program, .. } => program,
        }
    }

    /// Why it would not come up on that machine, if that is known beforehand: it
    /// would only be found out after [`LIMIT`].
    pub fn hindrance(&self, shape: &Shape) -> Option<String> {
        match self {
            Self::Go { .. } if shape.is_wide() => too_old(version(&shape.binary())),
            _ => None,
        }
    }

    fn machine(&self, words: &str, shape: &Shape) -> Machine {
        match self {
            Self::Ours { image, .. } => {
                // Where an instruction is a nanosecond, the frequencies are known, and the boot
                // is not counted with the time that measuring them takes.
                let (clocks, turns) = match shape.reading {
                    Reading::Clock if shape.is_counted => (VIRTUAL_CLOCKS, ""),
                    Reading::Clock => ("", ""),
                    _ => (VIRTUAL_CLOCKS, TURN_WORDS),
                };
                let options = format!(
                    "program=bench log=warn console=serial {clocks} {turns} {}",
                    shape.boot
                );
                Machine::new(image, Firmware::Bios).cmdline(format!("{options} -- {words}"))
            }
            // Quiet, for the serial port takes time; the clock of the CPU, because
            // Go asks for the time at every switch and would pay for any other.
            // With one CPU Linux takes its lock prefixes out, which no machine of
            // today does to it; with that word it keeps them.
            Self::Go { kernel, initrd, .. } => {
                let options = "console=ttyS0 quiet panic=-1 tsc=reliable noreplace-smp";
                let append = format!("{options} -- {words}");
                Machine::linux(kernel, initrd, append)
            }
        }
    }
}

/// Runs the workloads in one boot, with or without the plugin that counts locked
/// instructions. `progress` hears every figure.
pub fn run(
    system: &System,
    shape: &Shape,
    workloads: &[String],
    plugin: Option<&Plugin>,
    mut progress: impl FnMut(&str),
) -> Result<Vec<Figure>> {
    let mut machine = system.machine(&workloads.join(" "), shape);
    machine = machine.smp(shape.cpus).mem(&shape.mem);
    if shape.is_counted {
        machine = machine.icount("shift=0,sleep=off");
    }
    if shape.is_wide() {
        newest_qemu(); // unpacked before the machine looks for it
    }
    machine = machine.arg("-mem-prealloc");
    if let Some(plugin) = plugin {
        machine = machine.arg("-plugin").arg(plugin.argument());
    }
    // Beside a machine that is timed nothing else may run; one that is counted does not mind.
    let cores = if shape.is_counted { 1 } else { cores::number_of_cores() };
    let _cores = Cores::take(cores)?;
    let mut lines = Vec::new();
    let mut reports = Vec::new();
    let heard = listen(machine.command(&env::temp_dir())?, |line| {
        if let Some(report) = parse(&line) {
            progress(&report.row);
            reports.push(report);
        }
        lines.push(line);
    });
    let tail = || lines[lines.len().saturating_sub(10)..].join("\n  ");
    heard.with_context(|| format!("the guest ({}) said\n  {}\nand then", system.name(), tail()))?;
    if !lines.iter().any(|line| line == "BENCH end") {
        bail!("the guest ({}) did not reach its end; it said\n  {}", system.name(), tail());
    }
    let mut figures = figures(reports, plugin.map(Plugin::read).transpose()?)?;
    if shape.reading == Reading::Executed {
        for figure in &mut figures {
            figure.value = figure.locked.take().context("nothing was counted")?;
        }
    }
    Ok(figures)
}

/// The figure on one line of the guest's; most lines have none.
fn parse(line: &str) -> Option<Report> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |word: &str| word.parse::<f64>().ok().filter(|n| n.is_finite());
    match words[..] {
        ["BENCH", row, operations, ns] => {
            let operations = number(operations).filter(|&n| n >= 1.0)?;
            let value = number(ns)? / operations;
            Some(Report { row: row.into(), value, operations: Some(operations) })
        }
        ["FIGURE", row, value] => {
            Some(Report { row: row.into(), value: number(value)?, operations: None })
        }
        _ => None,
    }
}

/// What was said, with what was counted of each that is about operations.
fn figures(reports: Vec<Report>, locked: Option<Vec<u64>>) -> Result<Vec<Figure>> {
    let measured = reports.iter().filter(|report| report.operations.is_some()).count();
    if locked.as_ref().is_some_and(|locked| locked.len() != measured) {
        bail!("{measured} reports came with another number of marks");
    }
    let mut locked = locked.into_iter().flatten();
    let figure = |Report { row, value, operations }| {
        let each = operations.and_then(|n| Some(locked.next()? as f64 / n));
        Figure { row, value, locked: each }
    };
    Ok(reports.into_iter().map(figure).collect())
}

/// The QEMU for machines of several CPUs that are counted. A newer one than the usual
/// one is unpacked under `target` the first time; if that cannot be, the usual one
/// has to do, for ours at least.
pub fn newest_qemu() -> PathBuf {
    static UNPACKED: Once = Once::new();
    UNPACKED.call_once(|| {
        // What it says goes to standard error; without it the installed one is found.
        Command::new(boot::root().join("scripts/newer-qemu")).status().ok();
    });
    Qemu::newest().binary
}

/// Whether several CPUs can be held to a budget in virtual time: older QEMUs leave a CPU out for long,
/// and their clock jumps by tens of milliseconds when a CPU is reset.
pub fn has_turns() -> bool {
    version(&newest_qemu()).is_none_or(|version| version >= OLDEST_FOR_LINUX)
}

/// The first number of what a QEMU says of its version, if it says one.
pub fn version(qemu: &Path) -> Option<u32> {
    major(&boot::host::output(Command::new(qemu).arg("--version")).ok()?)
}

/// 7 of `QEMU emulator version 7.2.22 (…)`.
fn major(said: &str) -> Option<u32> {
    let (_, number) = said.split_once("version ")?;
    number.split('.').next()?.parse().ok()
}

/// What is said of a QEMU that is too old; one that says no number gets its chance.
fn too_old(version: Option<u32>) -> Option<String> {
    let version = version.filter(|&version| version < OLDEST_FOR_LINUX)?;
    Some(format!(
        "QEMU {version} does not get Linux up on several CPUs that are counted; that takes \
         {OLDEST_FOR_LINUX} or newer, from scripts/newer-qemu or by QEMU=<path>"
    ))
}

/// Hands over the lines that QEMU's serial port says, until QEMU leaves.
fn listen(mut command: Command, mut hear: impl FnMut(String)) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut qemu = command.spawn().context("starting QEMU (make setup?)")?;
    let stdout = qemu.stdout.take().context("QEMU's output")?;
    let (tx, rx) = mpsc::channel();
    thread::spawn(move || {
        // Not lines(): the guest may say bytes that are not UTF-8.
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim().to_string();
            if tx.send(line).is_err() {
                break;
            }
        }
    });
    let deadline = Instant::now() + LIMIT;
    loop {
        match rx.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => hear(line),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                qemu.kill().context("ending QEMU")?;
                qemu.wait().context("waiting for QEMU")?;
                bail!("the machine was not done after {} s", LIMIT.as_secs());
            }
        }
    }
    qemu.wait().context("waiting for QEMU")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(line: &str) -> Option<f64> {
        parse(line).map(|report| report.value)
    }

    #[test]
    fn a_figure_is_time_by_operations() {
        assert_eq!(value("BENCH yield 1000 152000"), Some(152.0));
        assert_eq!(value("FIGURE million_bytes 4321"), Some(4321.0));
    }

    #[test]
    fn what_is_no_figure_is_none() {
        let lines = ["", "BENCH end", "BENCH yield 0 1", "BENCH yield x 1", "BENCH yield 1 inf"];
        for line in lines.into_iter().chain(["FIGURE x", "[ 1.0] reboot: Restarting"]) {
            assert_eq!(value(line), None, "{line}");
        }
    }

    #[test]
    fn qemus_version_is_its_first_number() {
        assert_eq!(major("QEMU emulator version 7.2.22 (Debian 1:7.2)"), Some(7));
        assert_eq!(major("QEMU emulator version 10.0.2"), Some(10));
        assert_eq!(major("something else"), None);
    }

    #[test]
    fn a_qemu_that_is_too_old_for_linux_is_known_before_it_hangs() {
        assert!(too_old(Some(7)).is_some_and(|why| why.starts_with("QEMU 7 ")));
        assert_eq!([too_old(Some(8)), too_old(Some(10)), too_old(None)], [None, None, None]);
    }

    #[test]
    fn what_is_not_wide_needs_no_newer_qemu() {
        let shape = |cpus, is_counted| Shape { cpus, is_counted, ..Shape::counted() };
        assert!(shape(2, true).is_wide());
        assert!(!shape(1, true).is_wide() && !shape(8, false).is_wide());
        assert_eq!(shape(8, false).binary(), Qemu::installed().binary);
        let go = System::Go { kernel: "k".into(), initrd: "i".into(), program: "p".into() };
        assert_eq!(go.hindrance(&shape(1, true)), None);
        assert_eq!(go.hindrance(&shape(8, false)), None);
    }

    #[test]
    fn locked_instructions_go_to_what_is_about_operations() {
        let reports = || ["BENCH a 10 100", "FIGURE b 7", "BENCH c 2 8"].map(parse);
        let reports = || reports().into_iter().flatten().collect::<Vec<_>>();
        let found = figures(reports(), Some(vec![20, 3])).expect("two and two");
        let locked: Vec<_> = found.iter().map(|figure| figure.locked).collect();
        assert_eq!(locked, [Some(2.0), None, Some(1.5)]);
        assert!(figures(reports(), Some(vec![20])).is_err(), "a mark is missing");
        assert!(figures(reports(), None).is_ok_and(|f| f.iter().all(|f| f.locked.is_none())));
    }
}
