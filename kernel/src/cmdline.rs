//! The command line: `key=value` words, none of them trusted.
//!
//! Holds the table of options, the splitting into words, and the warnings. The boot code collects
//! the text (a file on the stick, then QEMU's fw_cfg), calls [`Options::apply`] for each source in
//! that order, and prints the warnings; each module reads its options from [`Options`].
//!
//! The file may have been edited on any system: line ends of Windows, a byte order mark and `#`
//! comments at the start of a line are understood. An invalid word is named in a warning and has no
//! other effect.

use crate::arch::{ApicChoice, ClockChoice, MAX_CPUS, TimerChoice};
use crate::log::Sinks;
use crate::schedule::Handoff;
use crate::watchdog::StuckChoice;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::str::FromStr;
use log::LevelFilter;
use sched::Order;

/// Bytes of one source that are read.
pub const MAX_LENGTH: usize = 4096;

/// Warnings that are kept; the rest are counted.
const MAX_WARNINGS: usize = 16;

/// Some editors put it at the start of a UTF-8 file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Characters of a bad word that a warning shows.
const SHOWN: usize = 40;

/// The options from the command line, and the defaults for the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The program to run.
    pub program: Option<String>,
    /// The messages to print.
    pub log: LevelFilter,
    /// The timer of each CPU.
    pub timer: TimerChoice,
    /// The mode of the local APICs.
    pub apic: ApicChoice,
    /// The clock source.
    pub clock: ClockChoice,
    /// Where to print.
    pub console: Sinks,
    /// The most CPUs to start.
    pub max_cpus: Option<usize>,
    /// Whether to read the ACPI tables.
    pub acpi: bool,
    /// The number of Ps.
    pub gomaxprocs: Option<usize>,
    /// A time slice, in milliseconds.
    pub slice_ms: Option<u32>,
    /// The least that a G's stack has, in KiB.
    pub stack_kib: Option<usize>,
    /// The seed of the kernel's random choices.
    pub seed: Option<u64>,
    /// The seed of `chaos`; `None`: chaos is off.
    pub chaos: Option<u64>,
    /// The order in which a P without Gs looks for some.
    pub order: Order,
    /// When the P of a call that waits is handed off.
    pub handoff: Handoff,
    /// What follows when a CPU is stuck.
    pub stuck: StuckChoice,
    /// What is done with the scheduler's events.
    pub trace: TraceChoice,
    /// How many events are kept for each CPU.
    pub events: Option<usize>,
    /// How many milliseconds are between two lines about the scheduler.
    pub schedtrace_ms: Option<u32>,
    /// Whether they have a line for every P, M and G.
    pub scheddetail: bool,
    /// Whether a person uses the serial port.
    pub terminal: bool,
    /// The frequency of the time stamp counter, in MHz, instead of measuring it.
    pub tsc_mhz: Option<u64>,
    /// The frequency of the local APICs' timers, in MHz, before they divide it.
    pub lapic_mhz: Option<u64>,
    /// The period in which an emulator's CPUs take turns, in microseconds; 0: the emulator's own.
    pub turns_us: u16,
    /// The program's arguments: the words after a lone `--`.
    pub args: Vec<String>,
    /// The words that were ignored.
    pub warnings: Vec<Warning>,
    /// How many warnings there were beyond those.
    pub more_warnings: usize,
}

/// `trace=` on the command line: what is done with the scheduler's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceChoice {
    /// They are not recorded.
    #[default]
    Off,
    /// They are kept, for the program and for debuggers to read.
    On,
    /// A hash of them is printed at the end.
    Hash,
    /// They are printed at the end.
    Dump,
    /// They are written to the debug console while the machine runs.
    Stream,
}

/// One option: adding one is a line in [`TABLE`] and a field in [`Options`].
struct Spec {
    key: &'static str,
    /// What may follow the `=`: words to choose from, or `<what>`.
    values: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader; a test prints it"))]
    help: &'static str,
    /// Stores the value; `None` if it is not valid.
    set: fn(&mut Options, &str) -> Option<()>,
}

const fn spec(
    key: &'static str,
    values: &'static str,
    set: fn(&mut Options, &str) -> Option<()>,
    help: &'static str,
) -> Spec {
    Spec { key, values, help, set }
}

#[rustfmt::skip]
static TABLE: &[Spec] = &[
    spec("program", "<name>", |o, v| put(&mut o.program, text(v).map(Some)), "the program to run"),
    spec("log", "error|warn|info|debug|trace", |o, v| put(&mut o.log, pick(v, LEVELS)), "the least important messages to print"),
    spec("timer", "auto|tsc-deadline|lapic|none", |o, v| put(&mut o.timer, pick(v, TIMERS)), "the timer of each CPU"),
    spec("apic", "auto|xapic|x2apic", |o, v| put(&mut o.apic, pick(v, APICS)), "how to speak to the local APICs"),
    spec("clock", "auto|tsc|hpet", |o, v| put(&mut o.clock, pick(v, CLOCKS)), "what time is read from"),
    spec("console", "auto|serial|screen|both|none", |o, v| put(&mut o.console, pick(v, CONSOLES)), "where to print"),
    spec("maxcpus", "<n>", |o, v| put(&mut o.max_cpus, number(v, 1, MAX_CPUS).map(Some)), "the most CPUs to start"),
    spec("acpi", "on|off", |o, v| put(&mut o.acpi, pick(v, SWITCH)), "whether to read the ACPI tables"),
    spec("gomaxprocs", "<n>", |o, v| put(&mut o.gomaxprocs, number(v, 1, MAX_CPUS).map(Some)), "the number of Ps"),
    spec("slice", "<ms>", |o, v| put(&mut o.slice_ms, number(v, 1, 10_000).map(Some)), "a time slice in milliseconds"),
    spec("stack", "<KiB>, 1 to 1048576", |o, v| put(&mut o.stack_kib, number(v, 1, MAX_STACK_KIB).map(Some)), "the stack of a G that asks for less, in KiB"),
    spec("seed", "<n>", |o, v| put(&mut o.seed, seed(v).map(Some)), "what seeds the random choices; 0x for hexadecimal"),
    spec("chaos", "<n>", |o, v| put(&mut o.chaos, seed(v).map(Some)), "have all go as badly as it may, drawn from this seed"),
    spec("order", "go|steal-first|poller-first|poller-last", |o, v| put(&mut o.order, pick(v, ORDERS)), "where an idle P looks for Gs, first to last"),
    spec("handoff", "immediate|sysmon", |o, v| put(&mut o.handoff, pick(v, HANDOFFS)), "when a P is handed on from a call that waits"),
    spec("stuck", "report|stop|off", |o, v| put(&mut o.stuck, pick(v, STUCK)), "what becomes of a CPU that takes no interrupts"),
    spec("trace", "off|on|hash|dump|stream", |o, v| put(&mut o.trace, pick(v, TRACES)), "what becomes of the scheduler's events"),
    spec("events", "<n>", |o, v| put(&mut o.events, number(v, 1, MAX_EVENTS).map(Some)), "how many events are kept for each CPU"),
    spec("schedtrace", "<ms>", |o, v| put(&mut o.schedtrace_ms, number(v, 1, MAX_SCHEDTRACE_MS).map(Some)), "how often to print a line about the scheduler"),
    spec("scheddetail", "0|1", |o, v| put(&mut o.scheddetail, pick(v, DIGIT)), "whether to print one for every P, M and G, too"),
    spec("terminal", "on|off", |o, v| put(&mut o.terminal, pick(v, SWITCH)), "whether a person sits at the serial port"),
    spec("tsc", "<MHz>", |o, v| put(&mut o.tsc_mhz, number(v, 1, MAX_MHZ).map(Some)), "the frequency of the time stamp counter, not measured"),
    spec("lapic", "<MHz>", |o, v| put(&mut o.lapic_mhz, number(v, 1, MAX_MHZ).map(Some)), "the frequency of the local APICs' timers, not measured"),
    spec("turns", "0|<us, 5 to 20000>", |o, v| put(&mut o.turns_us, turns(v)), "under QEMU's -icount: how often CPUs take turns, in microseconds"),
];

/// A turn of fewer microseconds costs more than it gives: QEMU 7.2 skips CPUs.
const MIN_TURN_US: u16 = 5;
/// More than a time slice, and the PIT counts to 54,924.
const MAX_TURN_US: u16 = 20_000;

/// A ring of that many events is 16 MiB.
const MAX_EVENTS: usize = 1 << 20;
/// 1 GiB.
const MAX_STACK_KIB: usize = crate::mem::stack::MAX_SIZE >> 10;
/// More than any counter has.
const MAX_MHZ: u64 = 100_000;

/// A day.
const MAX_SCHEDTRACE_MS: u32 = 86_400_000;

/// As in Go.
const DIGIT: &[(&str, bool)] = &[("0", false), ("1", true)];
const SWITCH: &[(&str, bool)] = &[("on", true), ("off", false)];
const ORDERS: &[(&str, Order)] = &[
    ("go", Order::Go),
    ("steal-first", Order::StealBeforeGlobal),
    ("poller-first", Order::PollerFirst),
    ("poller-last", Order::PollerLast),
];
const HANDOFFS: &[(&str, Handoff)] =
    &[("immediate", Handoff::Immediate), ("sysmon", Handoff::Sysmon)];
const STUCK: &[(&str, StuckChoice)] =
    &[("report", StuckChoice::Report), ("stop", StuckChoice::Stop), ("off", StuckChoice::Off)];
const TRACES: &[(&str, TraceChoice)] = &[
    ("off", TraceChoice::Off),
    ("on", TraceChoice::On),
    ("hash", TraceChoice::Hash),
    ("dump", TraceChoice::Dump),
    ("stream", TraceChoice::Stream),
];
const LEVELS: &[(&str, LevelFilter)] = &[
    ("error", LevelFilter::Error),
    ("warn", LevelFilter::Warn),
    ("info", LevelFilter::Info),
    ("debug", LevelFilter::Debug),
    ("trace", LevelFilter::Trace),
];
const TIMERS: &[(&str, TimerChoice)] = &[
    ("auto", TimerChoice::Auto),
    ("tsc-deadline", TimerChoice::TscDeadline),
    ("lapic", TimerChoice::OneShot),
    ("none", TimerChoice::None),
];
const APICS: &[(&str, ApicChoice)] =
    &[("auto", ApicChoice::Auto), ("xapic", ApicChoice::XApic), ("x2apic", ApicChoice::X2Apic)];
const CLOCKS: &[(&str, ClockChoice)] =
    &[("auto", ClockChoice::Auto), ("tsc", ClockChoice::Tsc), ("hpet", ClockChoice::Hpet)];
const CONSOLES: &[(&str, Sinks)] = &[
    ("auto", Sinks::Both),
    ("serial", Sinks::Serial),
    ("screen", Sinks::Screen),
    ("both", Sinks::Both),
    ("none", Sinks::None),
];

/// Prints the table, an option a line.
#[cfg(test)]
pub fn help(out: &mut dyn Write) -> fmt::Result {
    for Spec { key, values, help, .. } in TABLE {
        let width = 40usize.saturating_sub(key.len());
        writeln!(out, "{key}={values:width$} {help}")?;
    }
    Ok(())
}

impl Default for Options {
    fn default() -> Self {
        Options {
            program: None,
            log: LevelFilter::Info,
            timer: TimerChoice::default(),
            apic: ApicChoice::default(),
            clock: ClockChoice::default(),
            console: Sinks::default(),
            max_cpus: None,
            acpi: true,
            gomaxprocs: None,
            slice_ms: None,
            stack_kib: None,
            seed: None,
            chaos: None,
            order: Order::default(),
            handoff: Handoff::default(),
            stuck: StuckChoice::default(),
            trace: TraceChoice::default(),
            events: None,
            schedtrace_ms: None,
            scheddetail: false,
            terminal: false,
            tsc_mhz: None,
            lapic_mhz: None,
            turns_us: 0,
            args: Vec::new(),
            warnings: Vec::new(),
            more_warnings: 0,
        }
    }
}

impl Options {
    /// Applies the words of one source; later words win, also over those of an earlier source.
    /// `source` is named in warnings.
    pub fn apply(&mut self, source: &'static str, text: &[u8]) {
        let (used, rest) = text.split_at(text.len().min(MAX_LENGTH));
        let used = used.strip_prefix(BYTE_ORDER_MARK).unwrap_or(used);
        let mut words = Words { rest: used, at_line_start: true };
        let mut args: Option<Vec<String>> = None;
        while let Some(word) = words.next() {
            // A word at the cut may continue behind it: half of it means nothing.
            if words.rest.is_empty() && rest.first().is_some_and(|&b| !is_space(b)) {
                self.warn(source, Reason::Truncated, word.raw);
                break;
            }
            match (word.text(), &mut args) {
                (Err(reason), _) => self.warn(source, reason, word.raw),
                (Ok(text), Some(args)) => args.push(text),
                (Ok(_), None) if word.raw == b"--" => args = Some(Vec::new()),
                (Ok(text), None) => {
                    if let Err(reason) = self.set(&text) {
                        self.warn(source, reason, word.raw);
                    }
                }
            }
        }
        if let Some(args) = args {
            self.args = args;
        }
        if !rest.is_empty() {
            self.warn(source, Reason::TooLong(rest.len()), rest);
        }
    }

    /// The seed of the kernel's random choices, if there is one.
    pub fn choices(&self) -> Option<u64> {
        self.seed.or(self.chaos)
    }

    /// Logs which words were ignored.
    pub fn report(&self) {
        for warning in &self.warnings {
            log::warn!("{warning}");
        }
        if self.more_warnings > 0 {
            log::warn!("command line: {} more words ignored", self.more_warnings);
        }
    }

    fn set(&mut self, word: &str) -> Result<(), Reason> {
        let (key, value) = word.split_once('=').ok_or(Reason::NoValue)?;
        let spec = TABLE.iter().find(|spec| spec.key == key).ok_or(Reason::Unknown)?;
        (spec.set)(self, value).ok_or(Reason::BadValue(spec.values))
    }

    fn warn(&mut self, source: &'static str, reason: Reason, word: &[u8]) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(Warning { source, reason, word: shorten(word) });
        } else {
            self.more_warnings += 1;
        }
    }
}

/// A part of the command line that was ignored. Prints as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    source: &'static str,
    reason: Reason,
    /// Printable and short.
    word: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Unknown,
    NoValue,
    /// Not one of these.
    BadValue(&'static str),
    /// Not UTF-8, or with control characters.
    NotText,
    OpenQuote,
    Truncated,
    /// So many bytes behind the limit.
    TooLong(usize),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "command line ({}): `{}` ignored: ", self.source, self.word)?;
        match self.reason {
            Reason::Unknown => write!(f, "no such option"),
            Reason::NoValue => write!(f, "not of the form key=value"),
            Reason::BadValue(values) => write!(f, "the value must be {values}"),
            Reason::NotText => write!(f, "not plain text"),
            Reason::OpenQuote => write!(f, "a quote is not closed on its line"),
            Reason::Truncated => write!(f, "cut off at {MAX_LENGTH} bytes"),
            Reason::TooLong(bytes) => write!(f, "{bytes} bytes after the first {MAX_LENGTH}"),
        }
    }
}

/// Splits a text into words. Comments are skipped where a line begins.
struct Words<'a> {
    rest: &'a [u8],
    at_line_start: bool,
}

/// A word as it is in the text, with its quotes.
struct Word<'a> {
    raw: &'a [u8],
    open_quote: bool,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<Word<'a>> {
        self.skip_space();
        if self.rest.is_empty() {
            return None;
        }
        let mut quoted = false;
        let end = self.rest.iter().position(|&byte| {
            quoted ^= byte == b'"';
            // A missing closing quote takes its line, not the rest of the file.
            byte == b'\n' || byte == b'\r' || (!quoted && is_space(byte))
        });
        let (raw, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        self.at_line_start = false;
        Some(Word { raw, open_quote: quoted })
    }

    fn skip_space(&mut self) {
        let mut in_comment = false;
        let end = self.rest.iter().position(|&byte| {
            if byte == b'\n' || byte == b'\r' {
                self.at_line_start = true;
                in_comment = false;
            } else if byte == b'#' && self.at_line_start {
                in_comment = true;
            }
            !in_comment && !is_space(byte)
        });
        self.rest = &self.rest[end.unwrap_or(self.rest.len())..];
    }
}

impl Word<'_> {
    /// The word without its quotes.
    fn text(&self) -> Result<String, Reason> {
        if self.open_quote {
            return Err(Reason::OpenQuote);
        }
        let text = core::str::from_utf8(self.raw).map_err(|_| Reason::NotText)?;
        match text.chars().any(char::is_control) {
            true => Err(Reason::NotText),
            false => Ok(text.chars().filter(|&c| c != '"').collect()),
        }
    }
}

/// The separators of words; NUL because it pads files and ends C strings.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0)
}

/// The start of `word`, escaped for printing.
fn shorten(word: &[u8]) -> String {
    let (shown, rest) = word.split_at(word.len().min(SHOWN));
    let mut text = String::new();
    let dots = if rest.is_empty() { "" } else { "..." };
    // Writing to a string does not fail.
    let _ = write!(text, "{}{dots}", shown.escape_ascii());
    text
}

fn put<T>(place: &mut T, value: Option<T>) -> Option<()> {
    *place = value?;
    Some(())
}

fn pick<T: Copy>(value: &str, choices: &[(&str, T)]) -> Option<T> {
    choices.iter().find(|(name, _)| *name == value).map(|&(_, choice)| choice)
}

fn text(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| String::from(value))
}

/// Decimal digits, from `least` to `most`.
fn number<T: FromStr + PartialOrd>(value: &str, least: T, most: T) -> Option<T> {
    // `parse` alone would accept a sign.
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|number| digits && *number >= least && *number <= most)
}

/// Off, or a period that the PIT can count and an emulator can sustain.
fn turns(value: &str) -> Option<u16> {
    number(value, 0, 0).or(number(value, MIN_TURN_US, MAX_TURN_US))
}

fn seed(value: &str) -> Option<u64> {
    match value.strip_prefix("0x") {
        Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u64::from_str_radix(hex, 16).ok()
        }
        Some(_) => None,
        None => number(value, 0, u64::MAX),
    }
}

#[cfg(test)]
mod tests;
