//! From a PCI function to a virtio block device that takes requests.
//!
//! Checks everything that the crate's transport will trust ([`check`]), maps it, resets the
//! device, negotiates features and sets up the one ring that the driver uses. Interrupts: a
//! message (MSI-X) where the device can send one, its line otherwise. Each step can fail, and
//! returns why; a device that failed is kept from reaching memory. Called once, by
//! `virtio_blk`, before Gs run.
//!
//! Transitional devices are used in their modern form. Devices with only the old form (before
//! 2016, or by option) are refused with a message: the crate has no transport for their
//! ports.

use super::hal::{self, Dma};
use super::ring::QUEUE;
use super::slots::RING;
use super::{SECTOR, SLOT_BYTES};
use crate::arch;
use crate::drivers::irq::{self, Handler, IrqError};
use crate::drivers::pci::{Address, Device, PciError, Ports, Region, Registers};
use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::pci::bus::{ConfigurationAccess, PCI_CAP_ID_VNDR, PciRoot};
use virtio_drivers::transport::pci::{
    PciTransport, VIRTIO_PCI_CAP_COMMON_CFG, VIRTIO_PCI_CAP_DEVICE_CFG, VIRTIO_PCI_CAP_ISR_CFG,
    VIRTIO_PCI_CAP_NOTIFY_CFG, VirtioPciError,
};
use virtio_drivers::transport::{DeviceStatus, Transport};

/// The features that this driver supports. Not among them: event indices, as the crate's
/// comparison of them fails where they wrap around, and the device then gets no notification
/// any more.
const READ_ONLY: u64 = 1 << 5;
const BLOCK_SIZE: u64 = 1 << 6;
const FLUSH: u64 = 1 << 9;
const VERSION_1: u64 = 1 << 32;

/// A device that is ready for requests.
pub struct Ready {
    /// The transport. Never dropped: that would wait for a reset without limit.
    pub transport: ManuallyDrop<PciTransport>,
    /// Its ring.
    pub queue: VirtQueue<Dma, RING>,
    /// A page for the heads of requests.
    pub heads: NonNull<u8>,
    /// Its size, in sectors of 512 bytes.
    pub sectors: u64,
    /// Requests begin and end at multiples of so many bytes.
    pub block: usize,
    /// It refuses writes.
    pub is_read_only: bool,
    /// It has a cache, and a command to empty it.
    pub can_flush: bool,
    /// How it interrupts.
    pub interrupt: Interrupt,
}

/// How a device interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// By a message with this vector, to this CPU.
    Message(u8, usize),
    /// By this ISA line, with this vector, to CPU 0. Reading the status deasserts it.
    Line(u8, u8),
}

/// Why a device cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeError {
    /// Its configuration space is invalid.
    Pci(PciError),
    /// It has the old interface only.
    OldInterface,
    /// The crate refuses it.
    Transport(VirtioPciError),
    /// It does not come out of its reset.
    StuckInReset,
    /// It does not accept features that it offered.
    Features(u64),
    /// Its ring cannot be set up, and why.
    Ring(virtio_drivers::Error),
    /// It does not say how large it is.
    NoCapacity,
    /// Its blocks have so many bytes, which requests cannot be multiples of.
    BlockSize(u32),
    /// The notify register of its queue is outside its notify region.
    NoBell,
    /// It got no interrupt.
    NoInterrupt(Option<IrqError>),
}

/// Brings the device at `at` up; its interrupts go to `handler`.
///
/// # Errors
/// The first step that failed.
pub fn bring_up(at: Address, handler: &'static dyn Handler) -> Result<Ready, ProbeError> {
    let device = Device::new(Ports, at);
    let ready = try_bring_up(&device, handler);
    if ready.is_err() {
        device.quiesce();
    }
    ready
}

fn try_bring_up(device: &Device, handler: &'static dyn Handler) -> Result<Ready, ProbeError> {
    device.enable();
    let common = check(device)?;
    let root = &mut PciRoot::new(Ports);
    let transport = PciTransport::new::<Dma, _>(root, device.address());
    let mut transport = ManuallyDrop::new(transport.map_err(ProbeError::Transport)?);
    reset(&mut transport)?;
    let features = negotiate(&mut transport)?;
    let interrupt = set_up_interrupt(device, &common, handler)?;
    let sectors = read_capacity(&transport)?;
    let block = match features & BLOCK_SIZE {
        0 => SECTOR,
        _ => block_size(transport.read_config_space(BLOCK_SIZE_AT).unwrap_or(0))?,
    };
    check_bell(device, &common)?;
    let heads = hal::alloc_pages(1).ok_or(ProbeError::Ring(virtio_drivers::Error::DmaError))?;
    // The last step that can fail: from here on the device has addresses of the kernel.
    let queue = VirtQueue::new(&mut *transport, QUEUE, false, false);
    let queue = queue.map_err(ProbeError::Ring)?;
    transport.finish_init();
    let (is_read_only, can_flush) = (features & READ_ONLY != 0, features & FLUSH != 0);
    Ok(Ready { transport, queue, heads, sectors, block, is_read_only, can_flush, interrupt })
}

/// Checks all that the crate's transport is going to use, and maps it; returns the common
/// registers.
fn check(device: &Device) -> Result<Registers, ProbeError> {
    let mut common = None;
    for kind in [
        VIRTIO_PCI_CAP_COMMON_CFG,
        VIRTIO_PCI_CAP_NOTIFY_CFG,
        VIRTIO_PCI_CAP_ISR_CFG,
        VIRTIO_PCI_CAP_DEVICE_CFG,
    ] {
        let region = structure(device, kind)?.ok_or(ProbeError::OldInterface)?;
        let registers = region.map()?;
        if kind == VIRTIO_PCI_CAP_COMMON_CFG {
            common = Some(registers);
        }
    }
    common.ok_or(ProbeError::OldInterface)
}

/// The region of the first virtio structure of this kind.
pub(crate) fn structure<C: ConfigurationAccess + Copy>(
    device: &Device<C>,
    kind: u8,
) -> Result<Option<Region>, PciError> {
    let least = if kind == VIRTIO_PCI_CAP_NOTIFY_CFG { 20 } else { 16 };
    for capability in device.capabilities()? {
        let (bytes, this) = (capability.private as u8, (capability.private >> 8) as u8);
        if capability.id != PCI_CAP_ID_VNDR || bytes < 16 {
            continue;
        }
        // For any kind: the crate adds to the offset in eight bits.
        if u16::from(capability.offset) + u16::from(bytes) > 256 {
            return Err(PciError::CutCapability(capability.offset));
        }
        if this != kind || bytes < least {
            continue;
        }
        let bar = device.read(capability.offset + 4) as u8;
        let offset = device.read(capability.offset + 8);
        let length = device.read(capability.offset + 12);
        let region = device.memory_bar(bar)?.part(offset, length);
        let region = region.ok_or(PciError::OutsideBar(bar))?;
        return Ok(Some(region));
    }
    Ok(None)
}

/// Resets the device, which may take a while, but not for ever.
fn reset(transport: &mut PciTransport) -> Result<(), ProbeError> {
    const POLLS: u32 = 1_000_000;
    transport.set_status(DeviceStatus::empty());
    for _ in 0..POLLS {
        if transport.get_status() == DeviceStatus::empty() {
            return Ok(());
        }
        arch::relax();
    }
    Err(ProbeError::StuckInReset)
}

/// Accepts the offered features that this driver supports.
fn negotiate(transport: &mut PciTransport) -> Result<u64, ProbeError> {
    let known = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
    transport.set_status(known);
    let offered = transport.read_device_features();
    let features = offered & (READ_ONLY | BLOCK_SIZE | FLUSH | VERSION_1);
    if features & VERSION_1 == 0 {
        return Err(ProbeError::OldInterface);
    }
    transport.write_driver_features(features);
    transport.set_status(known | DeviceStatus::FEATURES_OK);
    if !transport.get_status().contains(DeviceStatus::FEATURES_OK) {
        return Err(ProbeError::Features(offered));
    }
    Ok(features)
}

/// The size in sectors. It may change while it is read, but not for ever.
fn read_capacity(transport: &PciTransport) -> Result<u64, ProbeError> {
    for _ in 0..16 {
        let before = transport.read_config_generation();
        let half = |offset| transport.read_config_space::<u32>(offset).map(u64::from);
        let (Ok(low), Ok(high)) = (half(0), half(4)) else { break };
        if transport.read_config_generation() == before {
            return Ok(low | high << 32);
        }
    }
    Err(ProbeError::NoCapacity)
}

/// Offset of the block size in the configuration (virtio 1.2, 5.2.4).
const BLOCK_SIZE_AT: usize = 20;

/// The unit of requests, from the block size that the device reports. Its sectors have 512
/// bytes all the same.
fn block_size(said: u32) -> Result<usize, ProbeError> {
    let block = said as usize;
    if block.is_power_of_two() && (SECTOR..=SLOT_BYTES).contains(&block) {
        Ok(block)
    } else {
        Err(ProbeError::BlockSize(said))
    }
}

/// Offsets in the common registers (virtio 1.2, 4.1.4.3).
const CONFIG_VECTOR: usize = 0x10;
const QUEUE_SELECT: usize = 0x16;
const QUEUE_VECTOR: usize = 0x1a;
const QUEUE_NOTIFY_OFF: usize = 0x1e;
const NO_VECTOR: u16 = 0xffff;

/// A message if the device can send one, its line if not.
fn set_up_interrupt(
    device: &Device,
    common: &Registers,
    handler: &'static dyn Handler,
) -> Result<Interrupt, ProbeError> {
    const NAME: &str = "disk";
    match set_up_message(device, common, || irq::claim(NAME, handler)) {
        Ok(interrupt) => return Ok(interrupt),
        Err(ProbeError::Pci(PciError::NoMessages)) => {}
        Err(error) => log::warn!("disk: no MSI-X: {error}"),
    }
    let line = device.interrupt_line().ok_or(ProbeError::NoInterrupt(None))?;
    let vector = irq::claim_isa(line, 0, NAME, handler);
    let vector = vector.map_err(|error| ProbeError::NoInterrupt(Some(error)))?;
    Ok(Interrupt::Line(line, vector.number()))
}

/// Lets the ring interrupt by entry 0 of the table of messages, and the configuration by
/// none. The crate has no function for that, hence `common`.
fn set_up_message(
    device: &Device,
    common: &Registers,
    claim: impl FnOnce() -> Result<irq::Vector, IrqError>,
) -> Result<Interrupt, ProbeError> {
    device.check_messages()?;
    let vector = claim().map_err(|error| ProbeError::NoInterrupt(Some(error)))?.number();
    let mut cpus = 0..arch::num_cpus();
    let reached = cpus.find_map(|cpu| Some((cpu, arch::message_for(cpu, vector)?)));
    let (cpu, message) = reached.ok_or(ProbeError::NoInterrupt(None))?;
    device.enable_message(0, message)?;
    common.write(CONFIG_VECTOR, NO_VECTOR);
    common.write(QUEUE_SELECT, QUEUE);
    common.write(QUEUE_VECTOR, 0u16);
    // A device that has no room for it reads back "none".
    if common.read::<u16>(QUEUE_VECTOR) != 0 {
        device.disable_messages()?;
        return Err(ProbeError::NoInterrupt(None));
    }
    Ok(Interrupt::Message(vector, cpu))
}

/// The crate panics when the notify register of the ring is outside the notify region.
fn check_bell(device: &Device, common: &Registers) -> Result<(), ProbeError> {
    let found = device.capabilities()?.into_iter().find(|capability| {
        capability.id == PCI_CAP_ID_VNDR
            && capability.private >> 8 == u16::from(VIRTIO_PCI_CAP_NOTIFY_CFG)
            && capability.private & 0xff >= 20
    });
    let bells = found.ok_or(ProbeError::NoBell)?;
    let bytes = device.read(bells.offset + 12);
    let multiplier = device.read(bells.offset + 16);
    common.write(QUEUE_SELECT, QUEUE);
    let bell = u64::from(common.read::<u16>(QUEUE_NOTIFY_OFF)) * u64::from(multiplier);
    if bell + 2 <= u64::from(bytes) { Ok(()) } else { Err(ProbeError::NoBell) }
}

impl From<PciError> for ProbeError {
    fn from(error: PciError) -> Self {
        ProbeError::Pci(error)
    }
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbeError::Pci(error) => error.fmt(f),
            ProbeError::OldInterface => f.write_str("it has virtio's old interface only"),
            ProbeError::Transport(error) => write!(f, "not as virtio has it: {error}"),
            ProbeError::StuckInReset => f.write_str("it does not come out of its reset"),
            ProbeError::Features(offered) => {
                write!(f, "it offers features {offered:#x} and takes none")
            }
            ProbeError::Ring(error) => write!(f, "no ring of {RING}: {error}"),
            ProbeError::NoCapacity => f.write_str("it does not say how large it is"),
            ProbeError::BlockSize(bytes) => write!(f, "it has blocks of {bytes} bytes"),
            ProbeError::NoBell => f.write_str("its bell is out of reach"),
            ProbeError::NoInterrupt(None) => f.write_str("it cannot interrupt"),
            ProbeError::NoInterrupt(Some(error)) => write!(f, "it cannot interrupt: {error}"),
        }
    }
}

impl fmt::Display for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Interrupt::Message(vector, cpu) => write!(f, "MSI-X as {vector:#x} to CPU {cpu}"),
            Interrupt::Line(line, vector) => write!(f, "line {line} as {vector:#x} to CPU 0"),
        }
    }
}

#[cfg(test)]
mod tests;
