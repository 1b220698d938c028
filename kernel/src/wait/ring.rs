//! A ring of fixed size: the buffer of a channel.
//!
//! `VecDeque` would do, but its push carries the code that grows it into every send, and a
//! channel's ring never grows: it is used under a lock, where nothing is allocated. Dropping a ring
//! drops all values, also behind one whose destructor panics: a G may wait for what they hold.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::mem::MaybeUninit;

/// A queue for at most so many values, in memory that was got beforehand.
///
/// > The `len` slots from `head` on, around the end, hold values; no other does. `tail` is the one
/// > after the last of them. `limit` is the number of slots, or 0 when the ring is sealed; `head`
/// > and `tail` are below the number of slots, if there are any.
pub struct Ring<T> {
    slots: Vec<MaybeUninit<T>>,
    limit: usize,
    head: usize,
    tail: usize,
    len: usize,
}

impl<T> Ring<T> {
    /// A ring for `capacity` values.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub fn try_new(capacity: usize) -> Result<Self, TryReserveError> {
        let mut slots = Vec::new();
        slots.try_reserve_exact(capacity)?;
        // SAFETY: there is memory for so many, and a `MaybeUninit` needs no value.
        unsafe { slots.set_len(capacity) };
        Ok(Ring { slots, limit: capacity, head: 0, tail: 0, len: 0 })
    }

    /// A ring that nothing fits in.
    pub const fn none() -> Self {
        Ring { slots: Vec::new(), limit: 0, head: 0, tail: 0, len: 0 }
    }

    /// How many values are in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// From here on nothing fits in; what is in it can be taken.
    pub fn seal(&mut self) {
        self.limit = 0;
    }

    /// Puts `value` last, or gives it back if there is no room.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.len >= self.limit {
            return Err(value);
        }
        // SAFETY: the limit is not 0, so there are slots, and `tail` is below their number.
        unsafe { self.slots.get_unchecked_mut(self.tail) }.write(value);
        self.tail = self.after(self.tail);
        self.len += 1;
        Ok(())
    }

    /// Takes the oldest value.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        // SAFETY: `len` is not 0, so there are slots, and `head` is below their number.
        let slot = unsafe { self.slots.get_unchecked(self.head) };
        // SAFETY: `len` is not 0, so it holds a value; it counts as empty from here on.
        let value = unsafe { slot.assume_init_read() };
        self.head = self.after(self.head);
        self.len -= 1;
        Some(value)
    }

    /// The slot after `at`, around the end.
    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        /// What is left. Dropped twice: here, and if that unwinds once more.
        struct Rest<'a, T>(&'a mut Ring<T>);
        impl<T> Rest<'_, T> {
            fn clear(&mut self) {
                while let Some(value) = self.0.pop() {
                    drop(value);
                }
            }
        }
        impl<T> Drop for Rest<'_, T> {
            fn drop(&mut self) {
                self.clear();
            }
        }
        Rest(self).clear();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn values_come_out_once_in_order_around_the_end() {
        let mut ring = Ring::try_new(3).expect("memory");
        let (mut next_in, mut next_out) = (0, 0);
        for n in [3, 1, 2, 3, 2, 1, 3] {
            while ring.push(Rc::new(next_in)).is_ok() {
                next_in += 1;
            }
            assert_eq!(ring.len(), 3);
            for _ in 0..n {
                assert_eq!(ring.pop().as_deref(), Some(&next_out));
                next_out += 1;
            }
        }
        assert!(ring.len() == 0 && ring.pop().is_none());
    }

    #[test]
    fn what_is_left_is_dropped_once() {
        let value = Rc::new(());
        let mut ring = Ring::try_new(4).expect("memory");
        for _ in 0..3 {
            ring.push(value.clone()).expect("room");
        }
        drop(ring.pop());
        drop(ring);
        assert_eq!(Rc::strong_count(&value), 1);
    }

    #[test]
    fn what_is_behind_a_value_whose_destructor_panics_is_dropped() {
        struct Bomb(bool, #[expect(dead_code, reason = "only its end counts")] Rc<()>);
        impl Drop for Bomb {
            fn drop(&mut self) {
                if self.0 {
                    std::panic::resume_unwind(Box::new("bomb"));
                }
            }
        }
        let value = Rc::new(());
        let mut ring = Ring::try_new(4).expect("memory");
        for is_bomb in [false, true, false, false] {
            assert!(ring.push(Bomb(is_bomb, value.clone())).is_ok());
        }
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(ring)));
        assert!(dropped.is_err(), "the panic was lost");
        assert_eq!(Rc::strong_count(&value), 1);
    }

    #[test]
    fn a_sealed_ring_gives_but_does_not_take() {
        let mut ring = Ring::try_new(2).expect("memory");
        assert_eq!(ring.push(1), Ok(()));
        ring.seal();
        assert_eq!(
            (ring.push(2), ring.pop(), ring.push(3), ring.pop()),
            (Err(2), Some(1), Err(3), None)
        );
    }

    #[test]
    fn no_size_and_no_room_are_fine() {
        let mut most = Ring::try_new(usize::MAX).expect("no memory is needed");
        assert_eq!((most.push(()), most.pop(), most.pop()), (Ok(()), Some(()), None));
        assert_eq!(Ring::none().push(1), Err(1));
        assert!(Ring::<u64>::try_new(usize::MAX).is_err());
    }
}
