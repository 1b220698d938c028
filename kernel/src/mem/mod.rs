//! Memory: frames, heap, stacks.

pub mod frames;
pub mod heap;
pub mod stack;
