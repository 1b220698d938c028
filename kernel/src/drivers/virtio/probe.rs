//! From a PCI function to a virtio device that takes requests.
//!
//! [`bring_up`] checks everything that the crate's transport will trust, maps it,
//! resets the device, negotiates features and routes its interrupt: a message (MSI-X) where the
//! device can send one, its line otherwise. The driver then reads its configuration and sets up
//! its rings ([`Started::ring`]). Each step can fail, and returns why; a device that failed is
//! kept from reaching memory. Before Gs run.
//!
//! Transitional devices are used in their modern form. Devices with only the legacy form (before
//! 2016, or by option) are refused: the crate has no transport for their ports.

use super::Dma;
use super::ring::Ring;
use crate::arch::{self, Window};
use crate::drivers::irq::{self, Handler};
use crate::drivers::pci::{Address, Capability, Device, NO_MESSAGES, Ports, ProbeError, Region};
use core::fmt;
use core::mem::ManuallyDrop;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::pci::bus::{Command, ConfigurationAccess, PCI_CAP_ID_VNDR, PciRoot};
use virtio_drivers::transport::pci::{
    PciTransport, VIRTIO_PCI_CAP_COMMON_CFG, VIRTIO_PCI_CAP_DEVICE_CFG, VIRTIO_PCI_CAP_ISR_CFG,
    VIRTIO_PCI_CAP_NOTIFY_CFG,
};
use virtio_drivers::transport::{DeviceStatus, Transport};

pub const VENDOR: u16 = 0x1af4;

/// The feature of the modern interface, which every driver needs.
const VERSION_1: u64 = 1 << 32;

/// A device that has accepted features, and waits for its rings.
pub struct Started {
    /// The transport. Never dropped: that would wait for a reset without limit.
    pub transport: ManuallyDrop<PciTransport>,
    pub features: u64,
    pub interrupt: Interrupt,
    common: Window,
    /// The notify registers, and how far apart they are.
    bells: (Region, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// The ISA line, if it does not send messages. Reading the device's status deasserts it.
    pub line: Option<u8>,
    pub vector: u8,
    cpu: usize,
}

const LEGACY: ProbeError = ProbeError::Unusable("it has only virtio's legacy interface");
const NO_INTERRUPT: ProbeError = ProbeError::Unusable("its interrupt cannot reach a CPU");

/// Brings the device at `at` up with those of `features` that it offers; its interrupts go to
/// `handler`. `finish` sets up its rings.
pub fn bring_up<R>(
    at: Address,
    features: u64,
    name: &'static str,
    handler: Handler,
    finish: impl FnOnce(Started) -> Result<R, ProbeError>,
) -> Result<R, ProbeError> {
    let device = Device::new(Ports, at);
    device.change_command(|command| command | Command::MEMORY_SPACE | Command::BUS_MASTER);
    let ready = start(&device, features, name, handler).and_then(finish);
    if ready.is_err() {
        // It may have addresses of ours: it must not reach memory.
        device.change_command(|command| command - Command::BUS_MASTER);
    }
    ready
}

fn start(
    device: &Device,
    features: u64,
    name: &'static str,
    handler: Handler,
) -> Result<Started, ProbeError> {
    // All that the crate's transport is going to use is checked and mapped before.
    let structure = |kind| structure(device, kind)?.ok_or(LEGACY);
    let common = structure(VIRTIO_PCI_CAP_COMMON_CFG)?.1.map()?;
    let (at, notify) = structure(VIRTIO_PCI_CAP_NOTIFY_CFG)?;
    notify.map()?;
    structure(VIRTIO_PCI_CAP_ISR_CFG)?.1.map()?;
    structure(VIRTIO_PCI_CAP_DEVICE_CFG)?.1.map()?;
    let transport = PciTransport::new::<Dma, _>(&mut PciRoot::new(Ports), device.at);
    let mut transport = ManuallyDrop::new(transport.map_err(ProbeError::Transport)?);
    reset(&mut transport)?;
    let features = negotiate(&mut transport, features)?;
    let interrupt = set_up_message(device, name, handler).or_else(|error| {
        if error != NO_MESSAGES {
            log::warn!("{name}: no MSI-X: {error}");
        }
        let line = device.interrupt_line().ok_or(NO_INTERRUPT)?;
        let vector = irq::claim_isa(line, name, handler).map_err(ProbeError::NoInterrupt)?;
        Ok(Interrupt { line: Some(line), vector, cpu: 0 })
    })?;
    Ok(Started { transport, features, interrupt, common, bells: (notify, device.read(at + 16)) })
}

impl Started {
    /// Ring `index`; from here on the device has addresses of the kernel, and takes requests.
    pub fn ring(mut self, index: u16) -> Result<Ring<Dma, PciTransport>, ProbeError> {
        self.common.put(QUEUE_SELECT, index);
        // The crate panics when the notify register of a ring is outside the notify region.
        let (region, distance) = self.bells;
        let bell = u64::from(self.common.get::<u16>(QUEUE_NOTIFY_OFF)) * u64::from(distance);
        if bell + 2 > region.bytes {
            return Err(ProbeError::Unusable("its notify register is out of range"));
        }
        // The crate has no function for these: the ring interrupts by entry 0 of the table of
        // messages, and a change of the configuration by none.
        if self.interrupt.line.is_none() {
            self.common.put(CONFIG_VECTOR, NO_VECTOR);
            self.common.put(QUEUE_VECTOR, 0u16);
            // A device that has no room for it reads back "none".
            if self.common.get::<u16>(QUEUE_VECTOR) != 0 {
                return Err(NO_INTERRUPT);
            }
        }
        let queue = VirtQueue::new(&mut *self.transport, index, false, false);
        let queue = queue.map_err(ProbeError::Ring)?;
        self.transport.finish_init();
        Ok(Ring::new(ManuallyDrop::into_inner(self.transport), index, queue))
    }
}

/// The first virtio structure of this kind: where it is described, and its region.
pub fn structure<C: ConfigurationAccess + Copy>(
    device: &Device<C>,
    kind: u8,
) -> Result<Option<(u8, Region)>, ProbeError> {
    let least = if kind == VIRTIO_PCI_CAP_NOTIFY_CFG { 20 } else { 16 };
    for capability in device.capabilities()? {
        let Capability { id, offset: at, private } = capability;
        let [bytes, this] = private.to_le_bytes();
        if id != PCI_CAP_ID_VNDR || bytes < 16 {
            continue;
        }
        // For any kind: the crate adds to the offset in eight bits.
        if u16::from(at) + u16::from(bytes) > 256 {
            return Err(ProbeError::CutCapability(at));
        }
        if this == kind && bytes >= least {
            let (bar, offset) = (device.read(at + 4) as u8, device.read(at + 8));
            return Ok(Some((at, device.memory(bar, offset, device.read(at + 12))?)));
        }
    }
    Ok(None)
}

fn reset(transport: &mut PciTransport) -> Result<(), ProbeError> {
    const POLLS: u32 = 1_000_000;
    transport.set_status(DeviceStatus::empty());
    let is_reset = |_| {
        arch::relax();
        transport.get_status().is_empty()
    };
    let is_reset = (0..POLLS).any(is_reset);
    is_reset.then_some(()).ok_or(ProbeError::Unusable("its reset does not end"))
}

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

fn set_up_message(
    device: &Device,
    name: &'static str,
    handler: Handler,
) -> Result<Interrupt, ProbeError> {
    let table = device.message_table()?;
    let vector = irq::claim(name, handler).map_err(ProbeError::NoInterrupt)?;
    let mut cpus = 0..arch::num_cpus();
    let reached = cpus.find_map(|cpu| Some((cpu, arch::message_for(cpu, vector)?)));
    let (cpu, message) = reached.ok_or(NO_INTERRUPT)?;
    device.enable_message(&table, message)?;
    Ok(Interrupt { line: None, vector, cpu })
}

impl fmt::Display for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Interrupt { line, vector, cpu } = self;
        match line {
            None => write!(f, "MSI-X as {vector:#x} to CPU {cpu}"),
            Some(line) => write!(f, "line {line} as {vector:#x} to CPU {cpu}"),
        }
    }
}

#[cfg(test)]
mod tests;
