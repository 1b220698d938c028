//! Events written out while the machine runs, to the debug console.
//!
//! A G called "trace" sleeps until some CPU has filled half of its ring, and then writes out all
//! rings, in blocks (`wire`). Events that are overwritten before that are lost, and the stream says
//! how many. At the end of the machine the G that ends it writes the rest, the counters, and the
//! end mark.
//!
//! **Names**: the name and the spawn site of a G are recorded when it is created ([`NAMES`]), so a
//! G that is gone when its events are written out has a name all the same. Gs that are older than
//! the stream are looked up.
//!
//! **One G writes at a time**: the holder of [`STREAM`], which drains, starts or stops a trace, or
//! ends the machine. It may hold it for seconds, with interrupts on. So the lock is only tried: a G
//! that does not get it yields and tries again, and a CPU that ends a panicking machine goes
//! without.

use super::wire::Out;
use super::{Event, IS_ON, Kind, StartError, What, ZERO, wire};
use crate::arch::lock::{IrqLock, Level};
use crate::drivers::debugcon::DebugCon;
use crate::run::door::GHandle;
use crate::run::ring::{RINGS, Ring};
use crate::run::waiting::{Reason, Wait};
use crate::run::{door, near, service};
use crate::watch::PInfo;
use crate::{arch, run, watch};
use alloc::vec::Vec;
use core::panic::Location;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};
use spin::{Mutex, MutexGuard};

pub(crate) struct Stream {
    port: Option<DebugCon>,
    /// The end mark was written.
    is_done: bool,
    cursors: [Cursor; arch::MAX_CPUS],
}

pub(crate) static STREAM: Mutex<Stream> =
    Mutex::new(Stream { port: None, is_done: false, cursors: [Cursor::NEW; arch::MAX_CPUS] });

impl Out for DebugCon {
    fn write(&mut self, bytes: &[u8]) {
        self.write_all(bytes);
    }
}

/// Events are being written out: the header was written, and the end mark was not.
static IS_OPEN: AtomicBool = AtomicBool::new(false);
/// Blocks that were written: a G that waits for the writer sees its progress.
static BLOCKS: AtomicU64 = AtomicU64::new(0);
static WANTED: AtomicBool = AtomicBool::new(false);
/// Whether there is a G that drains, and its handle while it waits.
static HAS_DRAINER: AtomicBool = AtomicBool::new(false);
static DRAINER: IrqLock<Option<GHandle>> = IrqLock::at(Level::Events, None);
/// Number, name and spawn site of Gs that were created since the last drain. It has its memory from
/// [`Stream::open`] on, as a G is created with its CPU in the middle of an operation; names that do
/// not fit are lost.
static NAMES: IrqLock<Vec<Name>> = IrqLock::at(Level::Events, Vec::new());
type Name = (u64, &'static str, &'static Location<'static>);

/// How far the ring of a CPU has been written out, and what the CPU has counted.
#[derive(Clone, Copy)]
struct Cursor {
    /// The number of the next event of the ring.
    read: u64,
    /// The number of the next event of the stream, which begins with some that no ring has
    /// ([`Stream::write_present`]).
    sent: u64,
    lost: u64,
    /// Counted while events were recorded; what is counted in a pause belongs to no event.
    /// Wrapping: less what the counters were at the beginning. They are read at two moments, so one
    /// may end below zero.
    counts: [u64; wire::COUNTERS - 2],
}

/// Events that are copied at once: 2 KiB of stack.
const BATCH: usize = 128;
/// How long a G waits for the writer while that writes nothing.
const PATIENCE_NS: u64 = 10_000_000_000;
/// How long the end of the machine waits for other CPUs to go idle.
const SETTLE_NS: u64 = 10_000_000;

pub(crate) fn is_open() -> bool {
    IS_OPEN.load(Acquire)
}

impl Stream {
    /// Begins the stream, or continues it: its header and the names of all Gs.
    pub(crate) fn open(&mut self, zero: u64) -> Result<(), StartError> {
        if self.is_done {
            return Err(StartError::IsOn);
        }
        if !is_open() {
            let mut port = DebugCon::probe().ok_or(StartError::NoPort)?;
            // The creation and the start of a G are two events.
            let events: u64 = RINGS.iter().map(Ring::capacity).sum();
            let reserved = NAMES.lock().try_reserve_exact(events as usize / 2);
            reserved.map_err(|_| StartError::NoMemory)?;
            ZERO.store(zero, Relaxed);
            let hz = arch::ns_to_cycles(1_000_000_000);
            let cpus = arch::num_cpus();
            wire::header(&mut port, cpus as u32, hz, zero);
            for cpu in (0..cpus).filter(|&cpu| near::distance(cpu, cpu).is_some()) {
                let of = |other| near::distance(cpu, other).map_or(0, |distance| distance as u8);
                wire::distances(&mut port, cpu as u32, (0..cpus).map(of));
            }
            self.port = Some(port);
            IS_OPEN.store(true, Release);
        }
        let Some(out) = &mut self.port else { return Ok(()) };
        let nowhere: &dyn core::fmt::Display = &"";
        for g in watch::gs() {
            let site = g.site.as_ref().map_or(nowhere, |site| site);
            wire::name(out, g.id as u32, &g.name, site);
        }
        Ok(())
    }

    /// The state before the first event: which G and M were on each CPU, and what each had counted,
    /// when tracing went on.
    pub(crate) fn write_present(&mut self, time: u64, cpus: &[PInfo]) {
        let Some(out) = &mut self.port else { return };
        let event = |g: u64, what| Event { time, g: g as u32, what };
        for (cpu, (cursor, p)) in self.cursors.iter_mut().zip(cpus).enumerate() {
            cursor.begin(p);
            let mut events = Vec::new();
            if cpu == 0 {
                events.push(event(0, What::new(Kind::Procs, run::gomaxprocs() as u32)));
            }
            events.push(event(0, What::new(Kind::Mount, p.m)));
            events.extend(p.g.map(|g| event(g, What::START.on_same_slice())));
            cursor.write(out, cpu, &events);
        }
    }

    /// Writes out all names, if their lock is not lost, and all rings.
    fn drain(&mut self, has_names: bool) {
        let Some(out) = &mut self.port else { return };
        // As many as there are now: not for ever, if other CPUs create Gs faster than this writes.
        let names = if has_names { NAMES.lock().len() } else { 0 };
        for _ in 0..names {
            let Some((g, name, site)) = NAMES.lock().pop() else { break };
            wire::name(out, g as u32, name, site);
            BLOCKS.fetch_add(1, Relaxed);
        }
        let mut events = [Event { time: 0, g: 0, what: What(0) }; BATCH];
        for (cpu, cursor) in self.cursors[..arch::num_cpus()].iter_mut().enumerate() {
            // As much as a ring holds: not for ever, as above.
            for _ in 0..RINGS[cpu].capacity().div_ceil(BATCH as u64) {
                let (first, len) = RINGS[cpu].read(cursor.read, &mut events);
                if len == 0 {
                    break;
                }
                cursor.lose(first - cursor.read);
                cursor.write(out, cpu, &events[..len]);
                cursor.read = first + len as u64;
                BLOCKS.fetch_add(1, Relaxed);
            }
        }
    }

    fn write_end(&mut self, code: u32) {
        self.is_done = true;
        IS_OPEN.store(false, Release);
        if let Some(out) = &mut self.port {
            wire::done(out, code);
        }
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

/// Has the rings drained. Interrupts off, perhaps in the middle of an operation on this CPU's P.
#[cold]
pub(crate) fn ask() {
    if !is_open() {
        return;
    }
    WANTED.store(true, Relaxed);
    let drainer = DRAINER.lock().take();
    if let Some(g) = drainer {
        door::ready_from_interrupt(g);
        // An interrupt moves it to the queue, when this CPU is in no queue operation.
        door::interrupt_this_cpu();
    }
}

pub(crate) fn spawn_drainer() {
    if !HAS_DRAINER.swap(true, Relaxed)
        && let Err(error) = service::spawn("trace", drain_for_ever)
    {
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
        if let Some(mut stream) = wait_for_stream() {
            stream.drain(true);
        }
    }
}

/// The stream, when other writers are done; `None` if they are stuck.
fn wait_for_stream() -> Option<MutexGuard<'static, Stream>> {
    let mut seen = (BLOCKS.load(Relaxed), door::now_ns());
    loop {
        if let Some(stream) = STREAM.try_lock() {
            return Some(stream);
        }
        let now = (BLOCKS.load(Relaxed), door::now_ns());
        if now.0 != seen.0 {
            seen = now;
        } else if now.1 >= seen.1 + PATIENCE_NS || !run::is_running() {
            return None; // an M cannot wait: main was abandoned
        }
        door::yield_now();
    }
}

/// Tracing has gone off, when the counters were these: writes out the rest. By a G.
pub(crate) fn pause(cpus: &[PInfo]) -> Option<MutexGuard<'static, Stream>> {
    let mut stream = wait_for_stream()?;
    stream.cursors.iter_mut().zip(cpus).for_each(|(cursor, p)| cursor.end(p));
    stream.drain(true);
    Some(stream)
}

/// The end: the rest, the counters, and the end mark; `cpus` if tracing has just gone off, as for
/// [`pause`]. By a G.
pub(crate) fn finish(code: u32, cpus: Option<&[PInfo]>) {
    if !is_open() {
        return;
    }
    let Some(mut stream) = cpus.map_or_else(wait_for_stream, pause) else { return };
    let Stream { port: Some(out), cursors, .. } = &mut *stream else { return };
    for (cpu, cursor) in cursors[..arch::num_cpus()].iter().enumerate() {
        wire::stat(out, cpu as u32, cursor.counters());
    }
    stream.write_end(code);
}

/// Gives the other CPUs a while to go idle, so that their counters and their last events agree; not
/// if they are busy.
pub(crate) fn let_others_settle() {
    // It does not yield: each time would be an event, and thousands of them would overwrite the
    // ring and keep the G that drains busy. Other CPUs steal the Gs that wait here.
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
        && let Some(mut stream) = STREAM.try_lock()
    {
        let has_names = NAMES.try_lock().is_some(); // a CPU that was stopped may hold it
        stream.drain(has_names);
        stream.write_end(code);
    }
}

impl Cursor {
    const NEW: Cursor = Cursor { read: 0, sent: 0, lost: 0, counts: [0; _] };

    fn lose(&mut self, lost: u64) {
        self.lost += lost;
        self.sent += lost;
    }

    fn write(&mut self, out: &mut dyn Out, cpu: usize, events: &[Event]) {
        wire::events(out, cpu as u32, self.sent, events);
        self.sent += events.len() as u64;
    }

    /// Recording begins on that P. The start of a G that runs already is among the events
    /// ([`Stream::write_present`]).
    fn begin(&mut self, p: &PInfo) {
        let switches = p.switches.saturating_sub(p.g.is_some().into());
        self.count(&PInfo { switches, ..*p }, u64::wrapping_sub);
    }

    fn end(&mut self, p: &PInfo) {
        self.count(p, u64::wrapping_add);
    }

    fn count(&mut self, p: &PInfo, with: fn(u64, u64) -> u64) {
        let PInfo { switches, preemptions, ticks, halts, wakes, .. } = *p;
        let PInfo { displacements, handoffs, steals, .. } = *p;
        let now = [switches, preemptions, ticks, halts, wakes, displacements, handoffs, steals];
        self.counts = core::array::from_fn(|i| with(self.counts[i], now[i]));
    }

    fn counters(&self) -> [u64; wire::COUNTERS] {
        let mut all = [0; wire::COUNTERS];
        (all[0], all[1]) = (self.sent, self.lost);
        for (to, count) in all[2..].iter_mut().zip(self.counts) {
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
    fn an_event_may_be_recorded_where_a_device_readies_a_g() {
        let device = IrqLock::at(Level::Poll, ());
        let _held = device.lock();
        drop(DRAINER.lock());
        drop(NAMES.lock());
    }

    #[test]
    fn what_is_counted_in_a_pause_belongs_to_no_event() {
        let counts = |[began, paused, resumed, ended]: [PInfo; 4]| {
            let mut cursor = Cursor::NEW;
            cursor.begin(&began);
            cursor.end(&paused);
            cursor.begin(&resumed);
            cursor.end(&ended);
            cursor.counters()
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
        let mut cursor = Cursor::NEW;
        cursor.write(&mut bytes, 0, &[TICK]);
        cursor.lose(10);
        cursor.write(&mut bytes, 0, &[TICK, TICK]);
        let stream = decode(&bytes).expect("a stream");
        assert_eq!((stream.events(), stream.lost()), (3, 10));
        assert_eq!((cursor.sent, cursor.lost), (13, 10));
    }
}
