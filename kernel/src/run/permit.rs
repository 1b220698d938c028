//! The permit of a G: what an unpark leaves and the next park takes (`gref`).
//!
//! # Why no permit is lost, and none hits the wrong life
//!
//! `park` begins to park and then takes the permit; `unpark` leaves the permit and then readies.
//! Both touch the permit's word by one atomic read-modify-write, so one of them comes first. If
//! `unpark`, `park` sees the permit. If `park`, then `unpark` sees that the G is parking, as that
//! was stored before, and its `ready` is not lost.
//!
//! The G's record is used for one life after another, so the word also has the number of the life:
//! a permit for an earlier life is not taken, and never replaces one for a later. The loom model is
//! `tests/loom_gref.rs`.
#![forbid(unsafe_code)]

use super::sys::{AtomicU64, const_fn};
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

/// The generation that it is for in the upper bits, "there is one" in the lowest bit.
#[derive(Default)]
pub(crate) struct Permit(AtomicU64);

impl Permit {
    const_fn! {
        pub(crate) fn new() -> Self {
            Permit(AtomicU64::new(0))
        }
    }

    /// Leaves a permit for that life, unless a later life has had one.
    pub(crate) fn give(&self, generation: u32) {
        let given = u64::from(generation) << 1 | 1;
        let mut word = self.0.load(Relaxed);
        // Generations wrap, so "later" is decided by the distance.
        while generation.wrapping_sub((word >> 1) as u32) as i32 >= 0 {
            // Written also when it is there already: see the top of this file.
            match self.0.compare_exchange_weak(word, given, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Takes that life's permit, if there is one. That life's G only.
    pub(crate) fn take(&self, generation: u32) -> bool {
        // A permit of an earlier life is cleared, too: it is of no use any more.
        let word = self.0.fetch_and(!1, AcqRel);
        word == u64::from(generation) << 1 | 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_taken_once_and_by_its_own_life() {
        let permit = Permit::new();
        assert!(!permit.take(0));
        permit.give(0);
        permit.give(0);
        assert!(permit.take(0) && !permit.take(0), "two gave one permit");
        permit.give(0);
        assert!(!permit.take(1), "the permit of an earlier life");
        permit.give(1);
        permit.give(0); // late
        assert!(permit.take(1), "a late one replaced it");
    }

    #[test]
    fn generations_wrap() {
        let permit = Permit::new();
        for generation in [0x7000_0000, 0xe000_0000, u32::MAX, 0, 1] {
            permit.give(generation);
            assert!(permit.take(generation), "{generation:#x}");
        }
    }
}
