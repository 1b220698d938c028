//! The ring that driver and device share.
//!
//! [`Ring::send`] hands a slot to the device, [`Ring::take_answer`] takes one back; both are
//! short, allocate nothing and wait for nothing, so the interrupt handler may do the one while a G
//! on another CPU does the other, under the lock of the driver. `slots` knows the owner of each
//! slot; the driver knows the meaning of a request, and which G waits for it.
//!
//! A device that answers a request that it does not have, or uses a descriptor that does not
//! exist, is not trusted again: the ring is broken from then on, and no slot on it moves.

use super::slots::{Answer, Bogus, RING, SLOTS, Slots};
use arrayvec::ArrayVec;
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};
use virtio_drivers::Hal;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::Transport;

/// The device of this ring is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

pub struct Ring<H: Hal, T: Transport> {
    pub transport: T,
    index: u16,
    queue: VirtQueue<H, RING>,
    pub slots: Slots,
    sent: [Option<Chain>; SLOTS],
    is_broken: bool,
}

// SAFETY: the pointers are to memory of this driver that is never freed and belongs to no CPU.
unsafe impl<H: Hal, T: Transport + Send> Send for Ring<H, T> {}

impl<H: Hal, T: Transport> Ring<H, T> {
    /// An empty ring: `queue` is ring `index` of its device.
    pub fn new(transport: T, index: u16, queue: VirtQueue<H, RING>) -> Self {
        let (slots, sent) = (Slots::all_idle(), [const { None }; SLOTS]);
        Ring { transport, index, queue, slots, sent, is_broken: false }
    }

    /// Hands a slot, whose memory is `chain`, to the device.
    ///
    /// # Safety
    /// The caller holds `slot`; the chain is memory that the device can reach and that is never
    /// freed, its pieces do not overlap, and no code touches it until the slot is held again.
    pub unsafe fn send(&mut self, slot: usize, chain: Chain) -> Result<(), Broken> {
        assert!(slot < SLOTS, "no such slot");
        if self.is_broken {
            return Err(Broken);
        }
        // SAFETY: memory that stays, which no code touches until the device has answered.
        let added = chain.with(|reads, writes| unsafe { self.queue.add(reads, writes) });
        // Never for want of room: there are only as many slots as fit.
        let first = added.map_err(|_| Broken)?;
        self.slots.send(slot, first);
        self.sent[slot] = Some(chain);
        // The request must be visible before the check whether the device sleeps, also on x86.
        fence(Ordering::SeqCst);
        if self.queue.should_notify() {
            self.transport.notify(self.index);
        }
        Ok(())
    }

    /// Takes one answer off the ring, if there is one. After an invalid one no other is taken.
    pub fn take_answer(&mut self) -> Result<Option<Answer>, Bogus> {
        if self.is_broken {
            return Ok(None);
        }
        let Some(first) = self.queue.peek_used() else { return Ok(None) };
        let answer = self.take(first);
        self.is_broken = answer.is_err();
        answer.map(Some)
    }

    fn take(&mut self, first: u16) -> Result<Answer, Bogus> {
        let slot = self.slots.at(first)?;
        let chain = self.sent[slot].take().ok_or(Bogus(first))?;
        // SAFETY: the same buffers as in `send`: no slot is sent again before its answer.
        let taken =
            chain.with(|reads, writes| unsafe { self.queue.pop_used(first, reads, writes) });
        taken.map_err(|_| Bogus(first))?;
        self.slots.completed(first)
    }
}

/// The most pieces of memory that a request has.
const PIECES: usize = 3;

pub struct Chain {
    reads: ArrayVec<NonNull<[u8]>, PIECES>,
    writes: ArrayVec<NonNull<[u8]>, PIECES>,
}

impl Chain {
    /// A request of which the device reads and writes these pieces, in this order; three at most.
    pub fn new(reads: &[NonNull<[u8]>], writes: &[NonNull<[u8]>]) -> Chain {
        let pieces = |list: &[_]| list.iter().copied().collect();
        Chain { reads: pieces(reads), writes: pieces(writes) }
    }

    /// Calls `f` with the buffers that the device reads and those that it writes. The references
    /// end when it returns: the memory is the device's then.
    fn with<R>(&self, f: impl for<'a> FnOnce(&'a [&'a [u8]], &'a mut [&'a mut [u8]]) -> R) -> R {
        // SAFETY: memory of the slot, says the caller of `send`; no code writes to it while
        // the driver has the ring and the device does not have the slot.
        let as_ref = |piece: &NonNull<[u8]>| unsafe { &*piece.as_ptr() };
        let reads: ArrayVec<_, PIECES> = self.reads.iter().map(as_ref).collect();
        let mut writes: [&mut [u8]; PIECES] = Default::default();
        for (place, piece) in writes.iter_mut().zip(&self.writes) {
            // SAFETY: the same; and no two pieces overlap.
            *place = unsafe { &mut *piece.as_ptr() };
        }
        f(&reads, &mut writes[..self.writes.len()])
    }
}

#[cfg(test)]
mod tests;
