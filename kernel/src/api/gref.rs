//! Park and unpark by handle: the simplest way to wait for another G.
//!
//! A G passes a [`GRef`] of itself ([`current`]) to other Gs and waits in [`park()`]; the holder of
//! the handle wakes it by [`GRef::unpark`]. An unpark that comes first is not lost: it leaves a
//! permit, at most one, and the next park takes it and does not wait (`run::permit` says why none
//! is lost). Channels and locks do not use this; they wait by [`mod@crate::run::door`].
#![forbid(unsafe_code)]

use crate::run::door::{self, GHandle, Reason, Wait};
use crate::wait::limit::Limit;
use crate::wait::queue;
use core::fmt;
use core::time::Duration;

/// Refers to a G, to wake it; still valid when the G has ended.
///
/// ```
/// use runnext::prelude::*;
/// let main = current();
/// drop(go(move || main.unpark()));
/// assert!(park_timeout(Duration::from_secs(3600)));
/// ```
#[derive(Clone)]
pub struct GRef {
    handle: GHandle,
    id: u64,
}

#[cfg(not(loom))]
impl GRef {
    /// The G of that joiner, unless it has ended.
    pub(super) fn of<T>(joiner: &crate::run::Joiner<T>) -> Option<Self> {
        door::worker(joiner).map(|(handle, id)| GRef { handle, id })
    }

    /// The name of the G, empty if it has none; `None` if it has ended.
    ///
    /// ```no_run
    /// use runnext::prelude::*;
    /// runnext::go::set_name("worker 7");
    /// assert_eq!(current().name().as_deref(), Some("worker 7"));
    /// ```
    pub fn name(&self) -> Option<alloc::string::String> {
        door::name_of(&self.handle)
    }
}

impl GRef {
    /// Lets the G's [`park()`] return: the one it waits in, or else the next; unless it has ended.
    ///
    /// ```
    /// use runnext::prelude::*;
    /// current().unpark();
    /// current().unpark(); // one permit is all that is kept
    /// park(); // returns at once
    /// assert!(!park_timeout(Duration::from_millis(1)));
    /// ```
    pub fn unpark(&self) {
        door::permit(&self.handle);
        door::ready(self.handle.clone());
    }

    /// The number of the G, unique in this boot.
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl fmt::Debug for GRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "G {}", self.id)
    }
}

/// The calling G.
#[must_use]
pub fn current() -> GRef {
    GRef { handle: door::this(), id: door::current_id() }
}

/// Waits until another G calls [`GRef::unpark`]; blocks this G only, no CPU.
pub fn park() {
    park_by(None);
}

/// As [`park()`], for `timeout` at most; false if that passed first.
pub fn park_timeout(timeout: Duration) -> bool {
    park_until(timeout)
}

/// As [`park()`], until `limit` at most; false if that came first.
pub fn park_until<'l>(limit: impl Into<Limit<'l>>) -> bool {
    limit.into().during(|deadline_ns| park_by(Some(deadline_ns)))
}

fn park_by(deadline_ns: Option<u64>) -> bool {
    door::might_park();
    loop {
        door::begin_park(Wait::new(Reason::Park, 0));
        if door::take_permit() {
            door::cancel_park();
            return true;
        }
        // A wake-up means "check again"; at the deadline too, for a permit of the last moment.
        let in_time = queue::park_by(deadline_ns);
        door::check_kill();
        if door::take_permit() {
            return true;
        }
        if !in_time {
            return false;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::prelude::*;

    #[test]
    fn no_unpark_is_lost() {
        let (tx, rx) = chan::bounded(1);
        let rounds = if cfg!(miri) { 20 } else { 2_000 };
        let parker = go(move || {
            for round in 0..rounds {
                tx.send((round, current())).expect("somebody unparks");
                park();
            }
        });
        let mut seen = 0;
        for (round, g) in rx.iter() {
            assert_eq!(round, seen);
            seen += 1;
            g.unpark();
        }
        assert_eq!((parker.join(), seen), (Ok(()), rounds));
    }

    #[test]
    fn a_handle_of_an_ended_g_harms_nobody() {
        let ended = go(current).join().expect("no panic");
        ended.unpark();
        assert!(!park_timeout(Duration::from_millis(1)));
    }
}
