//! One file a device; unsafe only to touch registers.
//!
//! The consoles (`serial`, `framebuffer`) are [`crate::log::Sink`]s and are
//! handed to `log.rs` by the boot code; `fw_cfg` gives the boot code files that
//! whoever started the virtual machine left for the kernel. `irq` calls the
//! drivers that have claimed an interrupt; `simulated` is a device for tests.

pub mod framebuffer;
pub mod fw_cfg;
pub mod irq;
pub mod serial;
pub mod simulated;
