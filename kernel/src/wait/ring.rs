//! A ring of fixed size: the buffer of a channel.
//!
//! A `VecDeque` that never grows: it is used under a lock, where nothing is allocated. Making one
//! can fail; dropping one drops what is in it, all of it: also behind a value whose destructor
//! panics, as a G may wait at the other end of what the rest hold.

use alloc::collections::{TryReserveError, VecDeque};

/// A queue for at most so many values, in memory that was got beforehand.
pub struct Ring<T> {
    values: VecDeque<T>,
    /// How many fit in; there is memory for as many. 0 when the ring is sealed.
    limit: usize,
}

impl<T> Ring<T> {
    /// A ring for `capacity` values.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub fn try_new(capacity: usize) -> Result<Self, TryReserveError> {
        let mut values = VecDeque::new();
        values.try_reserve_exact(capacity)?;
        Ok(Ring { values, limit: capacity })
    }

    /// A ring that nothing fits in.
    pub const fn none() -> Self {
        Ring { values: VecDeque::new(), limit: 0 }
    }

    /// How many values are in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// From here on nothing fits in; what is in it can be taken.
    pub fn seal(&mut self) {
        self.limit = 0;
    }

    /// Puts `value` last, or gives it back if there is no room.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.values.len() >= self.limit {
            return Err(value);
        }
        // SAFETY: there is memory for `limit` values, and they are fewer. Without this, every send
        // would have the code in it that makes a `VecDeque` grow.
        unsafe { core::hint::assert_unchecked(self.values.len() < self.values.capacity()) };
        self.values.push_back(value);
        Ok(())
    }

    /// Takes the oldest value.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.values.pop_front()
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
