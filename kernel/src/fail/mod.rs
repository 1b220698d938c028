//! When it goes wrong: panics, full stacks, kills, deadlocks, stuck CPUs, and the end.
//!
//! A panic unwinds its G ([`mod@panic`] reports it; the catching is `run::unwind`); so does a full
//! stack ([`overflow`]). A G that cannot unwind is abandoned ([`mod@abandon`]). [`mod@kill`] ends
//! Gs from outside, [`deadlock`] finds Gs that wait for each other, [`watchdog`] CPUs that take no
//! interrupt, and [`end`] has the exit codes. The scheduler reaches this room through `run::hooks`.

pub(crate) mod abandon;
pub(crate) mod deadlock;
pub mod end;
pub(crate) mod kill;
pub(crate) mod overflow;
pub(crate) mod panic;
pub(crate) mod watchdog;
pub use abandon::{abandon, abandoned, fail, fail_without_memory, finish_abandoned};
pub use kill::{
    Left, begin_repeating, computes, ends_when_woken, find, kill, kill_all, program_of,
};
pub use overflow::{room_to_preempt, stack_full};
