//! Until when a call waits at a channel.

/// Until when a call waits. A type for each, so that calls that wait for ever do not pass a time
/// along, and calls that do not wait have no code for it.
pub(crate) trait Until {
    /// Whether the call waits at all.
    const WAITS: bool = true;

    /// The time, if there is one.
    fn deadline_ns(self) -> Option<u64>;
}

/// The call waits as long as it takes.
pub(crate) struct Never;

/// The call does not wait.
pub(crate) struct Now;

impl Until for Never {
    #[inline(always)]
    fn deadline_ns(self) -> Option<u64> {
        None
    }
}

impl Until for Now {
    const WAITS: bool = false;

    fn deadline_ns(self) -> Option<u64> {
        None
    }
}

impl Until for u64 {
    fn deadline_ns(self) -> Option<u64> {
        Some(self)
    }
}
