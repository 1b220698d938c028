//! One file per device; unsafe only to touch registers.
//!
//! The consoles (`serial`, `framebuffer`) are [`crate::drivers::log::Sink`]s and are handed to
//! `log.rs` by the boot code; `fw_cfg` gives the boot code files from the command line of the
//! virtual machine. `pci` finds devices, `virtio` has what virtio
//! devices share, `virtio_blk` is the disk behind [`crate::api::disk`], `irq` maps interrupts to drivers. `debugcon` takes the stream of `trace`. `simulated` is a
//! device in software, for tests and study.

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
