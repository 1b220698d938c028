//! One file a device; unsafe only to touch registers.

pub mod framebuffer;
pub mod fw_cfg;
pub mod serial;
