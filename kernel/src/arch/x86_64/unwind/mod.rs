//! What becomes of a G whose stack is full.

#[cfg(any(test, target_os = "none"))]
mod lsda;
pub mod rescue;
