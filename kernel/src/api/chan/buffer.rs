//! What lies in a channel: a ring of fixed size, or blocks that come and go.
//!
//! Used under the channel's lock, so nothing here allocates, frees or drops a value: memory comes
//! in by [`Buffer::grow`] and goes out as [`Spent`] or in what `grow` leaves; the channel makes and
//! drops all of them outside the lock.

use super::clock::Clock;
use super::error::NoMemory;
use crate::run::time::Instant;
use crate::wait::ring::Ring;
use alloc::collections::VecDeque;

/// The values that were sent and not received: in the ring if the channel is bounded, else in the
/// blocks.
#[doc(hidden)]
pub struct Buffer<T> {
    pub(super) flow: Flow,
    pub(super) ring: Ring<T>,
    source: Source<T>,
}

/// Where values come from that are not in the ring.
enum Source<T> {
    None,
    Blocks(Blocks<T>),
    /// And what makes a value of the moment at which it was due.
    Clock(Clock, fn(Instant) -> T),
}

/// What a G does that finds no room in the ring, or no value: those up to `Bounded` wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) enum Flow {
    /// There is no ring: a value goes from sender to receiver.
    Rendezvous,
    /// All values are in the ring.
    Bounded,
    /// They are in blocks; a send does not wait.
    Unbounded,
    /// Nothing is sent any more. What is left may be in the ring, or in blocks.
    Closed,
}

/// A queue of blocks. Every block but the last is full or was; only the first may have been taken
/// from. A full spine is replaced by one of twice the size, to which the blocks' headers move.
struct Blocks<T> {
    spine: VecDeque<VecDeque<T>>,
    /// An empty block, so that a queue that goes up and down at a block's edge need not allocate.
    spare: Option<VecDeque<T>>,
    len: usize,
}

/// Bytes of values in a block, and how many there are at least.
const BLOCK_BYTES: usize = 2048;
const BLOCK_MIN: usize = 16;

/// Memory for [`Buffer::grow`], which leaves what it replaced or did not need.
pub(super) struct Fresh<T> {
    block: Option<VecDeque<T>>,
    spine: VecDeque<VecDeque<T>>,
}

/// An empty block that is not needed any more. Drop it outside the lock.
pub(super) type Spent<T> = Option<VecDeque<T>>;

impl<T> Buffer<T> {
    /// A ring for `capacity` values; with 0, nothing ever fits in.
    pub(super) fn ring(capacity: usize) -> Result<Self, NoMemory> {
        let ring = Ring::try_new(capacity).map_err(|_| NoMemory)?;
        let flow = if capacity == 0 { Flow::Rendezvous } else { Flow::Bounded };
        Ok(Buffer { flow, ring, source: Source::None })
    }

    /// A queue without a limit, which has no memory yet.
    pub(super) const fn blocks() -> Self {
        let blocks = Blocks { spine: VecDeque::new(), spare: None, len: 0 };
        Buffer { flow: Flow::Unbounded, ring: Ring::none(), source: Source::Blocks(blocks) }
    }

    /// What the clock gives.
    pub(super) const fn of_clock(clock: Clock, value: fn(Instant) -> T) -> Self {
        let source = Source::Clock(clock, value);
        Buffer { flow: Flow::Bounded, ring: Ring::none(), source }
    }

    /// In place of the buffer of a channel without receivers.
    pub(super) const fn gone() -> Self {
        Buffer { flow: Flow::Closed, ring: Ring::none(), source: Source::None }
    }

    /// Nothing is pushed from here on: the channel is closed.
    pub(super) fn seal(&mut self) {
        self.flow = Flow::Closed;
        self.ring.seal();
        if let Some(clock) = self.clock() {
            clock.seal();
        }
    }

    /// The clock of a timer's channel.
    pub(super) fn clock(&mut self) -> Option<&mut Clock> {
        if let Source::Clock(clock, _) = &mut self.source { Some(clock) } else { None }
    }

    /// Whether it has a clock that is set, for later.
    pub(crate) fn is_set(&mut self) -> bool {
        let next = self.clock().and_then(|clock| clock.next());
        next.is_some_and(|at| at > Instant::now())
    }

    /// The value of the clock if it is due by `now`, and whether another one comes.
    pub(super) fn tick(&mut self, now: Instant) -> Option<(T, bool)> {
        let Source::Clock(clock, value) = &mut self.source else { return None };
        let due = clock.tick(now)?;
        Some((value(due), clock.next().is_some()))
    }

    /// Puts `value` last, or returns it if there is no room; the new length.
    pub(super) fn push(&mut self, value: T) -> Result<usize, T> {
        match &mut self.source {
            Source::Blocks(blocks) => blocks.push(value),
            Source::None | Source::Clock(..) => self.ring.push(value),
        }
    }

    /// Takes the oldest value; the new length, and perhaps a block that it emptied.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<(T, usize, Spent<T>)> {
        match &mut self.source {
            Source::Blocks(blocks) => blocks.pop(),
            Source::None | Source::Clock(..) => {
                self.ring.pop().map(|(value, len)| (value, len, None))
            }
        }
    }

    /// The length of the spine that it needs to grow, 0 if its own will do; `None`: it never grows.
    pub(super) fn want(&self) -> Option<usize> {
        let Source::Blocks(Blocks { spine, .. }) = &self.source else { return None };
        let is_full = spine.len() == spine.capacity();
        Some(if is_full { (2 * spine.len()).max(BLOCK_MIN) } else { 0 })
    }

    /// Makes room with `fresh` memory: too much of it, if several senders got some at once.
    pub(super) fn grow(&mut self, fresh: &mut Fresh<T>) {
        let Source::Blocks(blocks) = &mut self.source else { return };
        if fresh.spine.capacity() > blocks.spine.capacity() {
            fresh.spine.append(&mut blocks.spine); // there is room for all of it
            core::mem::swap(&mut fresh.spine, &mut blocks.spine);
        }
        if blocks.spare.is_none() {
            blocks.spare = fresh.block.take();
        }
    }
}

impl<T> Blocks<T> {
    fn push(&mut self, value: T) -> Result<usize, T> {
        if !self.spine.back().is_some_and(|block| block.len() < block.capacity()) {
            if self.spine.len() == self.spine.capacity() {
                return Err(value);
            }
            let Some(spare) = self.spare.take() else { return Err(value) };
            self.spine.push_back(spare);
        }
        let Some(last) = self.spine.back_mut() else { return Err(value) };
        last.push_back(value);
        self.len += 1;
        Ok(self.len)
    }

    #[inline(never)]
    fn pop(&mut self) -> Option<(T, usize, Spent<T>)> {
        let first = self.spine.front_mut()?;
        let value = first.pop_front()?;
        self.len -= 1;
        // The last block stays where it is: it will be filled again.
        let mut spent = None;
        if first.is_empty() && self.spine.len() > 1 {
            spent = self.spine.pop_front();
            if self.spare.is_none() {
                self.spare = spent.take();
            }
        }
        Some((value, self.len, spent))
    }
}

impl<T> Fresh<T> {
    /// Gets memory for a block, and for a spine of that length. Outside the lock.
    pub(super) fn new(spine: usize) -> Result<Self, NoMemory> {
        let in_block = (BLOCK_BYTES / size_of::<T>().max(1)).max(BLOCK_MIN);
        Ok(Fresh { block: Some(reserve(in_block)?), spine: reserve(spine)? })
    }
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
            buffer.grow(&mut Fresh::new(want).expect("memory"));
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
                let Some((value, len, _)) = buffer.pop() else { break };
                assert_eq!(value, [next_out; 8]);
                next_out += 1;
                assert_eq!(len, (next_in - next_out) as usize);
            }
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
        buffer.grow(&mut Fresh::new(want).expect("memory"));
        let mut surplus = Fresh::new(want).expect("memory");
        buffer.grow(&mut surplus);
        assert!(surplus.block.is_some() && surplus.spine.capacity() > 0);
        assert!(buffer.push(1).is_ok());
    }

    #[test]
    fn a_ring_holds_its_capacity_and_no_more() {
        let mut ring = Buffer::ring(2).expect("memory");
        let pushed = (ring.push(1), ring.push(2), ring.push(3));
        assert_eq!(pushed, (Ok(1), Ok(2), Err(3)));
        assert!(Buffer::<u64>::ring(usize::MAX).is_err());
    }
}
