//! The events of one CPU, in a ring: its CPU writes, any CPU reads, neither waits. What is done
//! with them is in `watch::trace`; the ring is here so that a traced switch writes to it at once.
//!
//! Recording is a pointer loaded, three words stored, the pointer moved and compared. Only when one
//! half of its memory is full does the owner do more ([`Ring::turn_over`]): it continues in the
//! other half, where the oldest events are overwritten, counts, and wakes the G that drains.
//!
//! # Reading while it is written
//!
//! All words are atomic and stored one by one, so nothing is undefined, but an event that is read
//! while it is overwritten is half old, half new. So a reader copies first and reads the owner's
//! progress afterwards: slots that could have been overwritten until then do not count
//! ([`Ring::read`]).

use super::{Event, What};
use crate::arch;
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};

/// The per-CPU word that points to its ring; `run` has 0 and 1.
pub const RING_SLOT: usize = 2;

/// One for each CPU; without memory unless tracing was requested.
pub static RINGS: [Ring; arch::MAX_CPUS] = [const { Ring::new() }; arch::MAX_CPUS];

/// Sets the ring of this CPU, before it can record anything.
pub fn init_cpu() {
    let ring = &raw const RINGS[arch::cpu_index()];
    arch::set_slot::<RING_SLOT>(ring.expose_provenance());
}

/// That ring. Interrupts off, after [`init_cpu`].
#[inline(always)]
pub fn here() -> &'static Ring {
    // SAFETY: `init_cpu` has put a pointer to a static there, before this CPU records anything.
    unsafe { &*core::ptr::with_exposed_provenance::<Ring>(arch::slot::<RING_SLOT>()) }
}

#[derive(Default)]
pub struct Slot {
    time: AtomicU64,
    g: AtomicU32,
    what: AtomicU32,
}

/// Readings of the owner's progress before a reader gives up.
const LOOKS: usize = 64;

/// The events of one CPU. Two cache lines: CPUs fetch lines in pairs.
#[repr(align(128))]
pub struct Ring {
    // Written by the owner, interrupts off; read by any CPU.
    /// Where the next event goes, in `memory`.
    next: AtomicPtr<Slot>,
    /// Events before the half under way.
    passed: AtomicU64,
    /// The hash of all events so far, if they are hashed.
    hash: AtomicU64,

    /// Where the half under way ends, in `memory` or just behind it. The owner's alone.
    stop: Cell<*mut Slot>,

    // Written once, before anything is recorded.
    memory: Cell<&'static [Slot]>,
}

// SAFETY: `memory` is set before any CPU is told to record or read (`give`), and only read from
// then on; `stop` is its owner's, once it was given; the rest is atomic.
unsafe impl Sync for Ring {}

/// FNV-1a's constants, applied a word at a time here.
const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;
const HASH_PRIME: u64 = 0x0000_0100_0000_01b3;

impl Ring {
    /// A ring without memory, in which nothing may be recorded.
    pub const fn new() -> Self {
        Ring {
            next: AtomicPtr::new(ptr::null_mut()),
            passed: AtomicU64::new(0),
            hash: AtomicU64::new(HASH_START),
            stop: Cell::new(ptr::null_mut()),
            memory: Cell::new(&[]),
        }
    }

    /// Gives it memory: an even number of slots, at least two.
    ///
    /// # Safety
    /// Once, before any other CPU knows of the ring.
    pub unsafe fn give(&self, memory: &'static [Slot]) {
        assert!(memory.len() >= 2 && memory.len().is_multiple_of(2), "odd ring");
        self.memory.set(memory);
        let start = memory.as_ptr().cast_mut();
        self.stop.set(start.wrapping_add(memory.len() / 2));
        self.next.store(start, Release);
    }

    pub fn is_given(&self) -> bool {
        !self.next.load(Acquire).is_null() // pairs with `give`
    }

    /// Records an event. True once in half a ring: it should be drained.
    ///
    /// # Safety
    /// Its own CPU only, interrupts off, after [`Ring::give`].
    #[inline(always)]
    #[must_use]
    pub unsafe fn push(&self, event: Event) -> bool {
        let next = self.next.load(Relaxed); // written by this CPU alone
        // A reader that sees any of this event sees that the events before it are published; pairs
        // with the fence in `read`, and is no instruction here.
        fence(Release);
        // SAFETY: a slot of `memory`: before `stop`, which is its end at most.
        let slot = unsafe { &*next };
        slot.time.store(event.time, Relaxed);
        slot.g.store(event.g, Relaxed);
        slot.what.store(event.what.0, Relaxed);
        let next = next.wrapping_add(1);
        self.next.store(next, Release); // publishes the event; pairs with `count`
        if next == self.stop.get() {
            self.turn_over(next);
            return true;
        }
        false
    }

    #[cold]
    fn turn_over(&self, next: *mut Slot) {
        let memory = self.memory.get();
        let half = memory.len() / 2;
        let range = memory.as_ptr_range();
        if next.cast_const() == range.end {
            let start = range.start.cast_mut();
            self.stop.set(start.wrapping_add(half));
            self.next.store(start, Release);
        } else {
            self.stop.set(range.end.cast_mut());
        }
        // After `next`: a reader that sees this sees that.
        self.passed.store(self.passed.load(Relaxed) + half as u64, Release);
    }

    /// Adds an event to the hash. Its own CPU only.
    pub fn hash(&self, words: [u64; 3]) {
        // The product moves bits up; the rotation moves them back down.
        let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(HASH_PRIME).rotate_left(23);
        self.hash.store(words.into_iter().fold(self.hash.load(Relaxed), mix), Relaxed);
    }

    pub fn digest(&self) -> u64 {
        self.hash.load(Relaxed)
    }

    pub fn capacity(&self) -> u64 {
        if self.is_given() { self.memory.get().len() as u64 } else { 0 }
    }

    /// Events so far, including overwritten ones. `None`: the owner is too fast to tell.
    pub fn count(&self) -> Option<u64> {
        if !self.is_given() {
            return Some(0);
        }
        let memory = self.memory.get();
        for _ in 0..LOOKS {
            let passed = self.passed.load(Acquire);
            let next = self.next.load(Acquire); // pairs with `push`
            if self.passed.load(Acquire) != passed {
                continue; // it has turned over: the two may be of two halves
            }
            let index = (next.addr() - memory.as_ptr().addr()) / size_of::<Slot>();
            let begins = passed % memory.len() as u64;
            // Else it is turning over right now, and the half is full.
            let half = memory.len() as u64 / 2;
            let in_half = (index as u64).checked_sub(begins).filter(|&n| n <= half);
            return Some(passed + in_half.unwrap_or(half));
        }
        None
    }

    /// Copies events from number `from` on into `into`, oldest first, as many as are there and fit.
    /// Returns the number of the first, which is larger than `from` by the events that were
    /// overwritten before they could be read, and how many were copied.
    pub fn read(&self, from: u64, into: &mut [Event]) -> (u64, usize) {
        let memory = self.memory.get();
        let capacity = self.capacity();
        let Some(count) = self.count() else { return (from, 0) };
        let first = from.max(oldest(count, capacity));
        let len = (count.saturating_sub(first)).min(into.len() as u64) as usize;
        for (number, event) in (first..).zip(&mut into[..len]) {
            let slot = &memory[(number % capacity) as usize];
            let (time, g) = (slot.time.load(Relaxed), slot.g.load(Relaxed));
            *event = Event { time, g, what: What(slot.what.load(Relaxed)) };
        }
        fence(Acquire); // copies before counting; pairs with `push`
        // Slots that the owner may have written to meanwhile do not count.
        let valid = self.count().map_or(u64::MAX, |count| oldest(count, capacity));
        let overwritten = valid.saturating_sub(first).min(len as u64) as usize;
        into.copy_within(overwritten..len, 0);
        (first + overwritten as u64, len - overwritten)
    }

    /// How many events were overwritten, or may be at this moment.
    pub fn lost(&self) -> u64 {
        oldest(self.count().unwrap_or(0), self.capacity())
    }
}

/// The number of the oldest of `count` events that is certainly intact: the owner may be writing
/// the next event, and that one overwrites the oldest.
fn oldest(count: u64, capacity: u64) -> u64 {
    (count + 1).saturating_sub(capacity).min(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Kind;

    const NOTHING: Event = Event { time: 0, g: 0, what: What(0) };

    fn event(time: u64) -> Event {
        Event { time, g: 7, what: What::new(Kind::Start, 1) }
    }

    fn ring(len: usize) -> &'static Ring {
        let memory: Vec<Slot> = (0..len).map(|_| Slot::default()).collect();
        let ring = Box::leak(Box::new(Ring::new()));
        // SAFETY: no other thread has it yet.
        unsafe { ring.give(memory.leak()) };
        ring
    }

    fn push(ring: &Ring, time: u64) -> bool {
        // SAFETY: this thread stands for the CPU.
        unsafe { ring.push(event(time)) }
    }

    fn read(ring: &Ring, from: u64, most: usize) -> (u64, Vec<u64>) {
        let mut into = vec![NOTHING; most];
        let (first, len) = ring.read(from, &mut into);
        (first, into[..len].iter().map(|event| event.time).collect())
    }

    #[test]
    fn events_come_out_as_they_went_in_and_once() {
        let ring = ring(8);
        assert!((0..5).map(|time| push(ring, time)).eq([false, false, false, true, false]));
        assert_eq!(read(ring, 0, 3), (0, vec![0, 1, 2]));
        assert_eq!(read(ring, 3, 9), (3, vec![3, 4]));
        assert_eq!(read(ring, 5, 9), (5, vec![]));
    }

    #[test]
    fn oldest_events_are_overwritten_and_the_gap_is_seen() {
        // One less than it has room for: the next may be half written.
        let ring = ring(4);
        for count in 0..40 {
            assert_eq!(ring.count(), Some(count));
            let first = count.saturating_sub(3);
            assert_eq!(read(ring, 0, 9), (first, (first..count).collect()));
            assert_eq!(ring.lost(), first);
            assert_eq!(push(ring, count), count % 2 == 1);
        }
    }

    #[test]
    fn somebody_is_told_once_in_half_a_ring() {
        let ring = ring(8);
        let told: Vec<u64> = (0..24).filter(|&time| push(ring, time)).collect();
        assert_eq!(told, [3, 7, 11, 15, 19, 23]);
    }

    #[test]
    fn ring_without_memory_is_empty() {
        let ring = Ring::new();
        assert!(!ring.is_given());
        assert_eq!((ring.count(), ring.capacity()), (Some(0), 0));
        assert_eq!(read(&ring, 0, 4), (0, vec![]));
    }

    #[test]
    fn hash_tells_every_word_and_their_order() {
        let digest = |events: &[[u64; 3]]| {
            let ring = Ring::new();
            events.iter().for_each(|&words| ring.hash(words));
            ring.digest()
        };
        let (a, b) = ([1, 2, 3], [1, 2, 4]);
        let mut seen = [
            digest(&[]),
            digest(&[a]),
            digest(&[b]),
            digest(&[a, b]),
            digest(&[b, a]),
            digest(&[[2, 1, 3]]),
        ];
        seen.sort_unstable();
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "{seen:x?}");
        assert_eq!(digest(&[a, b]), digest(&[a, b]));
    }

    #[test]
    fn reader_beside_a_fast_writer_never_sees_a_torn_event() {
        let ring = ring(64);
        let events = if cfg!(miri) { 400 } else { 2_000_000 };
        let writer = std::thread::spawn(move || {
            for n in 0..events {
                let event = Event { time: n, g: n as u32, what: What(n as u32 ^ 0xffff) };
                // SAFETY: this thread stands for the CPU.
                let _ = unsafe { ring.push(event) };
            }
        });
        let (mut from, mut got, mut into) = (0, 0, vec![NOTHING; 48]);
        while from < events {
            let is_over = writer.is_finished();
            let (first, len) = ring.read(from, &mut into);
            assert!(first >= from);
            for (number, event) in (first..).zip(&into[..len]) {
                let whole =
                    Event { time: number, g: number as u32, what: What(number as u32 ^ 0xffff) };
                assert_eq!(*event, whole);
            }
            (from, got) = (first + len as u64, got + len);
            if is_over && len == 0 {
                break;
            }
        }
        assert_eq!(from, events, "the last ones are there");
        assert!(got > 0);
        writer.join().expect("no panic");
    }
}
