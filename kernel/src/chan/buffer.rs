//! What lies in a channel: a ring of fixed size, or blocks that come and go.
//!
//! Used under the channel's lock, so nothing here allocates, frees or drops a
//! value: memory comes in by [`Buffer::grow`] and goes out as [`Spent`] or
//! [`Surplus`], and all are made and dropped by the channel outside the lock.

use super::error::NoMemory;
use crate::cell::ring::Ring;
use alloc::collections::VecDeque;

/// The values that were sent and not received, oldest first: in the ring if the
/// channel is bounded, else in the blocks.
pub(super) struct Buffer<T> {
    ring: Ring<T>,
    blocks: Option<Blocks<T>>,
}

/// A queue of blocks. Every block but the last is full or was; only the first
/// may have been taken from. The spine holds the blocks and is replaced by one
/// of twice the size when it is full; what is moved then is a block's header.
pub(super) struct Blocks<T> {
    spine: VecDeque<VecDeque<T>>,
    /// An empty block, so that a queue that goes up and down at the edge of a
    /// block need not allocate.
    spare: Option<VecDeque<T>>,
    len: usize,
}

/// Bytes of values in a block, and how many there are at least.
const BLOCK_BYTES: usize = 2048;
const BLOCK_MIN: usize = 16;

/// Memory for [`Buffer::grow`].
pub(super) struct Fresh<T> {
    block: VecDeque<T>,
    spine: Option<VecDeque<VecDeque<T>>>,
}

/// An empty block that is not needed any more. Drop it outside the lock.
pub(super) type Spent<T> = Option<VecDeque<T>>;

/// What `grow` replaced or did not need. Drop it outside the lock.
pub(super) type Surplus<T> = (Option<VecDeque<T>>, Option<VecDeque<VecDeque<T>>>);

/// What a full [`Buffer`] wants, before the lock is dropped to get it.
#[derive(Clone, Copy)]
pub(super) struct Want {
    /// How long the new spine must be, if the old one is full.
    spine: Option<usize>,
}

impl<T> Buffer<T> {
    /// A ring for `capacity` values; with 0, nothing ever fits in.
    pub(super) fn ring(capacity: usize) -> Result<Self, NoMemory> {
        let ring = Ring::try_new(capacity).map_err(|_| NoMemory)?;
        Ok(Buffer { ring, blocks: None })
    }

    /// A queue without a limit, which has no memory yet.
    pub(super) const fn blocks() -> Self {
        let blocks = Blocks { spine: VecDeque::new(), spare: None, len: 0 };
        Buffer { ring: Ring::none(), blocks: Some(blocks) }
    }

    /// In place of the buffer of a channel without receivers.
    pub(super) const fn gone() -> Self {
        Buffer { ring: Ring::none(), blocks: None }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match &self.blocks {
            None => self.ring.len(),
            Some(blocks) => blocks.len,
        }
    }

    /// As `push`, if there is room in the ring; gives the new length. This and
    /// `pop_ring` are few instructions: they are in every `send` and `recv`.
    #[inline(always)]
    pub(super) fn push_ring(&mut self, value: T) -> Result<usize, T> {
        self.ring.push(value).map(|()| self.ring.len())
    }

    /// As `pop`, if there is something in the ring; gives the new length too.
    #[inline(always)]
    pub(super) fn pop_ring(&mut self) -> Option<(T, usize)> {
        self.ring.pop().map(|value| (value, self.ring.len()))
    }

    /// Nothing is pushed from here on: the channel is closed.
    pub(super) fn seal(&mut self) {
        self.ring.seal();
    }

    /// Puts `value` last, or gives it back if there is no room.
    #[inline]
    pub(super) fn push(&mut self, value: T) -> Result<(), T> {
        match &mut self.blocks {
            None => self.ring.push(value),
            Some(blocks) => blocks.push(value),
        }
    }

    /// Takes the oldest value, and perhaps a block that it was the last of.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(T, Spent<T>)> {
        match &mut self.blocks {
            None => Some((self.ring.pop()?, None)),
            Some(blocks) => blocks.pop(),
        }
    }

    /// What it wants in order to grow; `None` if it never does.
    pub(super) fn want(&self) -> Option<Want> {
        let Blocks { spine, .. } = self.blocks.as_ref()?;
        let is_full = spine.len() == spine.capacity();
        Some(Want { spine: is_full.then(|| (2 * spine.len()).max(BLOCK_MIN)) })
    }

    /// Makes room with `fresh` memory.
    pub(super) fn grow(&mut self, fresh: Fresh<T>) -> Surplus<T> {
        match &mut self.blocks {
            None => (Some(fresh.block), fresh.spine),
            Some(blocks) => blocks.grow(fresh),
        }
    }
}

impl<T> Blocks<T> {
    fn push(&mut self, value: T) -> Result<(), T> {
        if !self.spine.back().is_some_and(has_room) {
            if self.spine.len() == self.spine.capacity() {
                return Err(value);
            }
            let Some(spare) = self.spare.take() else { return Err(value) };
            self.spine.push_back(spare);
        }
        let Some(last) = self.spine.back_mut() else { return Err(value) };
        last.push_back(value);
        self.len += 1;
        Ok(())
    }

    fn pop(&mut self) -> Option<(T, Spent<T>)> {
        let first = self.spine.front_mut()?;
        let value = first.pop_front()?;
        self.len -= 1;
        // The last block stays where it is: it will be filled again.
        if !first.is_empty() || self.spine.len() == 1 {
            return Some((value, None));
        }
        let empty = self.spine.pop_front()?;
        match &mut self.spare {
            Some(_) => Some((value, Some(empty))),
            none => {
                *none = Some(empty);
                Some((value, None))
            }
        }
    }

    /// Several may have wanted to grow at once: what is too much goes back.
    fn grow(&mut self, fresh: Fresh<T>) -> Surplus<T> {
        let Fresh { block, spine } = fresh;
        let spine = match spine {
            Some(mut longer) if longer.capacity() > self.spine.capacity() => {
                longer.append(&mut self.spine); // there is room for all of it
                Some(core::mem::replace(&mut self.spine, longer))
            }
            other => other,
        };
        match &mut self.spare {
            Some(_) => (Some(block), spine),
            none => {
                *none = Some(block);
                (None, spine)
            }
        }
    }
}

impl<T> Fresh<T> {
    /// Gets memory. Outside the lock.
    pub(super) fn new(want: Want) -> Result<Self, NoMemory> {
        let in_block = (BLOCK_BYTES / size_of::<T>().max(1)).max(BLOCK_MIN);
        let spine = match want.spine {
            Some(len) => Some(reserve(len)?),
            None => None,
        };
        Ok(Fresh { block: reserve(in_block)?, spine })
    }
}

fn has_room<T>(block: &VecDeque<T>) -> bool {
    block.len() < block.capacity()
}

fn reserve<T>(len: usize) -> Result<VecDeque<T>, NoMemory> {
    let mut values = VecDeque::new();
    values.try_reserve_exact(len).map_err(|_| NoMemory)?;
    Ok(values)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Of 64 bytes, so that a block is full soon.
    type Wide = [u64; 8];

    fn push(buffer: &mut Buffer<Wide>, value: u64) {
        let value = [value; 8];
        if let Err(value) = buffer.push(value) {
            let want = buffer.want().expect("it grows");
            drop(buffer.grow(Fresh::new(want).expect("memory")));
            buffer.push(value).expect("it has grown");
        }
    }

    #[test]
    fn blocks_keep_the_order_while_they_come_and_go() {
        let mut buffer = Buffer::blocks();
        let (mut next_in, mut next_out) = (0, 0);
        let step = if cfg!(miri) { 40 } else { 1000 };
        for round in 0..12 {
            for _ in 0..step {
                push(&mut buffer, next_in);
                next_in += 1;
            }
            for _ in 0..if round < 6 { step / 10 } else { 2 * step - step / 10 } {
                let Some((value, _)) = buffer.pop() else { break };
                assert_eq!(value, [next_out; 8]);
                next_out += 1;
            }
            assert_eq!(buffer.len(), (next_in - next_out) as usize);
        }
        assert_eq!(next_in, next_out);
    }

    #[test]
    fn a_queue_at_the_edge_of_a_block_does_not_grow_for_ever() {
        let mut buffer = Buffer::blocks();
        let in_block = (BLOCK_BYTES / size_of::<Wide>()) as u64;
        for i in 0..in_block * 5 {
            push(&mut buffer, i);
        }
        while buffer.pop().is_some() {}
        // Two blocks are there now: the last, and the spare.
        for i in 0..in_block * 2 {
            assert!(buffer.push([i; 8]).is_ok(), "a block was lost");
        }
        assert!(buffer.push([0; 8]).is_err(), "a block too many was kept");
    }

    #[test]
    fn growing_twice_at_once_wastes_nothing_but_the_memory() {
        let mut buffer = Buffer::<u32>::blocks();
        let want = buffer.want().expect("it grows");
        drop(buffer.grow(Fresh::new(want).expect("memory")));
        let surplus = buffer.grow(Fresh::new(want).expect("memory"));
        assert!(matches!(surplus, (Some(_), Some(_))));
        assert!(buffer.push(1).is_ok());
    }

    #[test]
    fn a_ring_holds_its_capacity_and_no_more() {
        let mut ring = Buffer::ring(2).expect("memory");
        assert_eq!((ring.push(1), ring.push(2), ring.push(3)), (Ok(()), Ok(()), Err(3)));
        assert!(Buffer::<u64>::ring(usize::MAX).is_err());
    }
}
