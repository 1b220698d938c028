//! The pages collected for one TLB shootdown, without a heap.
//!
//! Called by [`super::Pool::trim`].

use crate::mem::frames::Frame;
use crate::mem::stack::slot::Slot;
use core::ops::Range;

/// Stacks whose pages are flushed in one round.
const TRIM_SLOTS: usize = 32;
/// Pages that are flushed in one round.
const TRIM_PAGES: usize = 256;

/// One round of a shootdown.
pub struct Round {
    /// Slots whose pages were unmapped.
    pub slots: Few<Slot, TRIM_SLOTS>,
    /// The addresses of their pages.
    pub ranges: Few<Range<u64>, TRIM_SLOTS>,
    /// The frames of the pages.
    pub frames: Few<Frame, TRIM_PAGES>,
}

impl Round {
    /// An empty round.
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
    /// An empty list; `filler` fills its unused places.
    pub fn new(filler: T) -> Self {
        Few { items: core::array::from_fn(|_| filler.clone()), count: 0 }
    }

    /// Appends an item; the list must not be full.
    pub fn push(&mut self, item: T) {
        self.items[self.count] = item;
        self.count += 1;
    }

    /// Whether the list is full.
    pub fn is_full(&self) -> bool {
        self.count == N
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// All items.
    pub fn as_slice(&self) -> &[T] {
        &self.items[..self.count]
    }
}
