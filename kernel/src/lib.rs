//! runnext: the Go scheduler's model on bare metal.
#![cfg_attr(target_os = "none", no_std)]

extern crate alloc;

pub mod arch;
pub mod backtrace;
pub mod cmdline;
pub mod drivers;
pub mod lock;
pub mod log;
pub mod mem;
pub mod symbols;
