//! `Barrier`: wait until so many have come.
//!
//! The last G that comes begins the next round and grants to all that are queued by then. So a G
//! that leaves early, by its limit or a kill, sees under the lock whether its round was complete
//! before: if not, it takes its arrival back.
#![forbid(unsafe_code)]

use crate::run::door::{Reason, might_park};
use crate::wait::limit::Limit;
use crate::wait::queue::{IfUnwound, Place, TimedOut, WaitQueue, Waited};
use core::fmt;

/// Lets `n` Gs wait for each other, again and again.
///
/// ```
/// use runnext::{prelude::*, sync::Barrier};
/// static STEP: Barrier = Barrier::new(3);
/// let runners: Vec<_> = (0..3).map(|_| go(|| STEP.wait().is_leader())).collect();
/// let leaders = runners.into_iter().map(|runner| u32::from(runner.join().unwrap()));
/// assert_eq!(leaders.sum::<u32>(), 1);
/// ```
pub struct Barrier {
    n: usize,
    queue: WaitQueue<Round>,
}

#[derive(Default)]
struct Round {
    number: u64,
    arrived: usize,
}

/// What [`Barrier::wait`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// Whether this G was the last that came: one in each round.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl Barrier {
    /// For `n` Gs; with 0 or 1, no G waits.
    pub const fn new(n: usize) -> Self {
        Barrier { n, queue: WaitQueue::new(Round { number: 0, arrived: 0 }) }
    }

    /// Waits until `n` Gs have called this. A G that is killed here does not count.
    pub fn wait(&self) -> BarrierWaitResult {
        self.wait_by(None).unwrap_or_else(|_| unreachable!("there is no limit"))
    }

    /// As [`wait`](Self::wait), until `limit` at most.
    ///
    /// # Errors
    /// [`TimedOut`] if too few have come; this call does not count then.
    pub fn wait_until<'l>(
        &self,
        limit: impl Into<Limit<'l>>,
    ) -> Result<BarrierWaitResult, TimedOut> {
        limit.into().during(|deadline_ns| self.wait_by(Some(deadline_ns)))
    }

    fn wait_by(&self, deadline_ns: Option<u64>) -> Result<BarrierWaitResult, TimedOut> {
        might_park();
        let mut locked = self.queue.lock();
        locked.arrived += 1;
        if locked.arrived >= self.n {
            *locked = Round { number: locked.number + 1, arrived: 0 };
            // Gs of the next round may queue before all of this one are woken.
            let limit = locked.new_number();
            drop(locked);
            self.queue.grant_while(|locked| {
                locked.front_number(0).filter(|&number| number < limit).map(|_| 0)
            });
            return Ok(BarrierWaitResult(true));
        }
        let mine = locked.number;
        let place = Place { reason: Reason::Condvar, list: 0, value: None, deadline_ns };
        let if_killed = IfUnwound(|| {
            let _in_time = leave(&mut self.queue.lock(), mine);
        });
        let waited = locked.wait(place, |_| false);
        core::mem::forget(if_killed);
        match waited {
            Waited::TimedOut(mut locked, _) => leave(&mut locked, mine)?,
            Waited::Granted(_) | Waited::Took(_) => {}
        }
        Ok(BarrierWaitResult(false))
    }
}

/// A G that arrived in round `mine` waits no longer: it does not count, unless that is complete.
fn leave(round: &mut Round, mine: u64) -> Result<(), TimedOut> {
    if round.number != mine {
        return Ok(());
    }
    round.arrived -= 1;
    Err(TimedOut)
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrived = self.queue.lock().arrived;
        f.debug_struct("Barrier").field("n", &self.n).field("arrived", &arrived).finish()
    }
}
