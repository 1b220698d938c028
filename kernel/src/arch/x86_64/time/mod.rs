//! Time: the clock that all CPUs read, its references, and the timer of each CPU.

pub mod clock;
pub mod hpet;
pub mod pit;
pub mod reference;
pub mod rtc;
pub mod timer;
