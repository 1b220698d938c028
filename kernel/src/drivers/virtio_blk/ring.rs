//! The ring that driver and device share, and the memory of requests on it.
//!
//! [`Ring::send`] hands a slot to the device, [`Ring::take_answer`] takes one back; both are
//! short, allocate nothing and wait for nothing, so the interrupt handler may do the one
//! while a G on another CPU does the other, under the lock of `virtio_blk`. `slots` knows the
//! owner of each slot; the caller knows which G waits for it.
//!
//! A device that answers a request that it does not have, or uses a descriptor that does not
//! exist, is not trusted again: the ring is broken from then on, and no slot on it moves.

use super::slots::{Answer, Bogus, RING, SLOTS, Slots};
use super::{Failure, Job, SLOT_BYTES};
use crate::mem::PAGE_SIZE;
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};
use virtio_drivers::Hal;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::Transport;

/// The ring of a virtio block device that this driver uses.
pub const QUEUE: u16 = 0;

/// The head and the status of a request, in memory that the device reaches.
#[repr(C)]
pub struct Head {
    kind: u32,
    reserved: u32,
    sector: u64,
    /// Written by the device.
    status: u8,
    unused: [u8; 15],
}

/// Bytes of a [`Head`] that the device reads.
const HEAD_BYTES: usize = 16;
const _: () = assert!(SLOTS * size_of::<Head>() <= PAGE_SIZE);

/// A status that no device writes.
const NO_STATUS: u8 = u8::MAX;

/// The state shared with the device, and the driver's own.
pub struct Ring<H: Hal, T: Transport> {
    /// The transport of the device.
    pub transport: T,
    queue: VirtQueue<H, RING>,
    /// One head for each slot.
    heads: NonNull<Head>,
    /// The owner of each slot.
    pub slots: Slots,
    /// The buffers of each sent slot.
    sent: [Option<Chain>; SLOTS],
    is_broken: bool,
}

// SAFETY: the pointers are to memory of this driver's own that is never freed, and no part of
// it belongs to a CPU.
unsafe impl<H: Hal, T: Transport + Send> Send for Ring<H, T> {}

impl<H: Hal, T: Transport> Ring<H, T> {
    /// An empty ring, with `heads` as the memory for the heads of requests.
    ///
    /// # Safety
    /// `heads` is a page of memory that the device can reach, has no other user and is never
    /// freed.
    pub unsafe fn new(transport: T, queue: VirtQueue<H, RING>, heads: NonNull<u8>) -> Self {
        let heads = heads.cast();
        let slots = Slots::new();
        Ring { transport, queue, heads, slots, sent: [None; SLOTS], is_broken: false }
    }

    /// Whether the device is disabled.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Hands a held slot, whose memory is `data`, to the device.
    ///
    /// # Errors
    /// The device is disabled.
    ///
    /// # Safety
    /// The caller holds `slot`; `data` is [`SLOT_BYTES`] bytes that the device can reach and
    /// that are never freed; and no code touches them until the slot is held again.
    pub unsafe fn send(&mut self, slot: usize, job: Job, data: NonNull<u8>) -> Result<(), Failure> {
        assert!(slot < SLOTS, "no such slot");
        if self.is_broken {
            return Err(Failure::Broken);
        }
        // SAFETY: there is a head for each slot, in one page.
        let head = unsafe { self.heads.add(slot) };
        // SAFETY: our caller holds the slot, so the device does not read it.
        unsafe { head.write(Head::of(job)) };
        let chain = Chain { head, data, job };
        // SAFETY: the chain is memory that stays, and `slots` keeps all code away from it
        // until the device has answered.
        let added = chain.with(|ins, outs| unsafe { self.queue.add(ins, outs) });
        // Never for want of room: there are only as many slots as fit.
        let first = added.map_err(|_| Failure::Broken)?;
        self.slots.send(slot, first);
        self.sent[slot] = Some(chain);
        // The device must see the request before the driver checks whether it sleeps; x86
        // would let the check go first.
        fence(Ordering::SeqCst);
        if self.queue.should_notify() {
            self.transport.notify(QUEUE);
        }
        Ok(())
    }

    /// Takes one answer off the ring, if there is one.
    ///
    /// # Errors
    /// The answer is invalid. It is the last that is taken.
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
        // SAFETY: the same buffers as in `send`: the slot has not been sent again, as that
        // needs an answer first.
        let taken = chain.with(|ins, outs| unsafe { self.queue.pop_used(first, ins, outs) });
        taken.map_err(|_| Bogus(first))?;
        // SAFETY: the device has given the slot's memory back.
        let head = unsafe { chain.head.read() };
        self.slots.completed(first, head.status)
    }
}

impl Head {
    fn of(job: Job) -> Head {
        let (kind, sector) = match job {
            Job::Read(sector, _) => (0, sector),
            Job::Write(sector, _) => (1, sector),
            Job::Flush => (4, 0),
        };
        Head { kind, reserved: 0, sector, status: NO_STATUS, unused: [0; 15] }
    }
}

/// The pieces of memory of one request.
#[derive(Clone, Copy)]
struct Chain {
    head: NonNull<Head>,
    data: NonNull<u8>,
    job: Job,
}

impl Chain {
    /// Calls `f` with the buffers that the device reads and the buffers that it writes, in
    /// the order of virtio. The references end when it returns: the memory is the device's
    /// then.
    fn with<R>(&self, f: impl for<'a> FnOnce(&'a [&'a [u8]], &'a mut [&'a mut [u8]]) -> R) -> R {
        let head = self.head.cast::<u8>().as_ptr();
        // SAFETY: the first half of a `Head` of this driver, which is not written while the
        // caller has the ring and the device does not have the slot.
        let request = unsafe { core::slice::from_raw_parts(head, HEAD_BYTES) };
        let status = head.wrapping_add(core::mem::offset_of!(Head, status));
        // SAFETY: the same, its other half.
        let status = unsafe { core::slice::from_raw_parts_mut(status, 1) };
        let bytes = match self.job {
            Job::Read(_, bytes) | Job::Write(_, bytes) => bytes.min(SLOT_BYTES),
            Job::Flush => 0,
        };
        // SAFETY: at most so many bytes of the slot's memory, as `send` was promised; and as
        // above no other user has them now.
        let data = unsafe { core::slice::from_raw_parts_mut(self.data.as_ptr(), bytes) };
        match self.job {
            Job::Read(..) => f(&[request], &mut [data, status]),
            Job::Write(..) => f(&[request, data], &mut [status]),
            Job::Flush => f(&[request], &mut [status]),
        }
    }
}

#[cfg(test)]
mod tests;
