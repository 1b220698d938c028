//! A G waits, lets others run, and is readied: what [`crate::park`] passes on.
//!
//! Waiting has two halves, so that no wake-up is lost between the decision to
//! wait and the switch: see `park`. How a G leaves its CPU is next door.

use super::task::{GHandle, Task};
use super::{Leaving, SCHED, TIMERS, leave, running, submit, this_cpu};
use crate::arch;
use crate::mem::percpu::Here;
use crate::trace::{self, Kind};
use crate::waiting::Wait;
use core::sync::atomic::Ordering::Relaxed;
use sched::{G, Status};

/// Lets the other Gs of this P run first.
///
/// ```no_run
/// runnext::yield_now();
/// ```
pub fn yield_now() {
    leave(Leaving::Yield);
}

/// The first half of waiting: from here on [`ready`] is not lost. Call it
/// before letting others know that this G waits, and then [`park`].
pub fn begin_park(wait: Wait) -> GHandle {
    let g = running().expect("no G to park");
    g.kernel.waiting.store(wait.pack(), Relaxed);
    g.begin_park();
    g.handle()
}

/// The second half of waiting: leaves the CPU until somebody calls [`ready`].
pub fn park() {
    leave(Leaving::Park);
}

/// Takes back a [`begin_park`]: the G need not wait after all. True if it was
/// readied meanwhile; that wake-up is consumed.
pub fn cancel_park() -> bool {
    running().expect("no G to park").cancel_park()
}

/// As [`park`], until `deadline_ns` at most; false if that came first.
pub fn park_until(deadline_ns: u64) -> bool {
    let g = running().expect("no G to park");
    if deadline_ns <= arch::now_ns() {
        return g.cancel_park(); // no switch; true if readied meanwhile
    }
    g.kernel.waits_until_some_time();
    let here = Here::enter(); // armed and set on one CPU
    if TIMERS.arm(&here, g, deadline_ns) {
        // SAFETY: a G runs here.
        unsafe { this_cpu() }.slices.arm_for_sleeper(deadline_ns);
    }
    drop(here);
    park();
    TIMERS.cancel(g)
}

/// Makes a G that waits run again; one that does not wait is left alone.
pub fn ready(g: GHandle) {
    submit(|_, p| SCHED.ready_noting(p, g, |g, was| readied(g, was, 0)));
}

/// A G that waited is readied, says who did it; `by` is the event's argument.
#[inline(always)]
pub(super) fn readied(g: &'static G<Task>, was: Status, by: u32) {
    // One that is still on its CPU has waited for no time.
    if was == Status::Parked {
        g.kernel.account.ready(arch::cycles());
    }
    trace::event(Kind::Ready, || g.id(), by);
}
