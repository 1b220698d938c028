//! Parking and readying: the interface between public API and scheduler.
//!
//! Channels, locks, timers and joins are built on six functions: start a G, begin to park, cancel
//! that, park (for ever or until a time), ready. On the machine they are `run`'s own. On the host
//! threads stand in for Gs, so that everything above this interface runs in plain tests, in
//! doctests, and under Miri.
//!
//! # How to wait
//!
//! 1. Under the lock of the awaited object: check that the G must wait, call [`begin_park`], store
//!    the handle where the waker finds it.
//! 2. Drop the lock.
//! 3. [`park`] or [`park_until`].
//! 4. Check again, under the lock: a wake-up means "check again", not "granted".
//!
//! From 1 on a [`ready`] is not lost. A handle names one life of a G, so a stale handle does no
//! harm to later lives; but it may wake a later wait of the same G early, which is why step 4 is
//! mandatory.
//!
//! A G that need do nothing between 1 and 3 keeps the lock instead ([`begin_wait`],
//! [`park_unlock`]): it is free when the G is parked. So do waits in a `wait::queue`.

#[cfg(not(target_os = "none"))]
pub use host::*;

#[cfg(target_os = "none")]
pub use super::kill::{check_kill, die, is_killed, was_killed};
#[cfg(target_os = "none")]
pub use super::priority::{is_urgent, passed_on, stop_lending, taken_over};
#[cfg(target_os = "none")]
pub use super::{
    GHandle, attached, begin_park, begin_wait, call, cancel_park, created_and_ended, current_id,
    end_limit, has_attached, is_gone, is_limit_over, keep, may_spin, may_wait, me, name_of,
    num_goroutines, park, park_unlock, park_until, permit, program, random, ready, ready_from,
    ready_from_interrupt, set_limit_over, spawn, spawn_borrowing, take_permit, this, worker,
    yield_now,
};
#[cfg(target_os = "none")]
pub use crate::arch::{clock_uncertainty_ns, now_ns};

pub(crate) use super::waiting::deadline_after;
pub use super::waiting::{Reason, Wait};

use super::Instance;
use super::priority::Priority;
use core::panic::Location;

/// The running G is about to wait for a lock, or does: looks for a cycle of such waits.
#[cfg(target_os = "none")]
pub fn look_for_cycle(waits: bool) {
    (crate::run::hooks::get().look_for_cycle)(waits);
}

/// Makes this CPU take an interrupt, at whose end it moves the Gs that [`ready_from_interrupt`] has
/// put into its inbox: for callers of that function outside of interrupts, with interrupts off.
#[cfg(target_os = "none")]
pub fn interrupt_this_cpu() {
    crate::arch::wake(crate::arch::cpu_index());
}

/// Asserts that the caller may park: it is a G, with interrupts on, and holds no kernel lock. The
/// first line of every call that waits, also when it need not wait this time. Without debug
/// assertions this is nothing.
///
/// # Panics
/// With debug assertions, if the caller may not park.
#[inline(always)]
#[cfg_attr(debug_assertions, track_caller)]
pub fn might_park() {
    #[cfg(debug_assertions)]
    {
        if let Some(held) = crate::arch::lock::order::outermost() {
            panic!("might park with the {held} held");
        }
        // With interrupts on, a running G is on its own stack, or on that of its M in a call, where
        // it may park as well.
        #[cfg(target_os = "none")]
        {
            assert!(crate::arch::irq::enabled(), "might park with interrupts off");
            assert!(crate::run::is_running(), "might park where no G runs");
        }
    }
}

/// The options of a new G: name and site for reports, stack size, CPU and program.
#[derive(Clone, Copy, Debug)]
pub struct SpawnOptions {
    /// Its name, or "".
    pub name: &'static str,
    /// Where it was started.
    pub site: &'static Location<'static>,
    /// Bytes of addresses for its stack.
    pub stack: usize,
    /// The CPU that it must run on, if any.
    pub pin: Option<usize>,
    /// Its program, if not that of the G that starts it.
    pub program: Option<&'static Instance>,
    /// Its priority.
    pub priority: Priority,
}

/// The stand-in of the host.
#[cfg(not(target_os = "none"))]
#[path = "door/tests/host.rs"]
mod host;
