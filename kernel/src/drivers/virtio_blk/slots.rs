//! The table of requests: the owner of each slot's memory at every instant.
//!
//! A slot is a request with a buffer of its own. Only the owner of the slot may touch the
//! buffer; a slot changes its owner under the lock of the ring.
//!
//! ```text
//!            take            send                 completed, a G waits
//!   Free ───────────▶ Held ─────────▶ InFlight ──────────────▶ Done
//!    ▲ ▲  put back     │                 │                      │ collect
//!    │ └───────────────┘                 │ abandon: the G       ▼
//!    │                                   │ waits no more       Held
//!    │      completed, no G waits        ▼
//!    └────────────────────────────── Abandoned
//! ```
//!
//! The requesting G owns `Held` and `Done`, the device `InFlight` and `Abandoned`. So a
//! request that timed out keeps its memory until the device gives it back, late or never.
//!
//! This file has no registers, no memory and no waiting; `virtio_blk` has those.

/// Descriptors in the ring. Most devices offer 128 or 256.
pub const RING: usize = 128;
/// Requests at a time: each takes up to three descriptors.
pub const SLOTS: usize = RING / 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Held,
    InFlight,
    Done(u8),
    Abandoned,
}

/// The device named a request that it does not have. It is not trusted from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bogus(pub u16);

/// The meaning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// A G waits for this slot.
    Wake(usize),
    /// No G waited any more: the slot is free again.
    Returned,
}

/// All slots.
pub struct Slots {
    states: [State; SLOTS],
    /// The slot whose chain of descriptors begins there.
    by_head: [Option<u8>; RING],
    /// Abandoned slots that came back since the last `take_returned`.
    returned: usize,
}

impl Slots {
    /// All free.
    pub const fn new() -> Slots {
        Slots { states: [State::Free; SLOTS], by_head: [None; RING], returned: 0 }
    }

    /// A free slot, held by the caller from now on.
    pub fn take(&mut self) -> Option<usize> {
        let slot = self.states.iter().position(|state| *state == State::Free)?;
        self.states[slot] = State::Held;
        Some(slot)
    }

    /// Gives a held slot back.
    pub fn put_back(&mut self, slot: usize) {
        debug_assert_eq!(self.states[slot], State::Held, "slot not held");
        self.states[slot] = State::Free;
    }

    /// A held slot belongs to the device from now on; its chain begins at `head`.
    pub fn send(&mut self, slot: usize, head: u16) {
        debug_assert_eq!(self.states[slot], State::Held, "slot not held");
        self.states[slot] = State::InFlight;
        self.by_head[usize::from(head)] = Some(slot as u8);
    }

    /// The slot whose chain begins at `head`.
    ///
    /// # Errors
    /// There is none.
    pub fn at(&self, head: u16) -> Result<usize, Bogus> {
        let slot = self.by_head.get(usize::from(head)).copied().flatten();
        slot.map(usize::from).ok_or(Bogus(head))
    }

    /// The device has given the chain at `head` back, with this status.
    ///
    /// # Errors
    /// It did not have it.
    pub fn completed(&mut self, head: u16, status: u8) -> Result<Answer, Bogus> {
        let slot = self.at(head)?;
        self.by_head[usize::from(head)] = None;
        if self.states[slot] == State::Abandoned {
            self.states[slot] = State::Free;
            self.returned += 1;
            return Ok(Answer::Returned);
        }
        self.states[slot] = State::Done(status);
        Ok(Answer::Wake(slot))
    }

    /// The status of a slot that is done, which is held by the caller again.
    pub fn collect(&mut self, slot: usize) -> Option<u8> {
        let State::Done(status) = self.states[slot] else { return None };
        self.states[slot] = State::Held;
        Some(status)
    }

    /// No G waits for this slot any more. True if it is free at once: the device may have
    /// completed it just now.
    pub fn abandon(&mut self, slot: usize) -> bool {
        let is_done = matches!(self.states[slot], State::Done(_));
        self.states[slot] = if is_done { State::Free } else { State::Abandoned };
        is_done
    }

    /// How many abandoned slots came back since the last call.
    pub fn take_returned(&mut self) -> usize {
        core::mem::take(&mut self.returned)
    }

    /// Requests that the device has, abandoned or not.
    #[cfg(any(not(target_os = "none"), feature = "internals"))]
    pub fn in_flight(&self) -> usize {
        let is_out = |state: &&State| matches!(state, State::InFlight | State::Abandoned);
        self.states.iter().filter(is_out).count()
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_taken_once() {
        let mut slots = Slots::new();
        let taken: Vec<_> = core::iter::from_fn(|| slots.take()).collect();
        assert_eq!(taken, (0..SLOTS).collect::<Vec<_>>());
        slots.put_back(7);
        assert_eq!((slots.take(), slots.take()), (Some(7), None));
    }

    #[test]
    fn an_answer_wakes_the_slot_that_was_sent() {
        let mut slots = Slots::new();
        let (a, b) = (slots.take().unwrap(), slots.take().unwrap());
        slots.send(a, 40);
        slots.send(b, 3);
        assert_eq!(slots.in_flight(), 2);
        assert_eq!(slots.collect(b), None, "not done yet");
        assert_eq!(slots.completed(3, 1), Ok(Answer::Wake(b)), "in any order");
        assert_eq!(slots.completed(40, 0), Ok(Answer::Wake(a)));
        assert_eq!((slots.collect(a), slots.collect(b)), (Some(0), Some(1)));
        assert_eq!(slots.collect(a), None, "collected once");
        slots.put_back(a);
        assert_eq!(slots.take(), Some(a));
    }

    #[test]
    fn an_abandoned_slot_stays_the_devices_until_it_answers() {
        let mut slots = Slots::new();
        let slot = slots.take().unwrap();
        slots.send(slot, 0);
        assert!(!slots.abandon(slot));
        let rest: Vec<_> = core::iter::from_fn(|| slots.take()).collect();
        assert!(!rest.contains(&slot), "its memory may still be written to");
        assert_eq!(slots.completed(0, 0), Ok(Answer::Returned));
        assert_eq!((slots.take_returned(), slots.take_returned()), (1, 0));
        assert_eq!(slots.take(), Some(slot));
    }

    #[test]
    fn abandoning_what_is_done_frees_it_at_once() {
        let mut slots = Slots::new();
        let slot = slots.take().unwrap();
        slots.send(slot, 9);
        assert_eq!(slots.completed(9, 0), Ok(Answer::Wake(slot)));
        assert!(slots.abandon(slot));
        assert_eq!(slots.take_returned(), 0, "whoever abandons gives the permit back");
        assert_eq!(slots.take(), Some(slot));
    }

    #[test]
    fn answers_that_nobody_asked_for_are_refused() {
        let mut slots = Slots::new();
        assert_eq!(slots.completed(0, 0), Err(Bogus(0)));
        assert_eq!(slots.completed(RING as u16, 0), Err(Bogus(RING as u16)));
        assert_eq!(slots.completed(u16::MAX, 0), Err(Bogus(u16::MAX)));
        let slot = slots.take().unwrap();
        slots.send(slot, 5);
        assert_eq!(slots.completed(5, 0), Ok(Answer::Wake(slot)));
        assert_eq!(slots.completed(5, 0), Err(Bogus(5)), "twice");
    }
}
