//! What becomes of a G whose stack is full: its frames, read and left one by one.

#[cfg(any(test, target_os = "none"))]
mod lsda;
pub mod rescue;
pub mod step;

use super::cpu::{self, switch};
use super::irq::trap;
