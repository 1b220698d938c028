//! How a G that finds no memory waits for its M to reclaim some.
//!
//! The other half, the reclaiming itself, is `mem::reclaim`.

use super::{Leaving, ask_for_upkeep, leave, leave_now, running};
use crate::arch;
use crate::mem::percpu::Here;
use crate::mem::reclaim;
use sched::Status;

/// The [`reclaim::Wait`]: the running G leaves its CPU, whose M reclaims that many pages before any
/// G runs there again. False if the G cannot leave here.
///
/// Where interrupts are on a G can be preempted, so it can leave as well; but not when it is about
/// to park. In a blocking call it leaves with its M, and the spare M does the work. It does not
/// check for a kill request: an allocation does not unwind.
pub fn wait_for_memory(pages: usize) -> bool {
    if !arch::irq::enabled() {
        return false;
    }
    let Some(g) = running() else { return false };
    let here = Here::enter();
    if g.status() != Status::Running {
        return false;
    }
    let asked = reclaim::want(&here, pages);
    ask_for_upkeep();
    leave_now(g, Leaving::Yield);
    drop(here); // the G may be on another CPU now
    // Another CPU may have stolen the G while the M still reclaims.
    while !asked.is_done() {
        leave(g, Leaving::Yield);
    }
    true
}
