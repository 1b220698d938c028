//! What becomes of a G whose stack is full.

#[cfg(any(test, target_os = "none"))]
mod lsda;
pub mod rescue;

use super::cpu::{self, switch};
use super::irq::trap;
