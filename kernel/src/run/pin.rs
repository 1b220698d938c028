//! A G stays on one CPU for a while: pinned after its start.
//!
//! The word of a G's home says to which queue it goes, and only its holder writes it. So a G that
//! runs changes its own, and moves to its new home by a park that is readied at once: its CPU finds
//! that when it parks the G, and puts it where its home says (`sched`, `put_back`). No other CPU
//! has to look at it. From the change until the G has left, interrupts are off
//! ([`keep`](super::proc::keep)): a G that was preempted on a CPU that is not its home would be in
//! no queue.
//!
//! What was rejected: **a set of CPUs**. The home names one; for a set, the record of each G would
//! have to have a word more, and each P that takes Gs from a ring would have to test every one of
//! them, and leave some behind: a batch that is stolen would not be one copy any more. A program
//! that wants such a set pins a G to each CPU of it, and sends these its work.

use super::door;
use crate::arch::{self, text_enum};
use core::marker::PhantomData;
use sched::Kept;

text_enum! {
    /// Why a G was not pinned.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub error PinError {
        NoSuchCpu => "no such CPU to pin a G to",
        /// (It is on the stack of an M there.)
        InCall => "a G in a blocking call cannot be pinned",
    }
}

/// The calling G stays on one CPU as long as this is there. Leaked, it stays there to its end.
#[must_use = "dropped, it lets the G go"]
#[derive(Debug)]
pub struct CpuLock {
    /// How the G was kept before.
    kept: Kept,
    of_this_g: PhantomData<*const ()>,
}

/// Moves the calling G to that CPU, where it stays until the result is dropped (Go:
/// `runtime.LockOSThread`). Inside another such lock it moves on, and back at the end: of two, the
/// later one is to be dropped first, or the G stays where the earlier one has kept it.
///
/// ```no_run
/// use runnext::prelude::*;
/// let lock = runnext::go::lock_to_cpu(0)?;
/// yield_now();
/// assert_eq!(current_cpu(), 0);
/// drop(lock); // from here on it may run anywhere
/// # Ok::<(), runnext::go::PinError>(())
/// ```
pub fn lock_to_cpu(cpu: usize) -> Result<CpuLock, PinError> {
    door::might_park();
    if cpu >= arch::num_cpus() {
        return Err(PinError::NoSuchCpu);
    }
    if cfg!(target_os = "none") && super::is_in_call() {
        return Err(PinError::InCall);
    }
    let kept = door::keep(Kept::on(cpu)).ok_or(PinError::InCall)?;
    Ok(CpuLock { kept, of_this_g: PhantomData })
}

impl Drop for CpuLock {
    fn drop(&mut self) {
        // `None`: in a call it cannot go back to another CPU, and stays here until the outer lock is
        // gone.
        let _ = door::keep(self.kept);
    }
}
