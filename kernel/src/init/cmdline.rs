//! The command line: `key=value` words, none of them trusted.
//!
//! An option is one entry of a table. The boot code collects the text (a file on the stick, then
//! QEMU's fw_cfg), calls [`Options::apply`] for each source in that order, prints the warnings, and
//! passes the values on.
//!
//! The file may have been edited on any system: line ends of Windows, a byte order mark and `#`
//! comments at the start of a line are understood. An invalid word is named in a warning and has no
//! other effect.

use crate::arch::{ApicMode, ClockChoice, MAX_CPUS, TimerChoice};
use crate::drivers::log::Sinks;
use crate::fail::watchdog::StuckChoice;
use crate::mem::stack::pack::PackChoice;
use crate::run::preempt::NEVER;
use crate::run::{Handoff, system};
use crate::watch::trace::TraceChoice;
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::str::FromStr;
use log::LevelFilter;
use sched::system::{About, mpn};
use sched::{Order, Share, StartPlace};

/// Bytes of one source that are read.
pub const MAX_LENGTH: usize = 4096;

/// Warnings that are kept; the rest are counted.
const MAX_WARNINGS: usize = 16;

/// Characters of a bad word that a warning shows.
const SHOWN: usize = 40;

struct Spec {
    key: &'static str,
    /// What may follow the `=`: words to choose from, or `<what>`.
    values: &'static str,
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
            pub warnings: Vec<String>,
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
            set: |options, value| {
                options.$field = options!(@parse value, $($values)*)?;
                Some(())
            },
        }),*];
    };
}

options! {
    /// The program to run.
    "program" program: Option<String> = None, {
        "<name>" |v: &str| (!v.is_empty()).then(|| Some(v.into()))
    }
    /// Its share of the CPUs, beside the programs that it starts.
    "share" share: Option<Share> = None, { "<n>, 1 to 10000" |v: &str| v.parse().ok().map(Some) }
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
    /// A time slice, in nanoseconds.
    "slice" slice_ns: Option<u64> = None, { "<n>ms or <n>us, 5us to 10000ms, or off" slice }
    /// The minimum size of a G's stack, in KiB; up to 1 GiB.
    "stack" stack_kib: Option<usize> = None, {
        "<KiB>, 1 to 1048576" |v| number(v, 1, crate::mem::stack::MAX_SIZE >> 10)
    }
    /// Which stacks of parked Gs are packed.
    "pack" pack: PackChoice = PackChoice::On, {
        "off" => PackChoice::Off, "on" => PackChoice::On, "always" => PackChoice::Always
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
    /// Where a new G waits for its first turn.
    "place" place: StartPlace = StartPlace::Here, {
        "here" => StartPlace::Here, "queue" => StartPlace::Queue, "other" => StartPlace::Other
    }
    /// Whether all CPUs count as equally far from one another.
    "topology" is_flat: bool = false, { "auto" => false, "flat" => true }
    /// The scheduling system.
    "system" system: &'static About = &mpn::ABOUT, {
        "1to1|n1|pool|shared|distributed|mpn" system::find
    }
    /// When the P of a call that waits is handed off.
    "handoff" handoff: Handoff = Handoff::Immediate, {
        "immediate" => Handoff::Immediate, "sysmon" => Handoff::Sysmon, "never" => Handoff::Never
    }
    /// What follows when a CPU is stuck.
    "stuck" stuck: StuckChoice = StuckChoice::Report, {
        "report" => StuckChoice::Report, "stop" => StuckChoice::Stop, "off" => StuckChoice::Off
    }
    /// Whether waiting times and histograms are counted from the start.
    "accounting" accounting: bool = false, { "brief" => false, "full" => true }
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
    "turns" turns_us: u16 = 0, {
        "0|<us, 5 to 20000>" |v| number(v, 0, 0).or(number(v, MIN_TURN_US, MAX_TURN_US))?
    }
}

const MAX_MHZ: u64 = 100_000;
/// In a shorter slice a tenth of the CPU goes to its end.
const MIN_SLICE_US: u64 = 5;
const MAX_SLICE_MS: u64 = 10_000;
/// A turn of fewer microseconds costs more than it gives: QEMU 7.2 skips CPUs.
const MIN_TURN_US: u16 = 5;
/// More than a time slice, and the PIT counts to 54,924.
const MAX_TURN_US: u16 = 20_000;

impl Options {
    /// Applies the words of one source; later words win, also over those of an earlier source.
    pub fn apply(&mut self, source: &str, text: &[u8]) {
        let (used, rest) = text.split_at(text.len().min(MAX_LENGTH));
        let used = used.strip_prefix(b"\xef\xbb\xbf").unwrap_or(used); // byte order mark
        let mut args: Option<Vec<String>> = None;
        for word in words(used) {
            // A word at the cut may continue behind it: half of it means nothing.
            let is_last = word.as_ptr_range().end == used.as_ptr_range().end;
            let is_cut = is_last && rest.first().is_some_and(|&byte| !is_space(byte));
            match (plain(word), &mut args) {
                _ if is_cut => self.warn(source, word, &format!("cut off at {MAX_LENGTH} bytes")),
                (Err(why), _) => self.warn(source, word, why),
                (Ok(text), Some(args)) => args.push(text),
                (Ok(_), None) if word == b"--" => args = Some(Vec::new()),
                (Ok(text), None) => {
                    self.set(&text).unwrap_or_else(|why| self.warn(source, word, &why));
                }
            }
        }
        if let Some(args) = args {
            self.args = args;
        }
        if !rest.is_empty() {
            let why = format!("{} bytes after the first {MAX_LENGTH}", rest.len());
            self.warn(source, rest, &why);
        }
    }

    /// The seed of the kernel's random choices, if there is one.
    pub fn choices(&self) -> Option<u64> {
        self.seed.or(self.chaos)
    }

    pub fn report(&self) {
        for warning in &self.warnings {
            log::warn!("{warning}");
        }
        if self.more_warnings > 0 {
            log::warn!("command line: {} more words ignored", self.more_warnings);
        }
    }

    fn set(&mut self, word: &str) -> Result<(), Cow<'static, str>> {
        let (key, value) = word.split_once('=').ok_or("not of the form key=value")?;
        let spec = TABLE.iter().find(|spec| spec.key == key).ok_or("no such option")?;
        let values = spec.values;
        (spec.set)(self, value).ok_or_else(|| format!("the value must be {values}").into())
    }

    fn warn(&mut self, source: &str, word: &[u8], why: &str) {
        if self.warnings.len() == MAX_WARNINGS {
            self.more_warnings += 1;
            return;
        }
        let (shown, rest) = word.split_at(word.len().min(SHOWN));
        let (word, dots) = (shown.escape_ascii(), if rest.is_empty() { "" } else { "..." });
        self.warnings.push(format!("command line ({source}): `{word}{dots}` ignored: {why}"));
    }
}

/// The words of a text, with their quotes. A line that begins with `#` is a comment.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_comment = |line: &[u8]| line.iter().find(|&&byte| !is_space(byte)) == Some(&b'#');
    let lines = text.split(|byte| matches!(byte, b'\n' | b'\r'));
    let words = lines.filter(move |line| !is_comment(line)).flat_map(|line| {
        // A missing closing quote takes its line, not the rest of the file.
        let mut is_quoted = false;
        line.split(move |&byte| {
            is_quoted ^= byte == b'"';
            !is_quoted && is_space(byte)
        })
    });
    words.filter(|word| !word.is_empty())
}

/// A word without its quotes.
fn plain(word: &[u8]) -> Result<String, &'static str> {
    if word.iter().filter(|&&byte| byte == b'"').count() % 2 != 0 {
        return Err("a quote is not closed on its line");
    }
    let text = core::str::from_utf8(word).ok().filter(|text| !text.chars().any(char::is_control));
    Ok(text.ok_or("not plain text")?.chars().filter(|&c| c != '"').collect())
}

/// Separates words; NUL because it pads files and ends C strings.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0)
}

/// Decimal digits, from `least` to `most`.
fn number<T: FromStr + PartialOrd>(value: &str, least: T, most: T) -> Option<Option<T>> {
    // `parse` alone would accept a sign.
    let is_decimal = value.bytes().all(|byte| byte.is_ascii_digit());
    let is_valid = |number: &T| is_decimal && *number >= least && *number <= most;
    value.parse().ok().filter(is_valid).map(Some)
}

/// A slice in nanoseconds; a value without a unit is in milliseconds. `off` never ends.
fn slice(value: &str) -> Option<Option<u64>> {
    if value == "off" {
        return Some(Some(NEVER));
    }
    let (count, unit_ns, least) = match value.strip_suffix("us") {
        Some(us) => (us, 1_000, MIN_SLICE_US),
        None => (value.strip_suffix("ms").unwrap_or(value), 1_000_000, 1),
    };
    let count = number(count, least, MAX_SLICE_MS * 1_000_000 / unit_ns)?;
    Some(count.map(|count| count * unit_ns))
}

/// A decimal number, or a hexadecimal one after `0x`.
fn seed(value: &str) -> Option<Option<u64>> {
    let Some(hex) = value.strip_prefix("0x") else { return number(value, 0, u64::MAX) };
    // `from_str_radix` alone would accept a sign.
    let is_hex = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(hex, 16).ok().filter(|_| is_hex).map(Some)
}

#[cfg(test)]
mod tests;
