//! One file per device; unsafe only to touch registers.
//!
//! The consoles (`serial`, `framebuffer`) are [`log::Sink`]s, which the boot code hands to [`log`].
//! `fw_cfg` gives the boot code files from the command line of the virtual machine. `pci` finds
//! devices, `virtio` has what virtio devices share, `virtio_blk` is the disk, `irq` maps interrupts
//! to drivers, `debugcon` takes the stream of traces, `power_button` ends the machine.

pub mod debugcon;
pub mod framebuffer;
pub mod fw_cfg;
pub mod irq;
pub(crate) mod log;
pub mod pci;
pub mod power_button;
pub mod serial;
pub mod virtio;
pub mod virtio_blk;
