//! From a PCI function to a virtio device that takes requests.
//!
//! [`bring_up`] checks everything that the crate's transport will trust ([`check`]), maps it,
//! resets the device, negotiates features and routes its interrupt: a message (MSI-X) where the
//! device can send one, its line otherwise. The driver then reads its configuration and sets up
//! its rings ([`Started::ring`]). Each step can fail, and returns why; a device that failed is
//! kept from reaching memory. Before Gs run.
//!
//! Transitional devices are used in their modern form. Devices with only the legacy form (before
//! 2016, or by option) are refused: the crate has no transport for their ports.

use super::hal::Dma;
use super::ring::Ring;
use super::slots::RING;
use crate::arch;
use crate::drivers::irq::{self, Handler, IrqError};
use crate::drivers::pci::{Address, Device, PciError, Ports, Region, Registers};
use core::fmt;
use core::mem::ManuallyDrop;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::pci::bus::{ConfigurationAccess, PCI_CAP_ID_VNDR, PciRoot};
use virtio_drivers::transport::pci::{
    PciTransport, VIRTIO_PCI_CAP_COMMON_CFG, VIRTIO_PCI_CAP_DEVICE_CFG, VIRTIO_PCI_CAP_ISR_CFG,
    VIRTIO_PCI_CAP_NOTIFY_CFG, VirtioPciError,
};
use virtio_drivers::transport::{DeviceStatus, Transport};

/// The vendor of all virtio devices.
pub const VENDOR: u16 = 0x1af4;

/// The feature of the modern interface, which every driver needs.
const VERSION_1: u64 = 1 << 32;

/// A device that has accepted features, and waits for its rings.
pub struct Started {
    /// The transport. Never dropped: that would wait for a reset without limit.
    pub transport: ManuallyDrop<PciTransport>,
    /// The features that both sides support.
    pub features: u64,
    /// How it interrupts.
    pub interrupt: Interrupt,
    common: Registers,
    bells: Bells,
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
    /// The crate refuses it.
    Transport(VirtioPciError),
    /// A ring cannot be set up, and why.
    Ring(virtio_drivers::Error),
    /// It got no interrupt.
    NoInterrupt(IrqError),
    /// Its blocks have so many bytes, which requests cannot be multiples of.
    BlockSize(u32),
    /// Another reason.
    Unusable(&'static str),
}

const LEGACY: ProbeError = ProbeError::Unusable("it has only virtio's legacy interface");
const NO_INTERRUPT: ProbeError = ProbeError::Unusable("its interrupt cannot reach a CPU");

/// Brings the device at `at` up with those of `features` that it offers; its interrupts go to
/// `handler`. `finish` sets up its rings.
///
/// # Errors
/// The first step that failed.
pub fn bring_up<R>(
    at: Address,
    features: u64,
    (name, handler): (&'static str, &'static dyn Handler),
    finish: impl FnOnce(Started) -> Result<R, ProbeError>,
) -> Result<R, ProbeError> {
    let device = Device::new(Ports, at);
    device.enable();
    let ready = start(&device, features, name, handler).and_then(finish);
    if ready.is_err() {
        device.quiesce();
    }
    ready
}

fn start(
    device: &Device,
    features: u64,
    name: &'static str,
    handler: &'static dyn Handler,
) -> Result<Started, ProbeError> {
    let (common, bells) = check(device)?;
    let transport = PciTransport::new::<Dma, _>(&mut PciRoot::new(Ports), device.address());
    let mut transport = ManuallyDrop::new(transport.map_err(ProbeError::Transport)?);
    reset(&mut transport)?;
    let features = negotiate(&mut transport, features)?;
    let interrupt = match set_up_message(device, name, handler) {
        Ok(interrupt) => interrupt,
        Err(error) => {
            if error != ProbeError::Pci(PciError::NoMessages) {
                log::warn!("{name}: no MSI-X: {error}");
            }
            let line = device.interrupt_line().ok_or(NO_INTERRUPT)?;
            Interrupt::Line(line, irq::claim_isa(line, 0, name, handler)?)
        }
    };
    Ok(Started { transport, features, interrupt, common, bells })
}

impl Started {
    /// Ring `index`, for the device's last step: it has addresses of the kernel from here on, and
    /// takes requests.
    ///
    /// # Errors
    /// The device cannot have it, or there is no memory.
    pub fn ring(mut self, index: u16) -> Result<Ring<Dma, PciTransport>, ProbeError> {
        self.common.write(QUEUE_SELECT, index);
        // The crate panics when the notify register of a ring is outside the notify region.
        let bell = u64::from(self.common.read::<u16>(QUEUE_NOTIFY_OFF));
        if bell * u64::from(self.bells.distance) + 2 > self.bells.bytes {
            return Err(ProbeError::Unusable("its notify register is out of range"));
        }
        // The crate has no function for these: the ring interrupts by entry 0 of the table of
        // messages, and a change of the configuration by none.
        if matches!(self.interrupt, Interrupt::Message(..)) {
            self.common.write(CONFIG_VECTOR, NO_VECTOR);
            self.common.write(QUEUE_VECTOR, 0u16);
            // A device that has no room for it reads back "none".
            if self.common.read::<u16>(QUEUE_VECTOR) != 0 {
                return Err(NO_INTERRUPT);
            }
        }
        let queue = VirtQueue::new(&mut *self.transport, index, false, false);
        let queue = queue.map_err(ProbeError::Ring)?;
        self.transport.finish_init();
        Ok(Ring::new(ManuallyDrop::into_inner(self.transport), index, queue))
    }
}

/// The notify registers: how many bytes they have, and how far apart they are.
#[derive(Clone, Copy)]
struct Bells {
    bytes: u64,
    distance: u32,
}

/// Checks all that the crate's transport is going to use, and maps it.
fn check(device: &Device) -> Result<(Registers, Bells), ProbeError> {
    let structure = |kind| structure(device, kind)?.ok_or(LEGACY);
    let (_, common) = structure(VIRTIO_PCI_CAP_COMMON_CFG)?;
    let (at, notify) = structure(VIRTIO_PCI_CAP_NOTIFY_CFG)?;
    notify.map()?;
    structure(VIRTIO_PCI_CAP_ISR_CFG)?.1.map()?;
    structure(VIRTIO_PCI_CAP_DEVICE_CFG)?.1.map()?;
    Ok((common.map()?, Bells { bytes: notify.bytes, distance: device.read(at + 16) }))
}

/// The first virtio structure of this kind: where it is described, and its region.
pub fn structure<C: ConfigurationAccess + Copy>(
    device: &Device<C>,
    kind: u8,
) -> Result<Option<(u8, Region)>, PciError> {
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
        return Ok(Some((capability.offset, region.ok_or(PciError::OutsideBar(bar))?)));
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
    Err(ProbeError::Unusable("its reset does not end"))
}

/// Accepts the offered features that the driver supports.
fn negotiate(transport: &mut PciTransport, supported: u64) -> Result<u64, ProbeError> {
    let known = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
    transport.set_status(known);
    let features = transport.read_device_features() & (supported | VERSION_1);
    if features & VERSION_1 == 0 {
        return Err(LEGACY);
    }
    transport.write_driver_features(features);
    transport.set_status(known | DeviceStatus::FEATURES_OK);
    if !transport.get_status().contains(DeviceStatus::FEATURES_OK) {
        return Err(ProbeError::Unusable("it refuses features that it offered"));
    }
    Ok(features)
}

/// Offsets in the common registers (virtio 1.2, 4.1.4.3).
const CONFIG_VECTOR: usize = 0x10;
const QUEUE_SELECT: usize = 0x16;
const QUEUE_VECTOR: usize = 0x1a;
const QUEUE_NOTIFY_OFF: usize = 0x1e;
const NO_VECTOR: u16 = 0xffff;

/// Lets the device interrupt by entry 0 of its table of messages.
fn set_up_message(
    device: &Device,
    name: &'static str,
    handler: &'static dyn Handler,
) -> Result<Interrupt, ProbeError> {
    device.check_messages()?;
    let vector = irq::claim(name, handler)?;
    let mut cpus = 0..arch::num_cpus();
    let reached = cpus.find_map(|cpu| Some((cpu, arch::message_for(cpu, vector)?)));
    let (cpu, message) = reached.ok_or(NO_INTERRUPT)?;
    device.enable_message(0, message)?;
    Ok(Interrupt::Message(vector, cpu))
}

impl From<PciError> for ProbeError {
    fn from(error: PciError) -> Self {
        ProbeError::Pci(error)
    }
}

impl From<IrqError> for ProbeError {
    fn from(error: IrqError) -> Self {
        ProbeError::NoInterrupt(error)
    }
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbeError::Pci(error) => error.fmt(f),
            ProbeError::Transport(error) => write!(f, "invalid virtio structures: {error}"),
            ProbeError::Ring(error) => write!(f, "no ring of {RING}: {error}"),
            ProbeError::NoInterrupt(error) => write!(f, "no interrupt: {error}"),
            ProbeError::BlockSize(bytes) => write!(f, "blocks of {bytes} bytes are unsupported"),
            ProbeError::Unusable(why) => f.write_str(why),
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
