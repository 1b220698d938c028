//! Events written out while the machine runs, to the debug console.
//!
//! A G called "trace" sleeps until some CPU has filled half of its ring, and then writes out all
//! rings, in blocks (`wire`). Events that are overwritten before that are lost, and the stream says
//! how many. At the end of the machine the G that ends it writes the rest, the counters, and the
//! end mark.
//!
//! # Names
//!
//! The name and the spawn site of a G are recorded when it is created ([`NAMES`]), so a G that is
//! gone when its events are written out has a name all the same. Gs that are older than the stream
//! are looked up.
//!
//! # Which G writes
//!
//! One at a time: the holder of the port ([`Turn`]). That is the G that drains, a G that stops a
//! trace, or one that ends the machine. It is no lock: at the end of a machine that panics, a CPU
//! that does not get it does without.

use super::port::Turn;
use super::wire::Out;
use super::{Event, IS_ON, Kind, StartError, What, ZERO, wire};
use crate::arch::lock::{IrqGuard, IrqLock};
use crate::run::door::GHandle;
use crate::run::ring::{RINGS, Ring};
use crate::run::waiting::{Reason, Wait};
use crate::run::{door, service};
use crate::watch::PInfo;
use crate::{arch, run, watch};
use alloc::vec::Vec;
use core::panic::Location;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// The state of the stream.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum State {
    /// No stream was requested.
    Closed = 0,
    /// The header was written.
    Open = 1,
    /// The end mark was written.
    Done = 2,
}

static STATE: AtomicU32 = AtomicU32::new(State::Closed as u32);
/// A CPU has filled half a ring.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Whether there is a G that drains, and its handle while it waits.
static HAS_DRAINER: AtomicBool = AtomicBool::new(false);
static DRAINER: IrqLock<Option<GHandle>> = IrqLock::new(None);
/// Number, name and spawn site of Gs that were created since the last drain. It has its memory from
/// [`open`] on, as a G is created with its CPU in the middle of an operation; names that do not fit
/// are lost.
static NAMES: IrqLock<Vec<Name>> = IrqLock::new(Vec::new());
type Name = (u64, &'static str, &'static Location<'static>);

/// What each CPU has counted while events were recorded.
static TALLY: IrqLock<Tally> = IrqLock::new(Tally { began: Vec::new(), sum: Vec::new() });

/// The counters of a CPU that a stream ends with, without those of its [`Cursor`].
type Counters = [u64; wire::COUNTERS - 2];

/// Counts between `begin` and `end`; what is counted in a pause belongs to no event.
struct Tally {
    /// The counters of each CPU when recording began; empty in a pause.
    began: Vec<Counters>,
    /// The counts of each CPU up to the last pause, wrapping: they were read at two moments, so one
    /// may be below zero.
    sum: Vec<Counters>,
}

impl Tally {
    fn begin(&mut self, cpus: &[PInfo]) {
        let before = |p: &PInfo| {
            // The start of a G that runs already is among the events (`write_present`).
            let switches = p.switches.saturating_sub(p.g.is_some().into());
            counters_of(&PInfo { switches, ..*p })
        };
        self.began = cpus.iter().map(before).collect();
        self.sum.resize(cpus.len(), [0; _]);
    }

    fn end(&mut self, cpus: &[PInfo]) {
        let began = core::mem::take(&mut self.began);
        for ((sum, began), now) in self.sum.iter_mut().zip(&began).zip(cpus.iter().map(counters_of))
        {
            *sum = core::array::from_fn(|i| sum[i].wrapping_add(now[i]).wrapping_sub(began[i]));
        }
    }
}

fn counters_of(p: &PInfo) -> Counters {
    [p.switches, p.preemptions, p.ticks, p.halts, p.wakes, p.displacements, p.handoffs, p.steals]
}

/// How far each ring has been written out. Belongs to the holder of the [`Turn`].
struct Cursor {
    /// The number of the next event of the ring.
    read: AtomicU64,
    /// The number of the next event of the stream, which begins with some that no ring has
    /// ([`write_present`]).
    sent: AtomicU64,
    lost: AtomicU64,
}

static CURSORS: [Cursor; arch::MAX_CPUS] = [const { Cursor::new() }; arch::MAX_CPUS];

/// Events that are copied at once: 2 KiB of stack.
const BATCH: usize = 128;

/// How long a G waits for the [`Turn`] while its holder writes out nothing. The holder may have
/// seconds of work, as a port takes a byte at a time; but it makes progress.
const PATIENCE_NS: u64 = 10_000_000_000;

/// How long the end of the machine waits for other CPUs to go idle.
const SETTLE_NS: u64 = 10_000_000;

/// Whether events are being written out.
pub(crate) fn is_open() -> bool {
    STATE.load(Acquire) == State::Open as u32
}

/// Begins a stream, or continues it: its header and the present state. One caller at a time.
pub(crate) fn open(zero: u64) -> Result<(), StartError> {
    if IS_ON.load(Relaxed) || STATE.load(Acquire) == State::Done as u32 {
        return Err(StartError::IsOn);
    }
    let mut turn = if is_open() {
        Turn::take().ok_or(StartError::IsOn)?
    } else {
        let mut turn = Turn::first().ok_or(StartError::NoPort)?;
        // The creation and the start of a G are two events.
        let events: u64 = RINGS.iter().map(Ring::capacity).sum();
        let reserved = NAMES.lock().try_reserve_exact(events as usize / 2);
        reserved.map_err(|_| StartError::NoMemory)?;
        ZERO.store(zero, Relaxed);
        let hz = arch::ns_to_cycles(1_000_000_000);
        wire::header(&mut turn, arch::num_cpus() as u32, hz, zero);
        STATE.store(State::Open as u32, Release);
        turn
    };
    write_present(&mut turn);
    Ok(())
}

/// The state before the first event: the names of all Gs, and which G and M are on each CPU. That
/// and the [`Tally`] are of one snapshot, the last thing before events are recorded: names take a
/// while.
fn write_present(out: &mut dyn Out) {
    let nowhere: &dyn core::fmt::Display = &"";
    for g in watch::gs() {
        let site = g.site.as_ref().map_or(nowhere, |site| site);
        wire::name(out, g.id as u32, g.name, site);
    }
    let cpus = watch::stats().cpus; // takes locks of its own
    TALLY.lock().begin(&cpus);
    let time = arch::cycles();
    for (cpu, (cursor, &PInfo { m, g, .. })) in CURSORS.iter().zip(&cpus).enumerate() {
        let mut events = Vec::new();
        if cpu == 0 {
            let procs = What::new(Kind::Procs, run::gomaxprocs() as u32);
            events.push(Event { time, g: 0, what: procs });
        }
        events.push(Event { time, g: 0, what: What::new(Kind::Mount, m) });
        events.extend(g.map(|g| Event { time, g: g as u32, what: What::START.on_same_slice() }));
        cursor.write(out, cpu, &events);
    }
}

/// Records the name of a G that was just created, if there is a stream.
#[cold]
pub(crate) fn note_name(g: u64, name: &'static str, site: &'static Location<'static>) {
    if is_open() {
        let mut names = NAMES.lock();
        if names.len() < names.capacity() {
            names.push((g, name, site));
        }
    }
}

/// The rings should be drained. By a CPU that records an event, interrupts off, perhaps in the
/// middle of an operation on its P.
#[cold]
pub(crate) fn ask() {
    if !is_open() {
        return;
    }
    WANTED.store(true, Relaxed);
    let waits = DRAINER.lock().take();
    if let Some(g) = waits {
        door::ready_from_interrupt(g);
        // An interrupt moves it to the queue, when this CPU is in no queue operation.
        door::interrupt_this_cpu();
    }
}

/// Starts the G that drains, unless there is one.
pub(crate) fn spawn_drainer() {
    if HAS_DRAINER.swap(true, Relaxed) {
        return;
    }
    if let Err(error) = service::spawn("trace", drain_for_ever) {
        log::warn!("trace: no G to drain the rings: {error}");
    }
}

fn drain_for_ever() {
    loop {
        let g = door::begin_park(Wait::new(Reason::Poll, 0));
        *DRAINER.lock() = Some(g);
        // `ask` has set it before it looked for the handle, or has found the handle.
        if WANTED.swap(false, Relaxed) {
            door::cancel_park();
        } else {
            door::park();
            WANTED.store(false, Relaxed);
        }
        drain_all();
    }
}

/// Writes out all rings, when tracing is off: counts until the stream continues belong to no event.
/// By a G.
pub(crate) fn pause() {
    end_tally();
    drain_all();
}

/// Tracing is off: nothing that is counted from here on has an event. Before the wait for the
/// [`Turn`], whose yields are counted. Changes nothing in a pause.
fn end_tally() {
    let cpus = watch::stats().cpus; // takes locks of its own
    TALLY.lock().end(&cpus);
}

/// Writes out all rings; by a G.
fn drain_all() {
    if let Some(mut turn) = wait_for_turn() {
        drain(&mut turn, || Some(NAMES.lock()));
    }
}

/// The right to write, when other writers are done; `None` if they are stuck.
fn wait_for_turn() -> Option<Turn> {
    let mut written = 0;
    let mut deadline_ns = door::now_ns() + PATIENCE_NS;
    loop {
        if let Some(turn) = Turn::take() {
            return Some(turn);
        }
        let names = NAMES.lock().len() as u64; // changes while they are written
        let now_written = CURSORS.iter().fold(names, |sum, cursor| sum + cursor.read.load(Relaxed));
        if now_written != written {
            written = now_written;
            deadline_ns = door::now_ns() + PATIENCE_NS;
        } else if door::now_ns() >= deadline_ns {
            return None;
        }
        door::yield_now();
    }
}

/// The end: the rest, the counters, and the end mark. By a G.
pub(crate) fn finish(code: u32) {
    if !is_open() {
        return;
    }
    end_tally();
    let Some(mut turn) = wait_for_turn() else { return };
    drain(&mut turn, || Some(NAMES.lock()));
    let counts = core::mem::take(&mut TALLY.lock().sum);
    for (cpu, counts) in counts.iter().enumerate() {
        wire::stat(&mut turn, cpu as u32, CURSORS[cpu].counters(counts));
    }
    write_end(&mut turn, code);
}

/// Gives the other CPUs a while to go idle, so that their counters and their last events agree; not
/// if they are busy.
pub(crate) fn let_others_settle() {
    // It does not yield: each time would be an event, and thousands of them would overwrite the ring
    // and keep the G that drains busy. Other CPUs steal the Gs that wait here.
    let deadline_ns = door::now_ns() + SETTLE_NS;
    while run::busy() > 1 && door::now_ns() < deadline_ns {
        arch::relax();
    }
    // An idle CPU is marked so a moment before it records that it halts. This G does not sleep: a
    // CPU without a timer would not wake it.
    let deadline_ns = door::now_ns() + SETTLE_NS / 10;
    while door::now_ns() < deadline_ns {
        arch::relax();
    }
}

/// The end of a machine that panics, all other CPUs stopped: writes what it can without waiting.
pub fn abandon(code: u32) {
    IS_ON.store(false, Relaxed);
    if is_open()
        && let Some(mut turn) = Turn::take()
    {
        drain(&mut turn, || NAMES.try_lock()); // a CPU that was stopped may hold it
        write_end(&mut turn, code);
    }
}

fn write_end(out: &mut dyn Out, code: u32) {
    STATE.store(State::Done as u32, Release);
    wire::done(out, code);
}

/// Writes out all names, as `lock` gives them, and all rings.
fn drain(out: &mut dyn Out, lock: fn() -> Option<IrqGuard<'static, Vec<Name>>>) {
    // As many as there are now: not for ever, if other CPUs create Gs faster than this writes.
    for _ in 0..lock().map_or(0, |names| names.len()) {
        let Some((g, name, site)) = lock().and_then(|mut names| names.pop()) else { break };
        wire::name(out, g as u32, name, site);
    }
    let mut events = [Event { time: 0, g: 0, what: What(0) }; BATCH];
    for (cpu, cursor) in CURSORS[..arch::num_cpus()].iter().enumerate() {
        // As much as a ring holds: not for ever, as above.
        for _ in 0..RINGS[cpu].capacity().div_ceil(BATCH as u64) {
            let from = cursor.read.load(Relaxed);
            let (first, len) = RINGS[cpu].read(from, &mut events);
            if len == 0 {
                break;
            }
            cursor.lose(first - from);
            cursor.write(out, cpu, &events[..len]);
            cursor.read.store(first + len as u64, Relaxed);
        }
    }
}

impl Cursor {
    const fn new() -> Self {
        Cursor { read: AtomicU64::new(0), sent: AtomicU64::new(0), lost: AtomicU64::new(0) }
    }

    /// So many events were overwritten.
    fn lose(&self, lost: u64) {
        self.lost.fetch_add(lost, Relaxed);
        self.sent.fetch_add(lost, Relaxed);
    }

    fn write(&self, out: &mut dyn Out, cpu: usize, events: &[Event]) {
        if !events.is_empty() {
            let first = self.sent.fetch_add(events.len() as u64, Relaxed);
            wire::events(out, cpu as u32, first, events);
        }
    }

    /// The counters at the end of the stream.
    fn counters(&self, counts: &Counters) -> [u64; wire::COUNTERS] {
        let mut all = [0; wire::COUNTERS];
        all[..2].copy_from_slice(&[self.sent.load(Relaxed), self.lost.load(Relaxed)]);
        for (to, count) in all[2..].iter_mut().zip(counts) {
            *to = count.cast_signed().max(0).cast_unsigned();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::trace::decode::decode;

    const TICK: Event = Event { time: 5, g: 0, what: What::new(Kind::Tick, 0) };

    /// A CPU on which no G runs, with this number of switches.
    fn switched(switches: u64) -> PInfo {
        PInfo { switches, halts: 2 * switches, ..PInfo::default() }
    }

    #[test]
    fn what_is_counted_in_a_pause_belongs_to_no_event() {
        let counts = |[began, paused, resumed, ended]: [PInfo; 4]| {
            let mut tally = Tally { began: Vec::new(), sum: Vec::new() };
            tally.begin(&[began]);
            tally.end(&[paused]);
            tally.end(&[resumed]); // nothing is counted in a pause
            tally.begin(&[resumed]);
            tally.end(&[ended]);
            Cursor::new().counters(&tally.sum[0])
        };
        let counted = counts([10, 15, 40, 47].map(switched));
        assert_eq!((counted[2], counted[5]), (5 + 7, 2 * (5 + 7)));
        // A G that ran across a pause in which no other G did: its start counts twice.
        let running = PInfo { g: Some(1), ..switched(3) };
        assert_eq!(counts([switched(0), running, running, running])[2], 4);
    }

    #[test]
    fn what_was_overwritten_is_a_gap_in_the_numbers() {
        let mut bytes = Vec::new();
        wire::header(&mut bytes, 1, 1_000_000_000, 0);
        let cursor = Cursor::new();
        cursor.write(&mut bytes, 0, &[TICK]);
        cursor.lose(10);
        cursor.write(&mut bytes, 0, &[TICK, TICK]);
        let stream = decode(&bytes).expect("a stream");
        assert_eq!((stream.events(), stream.lost()), (3, 10));
        assert_eq!((cursor.sent.load(Relaxed), cursor.lost.load(Relaxed)), (13, 10));
    }
}
