//! What the events mean: which G ran where and when, and which G woke it.
//!
//! [`Model::new`] walks through the events of all CPUs in the order of time
//! (`build`) and keeps what a picture needs: spans, idle times, wake-ups, thefts,
//! counts over time, the longest waits; when the host was [`elsewhere`], and in [`findings`]
//! what stands out, in sentences. `chrome`, `page` and `picture` draw it;
//! `check` compares it with what the machine has counted.
//!
//! Times are nanoseconds since the stream's time 0. The clocks of two CPUs may be
//! apart by a little, and a stream may say anything; so within a CPU time never
//! goes back here, and between CPUs nothing is taken for granted.
#![forbid(unsafe_code)]

use crate::decode::{Stream, Warnings};
use crate::wire::{Counters, Header, Kind};

mod build;
pub mod elsewhere;
pub mod findings;
mod waits;

/// Later than this (52 days) no trace goes: it is a number that a page's script
/// can still count in exactly.
pub const MAX_NS: u64 = 1 << 52;

/// Which Gs ran where, and what else is to be drawn.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// What each CPU did. P i is on CPU i.
    pub cpus: Vec<Cpu>,
    /// All Gs, by number.
    pub gs: Vec<G>,
    /// Which M was on which CPU, in the order in which they left.
    pub mounts: Vec<Mount>,
    /// Gs that were taken from another P, by time.
    pub steals: Vec<Steal>,
    /// What happened at one moment, by time.
    pub instants: Vec<Instant>,
    /// How many Gs waited for a CPU, at each change.
    pub runnable: Vec<Point>,
    /// How many CPUs had halted, at each change.
    pub idle_ps: Vec<Point>,
    /// The longest times that a runnable G waited for a CPU, longest first.
    pub longest_queued: Vec<Wait>,
    /// The longest times that a G waited for something, longest first.
    pub longest_parked: Vec<Wait>,
    /// The time of the last event.
    pub end_ns: u64,
    /// Events there were.
    pub events: u64,
    /// Events there should have been.
    pub lost: u64,
    /// How far each CPU is from the others: see [`Stream::distances`].
    pub distances: Vec<Vec<u8>>,
    /// How the program ended, if the stream says so.
    pub exit: Option<u32>,
    /// What was wrong.
    pub warnings: Warnings,
}

/// What one CPU did.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    /// The Gs that ran, by time.
    pub spans: Vec<Span>,
    /// When it was halted, by time.
    pub idle: Vec<Interval>,
    /// Where events are missing.
    pub gaps: Vec<Gap>,
    /// When it was not running although it should have been, by time: see [`elsewhere`].
    pub elsewhere: Vec<Interval>,
    /// How many events of each kind there were, those within others as well.
    pub counts: Counts,
    /// What it has counted itself, if it said so.
    pub counters: Option<Counters>,
}

/// How many events of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; Kind::ALL.len() + 1]);

impl Counts {
    /// How many of `kind`.
    pub fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    fn add(&mut self, kind: Kind) {
        self.0[kind as usize] += 1;
    }
}

/// From when to when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Its begin.
    pub from: u64,
    /// Its end, not before its begin.
    pub to: u64,
}

impl Interval {
    /// How long it is.
    pub fn ns(self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// A G ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// From when to when.
    pub time: Interval,
    /// Its index in [`Model::gs`].
    pub g: u32,
    /// The M that it ran on.
    pub m: u32,
    /// How it left.
    pub left: Left,
    /// The G that made it runnable before, if that was seen.
    pub woken: Option<Woken>,
}

/// How a G left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It let others run.
    Yielded,
    /// Its slice was over.
    Preempted,
    /// It waits, for the reason of this number.
    Parked(u8),
    /// It ended.
    Exited,
    /// Another one, readied by an interrupt, was let in before it.
    Displaced,
    /// It is in a call that waits, and its M with it.
    InCall,
    /// The stream ends.
    StillRunning,
    /// Not known: events are missing.
    Unseen,
}

impl Left {
    /// In a word or two.
    pub fn text(self) -> &'static str {
        match self {
            Left::Yielded => "yielded",
            Left::Preempted => "preempted",
            Left::Parked(_) => "parked",
            Left::Exited => "ended",
            Left::Displaced => "displaced",
            Left::InCall => "left in a call",
            Left::StillRunning => "still running",
            Left::Unseen => "not seen",
        }
    }
}

/// The G that made another runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Woken {
    /// When.
    pub at: u64,
    /// On which CPU.
    pub cpu: u32,
    /// The index of the G that did it; `None` if it was an interrupt.
    pub by: Option<u32>,
    /// In what way.
    pub how: Wake,
}

/// In what way a G became runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Wake {
    /// It was made.
    Created = 1,
    /// Another G readied it.
    Readied,
    /// A device's interrupt did.
    Interrupt,
    /// Its time had come.
    Timer,
}

/// A G, over the whole trace.
#[derive(Clone, Debug, Default)]
pub struct G {
    /// Its number.
    pub number: u32,
    /// What it is called; may be empty.
    pub name: String,
    /// Where it was spawned; may be empty.
    pub site: String,
    /// When it was made, if that was seen.
    pub created: Option<u64>,
    /// When it ended, if it did.
    pub ended: Option<u64>,
    /// How long it ran.
    pub run_ns: u64,
    /// How long it was runnable and did not run.
    pub queued_ns: u64,
    /// How long it waited for something.
    pub parked_ns: u64,
    /// How often it was switched to.
    pub switches: u64,
    /// Which colour of the palette it has: another one than the Gs that run before and after it.
    pub colour: u8,
}

impl G {
    /// Whether it is one of the kernel's own, by its spawn site. `lib.rs` and `api` start
    /// programs.
    pub fn is_kernels(&self) -> bool {
        let in_kernel = self.site.strip_prefix("kernel/src/");
        in_kernel.is_some_and(|file| !file.starts_with("lib.rs") && !file.starts_with("api/"))
    }
}

/// An M was on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Which M.
    pub m: u32,
    /// On which CPU.
    pub cpu: u32,
    /// From when to when.
    pub time: Interval,
}

/// Gs were taken from another P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steal {
    /// When.
    pub at: u64,
    /// The CPU that stole them.
    pub thief: u32,
    /// The CPU that had them. May be no CPU of this machine, if the stream says so.
    pub victim: u32,
    /// How many.
    pub count: u32,
    /// The index of the one that runs first; `None` if it is not known.
    pub g: Option<u32>,
}

/// Something that happened at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instant {
    /// When.
    pub at: u64,
    /// On which CPU.
    pub cpu: u32,
    /// What: `Tick`, `WakeSent`, `WakeReceived`, `Irq`, `Fire`, `Procs` or `Pack`.
    pub kind: Kind,
    /// What else there is to say.
    pub arg: u32,
}

/// Events are missing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Between the event before and the one after.
    pub time: Interval,
    /// How many.
    pub lost: u64,
}

/// A count, from this moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// When it changed.
    pub at: u64,
    /// To what.
    pub value: u32,
}

/// A G waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Its index.
    pub g: u32,
    /// From when to when.
    pub time: Interval,
    /// The CPU it ran on afterwards, or that readied it.
    pub cpu: u32,
    /// The number of the reason for which it was parked, 0 if it is not known.
    pub reason: u8,
}

impl Model {
    /// Walks through the events of `stream`.
    ///
    /// ```
    /// use trace::{decode, encode::Encoder, model::{Left, Model}};
    /// use trace::wire::{Event, Header, Kind};
    /// let mut stream = Encoder::new(Header { cpus: 1, hz: 2_000_000_000, zero: 0 });
    /// stream.events(0, 0, &[Event::new(20, 1, Kind::Start, 1), Event::new(90, 1, Kind::Exit, 0)]);
    /// let model = Model::new(&decode::decode(stream.bytes()).unwrap());
    /// let span = model.cpus[0].spans[0];
    /// assert_eq!((span.time.from, span.time.to, span.left), (10, 45, Left::Exited));
    /// ```
    pub fn new(stream: &Stream) -> Model {
        build::build(stream)
    }

    /// Spans of all CPUs.
    pub fn num_spans(&self) -> usize {
        self.cpus.iter().map(|cpu| cpu.spans.len()).sum()
    }

    /// Which part of the whole time CPUs ran Gs, from 0 to 1.
    pub fn share_run(&self) -> f64 {
        let run: u64 = self.cpus.iter().flat_map(|cpu| &cpu.spans).map(|span| span.time.ns()).sum();
        self.share(run)
    }

    /// Which part of the whole time CPUs were not running, because the host was elsewhere.
    pub fn share_elsewhere(&self) -> f64 {
        self.share(self.cpus.iter().flat_map(|cpu| &cpu.elsewhere).map(|time| time.ns()).sum())
    }

    /// `ns` as a part of the whole time of all CPUs.
    fn share(&self, ns: u64) -> f64 {
        let all = self.end_ns as f64 * self.cpus.len() as f64;
        if all > 0.0 { ns as f64 / all } else { 0.0 }
    }
}

/// From counts of the machine's counter to nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Clock(Header);

impl Clock {
    /// The time of `tsc`; 0 if that is before time 0.
    fn ns(self, tsc: u64) -> u64 {
        let Header { hz, zero, .. } = self.0;
        let counts = tsc.wrapping_sub(zero);
        if counts > i64::MAX as u64 {
            return 0;
        }
        let ns = u128::from(counts) * 1_000_000_000 / u128::from(hz.max(1));
        u64::try_from(ns).unwrap_or(MAX_NS).min(MAX_NS)
    }
}

#[cfg(test)]
mod tests;
