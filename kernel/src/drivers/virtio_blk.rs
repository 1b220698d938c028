//! A disk: virtio-blk, many requests at a time, each with a poll descriptor.
//!
//! [`Disk::request`] waits for a slot ([`free`]), [`Request::run`] hands it to the device and waits
//! for the answer, the interrupt takes answers off the ring and tells the poller. `virtio` brings
//! the device up and has its ring; the caller, [`crate::api::disk`], handles offsets that are no
//! multiples of a sector, ends and errors for programs.
//!
//! # Memory ownership
//!
//! > The device reads and writes memory of this file only, and the driver touches a
//! > slot's memory only while `virtio::slots` says that the driver owns the slot.
//!
//! Each slot has memory of its own, in one piece, which is never freed: [`SLOT_BYTES`] of data and
//! a [`Head`]. Bytes that a G reads are copied out of it, and bytes that it writes are copied in.
//! That costs a copy, and makes a request that timed out harmless: the device may write to the
//! slot for hours, after the G has continued, and the slot is reused when the device has given it
//! back, not before.
//!
//! # Locks
//!
//! A read takes eight: the ring's three times (send, take the answer, collect it), the poll
//! descriptor's three times (wait, ready, leave), the vector's, and that of the Gs that wait for a
//! slot.

mod free;

use super::pci::{self, ProbeError};
use super::virtio::Dma;
use super::virtio::probe::{self, Interrupt, Started, VENDOR};
use super::virtio::ring::{Broken, Chain, Ring};
use super::virtio::slots::{Answer, Bogus, RING, SLOTS};
use crate::arch::lock::IrqLock;
use crate::arch::text_enum;
use crate::mem::{PAGE_SIZE, dma};
use crate::run::poller::{PollDesc, PollError};
use alloc::format;
use alloc::string::String;
use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use free::FreeSlots;
use virtio_drivers::transport::Transport;
use virtio_drivers::transport::pci::PciTransport;

/// Bytes of a sector, the unit of offsets, whatever [`Disk::block`] is.
pub const SECTOR: usize = 512;
/// The most bytes of one request.
pub const SLOT_BYTES: usize = 32 * 1024;

/// Device ids of a block device: transitional and modern.
const BLOCK: [u16; 2] = [0x1001, 0x1042];

/// The features that this driver supports. Not among them: event indices, as the crate's comparison
/// of them fails where they wrap around, and the device then gets no notification any more.
const READ_ONLY: u64 = 1 << 5;
const BLOCK_SIZE: u64 = 1 << 6;
const FLUSH: u64 = 1 << 9;

static DISK: spin::Once<Disk> = spin::Once::new();

/// Brings the first usable disk up; others are logged. Once, before Gs run.
pub fn init() {
    for (at, device) in pci::functions(&pci::Ports, VENDOR) {
        if !BLOCK.contains(&device) {
            log::info!("pci: {at}: virtio device {device:04x}, not used");
        } else if DISK.get().is_some() {
            log::info!("disk: another one at {at}, not used");
        } else {
            let features = READ_ONLY | BLOCK_SIZE | FLUSH;
            let on_interrupt = || _ = DISK.get().map(Disk::take_answers);
            match probe::bring_up(at, features, "disk", on_interrupt, |it| Disk::new(at, it)) {
                Ok(disk) => {
                    let disk = DISK.call_once(|| disk); // also if the line is not printed
                    log::debug!("disk: {}", disk.summary);
                }
                Err(error) => log::error!("disk: virtio at {at}: {error}; not used"),
            }
        }
    }
}

pub fn disk() -> Option<&'static Disk> {
    DISK.get()
}

/// What a request asks of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reads so many bytes from this sector on, a multiple of [`SECTOR`].
    Read(u64, usize),
    /// Writes so many bytes from this sector on.
    Write(u64, usize),
    /// Makes written data survive a power cut.
    Flush,
}

impl Command {
    fn fits(self) -> bool {
        match self {
            Command::Read(_, bytes) | Command::Write(_, bytes) => {
                (SECTOR..=SLOT_BYTES).contains(&bytes) && bytes.is_multiple_of(SECTOR)
            }
            Command::Flush => true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The deadline came first. The device may still carry out the request.
    TimedOut,
    NoMemory,
    Device(DeviceError),
}

text_enum! {
    /// The kinds of failure of a device.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub error DeviceError {
        Io => "the disk could not read or write there",
        Unsupported => "the disk does not know this request",
        Broken => "the disk answers nonsense and is not used any more",
    }
}

const BROKEN: Failure = Failure::Device(DeviceError::Broken);

pub struct Disk {
    /// Its size in sectors.
    pub sectors: u64,
    /// Requests begin and end at multiples of so many bytes: [`SECTOR`], or more.
    pub block: usize,
    /// Whether it refuses writes.
    pub is_read_only: bool,
    /// Whether it has a cache that [`Command::Flush`] empties; if not, written data is on disk.
    pub can_flush: bool,
    pub interrupt: Interrupt,
    pub summary: String,
    ring: IrqLock<Ring<Dma, PciTransport>>,
    free: FreeSlots,
    polls: [PollDesc; SLOTS],
    /// The memory of each slot, null until it is first used.
    data: [AtomicPtr<u8>; SLOTS],
    is_broken: AtomicBool,
    /// Answers found by a check after a time-out; more than a few: interrupts get lost.
    pub late: AtomicU64,
}

impl Disk {
    fn new(at: pci::Address, device: Started) -> Result<Disk, ProbeError> {
        let Started { features, interrupt, .. } = device;
        let sectors = read_capacity(&*device.transport)?;
        let block = match features & BLOCK_SIZE {
            0 => SECTOR,
            _ => block_size(device.transport.read_config_space(20).unwrap_or(0))?, // virtio 5.2.4
        };
        let is_read_only = features & READ_ONLY != 0;
        let kind = if is_read_only { ", read-only" } else { "" };
        let blocks = match block {
            SECTOR => String::new(),
            block => format!(" in blocks of {block} bytes"),
        };
        Ok(Disk {
            sectors,
            block,
            is_read_only,
            can_flush: features & FLUSH != 0,
            interrupt,
            summary: format!("virtio at {at}, {} KiB{blocks}{kind}, {interrupt}", sectors / 2),
            ring: IrqLock::new(device.ring(0)?),
            free: FreeSlots::new(),
            polls: [const { PollDesc::new() }; SLOTS],
            data: [const { AtomicPtr::new(core::ptr::null_mut()) }; SLOTS],
            is_broken: AtomicBool::new(false),
            late: AtomicU64::new(0),
        })
    }

    /// Requests that the device has at this instant, including abandoned ones.
    #[cfg(any(not(target_os = "none"), feature = "internals"))]
    pub fn in_flight(&self) -> usize {
        self.ring.lock().slots.in_flight()
    }

    /// A slot for a request; waits until one is free, in order, or `deadline_ns`.
    pub fn request(&self, deadline_ns: u64) -> Result<Request<'_>, Failure> {
        if self.is_broken.load(Relaxed) {
            return Err(BROKEN);
        }
        let slot = self.free.take(deadline_ns).ok_or(Failure::TimedOut)?;
        // From here on, dropping it releases the slot.
        let mut request = Request { disk: self, slot, data: NonNull::dangling(), is_out: false };
        // Relaxed: a slot changes its holder through `free`, which orders that.
        let data = NonNull::new(self.data[slot].load(Relaxed));
        request.data = data.or_else(|| dma::alloc(SLOT_PAGES)).ok_or(Failure::NoMemory)?;
        self.data[slot].store(request.data.as_ptr(), Relaxed);
        Ok(request)
    }

    /// Takes all answers off the ring and wakes the Gs that wait for them; returns how many.
    fn take_answers(&self) -> u64 {
        let (mut taken, mut done) = (0, 0u64);
        let mut bogus = None;
        let mut ring = self.ring.lock();
        if self.interrupt.line.is_some() {
            ring.transport.ack_interrupt(); // reading its status deasserts the line
        }
        // Bounded, in case a device answers faster than it gets requests.
        while taken < RING as u64 {
            match ring.take_answer() {
                Ok(None) => break,
                Ok(Some(Answer::Wake(slot))) => done |= 1 << slot,
                // Under the lock: once the device no longer owns the slot, another G may take it.
                Ok(Some(Answer::Returned(slot))) => self.free.push(slot),
                Err(Bogus(head)) => {
                    bogus = Some(head);
                    break;
                }
            }
            taken += 1;
        }
        drop(ring);
        let is_done = |slot: &usize| done & 1 << slot != 0;
        (0..SLOTS).filter(is_done).for_each(|slot| self.polls[slot].ready());
        if let Some(head) = bogus {
            self.is_broken.store(true, Relaxed);
            log::error!("disk: device completed unknown request {head}; disk disabled");
            self.polls.iter().for_each(PollDesc::close);
        }
        taken
    }
}

/// The size in sectors, which may change while it is read, but not for ever.
fn read_capacity(transport: &impl Transport) -> Result<u64, ProbeError> {
    for _ in 0..16 {
        let before = transport.read_config_generation();
        let half = |offset| transport.read_config_space::<u32>(offset).map(u64::from);
        let (Ok(low), Ok(high)) = (half(0), half(4)) else { break };
        if transport.read_config_generation() == before {
            return Ok(low | high << 32);
        }
    }
    Err(ProbeError::Unusable("its capacity cannot be read"))
}

/// The unit of requests, from the block size that the device reports.
fn block_size(said: u32) -> Result<usize, ProbeError> {
    let block = said as usize;
    let fits = block.is_power_of_two() && (SECTOR..=SLOT_BYTES).contains(&block);
    if fits { Ok(block) } else { Err(ProbeError::BlockSize(said)) }
}

/// The head and the status of a request, after the data of its slot.
#[repr(C)]
struct Head {
    kind: u32,
    reserved: u32,
    sector: u64,
    status: u8,
}

pub(super) const SLOT_PAGES: usize = (SLOT_BYTES + size_of::<Head>()).div_ceil(PAGE_SIZE);

/// Writes the head of `command` into the slot's memory at `data`; returns the device's pieces.
///
/// # Safety
/// `data` is [`SLOT_PAGES`] pages that no other code touches, and `command` fits.
pub(super) unsafe fn chain(command: Command, data: NonNull<u8>) -> Chain {
    /// A status that no device writes.
    const NO_STATUS: u8 = u8::MAX;
    let (kind, sector, bytes) = match command {
        Command::Read(sector, bytes) => (0, sector, bytes),
        Command::Write(sector, bytes) => (1, sector, bytes),
        Command::Flush => (4, 0, 0),
    };
    // SAFETY: inside the slot's memory, and aligned.
    let head = unsafe { data.add(SLOT_BYTES) };
    // SAFETY: the caller's promise.
    unsafe { head.cast().write(Head { kind, reserved: 0, sector, status: NO_STATUS }) };
    // SAFETY: inside of the head.
    let status = unsafe { head.add(offset_of!(Head, status)) };
    let request = NonNull::slice_from_raw_parts(head, offset_of!(Head, status));
    let status = NonNull::slice_from_raw_parts(status, 1);
    let data = NonNull::slice_from_raw_parts(data, bytes);
    match command {
        Command::Read(..) => Chain::new(&[request], &[data, status]),
        Command::Write(..) => Chain::new(&[request, data], &[status]),
        Command::Flush => Chain::new(&[request], &[status]),
    }
}

/// A slot, with its memory. Dropped, it is free again, when the device does not have it.
pub struct Request<'d> {
    disk: &'d Disk,
    slot: usize,
    data: NonNull<u8>,
    is_out: bool,
}

impl Request<'_> {
    /// [`SLOT_BYTES`] to write, or that were read. Empty while the device has them.
    pub fn data(&mut self) -> &mut [u8] {
        if self.is_out {
            return &mut [];
        }
        // SAFETY: so many bytes, zeroed once, never freed; this request holds the slot, so neither
        // the device nor another request touches them; and `self` is borrowed.
        unsafe { core::slice::from_raw_parts_mut(self.data.as_ptr(), SLOT_BYTES) }
    }

    /// Hands `command` to the device, and waits until it is done or `deadline_ns`.
    ///
    /// # Panics
    /// When `command` does not fit, or the device has the slot already.
    pub fn run(&mut self, command: Command, deadline_ns: u64) -> Result<(), Failure> {
        assert!(command.fits(), "invalid command");
        assert!(!self.is_out, "slot out");
        let Request { disk, slot, data, .. } = *self;
        // SAFETY: this request holds the slot, whose memory this is.
        let chain = unsafe { chain(command, data) };
        // SAFETY: the same; `data` gives out no reference to it while `is_out`.
        unsafe { disk.ring.lock().send(slot, chain) }.map_err(|Broken| BROKEN)?;
        self.is_out = true;
        loop {
            let waited = disk.polls[slot].wait(Some(deadline_ns));
            if waited == Err(PollError::TimedOut) {
                disk.late.fetch_add(disk.take_answers(), Relaxed);
            }
            // An edge only says "check": an earlier request may have left it.
            if disk.ring.lock().slots.collect(slot) {
                self.is_out = false;
                // SAFETY: inside the slot's memory.
                let status = unsafe { data.add(SLOT_BYTES + offset_of!(Head, status)) };
                // SAFETY: `chain` wrote it, and the device has given it back.
                return verdict(unsafe { status.read() });
            }
            match waited {
                Ok(()) => {}
                Err(PollError::TimedOut) => return Err(Failure::TimedOut),
                Err(PollError::Closed | PollError::Busy) => return Err(BROKEN),
            }
        }
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        // A slot that the device still has comes back by its interrupt.
        if !self.is_out || self.disk.ring.lock().slots.abandon(self.slot) {
            self.disk.free.push(self.slot);
        }
        self.disk.free.serve();
    }
}

fn verdict(status: u8) -> Result<(), Failure> {
    match status {
        0 => Ok(()),
        2 => Err(Failure::Device(DeviceError::Unsupported)),
        _ => Err(Failure::Device(DeviceError::Io)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_sectors_that_fit_a_slot_are_asked_for() {
        for bytes in [SECTOR, 3 * SECTOR, SLOT_BYTES] {
            assert!(Command::Read(0, bytes).fits() && Command::Write(9, bytes).fits());
        }
        for bytes in [0, 1, SECTOR + 1, SLOT_BYTES + SECTOR, usize::MAX] {
            assert!(!Command::Read(0, bytes).fits() && !Command::Write(9, bytes).fits());
        }
        assert!(Command::Flush.fits());
    }

    #[test]
    fn blocks_are_powers_of_two_from_a_sector_to_a_slot() {
        for bytes in [512, 1024, 4096, 32768] {
            assert_eq!(block_size(bytes), Ok(bytes as usize));
        }
        for bytes in [0, 1, 256, 520, 4095, 65536, u32::MAX] {
            assert_eq!(block_size(bytes), Err(ProbeError::BlockSize(bytes)));
        }
    }

    #[test]
    fn a_device_is_believed_only_when_it_says_good() {
        assert_eq!(verdict(0), Ok(()));
        assert_eq!(verdict(1), Err(Failure::Device(DeviceError::Io)));
        assert_eq!(verdict(2), Err(Failure::Device(DeviceError::Unsupported)));
        assert_eq!(verdict(0xff), Err(Failure::Device(DeviceError::Io)), "it wrote no status");
    }
}
