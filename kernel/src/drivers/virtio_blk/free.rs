//! The free slots of the disk, and the Gs that wait for one.
//!
//! The interrupt returns slots whose request timed out, so they are in a queue that needs no lock:
//! crossbeam's `ArrayQueue`, allocated once. A `push` that meets a half-done `pop` waits for it,
//! and the other way round; so both are done with interrupts off, and each wait is a few
//! instructions of another CPU.
//!
//! Gs wait in order, and get a slot handed over. An interrupt cannot do that, as only Gs ready
//! waiters: slots that it has returned are handed over by the next G that takes a slot or gives
//! one back; and at its deadline a waiter looks for itself.
#![forbid(unsafe_code)]

use crate::drivers::virtio::slots::SLOTS;
use crate::mem::percpu::Here;
use crate::run::door::{self, Reason};
use crate::wait::queue::{Place, WaitQueue, Waited};
use crossbeam_queue::ArrayQueue;

pub struct FreeSlots {
    free: ArrayQueue<usize>,
    /// The Gs that wait; each gets the number of a slot.
    waiters: WaitQueue<(), usize>,
}

impl FreeSlots {
    pub fn new() -> Self {
        let slots = FreeSlots { free: ArrayQueue::new(SLOTS), waiters: WaitQueue::new(()) };
        (0..SLOTS).for_each(|slot| slots.push(slot));
        slots
    }

    /// Takes a slot; waits for one until `deadline_ns`, behind the Gs that wait already.
    pub fn take(&self, deadline_ns: u64) -> Option<usize> {
        if self.waiters.looks_waited_for(0) {
            self.serve();
        } else if let Some(slot) = self.pop() {
            return Some(slot);
        }
        door::might_park();
        let waiters = self.waiters.lock();
        let mut slot = if waiters.is_empty(0) { self.pop() } else { None };
        if slot.is_none() {
            let deadline_ns = Some(deadline_ns);
            let place = Place { reason: Reason::Poll, list: 0, value: None, deadline_ns };
            let look = |(): &mut ()| {
                slot = self.pop();
                slot.is_some()
            };
            if let Waited::Granted(given) = waiters.wait(place, look) {
                return given;
            }
        }
        slot
    }

    /// Frees a slot. Any context. A G calls [`serve`](Self::serve) afterwards.
    pub fn push(&self, slot: usize) {
        let _here = Here::enter(); // interrupts off: see the top
        self.free.push(slot).expect("there is room for all slots");
    }

    fn pop(&self) -> Option<usize> {
        let _here = Here::enter();
        self.free.pop()
    }

    /// Hands free slots over to the Gs that wait. Not in an interrupt.
    pub fn serve(&self) {
        loop {
            let mut waiters = self.waiters.lock();
            if waiters.is_empty(0) {
                return;
            }
            let Some(slot) = self.pop() else { return };
            match waiters.give(0, slot) {
                Ok(wake) => waiters.ready(wake),
                Err(slot) => return self.push(slot),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;
    use std::sync::Arc;

    #[test]
    fn every_slot_is_taken_once() {
        let free = FreeSlots::new();
        let taken: Vec<_> = core::iter::from_fn(|| free.take(0)).collect();
        assert_eq!(taken, (0..SLOTS).collect::<Vec<_>>());
        free.push(7);
        assert_eq!((free.take(0), free.take(0)), (Some(7), None));
    }

    #[test]
    fn a_slot_is_handed_to_the_g_that_has_waited_longest() {
        let free = Arc::new(FreeSlots::new());
        while free.take(0).is_some() {}
        let waiters: Vec<_> = (1..=3)
            .map(|number| {
                let waiter = Arc::clone(&free);
                let waiter = go(move || waiter.take(u64::MAX));
                while free.waiters.lock().waiting(0) < number {
                    yield_now();
                }
                waiter
            })
            .collect();
        for (slot, waiter) in [5, 3, 9].into_iter().zip(waiters) {
            free.push(slot);
            free.serve();
            assert_eq!(waiter.join(), Ok(Some(slot)));
        }
    }

    #[test]
    fn a_slot_that_an_interrupt_returned_is_found_at_the_deadline() {
        let free = Arc::new(FreeSlots::new());
        while free.take(0).is_some() {}
        let waiter = Arc::clone(&free);
        let waiter = go(move || waiter.take(door::now_ns() + 50_000_000));
        while free.waiters.lock().waiting(0) == 0 {
            yield_now();
        }
        free.push(4);
        assert_eq!(waiter.join(), Ok(Some(4)));
    }
}
