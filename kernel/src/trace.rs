//! What the scheduler did, and when: a ring of events for each CPU.
//!
//! `schedule` and `preempt` note what they do, one line a place. While nobody
//! asked for it (`trace=` on the command line) a note is the test of one flag.
//! Otherwise it is a time, a kind, the number of a G and an argument in the ring
//! of the CPU that does it; the oldest is overwritten, and how many were is
//! counted. Every event also goes into a hash, so that two runs can be compared
//! by a line a CPU ([`finish`]), however long they were.
//!
//! # One writer
//!
//! A ring is written by its own CPU, with interrupts off. Whoever reads, at the
//! end, has switched the notes off before; a CPU that was in the middle of one
//! leaves at worst one event that is half old. So words that are stored and
//! loaded one by one will do, and neither a lock nor unsafe code is needed.
//!
//! # The same events twice
//!
//! Time counts from the end of bring-up. For two runs to be alike to the
//! instruction (under QEMU's `-icount`) they must also begin alike: [`begin`]
//! halts the boot CPU once with all others halted, which is a state without a
//! past: no CPU is half way through a turn, and no timer of the emulator's runs
//! on from an earlier time. The frequencies that the bring-up measures differ by
//! a few counts from boot to boot; `tsc=` and `lapic=` state them instead.
#![forbid(unsafe_code)]

use crate::arch;
use crate::cmdline::TraceChoice;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64};
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Events that a ring holds unless `events=` says otherwise.
pub const DEFAULT_EVENTS: usize = 4096;

/// How long the boot CPU halts before the first event: the others need some
/// microseconds to halt themselves, and an emulator's clock jumps over the rest.
const SETTLE_NS: u64 = 20_000_000;

/// What happened. The argument of each is in parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A G was made runnable for the first time (the CPU it is pinned to + 1).
    Create = 1,
    /// A G begins to run (1: on a slice of its own).
    Start = 2,
    /// It let others run.
    Yield = 3,
    /// It was preempted.
    Expire = 4,
    /// It waits.
    Park = 5,
    /// It ended.
    Exit = 6,
    /// A G was readied, if it waits.
    Ready = 7,
    /// A sleeping G's time came.
    Fire = 8,
    /// The timer of this CPU fired.
    Tick = 9,
    /// Another CPU was woken (which).
    WakeSent = 10,
    /// Another CPU woke this one.
    WakeReceived = 11,
    /// This CPU halts.
    Halt = 12,
    /// This CPU goes on after a halt.
    Resume = 13,
    /// A G was displaced by one that an interrupt has readied.
    Displace = 14,
    /// A G has left in a call, and its M with it (the M that goes on).
    Handoff = 15,
}

impl Kind {
    const ALL: [Kind; 15] = [
        Kind::Create,
        Kind::Start,
        Kind::Yield,
        Kind::Expire,
        Kind::Park,
        Kind::Exit,
        Kind::Ready,
        Kind::Fire,
        Kind::Tick,
        Kind::WakeSent,
        Kind::WakeReceived,
        Kind::Halt,
        Kind::Resume,
        Kind::Displace,
        Kind::Handoff,
    ];

    fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Cycles of the counter since the end of bring-up.
    pub time: u64,
    /// What happened.
    pub kind: Kind,
    /// To which G; 0 if to none.
    pub g: u64,
    /// What else there is to say.
    pub arg: u32,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { time, kind, g, arg } = self;
        write!(f, "{time} {kind:?} {g} {arg}")
    }
}

/// Whether events are noted.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The cycle counter at the end of bring-up.
static ZERO: AtomicU64 = AtomicU64::new(0);
/// One for each CPU, if events are wanted at all.
static RINGS: spin::Once<Vec<Ring>> = spin::Once::new();

/// Notes an event of this CPU. Any context. The G is asked for its number only
/// if somebody wants to know.
#[inline(always)]
pub fn event(kind: Kind, g: impl FnOnce() -> u64, arg: u32) {
    if IS_ON.load(Relaxed) {
        note(kind, g(), arg);
    }
}

/// Notes an event that is no G's.
#[inline(always)]
pub fn cpu_event(kind: Kind, arg: u32) {
    event(kind, || 0, arg);
}

#[cold]
fn note(kind: Kind, g: u64, arg: u32) {
    // Off, so that an interrupt's events do not come between.
    let were_on = arch::irq_save();
    if let Some(ring) = RINGS.get().and_then(|rings| rings.get(arch::cpu_index())) {
        let time = arch::cycles().wrapping_sub(ZERO.load(Relaxed));
        ring.push(Event { time, kind, g, arg });
    }
    arch::irq_restore(were_on);
}

/// The end of bring-up: takes memory for the rings, if they are wanted, waits
/// until all other CPUs have halted, and sets the time to 0. On the boot CPU,
/// with interrupts off, before it starts the first G.
pub fn begin(choice: TraceChoice, events: Option<usize>) {
    if choice == TraceChoice::Off {
        return;
    }
    let events = events.unwrap_or(DEFAULT_EVENTS);
    let rings: Option<Vec<Ring>> = (0..arch::num_cpus()).map(|_| Ring::new(events)).collect();
    let Some(rings) = rings else {
        log::error!("trace: no memory for {events} events a CPU");
        return;
    };
    RINGS.call_once(|| rings);
    settle();
    ZERO.store(arch::cycles(), Relaxed);
    IS_ON.store(true, Relaxed);
}

/// Halts until a while has passed: see "The same events twice".
fn settle() {
    let deadline_ns = arch::now_ns() + SETTLE_NS;
    while arch::now_ns() < deadline_ns {
        // Anew each time, as another interrupt may have ended the halt; but not
        // when its time has come, or it would fire into the first G.
        arch::arm_timer(deadline_ns);
        arch::wait_for_interrupt();
    }
}

/// The end of the program: stops the notes, and prints what was asked for. A
/// CPU's line is `TRACE <cpu> <events> <overwritten> <hash>`; before it come, if
/// wanted, its events as `EVENT <cpu> <time> <kind> <g> <argument>`.
pub fn finish(choice: TraceChoice) {
    // The first one who ends the machine prints.
    if !IS_ON.swap(false, Relaxed) || choice == TraceChoice::On {
        return;
    }
    for (cpu, ring) in RINGS.get().into_iter().flatten().enumerate() {
        if choice == TraceChoice::Dump {
            ring.events().for_each(|event| crate::println!("EVENT {cpu} {event}"));
        }
        let (count, hash) = (ring.count.load(Acquire), ring.hash.load(Relaxed));
        crate::println!("TRACE {cpu} {count} {} {hash:016x}", ring.lost());
    }
}

/// The last events of `cpu`, oldest first; none if they are not noted.
///
/// ```no_run
/// use runnext::trace::{self, Kind};
/// let switches = trace::events(0).filter(|event| event.kind == Kind::Start).count();
/// ```
pub fn events(cpu: usize) -> impl Iterator<Item = Event> {
    RINGS.get().and_then(|rings| rings.get(cpu)).into_iter().flat_map(Ring::events)
}

/// The events of one CPU. Two cache lines: CPUs fetch lines in pairs.
#[repr(align(128))]
struct Ring {
    slots: Vec<Slot>,
    /// Events so far; the next goes to this number modulo the length.
    count: AtomicU64,
    /// Over all events so far.
    hash: AtomicU64,
}

/// Time, G, and kind and argument together.
#[derive(Default)]
struct Slot([AtomicU64; 3]);

/// FNV-1a's, which is taken a word at a time here.
const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;
const HASH_PRIME: u64 = 0x0000_0100_0000_01b3;

impl Ring {
    /// An empty ring for at least `events` events; `None` without memory.
    fn new(events: usize) -> Option<Ring> {
        let len = events.max(1).next_power_of_two();
        let mut slots = Vec::new();
        slots.try_reserve_exact(len).ok()?;
        slots.resize_with(len, Slot::default);
        Some(Ring { slots, count: AtomicU64::new(0), hash: AtomicU64::new(HASH_START) })
    }

    /// Its own CPU only, interrupts off.
    fn push(&self, event: Event) {
        let words = [event.time, event.g, u64::from(event.kind as u8) << 32 | u64::from(event.arg)];
        let count = self.count.load(Relaxed);
        let slot = &self.slots[count as usize & (self.slots.len() - 1)];
        let mut hash = self.hash.load(Relaxed);
        for (place, word) in slot.0.iter().zip(words) {
            place.store(word, Relaxed);
            // The product moves everything up; the rotation brings it back down.
            hash = (hash ^ word).wrapping_mul(HASH_PRIME).rotate_left(23);
        }
        self.hash.store(hash, Relaxed);
        self.count.store(count + 1, Release); // pairs with `events`
    }

    fn lost(&self) -> u64 {
        self.count.load(Relaxed).saturating_sub(self.slots.len() as u64)
    }

    fn events(&self) -> impl Iterator<Item = Event> {
        let count = self.count.load(Acquire); // pairs with `push`
        (self.lost()..count).filter_map(|number| {
            let slot = &self.slots[number as usize & (self.slots.len() - 1)];
            let [time, g, rest] = slot.0.each_ref().map(|word| word.load(Relaxed));
            let kind = Kind::from_number((rest >> 32) as u8)?;
            Some(Event { time, kind, g, arg: rest as u32 })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time: u64) -> Event {
        Event { time, kind: Kind::Start, g: 7, arg: 1 }
    }

    #[test]
    fn the_oldest_events_are_overwritten_and_counted() {
        let ring = Ring::new(4).expect("memory");
        (0..6).for_each(|time| ring.push(event(time)));
        assert!(ring.events().eq((2..6).map(event)));
        assert_eq!(ring.lost(), 2);
    }

    #[test]
    fn a_ring_that_is_not_full_has_lost_nothing() {
        let ring = Ring::new(3).expect("memory");
        (0..4).for_each(|time| ring.push(event(time)));
        assert_eq!((ring.events().count(), ring.lost()), (4, 0));
    }

    #[test]
    fn every_kind_comes_out_as_it_went_in() {
        let ring = Ring::new(16).expect("memory");
        for kind in Kind::ALL {
            ring.push(Event { time: u64::MAX, kind, g: u64::MAX, arg: u32::MAX });
        }
        assert!(ring.events().map(|event| event.kind).eq(Kind::ALL));
        assert!(ring.events().all(|event| event.g == u64::MAX && event.arg == u32::MAX));
    }

    #[test]
    fn the_hash_tells_every_part_of_an_event_and_their_order() {
        let hash = |events: &[Event]| {
            let ring = Ring::new(1).expect("memory");
            events.iter().for_each(|&event| ring.push(event));
            ring.hash.load(Relaxed)
        };
        let (a, b) = (event(1), event(2));
        let mut seen = Vec::from([hash(&[]), hash(&[a]), hash(&[b]), hash(&[a, b]), hash(&[b, a])]);
        seen.push(hash(&[Event { kind: Kind::Exit, ..a }]));
        seen.push(hash(&[Event { g: 8, ..a }]));
        seen.push(hash(&[Event { arg: 2, ..a }]));
        seen.sort_unstable();
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "{seen:x?}");
        assert_eq!(hash(&[a, b]), hash(&[a, b]));
    }

    #[test]
    fn notes_are_dropped_while_nobody_wants_them() {
        super::event(Kind::Tick, || 0, 0);
        assert_eq!(events(0).count(), 0);
    }
}
