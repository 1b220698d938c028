//! Events written out while the machine runs, to the debug console.
//!
//! A G called "trace" sleeps until some CPU has filled half of its ring, and then writes out all
//! rings, in blocks (`wire`). Events that are overwritten before that are lost, and the stream says
//! how many. At the end of the machine the G that ends it writes the rest, the counters, and the
//! end mark.
//!
//! # Names
//!
//! The name and the spawn site of a G are recorded when it is created, as two slots of the ring
//! with unused kinds: they are `&'static`, so two pointers and a length are enough, and a G that is
//! gone when its events are written out has a name all the same. Gs that are older than the stream
//! are looked up.
//!
//! # Which G writes
//!
//! One at a time: the holder of the port ([`Turn`]). That is the G that drains, a G that stops a
//! trace, or one that ends the machine. It is no lock: at the end of a machine that panics, a CPU
//! that does not get it does without.

use super::port::Turn;
use super::wire::{self, Out};
use super::{Event, Kind, What};
use super::{IS_ON, RINGS, StartError, ZERO};
use crate::lock::IrqLock;
use crate::park::{self, GHandle};
use crate::stats::CpuStats;
use crate::time::{Duration, Instant};
use crate::waiting::{Reason, Wait};
use crate::{arch, attendants, schedule, tasks};
use alloc::vec::Vec;
use core::panic::Location;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

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
/// The counters before the stream began, and in its pauses: counts that belong to no event.
static BEFORE: IrqLock<Vec<CpuStats>> = IrqLock::new(Vec::new());
/// The counters when the stream was paused; `None` while it runs.
static AT_PAUSE: IrqLock<Option<Vec<CpuStats>>> = IrqLock::new(None);

/// How far each ring has been written out. Belongs to the holder of the [`Turn`].
struct Cursor {
    /// The number of the next slot to be read.
    read: AtomicU64,
    /// The number of the next event: slots with names do not count.
    sent: AtomicU64,
    lost: AtomicU64,
}

static CURSORS: [Cursor; arch::MAX_CPUS] = [const { Cursor::new() }; arch::MAX_CPUS];

/// Events that are copied at once: 2 KiB of stack.
const BATCH: usize = 128;

/// How long a G waits for the [`Turn`] while its holder writes out nothing. The holder may have
/// seconds of work, as a port takes a byte at a time; but it makes progress.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the end of the machine waits for other CPUs to go idle.
const SETTLE: Duration = Duration::from_millis(10);

/// The kinds of slots with names: address and length of a name, then the address of a spawn site.
const NAME: What = What(0xf0 << 24);
const SITE: What = What(0xf1 << 24);

/// Whether events are being written out.
pub(super) fn is_open() -> bool {
    STATE.load(Acquire) == State::Open as u32
}

/// Begins a stream, or continues it: its header and the present state. One caller at a time.
pub(super) fn open(zero: u64) -> Result<(), StartError> {
    if IS_ON.load(Relaxed) || STATE.load(Acquire) == State::Done as u32 {
        return Err(StartError::IsOn);
    }
    let mut turn = if is_open() {
        let turn = Turn::take().ok_or(StartError::IsOn)?;
        let (now, paused) = (count_before(), AT_PAUSE.lock().take());
        for (before, (then, now)) in BEFORE.lock().iter_mut().zip(paused.iter().flatten().zip(&now))
        {
            skip(before, then, now);
        }
        turn
    } else {
        let mut turn = Turn::first().ok_or(StartError::NoPort)?;
        ZERO.store(zero, Relaxed);
        let hz = arch::ns_to_cycles(1_000_000_000);
        wire::header(&mut turn, arch::num_cpus() as u32, hz, zero);
        *BEFORE.lock() = count_before();
        STATE.store(State::Open as u32, Release);
        turn
    };
    write_present(&mut turn);
    Ok(())
}

/// The counters before the first event. The start of a G that runs already is among the events
/// ([`write_present`]), and so not before.
fn count_before() -> Vec<CpuStats> {
    let mut cpus = park::stats().cpus;
    for (cpu, counted) in cpus.iter_mut().enumerate() {
        let (_, g) = schedule::present(cpu);
        counted.switches = counted.switches.saturating_sub(g.is_some().into());
    }
    cpus
}

/// Adds the counts of a pause, from `then` to `now`, to `before`. The start of a G is among the
/// events twice if it runs across a pause: `now` may be less.
fn skip(before: &mut CpuStats, then: &CpuStats, now: &CpuStats) {
    let pause = |of: fn(&CpuStats) -> u64| of(now).wrapping_sub(of(then));
    before.switches = before.switches.wrapping_add(pause(|cpu| cpu.switches));
    before.preemptions += pause(|cpu| cpu.preemptions);
    before.ticks += pause(|cpu| cpu.ticks);
    before.halts += pause(|cpu| cpu.halts);
    before.wakes += pause(|cpu| cpu.wakes);
    before.displacements += pause(|cpu| cpu.displacements);
    before.handoffs += pause(|cpu| cpu.handoffs);
    before.steals += pause(|cpu| cpu.steals);
}

/// The state before the first event: the names of all Gs, and which G and M are on each CPU.
fn write_present(out: &mut dyn Out) {
    let nowhere: &dyn core::fmt::Display = &"";
    for g in tasks::gs() {
        let site = g.site.as_ref().map_or(nowhere, |site| site);
        wire::name(out, g.id as u32, g.name, site);
    }
    let time = arch::cycles();
    for (cpu, cursor) in CURSORS[..arch::num_cpus()].iter().enumerate() {
        let (m, g) = schedule::present(cpu);
        let mut events = Vec::new();
        if cpu == 0 {
            let procs = What::new(Kind::Procs, schedule::gomaxprocs() as u32);
            events.push(Event { time, g: 0, what: procs });
        }
        events.push(Event { time, g: 0, what: What::new(Kind::Mount, m) });
        events.extend(g.map(|g| Event { time, g: g as u32, what: What::START.on_same_slice() }));
        cursor.write(out, cpu, &events);
    }
}

/// Records the name of a G that was just created, if there is a stream.
#[cold]
pub(super) fn note_name(g: u64, name: &'static str, site: &'static Location<'static>) {
    if !is_open() {
        return;
    }
    // Both with interrupts off, so that they follow one another.
    let irqs = arch::irq::disable();
    let len = What(NAME.0 | (name.len() as u32 & 0xff_ffff));
    super::event_at(name.as_ptr().expose_provenance() as u64, g, len);
    super::event_at(core::ptr::from_ref(site).expose_provenance() as u64, g, SITE);
    arch::irq::restore(irqs);
}

/// The rings should be drained. By a CPU that records an event, interrupts off, perhaps in the
/// middle of an operation on its P.
#[cold]
pub(super) fn ask() {
    if !is_open() {
        return;
    }
    WANTED.store(true, Relaxed);
    let waits = DRAINER.lock().take();
    if let Some(g) = waits {
        park::ready_from_interrupt(g);
        // An interrupt moves it to the queue, when this CPU is in no queue operation.
        park::interrupt_this_cpu();
    }
}

/// Starts the G that drains, unless there is one.
pub(super) fn spawn_drainer() {
    if HAS_DRAINER.swap(true, Relaxed) {
        return;
    }
    if let Err(error) = attendants::spawn("trace", drain_for_ever) {
        log::warn!("trace: nobody drains the rings: {error}");
    }
}

fn drain_for_ever() {
    loop {
        let g = park::begin_park(Wait::new(Reason::Poll, 0));
        *DRAINER.lock() = Some(g);
        // `ask` has set it before it looked for the handle, or has found the handle.
        if WANTED.swap(false, Relaxed) {
            park::cancel_park();
        } else {
            park::park();
            WANTED.store(false, Relaxed);
        }
        drain_all();
    }
}

/// Writes out all rings, when tracing is off: counts until the stream continues belong to no event.
/// By a G.
pub(super) fn pause() {
    *AT_PAUSE.lock() = Some(park::stats().cpus);
    drain_all();
}

/// Writes out all rings; by a G.
fn drain_all() {
    if let Some(mut turn) = wait_for_turn() {
        drain(&mut turn);
    }
}

/// The right to write, when other writers are done; `None` if they are stuck.
fn wait_for_turn() -> Option<Turn> {
    let mut written = 0;
    let mut deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(turn) = Turn::take() {
            return Some(turn);
        }
        let now_written =
            CURSORS.iter().fold(0, |sum: u64, cursor| sum.wrapping_add(cursor.read.load(Relaxed)));
        if now_written != written {
            written = now_written;
            deadline = Instant::now() + PATIENCE;
        } else if Instant::now() >= deadline {
            return None;
        }
        park::yield_now();
    }
}

/// The end: the rest, the counters, and the end mark. By a G.
pub(super) fn finish(code: u32) {
    if !is_open() {
        return;
    }
    let Some(mut turn) = wait_for_turn() else { return };
    let paused = AT_PAUSE.lock().take();
    let counted = paused.unwrap_or_else(|| park::stats().cpus); // takes locks of its own
    drain(&mut turn);
    write_counters(&mut turn, &counted);
    write_end(&mut turn, code);
}

/// Gives the other CPUs a while to go idle, so that their counters and their last events agree; not
/// if they are busy.
pub(super) fn let_others_settle() {
    let deadline = Instant::now() + SETTLE;
    while schedule::sched_info().busy() > 1 && Instant::now() < deadline {
        park::yield_now();
    }
    // An idle CPU is marked so a moment before it records that it halts. This G does not sleep: a
    // CPU without a timer would not wake it.
    let deadline = Instant::now() + SETTLE / 10;
    while Instant::now() < deadline {
        arch::relax();
    }
}

/// The end of a machine that panics, all other CPUs stopped: writes what it can without waiting.
pub fn abandon(code: u32) {
    IS_ON.store(false, Relaxed);
    if is_open()
        && let Some(mut turn) = Turn::take()
    {
        drain(&mut turn);
        write_end(&mut turn, code);
    }
}

fn write_counters(out: &mut dyn Out, counted: &[CpuStats]) {
    let before = core::mem::take(&mut *BEFORE.lock());
    for (cpu, (then, now)) in before.iter().zip(counted).enumerate() {
        wire::stat(out, cpu as u32, CURSORS[cpu].counters(then, now));
    }
}

fn write_end(out: &mut dyn Out, code: u32) {
    STATE.store(State::Done as u32, Release);
    wire::done(out, code);
}

/// Writes out all rings.
fn drain(out: &mut dyn Out) {
    let mut events = [Event { time: 0, g: 0, what: What(0) }; BATCH];
    for (cpu, cursor) in CURSORS[..arch::num_cpus()].iter().enumerate() {
        // As much as a ring holds: not for ever, if its CPU records faster than this writes.
        for _ in 0..RINGS[cpu].capacity().div_ceil(BATCH as u64) {
            let from = cursor.read.load(Relaxed);
            let (first, len) = RINGS[cpu].read(from, &mut events);
            if len == 0 {
                break;
            }
            cursor.lose(first - from);
            let used = cursor.write_batch(out, cpu, &events[..len]);
            cursor.read.store(first + used as u64, Relaxed);
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

    /// Writes slots that were read from a ring: events, and names between them. Returns how many
    /// slots were used: not a name whose second half is yet to come.
    fn write_batch(&self, out: &mut dyn Out, cpu: usize, slots: &[Event]) -> usize {
        let mut used = 0;
        while used < slots.len() {
            let rest = &slots[used..];
            let events = rest.iter().take_while(|slot| !is_name(slot.what)).count();
            self.write(out, cpu, &rest[..events]);
            used += events;
            match rest[events..] {
                [] => {}
                [name, site, ..] => {
                    used += write_name(out, name, site);
                }
                // Its other half is in the next batch; if this is all, the name is lost.
                [_] if used == 0 => used = 1,
                [_] => break,
            }
        }
        used
    }

    fn write(&self, out: &mut dyn Out, cpu: usize, events: &[Event]) {
        if !events.is_empty() {
            let first = self.sent.fetch_add(events.len() as u64, Relaxed);
            wire::events(out, cpu as u32, first, events);
        }
    }

    fn counters(&self, then: &CpuStats, now: &CpuStats) -> [u64; wire::COUNTERS] {
        // `then` may have wrapped around (`skip`); read at two moments, it may also be more than
        // `now`.
        let since = |of: fn(&CpuStats) -> u64| of(now).wrapping_sub(of(then)) as i64;
        let since = |of| since(of).max(0) as u64;
        [
            self.sent.load(Relaxed),
            self.lost.load(Relaxed),
            since(|cpu| cpu.switches),
            since(|cpu| cpu.preemptions),
            since(|cpu| cpu.ticks),
            since(|cpu| cpu.halts),
            since(|cpu| cpu.wakes),
            since(|cpu| cpu.displacements),
            since(|cpu| cpu.handoffs),
            since(|cpu| cpu.steals),
        ]
    }
}

/// Whether this is half a name.
fn is_name(what: What) -> bool {
    what.0 >= NAME.0
}

/// Writes a name, if these are its two halves, and returns how many slots it took.
fn write_name(out: &mut dyn Out, name: Event, site: Event) -> usize {
    if name.what.0 >> 24 != NAME.0 >> 24 || site.what != SITE || name.g != site.g {
        return 1; // a half whose other half was overwritten
    }
    let at = core::ptr::with_exposed_provenance::<u8>(name.time as usize);
    // SAFETY: `note_name` took them from a `&'static str`, and `Ring::read` returns no slot that
    // may have been overwritten: these two belong together.
    let bytes = unsafe { core::slice::from_raw_parts(at, name.what.arg() as usize) };
    let at = core::ptr::with_exposed_provenance::<Location<'static>>(site.time as usize);
    // SAFETY: as above, from a `&'static Location`.
    let location = unsafe { &*at };
    wire::name(out, name.g, core::str::from_utf8(bytes).unwrap_or(""), location);
    2
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::trace::decode::decode;

    const TICK: Event = Event { time: 5, g: 0, what: What::new(Kind::Tick, 0) };

    fn name_of(g: u32, name: &'static str) -> [Event; 2] {
        let len = What(NAME.0 | name.len() as u32);
        let site = core::ptr::from_ref(Location::caller()).expose_provenance() as u64;
        let at = name.as_ptr().expose_provenance() as u64;
        [Event { time: at, g, what: len }, Event { time: site, g, what: SITE }]
    }

    fn write_all(slots: &[Event], batch: usize) -> ::trace::decode::Stream {
        let mut bytes = Vec::new();
        wire::header(&mut bytes, 1, 1_000_000_000, 0);
        let cursor = Cursor::new();
        let mut from = 0;
        while from < slots.len() {
            let until = slots.len().min(from + batch);
            let used = cursor.write_batch(&mut bytes, 0, &slots[from..until]);
            assert!(used > 0, "no end");
            from += used;
        }
        decode(&bytes).expect("a stream")
    }

    #[test]
    #[cfg_attr(miri, ignore = "names go through the ring as addresses")]
    fn names_come_out_between_events_however_they_are_cut() {
        let [name, site] = name_of(7, "worker");
        let slots = [TICK, name, site, TICK, TICK, name, site];
        for batch in 2..=slots.len() {
            let stream = write_all(&slots, batch);
            assert_eq!(stream.tracks[0].events.len(), 3, "batches of {batch}");
            assert_eq!(stream.lost(), 0);
            let names: Vec<_> = stream.names.iter().map(|name| (name.g, &*name.name)).collect();
            assert_eq!(names, [(7, "worker"), (7, "worker")], "batches of {batch}");
            assert!(stream.names[0].site.contains("stream.rs"), "{}", stream.names[0].site);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "names go through the ring as addresses")]
    fn halves_of_names_are_dropped() {
        let [name, site] = name_of(7, "worker");
        let [other, _] = name_of(8, "other");
        for slots in [&[site, TICK][..], &[name, TICK], &[TICK, other, site, TICK], &[name]] {
            let stream = write_all(slots, 8);
            assert!(stream.names.is_empty());
            let ticks = slots.iter().filter(|slot| **slot == TICK).count();
            assert_eq!(stream.tracks[0].events.len(), ticks);
        }
    }

    /// The counters of a CPU, with this number of switches.
    fn switched(switches: u64) -> CpuStats {
        let mut cpu = CpuStats::default();
        (cpu.switches, cpu.halts) = (switches, 2 * switches);
        cpu
    }

    #[test]
    fn what_is_counted_in_a_pause_belongs_to_no_event() {
        let mut before = switched(10);
        skip(&mut before, &switched(15), &switched(40));
        let counters = Cursor::new().counters(&before, &switched(47));
        assert_eq!((counters[2], counters[5]), (5 + 7, 2 * (5 + 7)));
        // A G that ran across a pause in which no other G did: its start counts twice.
        let mut before = switched(0);
        skip(&mut before, &switched(3), &CpuStats { switches: 2, ..switched(3) });
        assert_eq!(Cursor::new().counters(&before, &switched(3))[2], 4);
    }

    #[test]
    fn what_was_overwritten_is_a_gap_in_the_numbers() {
        let mut bytes = Vec::new();
        wire::header(&mut bytes, 1, 1_000_000_000, 0);
        let cursor = Cursor::new();
        cursor.write_batch(&mut bytes, 0, &[TICK]);
        cursor.lose(10);
        cursor.write_batch(&mut bytes, 0, &[TICK, TICK]);
        let stream = decode(&bytes).expect("a stream");
        assert_eq!((stream.events(), stream.lost()), (3, 10));
        assert_eq!((cursor.sent.load(Relaxed), cursor.lost.load(Relaxed)), (13, 10));
    }
}
