//! What is collected until all CPUs are asked to forget it, without a heap.
//!
//! Called by [`super::Pool::trim`].

use crate::mem::frames::Frame;
use crate::mem::stack::slot::Slot;
use core::ops::Range;

/// Stacks whose pages are forgotten in one round.
const TRIM_SLOTS: usize = 32;
/// Pages that are forgotten in one round.
const TRIM_PAGES: usize = 256;

/// What one round of forgetting covers.
pub struct Round {
    /// Slots that were emptied.
    pub slots: Few<Slot, TRIM_SLOTS>,
    /// Where their pages were.
    pub ranges: Few<Range<u64>, TRIM_SLOTS>,
    /// What the pages had.
    pub frames: Few<Frame, TRIM_PAGES>,
}

impl Round {
    /// Nothing yet.
    pub fn new() -> Self {
        Round {
            slots: Few::new(Slot::new(0, 0)),
            ranges: Few::new(0..0),
            frames: Few::new(Frame::containing(0)),
        }
    }
}

/// A short list without a heap.
pub struct Few<T, const N: usize> {
    items: [T; N],
    count: usize,
}

impl<T: Clone, const N: usize> Few<T, N> {
    /// An empty list; `filler` is what its unused places hold.
    pub fn new(filler: T) -> Self {
        Few { items: core::array::from_fn(|_| filler.clone()), count: 0 }
    }

    /// Adds one; there must be a place.
    pub fn push(&mut self, item: T) {
        self.items[self.count] = item;
        self.count += 1;
    }

    /// Whether there is no place left.
    pub fn is_full(&self) -> bool {
        self.count == N
    }

    /// Nothing at all.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes all off.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// All of them.
    pub fn as_slice(&self) -> &[T] {
        &self.items[..self.count]
    }
}
