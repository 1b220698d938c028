//! Park and unpark by handle: the simplest way to wait for another G.
//!
//! A G passes a [`GRef`] of itself ([`current`]) to other Gs and waits in [`park()`]; the holder of
//! the handle wakes it by [`GRef::unpark`]. An unpark that comes first is not lost: it leaves a
//! permit, at most one, and the next park takes it and does not wait. Channels and locks do not use
//! this; they wait by [`mod@crate::park`], which has no permit.
//!
//! # Why no permit is lost, and none hits the wrong life
//!
//! `park` begins to park and then takes the permit; `unpark` leaves the permit and then readies.
//! Both touch the permit's word by one atomic read-modify-write, so one of them comes first. If
//! `unpark`, `park` sees the permit. If `park`, then `unpark` sees that the G is parking, as that
//! was stored before, and its `ready` is not lost.
//!
//! The G's record is used for one life after another, so the word also has the number of the life
//! ([`Permit`]): a permit for an earlier life is not taken, and never replaces one for a later.
#![forbid(unsafe_code)]

use crate::cell::sys::{AtomicU64, const_fn};
use crate::park::{self, GHandle, Reason, Wait};
use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use core::time::Duration;

/// Refers to a G, to wake it; still valid when the G has ended.
///
/// ```
/// use runnext::prelude::*;
/// let main = current();
/// drop(go(move || main.unpark()));
/// park();
/// ```
#[derive(Clone)]
pub struct GRef {
    handle: GHandle,
    id: u64,
}

impl GRef {
    /// Lets the G's [`park()`] return: the one it waits in, or else the next. A G
    /// that has ended is left alone.
    ///
    /// ```
    /// use runnext::prelude::*;
    /// current().unpark();
    /// current().unpark(); // one permit is all that is kept
    /// park(); // returns at once
    /// assert!(!park_timeout(Duration::from_millis(1)));
    /// ```
    pub fn unpark(&self) {
        park::permit(&self.handle);
        park::ready(self.handle.clone());
    }

    /// The number of the G, unique in this boot.
    ///
    /// ```
    /// use runnext::prelude::*;
    /// let other = go(|| current().id()).join().unwrap();
    /// assert_ne!(other, current().id());
    /// ```
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
///
/// ```
/// assert_eq!(runnext::current().id(), runnext::current().id());
/// ```
#[must_use]
pub fn current() -> GRef {
    GRef { handle: park::this(), id: park::current_id() }
}

/// Waits until another G calls [`GRef::unpark`]; blocks this G only, no CPU.
///
/// ```
/// use runnext::prelude::*;
/// let (tx, rx) = chan::bounded(1);
/// let shown = go(move || {
///     tx.send(current()).unwrap();
///     park();
///     "woken"
/// });
/// rx.recv().unwrap().unpark();
/// assert_eq!(shown.join(), Ok("woken"));
/// ```
pub fn park() {
    crate::park::might_park();
    loop {
        park::begin_park(Wait::new(Reason::Park, 0));
        if park::take_permit() {
            park::cancel_park();
            return;
        }
        park::park(); // a wake-up means "check again"
        if park::is_killed() {
            park::die();
        }
    }
}

/// As [`park()`], for `timeout` at most; false if that passed first.
///
/// ```
/// use runnext::prelude::*;
/// assert!(!park_timeout(Duration::from_millis(1)));
/// current().unpark();
/// assert!(park_timeout(Duration::from_secs(3600)));
/// ```
pub fn park_timeout(timeout: Duration) -> bool {
    crate::park::might_park();
    let deadline_ns = park::deadline_after(timeout);
    loop {
        park::begin_park(Wait::new(Reason::Park, 0));
        if park::take_permit() {
            park::cancel_park();
            return true;
        }
        if !park::park_until(deadline_ns) {
            let permitted = park::take_permit(); // it may have come at the last moment
            if !permitted && park::is_killed() {
                park::die();
            }
            return permitted;
        }
        if park::is_killed() {
            park::die();
        }
    }
}

/// The permit of a G's record, with the life that it is for: the generation in the upper bits,
/// "there is one" in the lowest bit.
#[derive(Default)]
pub(crate) struct Permit(AtomicU64);

impl Permit {
    const_fn! {
        pub(crate) fn new() -> Self {
            Permit(AtomicU64::new(0))
        }
    }

    /// Leaves a permit for that life, unless a later life has had one.
    pub(crate) fn give(&self, generation: u32) {
        let given = u64::from(generation) << 1 | 1;
        let mut word = self.0.load(Relaxed);
        // Generations wrap, so "later" is decided by the distance.
        while generation.wrapping_sub((word >> 1) as u32) as i32 >= 0 {
            // Written also when it is there already: see the top of this file.
            match self.0.compare_exchange_weak(word, given, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Takes that life's permit, if there is one. That life's G only.
    pub(crate) fn take(&self, generation: u32) -> bool {
        // A permit of an earlier life is cleared, too: it is of no use any more.
        let word = self.0.fetch_and(!1, AcqRel);
        word == u64::from(generation) << 1 | 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::prelude::*;

    #[test]
    fn a_permit_is_taken_once_and_by_its_own_life() {
        let permit = Permit::new();
        assert!(!permit.take(0));
        permit.give(0);
        permit.give(0);
        assert!(permit.take(0) && !permit.take(0), "two gave one permit");
        permit.give(0);
        assert!(!permit.take(1), "the permit of an earlier life");
        permit.give(1);
        permit.give(0); // late
        assert!(permit.take(1), "a late one replaced it");
    }

    #[test]
    fn generations_wrap() {
        let permit = Permit::new();
        for generation in [0x7000_0000, 0xe000_0000, u32::MAX, 0, 1] {
            permit.give(generation);
            assert!(permit.take(generation), "{generation:#x}");
        }
    }

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
