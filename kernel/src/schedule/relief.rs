//! How a G that finds no memory waits for its M to look for some.
//!
//! The other half, what is done about it, is `mem::relief`.

use super::{Leaving, ask_for_upkeep, leave_by, leave_now, running};
use crate::arch;
use crate::mem::percpu::Here;
use crate::mem::relief;
use sched::Status;

/// The [`relief::Wait`]: the running G leaves its CPU, whose M sees to that many pages
/// before anybody runs there again. False if it cannot leave here.
///
/// Where interrupts are on a G can be preempted, so it can leave as well; but not when
/// it is about to park. In a blocking call it leaves with its M, and the spare M does the
/// work. Whether it was killed it does not ask: an allocation does not unwind.
pub fn wait_for_relief(pages: usize) -> bool {
    if !arch::irq::enabled() {
        return false;
    }
    let Some(g) = running() else { return false };
    let here = Here::enter();
    if g.status() != Status::Running {
        return false;
    }
    let asked = relief::want(&here, pages);
    ask_for_upkeep();
    leave_now(g, Leaving::Yield);
    drop(here); // it is not there any more
    // Another CPU may have stolen it while the M is still at it.
    while !asked.is_done() {
        leave_by(g, Leaving::Yield);
    }
    true
}
