//! Until when one waits at a channel.

use crate::park;
use core::time::Duration;

/// Until when one waits. A type for each, so that those who wait for ever do not
/// pass a time along, and do not ask for one.
pub(crate) trait Until {
    /// The time, if there is one.
    fn deadline_ns(self) -> Option<u64>;
}

/// As long as it takes.
pub(crate) struct Never;

impl Until for Never {
    #[inline(always)]
    fn deadline_ns(self) -> Option<u64> {
        None
    }
}

impl Until for u64 {
    fn deadline_ns(self) -> Option<u64> {
        Some(self)
    }
}

/// The time at which `timeout` from now is over; never, if that is too far.
pub(crate) fn deadline_after(timeout: Duration) -> u64 {
    let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    park::now_ns().saturating_add(ns)
}
