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
/// > after the last of them. `limit` is the number of slots, or 0 when the ring is sealed; `last` is
/// > one less than the number of slots, around zero, or 0 when the ring is sealed; `head` and `tail`
/// > are below the number of slots, if there are any.
pub struct Ring<T> {
    slots: Vec<MaybeUninit<T>>,
    limit: usize,
    last: usize,
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
        let last = capacity.wrapping_sub(1);
        Ok(Ring { slots, limit: capacity, last, head: 0, tail: 0, len: 0 })
    }

    /// A ring that nothing fits in.
    pub const fn none() -> Self {
        Ring { slots: Vec::new(), limit: 0, last: usize::MAX, head: 0, tail: 0, len: 0 }
    }

    /// From here on nothing fits in; what is in it can be taken.
    pub fn seal(&mut self) {
        (self.limit, self.last) = (0, 0);
    }

    /// The ring, if it is neither empty, full nor sealed: in one comparison, and few instructions,
    /// as it is in every `send` and `recv`. Then no G waits in the channel.
    #[inline(always)]
    pub fn between(&mut self) -> Option<Between<'_, T>> {
        if self.len.wrapping_sub(1) < self.last { Some(Between(self)) } else { None }
    }

    /// Puts `value` last, or gives it back if there is no room; the new length.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<usize, T> {
        if self.len >= self.limit {
            return Err(value);
        }
        // SAFETY: the limit is not 0.
        Ok(unsafe { self.put(value) })
    }

    /// Takes the oldest value; and the new length.
    #[inline]
    pub fn pop(&mut self) -> Option<(T, usize)> {
        // SAFETY: there is a value.
        (self.len != 0).then(|| unsafe { self.take() })
    }

    /// # Safety
    /// There is room.
    #[inline(always)]
    unsafe fn put(&mut self, value: T) -> usize {
        // SAFETY: so there are slots, and `tail` is below their number.
        unsafe { self.slots.get_unchecked_mut(self.tail) }.write(value);
        self.tail = self.after(self.tail);
        self.len += 1;
        self.len
    }

    /// # Safety
    /// There is a value.
    #[inline(always)]
    unsafe fn take(&mut self) -> (T, usize) {
        // SAFETY: so there are slots, and `head` is below their number.
        let slot = unsafe { self.slots.get_unchecked(self.head) };
        // SAFETY: `len` is not 0, so it holds a value; it counts as empty from here on.
        let value = unsafe { slot.assume_init_read() };
        self.head = self.after(self.head);
        self.len -= 1;
        (value, self.len)
    }

    /// The slot after `at`, around the end.
    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() {
            core::hint::cold_path(); // a branch: a choice of values costs one more
            return 0;
        }
        at + 1
    }
}

/// A ring that has both a value and room.
pub struct Between<'a, T>(&'a mut Ring<T>);

impl<T> Between<'_, T> {
    /// Puts `value` last; the new length.
    #[inline(always)]
    pub fn push(self, value: T) -> usize {
        // SAFETY: there is room.
        unsafe { self.0.put(value) }
    }

    /// Takes the oldest value; and the new length.
    #[inline(always)]
    pub fn pop(self) -> (T, usize) {
        // SAFETY: there is a value.
        unsafe { self.0.take() }
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
            while let Ok(len) = ring.push(Rc::new(next_in)) {
                next_in += 1;
                assert_eq!(len, next_in - next_out);
            }
            assert_eq!(next_in - next_out, 3);
            for _ in 0..n {
                let (value, len) = ring.pop().expect("full");
                assert_eq!(*value, next_out);
                next_out += 1;
                assert_eq!(len, next_in - next_out);
            }
        }
        assert!(ring.pop().is_none());
    }

    #[test]
    fn at_its_ends_and_sealed_a_ring_must_be_looked_at() {
        let push = |ring: &mut Ring<i32>, value| ring.between().map(|ring| ring.push(value));
        let pop = |ring: &mut Ring<i32>| ring.between().map(Between::pop);
        let mut ring = Ring::try_new(3).expect("memory");
        assert_eq!((push(&mut ring, 1), pop(&mut ring)), (None, None), "empty");
        assert_eq!((ring.push(1), push(&mut ring, 2)), (Ok(1), Some(2)));
        assert_eq!((pop(&mut ring), push(&mut ring, 3)), (Some((1, 1)), Some(2)));
        assert_eq!(push(&mut ring, 4), Some(3));
        assert_eq!((push(&mut ring, 5), pop(&mut ring)), (None, None), "full");
        assert_eq!(ring.pop(), Some((2, 2)));
        ring.seal();
        assert!(ring.between().is_none(), "sealed");
        assert_eq!(ring.pop(), Some((3, 1)));
        for mut none in [Ring::<i32>::none(), Ring::try_new(0).expect("memory")] {
            assert!(none.between().is_none());
        }
        let mut one = Ring::try_new(1).expect("memory");
        assert_eq!((one.push(1), one.between().is_none()), (Ok(1), true));
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
        assert_eq!(ring.push(1), Ok(1));
        ring.seal();
        assert_eq!(
            (ring.push(2), ring.pop(), ring.push(3), ring.pop()),
            (Err(2), Some((1, 0)), Err(3), None)
        );
    }

    #[test]
    fn no_size_and_no_room_are_fine() {
        let mut most = Ring::try_new(usize::MAX).expect("no memory is needed");
        assert_eq!((most.push(()), most.pop(), most.pop()), (Ok(1), Some(((), 0)), None));
        assert_eq!(Ring::none().push(1), Err(1));
        assert!(Ring::<u64>::try_new(usize::MAX).is_err());
    }
}
