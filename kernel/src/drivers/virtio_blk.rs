//! A disk: virtio-blk, many requests at a time, each with a poll descriptor.
//!
//! Holds the path of a request: [`Disk::request`] waits for a slot, [`Request::run`] hands it
//! to the device and waits for the answer, the interrupt ([`Answers`]) takes answers off the
//! ring and tells the poller. `probe` brings the device up; `ring` has the memory shared with
//! it; `slots` knows the owner of each slot's memory; the caller, [`crate::disk`], handles
//! offsets that are no multiples of a sector, ends and errors for programs.
//!
//! # Memory ownership
//!
//! > The device reads and writes memory of this file only, and the driver touches a
//! > slot's memory only while `slots` says that the driver owns the slot.
//!
//! Each slot has [`SLOT_BYTES`] of its own, in one piece, which are never freed. Bytes that a
//! G reads are copied out of them, and bytes that it writes are copied in. That costs a copy,
//! and makes a request that timed out harmless: the device may write to the slot for hours,
//! after the G has continued, and the slot is reused when the device has given it back, not
//! before.
//!
//! # What is used of `virtio-drivers`, and what is not
//!
//! Its ring (`VirtQueue`) and its transport. Not its `VirtIOBlk`: that has a ring of 16,
//! waits for a flush in an endless loop, and checks whether the device sleeps without a
//! barrier after it has written its request, so that on x86 the check may come first and the
//! device sleep on.

pub mod hal;
pub mod probe;
pub mod ring;
pub mod slots;

use crate::cell::semaphore::Semaphore;
use crate::drivers::irq::Handler;
use crate::drivers::pci;
use crate::lock::IrqLock;
use crate::mem::PAGE_SIZE;
use crate::park;
use crate::poller::{Direction, PollDesc, PollError};
use crate::time::Duration;
use alloc::format;
use alloc::string::String;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use hal::Dma;
use probe::{Interrupt, Ready};
use ring::Ring;
use slots::{Answer, Bogus, RING, SLOTS};
use virtio_drivers::transport::Transport;
use virtio_drivers::transport::pci::PciTransport;

/// Bytes of a sector, the unit of offsets, whatever block size the disk itself has
/// ([`Disk::block`]).
pub const SECTOR: usize = 512;
/// The most bytes of one request.
pub const SLOT_BYTES: usize = 32 * 1024;

const VIRTIO_VENDOR: u16 = 0x1af4;
/// Device ids of a block device: transitional and modern.
const BLOCK: [u16; 2] = [0x1001, 0x1042];

static DISK: spin::Once<Disk> = spin::Once::new();

/// Finds a disk, brings it up and logs the result. Once, before Gs run. The first usable one
/// is used; others are logged.
pub fn init() {
    let found = pci::functions(&pci::Ports, VIRTIO_VENDOR);
    let is_disk = |function: &&pci::Function| BLOCK.contains(&function.device);
    for other in found.iter().filter(|function| !is_disk(function)) {
        log::info!("pci: {}: virtio device {:04x}, not used", other.at, other.device);
    }
    for found in found.iter().filter(is_disk) {
        if DISK.get().is_some() {
            log::info!("disk: another one at {}, not used", found.at);
            continue;
        }
        match probe::bring_up(found.at, &Answers) {
            Ok(ready) => announce(DISK.call_once(|| Disk::new(ready)), found.at),
            Err(error) => log::error!("disk: virtio at {}: {error}; not used", found.at),
        }
    }
}

fn announce(disk: &Disk, at: pci::Address) {
    let kib = disk.sectors / 2;
    let kind = if disk.is_read_only { ", read-only" } else { "" };
    let blocks = match disk.block {
        SECTOR => String::new(),
        block => format!(" in blocks of {block} bytes"),
    };
    let line = format!("virtio at {at}, {kib} KiB{blocks}{kind}, {}", disk.interrupt);
    log::debug!("disk: {line}");
    SUMMARY.call_once(|| line);
}

static SUMMARY: spin::Once<String> = spin::Once::new();

/// The disk in a line, if there is one.
pub fn summary() -> Option<String> {
    SUMMARY.get().cloned()
}

/// The disk, if there is one.
pub fn disk() -> Option<&'static Disk> {
    DISK.get()
}

/// A request to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Reads so many bytes from this sector on, a multiple of [`SECTOR`].
    Read(u64, usize),
    /// Writes so many bytes from this sector on.
    Write(u64, usize),
    /// Makes written data survive a power cut.
    Flush,
}

impl Job {
    /// Whether it is whole sectors, and at most as many as a slot can hold.
    fn fits(self) -> bool {
        match self {
            Job::Read(_, bytes) | Job::Write(_, bytes) => {
                (SECTOR..=SLOT_BYTES).contains(&bytes) && bytes.is_multiple_of(SECTOR)
            }
            Job::Flush => true,
        }
    }
}

/// Why a request has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The deadline came first. The device may still carry out the request.
    TimedOut,
    /// The device reports a failure.
    Refused,
    /// The device does not support the request.
    Unsupported,
    /// The device violated the protocol, and is disabled.
    Broken,
    /// No memory for a buffer.
    NoMemory,
}

/// A virtio block device.
pub struct Disk {
    sectors: u64,
    block: usize,
    is_read_only: bool,
    can_flush: bool,
    interrupt: Interrupt,
    ring: IrqLock<Ring<Dma, PciTransport>>,
    /// As many permits as there are slots that are free, or held with a permit.
    free: Semaphore,
    polls: [PollDesc; SLOTS],
    /// The memory of each slot, null until it is first used.
    data: [AtomicPtr<u8>; SLOTS],
    late: AtomicU64,
}

impl Disk {
    fn new(ready: Ready) -> Disk {
        let transport = ManuallyDrop::into_inner(ready.transport); // lives for ever
        // SAFETY: `probe` has allocated the page for this.
        let ring = unsafe { Ring::new(transport, ready.queue, ready.heads) };
        Disk {
            sectors: ready.sectors,
            block: ready.block,
            is_read_only: ready.is_read_only,
            can_flush: ready.can_flush,
            interrupt: ready.interrupt,
            ring: IrqLock::new(ring),
            free: Semaphore::new(SLOTS),
            polls: [const { PollDesc::new() }; SLOTS],
            data: [const { AtomicPtr::new(core::ptr::null_mut()) }; SLOTS],
            late: AtomicU64::new(0),
        }
    }

    /// Its size in sectors.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Requests begin and end at multiples of so many bytes: [`SECTOR`], or more.
    pub fn block(&self) -> usize {
        self.block
    }

    /// Whether it refuses writes.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Whether it has a cache that [`Job::Flush`] empties; without, written data is on the
    /// disk.
    pub fn can_flush(&self) -> bool {
        self.can_flush
    }

    /// Its interrupt vector.
    #[cfg(any(not(target_os = "none"), feature = "internals"))]
    pub fn vector(&self) -> u8 {
        match self.interrupt {
            Interrupt::Message(vector, _) | Interrupt::Line(_, vector) => vector,
        }
    }

    /// Requests that the device has at this instant, including abandoned ones.
    #[cfg(any(not(target_os = "none"), feature = "internals"))]
    pub fn in_flight(&self) -> usize {
        self.ring.lock().slots.in_flight()
    }

    /// Answers that were found by a check after a time-out. More than a few mean that
    /// interrupts get lost.
    #[cfg(any(not(target_os = "none"), feature = "internals"))]
    pub fn found_late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// A slot for a request; waits until one is free.
    ///
    /// # Errors
    /// None was free by `deadline_ns`, there is no memory for it, or the device is disabled.
    pub fn request(&self, deadline_ns: u64) -> Result<Request<'_>, Failure> {
        if self.ring.lock().is_broken() {
            return Err(Failure::Broken);
        }
        self.reclaim();
        let left = Duration::from_nanos(deadline_ns.saturating_sub(park::now_ns()));
        let is_in_time = self.free.try_acquire(1) || self.free.acquire_timeout(1, left).is_ok();
        if !is_in_time {
            self.reclaim(); // for the next request
            return Err(Failure::TimedOut);
        }
        let slot = self.ring.lock().slots.take().expect("a permit stands for a free slot");
        // From here on, dropping it releases slot and permit.
        let mut request = Request { disk: self, slot, data: NonNull::dangling(), is_out: false };
        request.data = self.data_of(slot).ok_or(Failure::NoMemory)?;
        Ok(request)
    }

    /// The memory of a slot that the caller holds.
    fn data_of(&self, slot: usize) -> Option<NonNull<u8>> {
        // Relaxed: a slot changes its owner under the ring's lock.
        if let Some(data) = NonNull::new(self.data[slot].load(Ordering::Relaxed)) {
            return Some(data);
        }
        let data = hal::alloc_pages(SLOT_BYTES / PAGE_SIZE)?;
        self.data[slot].store(data.as_ptr(), Ordering::Relaxed);
        Some(data)
    }

    /// Releases the permits of slots that came back late, for waiting Gs. Not done by the
    /// interrupt itself: a semaphore is for Gs.
    fn reclaim(&self) {
        let returned = self.ring.lock().slots.take_returned();
        if returned > 0 {
            self.free.release(returned);
        }
    }

    /// Takes all answers off the ring and wakes the Gs that wait for them; returns how many.
    fn take_answers(&self) -> u64 {
        let mut taken = 0;
        // Bounded, in case a device answers faster than it gets requests.
        while taken < RING as u64 {
            // One at a time, and the lock free in between: other CPUs may send.
            match self.ring.lock().take_answer() {
                Ok(None) => break,
                Ok(Some(Answer::Wake(slot))) => self.polls[slot].ready(Direction::Read),
                Ok(Some(Answer::Returned)) => {}
                Err(Bogus(head)) => {
                    log::error!(
                        "disk: it answers request {head}, which it does not have; given up"
                    );
                    self.polls.iter().for_each(PollDesc::close);
                    break;
                }
            }
            taken += 1;
        }
        taken
    }
}

/// The disk's interrupt handler.
struct Answers;

impl Handler for Answers {
    fn on_interrupt(&self) {
        let Some(disk) = DISK.get() else { return };
        if matches!(disk.interrupt, Interrupt::Line(..)) {
            // Reading its status deasserts the line.
            disk.ring.lock().transport.ack_interrupt();
        }
        disk.take_answers();
    }
}

/// A slot, with its memory. Dropped, it is free again: at once, or if the device still has
/// it, when the device gives it back.
pub struct Request<'d> {
    disk: &'d Disk,
    slot: usize,
    data: NonNull<u8>,
    /// The device has it.
    is_out: bool,
}

impl Request<'_> {
    /// The bytes to be written, or the bytes that were read: [`SLOT_BYTES`] of them. Empty
    /// while the device has them, as after a time-out.
    pub fn data(&mut self) -> &mut [u8] {
        if self.is_out {
            return &mut [];
        }
        // SAFETY: 1. The slot's memory: so many bytes, zeroed once, never freed. 2. The slot
        // is held by this request, so neither the device nor another request touches it; and
        // `self` is borrowed.
        unsafe { core::slice::from_raw_parts_mut(self.data.as_ptr(), SLOT_BYTES) }
    }

    /// Hands `job` to the device, and waits until it is done or `deadline_ns`.
    ///
    /// # Errors
    /// The device failed, or the deadline came first.
    ///
    /// # Panics
    /// When `job` does not fit, or the device has the slot already.
    pub fn run(&mut self, job: Job, deadline_ns: u64) -> Result<(), Failure> {
        assert!(job.fits(), "odd job");
        assert!(!self.is_out, "slot out");
        let Request { disk, slot, .. } = *self;
        // SAFETY: this request holds the slot, whose memory this is; `data` gives out no
        // reference to it while `is_out`.
        unsafe { disk.ring.lock().send(slot, job, self.data) }?;
        self.is_out = true;
        loop {
            let waited = disk.polls[slot].wait(Direction::Read, Some(deadline_ns));
            if waited == Err(PollError::TimedOut) {
                let late = disk.take_answers();
                disk.late.fetch_add(late, Ordering::Relaxed);
            }
            // An edge only says "check": an earlier request may have left it.
            if let Some(status) = disk.ring.lock().slots.collect(slot) {
                self.is_out = false;
                return verdict(status);
            }
            match waited {
                Ok(()) => {}
                Err(PollError::TimedOut) => return Err(Failure::TimedOut),
                Err(PollError::Closed | PollError::Busy) => return Err(Failure::Broken),
            }
        }
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let mut ring = self.disk.ring.lock();
        let is_free = match self.is_out {
            true => ring.slots.abandon(self.slot),
            false => {
                ring.slots.put_back(self.slot);
                true
            }
        };
        let permits = usize::from(is_free) + ring.slots.take_returned();
        drop(ring);
        if permits > 0 {
            self.disk.free.release(permits);
        }
    }
}

fn verdict(status: u8) -> Result<(), Failure> {
    match status {
        0 => Ok(()),
        2 => Err(Failure::Unsupported),
        _ => Err(Failure::Refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_sectors_that_fit_a_slot_are_asked_for() {
        for bytes in [SECTOR, 3 * SECTOR, SLOT_BYTES] {
            assert!(Job::Read(0, bytes).fits() && Job::Write(9, bytes).fits());
        }
        for bytes in [0, 1, SECTOR + 1, SLOT_BYTES + SECTOR, usize::MAX] {
            assert!(!Job::Read(0, bytes).fits() && !Job::Write(9, bytes).fits());
        }
        assert!(Job::Flush.fits());
    }

    #[test]
    fn a_device_is_believed_only_when_it_says_good() {
        assert_eq!(verdict(0), Ok(()));
        assert_eq!(verdict(1), Err(Failure::Refused));
        assert_eq!(verdict(2), Err(Failure::Unsupported));
        assert_eq!(verdict(0xff), Err(Failure::Refused), "it wrote no status");
    }
}
