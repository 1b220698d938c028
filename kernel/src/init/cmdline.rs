//! The command line: `key=value` words, none of them trusted.
//!
//! Holds the table of options, the splitting into words, and the warnings. An option is one entry
//! of the table. The boot code collects the text (a file on the stick, then QEMU's fw_cfg), calls
//! [`Options::apply`] for each source in that order, prints the warnings, and passes the values on.
//!
//! The file may have been edited on any system: line ends of Windows, a byte order mark and `#`
//! comments at the start of a line are understood. An invalid word is named in a warning and has no
//! other effect.

use crate::arch::{ApicMode, ClockChoice, MAX_CPUS, TimerChoice};
use crate::drivers::log::Sinks;
use crate::fail::watchdog::StuckChoice;
use crate::run::Handoff;
use crate::watch::trace::TraceChoice;
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

/// One word of the command line.
struct Spec {
    key: &'static str,
    /// What may follow the `=`: words to choose from, or `<what>`.
    values: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader; a test prints it"))]
    help: &'static str,
    /// Stores the value; `None` if it is not valid.
    set: fn(&mut Options, &str) -> Option<()>,
}

/// Makes [`Options`] and [`TABLE`] from one list. An entry is `"key" field: type = default,` and
/// then either the words to choose from, with their values, or a description and a parser.
macro_rules! options {
    (@values $values:literal $parse:expr) => { $values };
    (@values $first:literal => $_:expr $(, $name:literal => $__:expr)*) => {
        concat!($first $(, "|", $name)*)
    };
    (@parse $value:ident, $values:literal $parse:expr) => { $parse($value) };
    (@parse $value:ident, $($name:literal => $choice:expr),*) => {
        match $value {
            $($name => Some($choice),)*
            _ => None,
        }
    };
    ($(
        #[doc = $help:literal]
        $key:literal $field:ident: $type:ty = $default:expr, { $($values:tt)* }
    )*) => {
        /// The options from the command line, and the defaults for the rest.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Options {
            $(#[doc = $help] pub $field: $type,)*
            /// The program's arguments: the words after a lone `--`.
            pub args: Vec<String>,
            /// The words that were ignored.
            pub warnings: Vec<Warning>,
            /// How many warnings there were beyond those.
            pub more_warnings: usize,
        }

        impl Default for Options {
            fn default() -> Self {
                let (args, warnings, more_warnings) = (Vec::new(), Vec::new(), 0);
                Options { $($field: $default,)* args, warnings, more_warnings }
            }
        }

        static TABLE: &[Spec] = &[$(Spec {
            key: $key,
            values: options!(@values $($values)*),
            help: $help,
            set: |options, value| {
                options.$field = options!(@parse value, $($values)*)?;
                Some(())
            },
        }),*];
    };
}

options! {
    /// The program to run.
    "program" program: Option<String> = None, { "<name>" text }
    /// The least important messages to print.
    "log" log: LevelFilter = LevelFilter::Info, {
        "error" => LevelFilter::Error, "warn" => LevelFilter::Warn, "info" => LevelFilter::Info,
        "debug" => LevelFilter::Debug, "trace" => LevelFilter::Trace
    }
    /// The timer of each CPU.
    "timer" timer: TimerChoice = TimerChoice::Auto, {
        "auto" => TimerChoice::Auto, "tsc-deadline" => TimerChoice::TscDeadline,
        "lapic" => TimerChoice::OneShot, "none" => TimerChoice::None
    }
    /// The mode of the local APICs.
    "apic" apic: Option<ApicMode> = None, {
        "auto" => None, "xapic" => Some(ApicMode::XApic), "x2apic" => Some(ApicMode::X2Apic)
    }
    /// The clock source.
    "clock" clock: ClockChoice = ClockChoice::Auto, {
        "auto" => ClockChoice::Auto, "tsc" => ClockChoice::Tsc, "hpet" => ClockChoice::Hpet
    }
    /// Where to print.
    "console" console: Sinks = Sinks::Both, {
        "auto" => Sinks::Both, "serial" => Sinks::Serial, "screen" => Sinks::Screen,
        "both" => Sinks::Both, "none" => Sinks::None
    }
    /// The maximum number of CPUs to start.
    "maxcpus" max_cpus: Option<usize> = None, { "<n>" |v| number(v, 1, MAX_CPUS) }
    /// Whether to read the ACPI tables.
    "acpi" acpi: bool = true, { "on" => true, "off" => false }
    /// The number of Ps.
    "gomaxprocs" gomaxprocs: Option<usize> = None, { "<n>" |v| number(v, 1, MAX_CPUS) }
    /// A time slice, in milliseconds.
    "slice" slice_ms: Option<u32> = None, { "<ms>" |v| number(v, 1, 10_000) }
    /// The minimum size of a G's stack, in KiB; up to 1 GiB.
    "stack" stack_kib: Option<usize> = None, {
        "<KiB>, 1 to 1048576" |v| number(v, 1, crate::mem::stack::MAX_SIZE >> 10)
    }
    /// The seed of the kernel's random choices; 0x for hexadecimal.
    "seed" seed: Option<u64> = None, { "<n>" seed }
    /// The seed of random preemption, late wake-ups and delays, which are off without it.
    "chaos" chaos: Option<u64> = None, { "<n>" seed }
    /// The order in which a P without Gs looks for some.
    "order" order: Order = Order::Go, {
        "go" => Order::Go, "steal-first" => Order::StealBeforeGlobal,
        "poller-first" => Order::PollerFirst, "poller-last" => Order::PollerLast
    }
    /// When the P of a call that waits is handed off.
    "handoff" handoff: Handoff = Handoff::Immediate, {
        "immediate" => Handoff::Immediate, "sysmon" => Handoff::Sysmon
    }
    /// What follows when a CPU is stuck.
    "stuck" stuck: StuckChoice = StuckChoice::Report, {
        "report" => StuckChoice::Report, "stop" => StuckChoice::Stop, "off" => StuckChoice::Off
    }
    /// What is done with the scheduler's events.
    "trace" trace: TraceChoice = TraceChoice::Off, {
        "off" => TraceChoice::Off, "on" => TraceChoice::On, "hash" => TraceChoice::Hash,
        "dump" => TraceChoice::Dump, "stream" => TraceChoice::Stream
    }
    /// How many events are kept for each CPU; 16 bytes each.
    "events" events: Option<usize> = None, { "<n>" |v| number(v, 1, 1 << 20) }
    /// How many milliseconds are between two lines about the scheduler; a day at most.
    "schedtrace" schedtrace_ms: Option<u32> = None, { "<ms>" |v| number(v, 1, 86_400_000) }
    /// Whether they have a line for every P, M and G. The words are Go's.
    "scheddetail" scheddetail: bool = false, { "0" => false, "1" => true }
    /// Whether a person uses the serial port.
    "terminal" terminal: bool = false, { "on" => true, "off" => false }
    /// The frequency of the time stamp counter, in MHz, instead of measuring it.
    "tsc" tsc_mhz: Option<u64> = None, { "<MHz>" |v| number(v, 1, MAX_MHZ) }
    /// The frequency of the local APICs' timers, in MHz, before they divide it.
    "lapic" lapic_mhz: Option<u64> = None, { "<MHz>" |v| number(v, 1, MAX_MHZ) }
    /// The period in which an emulator's CPUs take turns, in microseconds; 0: the emulator's own.
    "turns" turns_us: u16 = 0, { "0|<us, 5 to 20000>" turns }
}

/// More than any counter has.
const MAX_MHZ: u64 = 100_000;
/// A turn of fewer microseconds costs more than it gives: QEMU 7.2 skips CPUs.
const MIN_TURN_US: u16 = 5;
/// More than a time slice, and the PIT counts to 54,924.
const MAX_TURN_US: u16 = 20_000;

/// Prints the table, an option a line.
#[cfg(test)]
pub fn help(out: &mut dyn Write) -> fmt::Result {
    for Spec { key, values, help, .. } in TABLE {
        let width = 40usize.saturating_sub(key.len());
        writeln!(out, "{key}={values:width$}{help}")?;
    }
    Ok(())
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

/// A word that is not empty.
fn text(value: &str) -> Option<Option<String>> {
    (!value.is_empty()).then(|| Some(String::from(value)))
}

/// Decimal digits, from `least` to `most`.
fn number<T: FromStr + PartialOrd>(value: &str, least: T, most: T) -> Option<Option<T>> {
    // `parse` alone would accept a sign.
    let is_decimal = value.bytes().all(|byte| byte.is_ascii_digit());
    let is_valid = |number: &T| is_decimal && *number >= least && *number <= most;
    value.parse().ok().filter(is_valid).map(Some)
}

/// Off, or a period that the PIT can count and an emulator can sustain.
fn turns(value: &str) -> Option<u16> {
    number(value, 0, 0).or(number(value, MIN_TURN_US, MAX_TURN_US))?
}

/// A decimal number, or a hexadecimal one after `0x`.
fn seed(value: &str) -> Option<Option<u64>> {
    match value.strip_prefix("0x") {
        Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u64::from_str_radix(hex, 16).ok().map(Some)
        }
        Some(_) => None,
        None => number(value, 0, u64::MAX),
    }
}

#[cfg(test)]
mod tests;
