//! The table of requests: the owner of each slot's memory at every instant.
//!
//! A slot is a request with memory of its own. Only the owner of the slot may touch that memory; a
//! slot changes its owner under the lock of the ring.
//!
//! ```text
//!              send                completed, a G waits
//!   Driver ──────────▶ InFlight ──────────────────────▶ Done
//!    ▲ ▲                   │                             │ collect, or abandon
//!    │ └───────────────────┼─────────────────────────────┘
//!    │                     │ abandon: the G waits no more
//!    │  completed          ▼
//!    └──────────────── Abandoned
//! ```
//!
//! The driver owns `Driver` and `Done`, the device `InFlight` and `Abandoned`. So a request that
//! timed out keeps its memory until the device gives it back, late or never. Which G of the driver
//! holds a slot, and which slots are free, is the driver's.
//!
//! This file has no registers, no memory and no waiting.

/// Descriptors in the ring. Most devices offer 128 or 256.
pub const RING: usize = 128;
/// Requests at a time: each takes up to three descriptors.
pub const SLOTS: usize = RING / 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Driver,
    InFlight,
    Done,
    Abandoned,
}

/// The device named a request that it does not have. It is not trusted from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bogus(pub u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    Wake(usize),
    /// No G waited any more: the driver has this slot again.
    Returned(usize),
}

pub struct Slots {
    states: [State; SLOTS],
    /// The slot whose chain of descriptors begins there.
    by_head: [Option<u8>; RING],
}

impl Slots {
    pub const fn all_idle() -> Slots {
        Slots { states: [State::Driver; SLOTS], by_head: [None; RING] }
    }

    /// A slot of the driver belongs to the device from now on; its chain begins at `head`.
    pub fn send(&mut self, slot: usize, head: u16) {
        debug_assert_eq!(self.states[slot], State::Driver, "slot not the driver's");
        self.states[slot] = State::InFlight;
        self.by_head[usize::from(head)] = Some(slot as u8);
    }

    pub fn at(&self, head: u16) -> Result<usize, Bogus> {
        let slot = self.by_head.get(usize::from(head)).copied().flatten();
        slot.map(usize::from).ok_or(Bogus(head))
    }

    /// The device has given the chain at `head` back.
    pub fn completed(&mut self, head: u16) -> Result<Answer, Bogus> {
        let slot = self.at(head)?;
        self.by_head[usize::from(head)] = None;
        let (state, answer) = match self.states[slot] {
            State::Abandoned => (State::Driver, Answer::Returned(slot)),
            _ => (State::Done, Answer::Wake(slot)),
        };
        self.states[slot] = state;
        Ok(answer)
    }

    /// True if the slot is done: it is the caller's again.
    pub fn collect(&mut self, slot: usize) -> bool {
        let is_done = self.states[slot] == State::Done;
        if is_done {
            self.states[slot] = State::Driver;
        }
        is_done
    }

    /// No G waits for this slot any more. True if it is the caller's at once: it is done.
    pub fn abandon(&mut self, slot: usize) -> bool {
        let is_done = self.collect(slot);
        if !is_done {
            self.states[slot] = State::Abandoned;
        }
        is_done
    }

    /// Requests that the device has, abandoned or not.
    #[cfg(any(not(target_os = "none"), feature = "internals"))]
    pub fn in_flight(&self) -> usize {
        let is_out = |state: &&State| matches!(state, State::InFlight | State::Abandoned);
        self.states.iter().filter(is_out).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Slots {
        pub(crate) fn first_idle(&self) -> Option<usize> {
            self.states.iter().position(|state| *state == State::Driver)
        }
    }

    #[test]
    fn an_answer_wakes_the_slot_that_was_sent() {
        let mut slots = Slots::all_idle();
        let (a, b) = (0, 1);
        slots.send(a, 40);
        slots.send(b, 3);
        assert_eq!(slots.in_flight(), 2);
        assert!(!slots.collect(b), "not done yet");
        assert_eq!(slots.completed(3), Ok(Answer::Wake(b)), "in any order");
        assert_eq!(slots.completed(40), Ok(Answer::Wake(a)));
        assert!(slots.collect(a) && slots.collect(b));
        assert!(!slots.collect(a), "collected once");
        slots.send(a, 40);
    }

    #[test]
    fn an_abandoned_slot_stays_the_devices_until_it_answers() {
        let mut slots = Slots::all_idle();
        slots.send(7, 0);
        assert!(!slots.abandon(7));
        assert_eq!(slots.in_flight(), 1, "its memory may still be written to");
        assert!(!slots.collect(7));
        assert_eq!(slots.completed(0), Ok(Answer::Returned(7)));
        assert_eq!(slots.in_flight(), 0);
        slots.send(7, 0);
    }

    #[test]
    fn abandoning_what_is_done_frees_it_at_once() {
        let mut slots = Slots::all_idle();
        slots.send(2, 9);
        assert_eq!(slots.completed(9), Ok(Answer::Wake(2)));
        assert!(slots.abandon(2));
        slots.send(2, 9);
    }

    #[test]
    fn answers_that_nobody_asked_for_are_refused() {
        let mut slots = Slots::all_idle();
        assert_eq!(slots.completed(0), Err(Bogus(0)));
        assert_eq!(slots.completed(RING as u16), Err(Bogus(RING as u16)));
        assert_eq!(slots.completed(u16::MAX), Err(Bogus(u16::MAX)));
        slots.send(0, 5);
        assert_eq!(slots.completed(5), Ok(Answer::Wake(0)));
        assert_eq!(slots.completed(5), Err(Bogus(5)), "twice");
    }
}
