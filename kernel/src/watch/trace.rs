//! The scheduler's events, with time: a ring for each CPU.
//!
//! `run` records what it does through its hooks, one line a place. While tracing is off (no
//! `trace=` on the command line, and no [`start`]) recording is the test of one flag, and on the
//! path of a switch not even that: the switch tests one word for all that is rare
//! (`preempt::Attention`), and this is one bit of it. Otherwise an event is 16 bytes ([`Event`]) in
//! the ring of its CPU (`run::ring`); overwritten events are counted.
//!
//! A ring is written by its own CPU, with interrupts off. The report of a panic shows the last
//! events ([`last`]); they are printed at the end (`dump`), hashed so that two runs can be compared
//! by a line per CPU (`hash`), or written out while the machine runs ([`stream`]).
//!
//! # Reproducible events
//!
//! Time counts from the end of bring-up. For two runs to be equal to the instruction (under QEMU's
//! `-icount`) they must also begin equal: [`begin`] halts the boot CPU once with all others halted,
//! which is a state without history: no CPU is in the middle of a turn, and no timer of the
//! emulator runs on from an earlier time. The frequencies that the bring-up measures differ by a
//! few counts from boot to boot; `tsc=` and `lapic=` state them instead.

mod stream;
mod wire;

pub(crate) use crate::run::{Event, Kind, What};
pub(crate) use stream::{abandon, ask};

use crate::arch::text_enum;
use crate::run::account::FullAccounting;
use crate::run::preempt::Attention;
use crate::run::ring::{RINGS, Ring, Slot};
use crate::watch::{self, PInfo};
use crate::{arch, run};
use alloc::vec::Vec;
use core::panic::Location;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// What is done with the events: `trace=` on the command line.
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

/// Events that a ring holds unless `events=` says otherwise.
const DEFAULT_EVENTS: usize = 4096;
/// How long the boot CPU halts before the first event: the others need some microseconds to halt,
/// and an emulator's clock jumps over the rest.
const SETTLE_NS: u64 = 20_000_000;

/// Whether events are recorded, hashed too, and printed at the end.
static IS_ON: AtomicBool = AtomicBool::new(false);
static IS_HASHED: AtomicBool = AtomicBool::new(false);
static IS_DUMPED: AtomicBool = AtomicBool::new(false);
static CAPACITY: AtomicUsize = AtomicUsize::new(DEFAULT_EVENTS);
/// The cycle counter at the time origin.
static ZERO: AtomicU64 = AtomicU64::new(0);

/// Records an event of this CPU, if tracing is on; of no G if that is 0. Any context.
#[inline(always)]
pub(crate) fn event_now(g: u64, what: What) {
    if IS_ON.load(Acquire) {
        note(None, g, what);
    }
}

/// Records that a G was created; its name is written to the stream.
pub(crate) fn created(g: u64, what: What, name: &'static str, site: &'static Location<'static>) {
    if IS_ON.load(Acquire) {
        note(None, g, what);
        stream::note_name(g, name, site);
    }
}

/// Records an event of this CPU that was at `time`, if tracing is on.
pub(crate) fn event_at(time: u64, g: u64, what: What) {
    if IS_ON.load(Acquire) {
        note(Some(time), g, what);
    }
}

#[cold]
fn note(time: Option<u64>, g: u64, what: What) {
    // Off, so that an interrupt's events do not come between.
    let irqs = arch::irq::disable();
    let time = time.unwrap_or_else(arch::cycles);
    // Not by its slot: a CPU that is slow to come up takes interrupts before `init_cpu`.
    let ring = &RINGS[arch::cpu_index()];
    if IS_HASHED.load(Relaxed) {
        let since = time.wrapping_sub(ZERO.load(Relaxed));
        ring.hash([since, g, u64::from(what.0)]);
    }
    // SAFETY: events are recorded when the rings have memory. This CPU's own, interrupts off.
    if unsafe { ring.push(Event { time, g: g as u32, what }) } {
        stream::ask();
    }
    arch::irq::restore(irqs);
}

/// The end of bring-up: allocates the rings, if tracing is requested, waits until all other CPUs
/// have halted, and sets the time to 0. On the boot CPU, with interrupts off, before it starts the
/// first G.
pub(crate) fn begin(choice: TraceChoice, events: Option<usize>) {
    CAPACITY.store(events.unwrap_or(DEFAULT_EVENTS).max(2).next_power_of_two(), Relaxed);
    if choice == TraceChoice::Off {
        return;
    }
    if let Err(error) = give_rings() {
        return log::error!("trace: {error}");
    }
    // Halts until a while has passed: see "Reproducible events".
    let deadline_ns = arch::now_ns() + SETTLE_NS;
    while arch::now_ns() < deadline_ns {
        // Armed again each time, as another interrupt may have ended the halt; but not when its
        // time has come, or it would fire into the first G.
        if arch::has_timer() {
            arch::arm_timer(arch::cycles_at(deadline_ns));
            arch::wait_for_interrupt();
        } else {
            arch::relax();
        }
    }
    ZERO.store(arch::cycles(), Relaxed);
    if choice == TraceChoice::Stream {
        return begin_stream(|| ZERO.load(Relaxed))
            .unwrap_or_else(|error| log::error!("trace: {error}"));
    }
    let is_hashed = matches!(choice, TraceChoice::Hash | TraceChoice::Dump);
    IS_HASHED.store(is_hashed, Relaxed);
    IS_DUMPED.store(choice == TraceChoice::Dump, Relaxed);
    // Hashed events take the slow path.
    switch_on(if is_hashed { Attention::HASH } else { Attention::TRACE });
}

/// The second half of [`begin`], when there are Gs: starts the service G that drains the rings.
pub(crate) fn begin_draining() {
    if stream::is_open() && IS_ON.load(Relaxed) {
        stream::spawn_drainer();
    }
}

/// Writes events out from now on, while the machine runs; by a G. After an error nothing has been
/// started.
///
/// ```no_run
/// use runnext::{prelude::*, trace};
/// trace::start()?;
/// go(|| ()).join().unwrap();
/// trace::stop();
/// # Ok::<(), trace::StartError>(())
/// ```
pub fn start() -> Result<(), StartError> {
    begin_stream(|| {
        stream::let_others_settle();
        arch::cycles()
    })?;
    stream::spawn_drainer();
    Ok(())
}

/// Ends what [`start`] has begun, and writes out the rest. False if events were not being written
/// out.
pub fn stop() -> bool {
    if !stream::is_open() || !IS_ON.load(Relaxed) {
        return false;
    }
    stream::let_others_settle();
    let mut cpus = watch::stats().cpus;
    let was_on = counting(&mut cpus, switch_off); // else another G was faster
    if was_on {
        drop(stream::pause(&cpus));
    }
    was_on
}

text_enum! {
    /// Why events cannot be written out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub error StartError {
        IsOn => "events are recorded already",
        NoMemory => "no memory for the events",
        NoPort => "no debug console to write events to",
    }
}

fn give_rings() -> Result<(), StartError> {
    let len = CAPACITY.load(Relaxed);
    for ring in RINGS[..arch::num_cpus()].iter().filter(|ring| !ring.is_given()) {
        let mut slots = Vec::new();
        slots.try_reserve_exact(len).map_err(|_| StartError::NoMemory)?;
        slots.resize_with(len, Slot::default);
        // SAFETY: tracing is off and was never on, so no other CPU reads it; one G starts at a time
        // (`start`), or the boot CPU alone does.
        unsafe { ring.give(slots.leak()) };
    }
    Ok(())
}

/// `zero` gives the time origin, if this is the first stream.
fn begin_stream(zero: impl FnOnce() -> u64) -> Result<(), StartError> {
    // One at a time; a second caller meanwhile gets an error.
    let mut stream = stream::STREAM.try_lock().ok_or(StartError::IsOn)?;
    if IS_ON.load(Relaxed) || IS_HASHED.load(Relaxed) {
        return Err(StartError::IsOn);
    }
    give_rings()?;
    stream.open(zero())?;
    let mut cpus = watch::stats().cpus;
    let time = counting(&mut cpus, || {
        switch_on(Attention::TRACE);
        arch::cycles()
    });
    stream.write_present(time, &cpus);
    Ok(())
}

/// Switches tracing on or off, and stores what each CPU has counted by then. An interrupt of this
/// CPU in between would be counted and have no event, or the reverse; the others have settled.
fn counting<R>(cpus: &mut [PInfo], switch: impl FnOnce() -> R) -> R {
    arch::probe_stack();
    let irqs = arch::irq::disable();
    let done = switch();
    cpus.iter_mut().enumerate().for_each(|(cpu, p)| *p = PInfo::of(cpu));
    arch::irq::restore(irqs);
    done
}

fn switch_on(attention: u32) {
    core::mem::forget(FullAccounting::begin()); // until `switch_off`
    IS_ON.store(true, Release); // publishes the rings' memory; pairs with `event_now`
    run::all_slices().for_each(|slices| slices.attention.set(attention));
}

/// False if tracing was off.
fn switch_off() -> bool {
    let bits = Attention::TRACE | Attention::HASH;
    run::all_slices().for_each(|slices| slices.attention.clear(bits));
    let was_on = IS_ON.swap(false, Relaxed);
    if was_on {
        FullAccounting::end();
    }
    was_on
}

/// The end of the program: stops tracing, and writes the requested output. For `hash` and `dump` a
/// CPU's line is `TRACE <cpu> <events> <overwritten> <hash>`; before it come, if requested, its
/// events as `EVENT <cpu> <time> <kind> <g> <arg>`.
pub(crate) fn finish(code: u32) {
    let mut cpus = Vec::new();
    if IS_ON.load(Relaxed) && stream::is_open() {
        stream::let_others_settle();
        cpus = watch::stats().cpus;
    }
    // The first G that ends the machine prints.
    let was_on = counting(&mut cpus, switch_off);
    stream::finish(code, was_on.then_some(&cpus));
    if !was_on || !IS_HASHED.load(Relaxed) {
        return;
    }
    for (cpu, ring) in RINGS[..arch::num_cpus()].iter().enumerate() {
        if IS_DUMPED.load(Relaxed) {
            last(cpu, u64::MAX).for_each(|event| crate::println!("EVENT {cpu} {event}"));
        }
        let count = ring.count().unwrap_or(0);
        crate::println!("TRACE {cpu} {count} {} {:016x}", ring.lost(), ring.digest());
    }
}

/// The last `most` events of `cpu`, oldest first, with the time since the time origin; none if
/// tracing was never on.
pub(crate) fn last(cpu: usize, most: u64) -> impl Iterator<Item = Event> {
    let ring = RINGS.get(cpu).filter(|_| cpu < arch::num_cpus());
    let mut from = ring.and_then(Ring::count).unwrap_or(0).saturating_sub(most);
    let zero = ZERO.load(Relaxed);
    core::iter::from_fn(move || {
        let mut into = [Event { time: 0, g: 0, what: What(0) }];
        let (first, len) = ring?.read(from, &mut into);
        from = first + 1;
        let [event] = into;
        (len == 1).then(|| Event { time: event.time.wrapping_sub(zero), ..event })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_dropped_while_nobody_wants_them() {
        event_now(0, What::new(Kind::Tick, 0));
        created(1, What::new(Kind::Create, 0), "g", Location::caller());
        event_at(0, 1, What::START);
        assert_eq!(last(0, u64::MAX).count(), 0);
    }
}
