//! `JoinSet`: many Gs, and the results of those that have ended (Tokio: `JoinSet`).
//!
//! A G that ends leaves its number with the set (`run::ended`), and the G that waits takes the
//! handle of that number. The waiting is that of `select!`, as that of a join is there.
#![forbid(unsafe_code)]

use crate::api::go::{Go, JoinError, JoinHandle, SpawnError};
use crate::run::ended::EndedGs;
use crate::wait::limit::Limit;
use crate::wait::queue::TimedOut;
use alloc::sync::Arc;
use core::fmt;
use core::panic::Location;

/// Gs whose results come in the order in which they end. Dropping the set detaches them.
///
/// ```
/// use runnext::{prelude::*, sync::JoinSet};
/// let mut workers = JoinSet::new();
/// for n in 1..=10_u32 {
///     workers.go(move || n * n);
/// }
/// let mut sum = 0;
/// while let Some(square) = workers.join_next() {
///     sum += square.unwrap();
/// }
/// assert_eq!(sum, 385);
/// ```
pub struct JoinSet<T> {
    gs: crate::HashMap<u64, JoinHandle<T>>,
    ended: Arc<EndedGs>,
    next: u64,
}

impl<T: Send + 'static> JoinSet<T> {
    /// Without Gs.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    pub fn new() -> Self {
        JoinSet { gs: crate::HashMap::default(), ended: Arc::new(EndedGs::new()), next: 0 }
    }

    /// Starts `f` on a new G of the set.
    ///
    /// # Panics
    /// When there is no memory for a G; [`spawn`](Self::spawn) gives an error instead.
    #[track_caller]
    pub fn go(&mut self, f: impl FnOnce() -> T + Send + 'static) {
        if let Err(error) = self.spawn(Go::new(), f) {
            panic!("go: {error}");
        }
    }

    /// Starts `f` on a new G of the set, with these options.
    ///
    /// # Errors
    /// As [`Go::spawn`]: then nothing was started, and the set is as it was.
    #[track_caller]
    pub fn spawn(
        &mut self,
        options: Go,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(), SpawnError> {
        let number = self.next;
        if self.gs.try_reserve(1).is_err() || !self.ended.reserve(self.gs.len() + 1) {
            return Err(SpawnError::NoMemory);
        }
        self.next += 1;
        match options.spawn_in(Location::caller(), self.ended.clone(), number, f) {
            Ok(g) => {
                self.gs.insert(number, g);
                Ok(())
            }
            Err(error) => {
                self.ended.forget(number); // its ticket was dropped
                Err(error)
            }
        }
    }

    /// How many Gs it has whose results were not taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.gs.len()
    }

    /// Whether the results of all its Gs were taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.gs.is_empty()
    }

    /// Waits until one of its Gs has ended, and returns its result; `None` if there is no G. In
    /// `select!` that is `join_next(set) -> ended => …`.
    pub fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        crate::select! { join_next(*self) -> ended => ended }
    }

    /// As [`join_next`](Self::join_next), until `limit` at most.
    ///
    /// # Errors
    /// [`TimedOut`] if none has ended in time.
    ///
    /// ```
    /// use runnext::{prelude::*, sync::{JoinSet, TimedOut}};
    /// let mut workers = JoinSet::new();
    /// let (tx, rx) = chan::rendezvous::<u32>();
    /// workers.go(move || rx.recv().unwrap());
    /// assert_eq!(workers.join_next_until(Duration::from_millis(1)), Err(TimedOut));
    /// assert_eq!(workers.try_join_next(), None);
    /// tx.send(7).unwrap();
    /// assert_eq!(workers.join_next(), Some(Ok(7)));
    /// assert_eq!(workers.join_next(), None);
    /// ```
    pub fn join_next_until<'l>(
        &mut self,
        limit: impl Into<Limit<'l>>,
    ) -> Result<Option<Result<T, JoinError>>, TimedOut> {
        crate::select! {
            join_next(*self) -> ended => Ok(ended),
            after(limit) => Err(TimedOut),
        }
    }

    /// The result of a G that has ended, if there is one.
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        // A G that has ended left its result before its number: the join does not wait.
        let g = self.gs.remove(&self.ended.take()?)?;
        Some(g.join())
    }

    /// Asks all of its Gs to end, as [`JoinHandle::kill`] does, and waits a little for each. Their
    /// results follow: [`JoinError::Killed`], if they had not ended.
    pub fn kill_all(&self) {
        // One that has ended is none any more.
        self.gs.values().for_each(|g| _ = g.kill());
    }

    /// For `select!`: whether there is nothing to wait for.
    pub(crate) fn is_ready(&self) -> bool {
        self.gs.is_empty() || !self.ended.is_empty()
    }

    pub(crate) fn ended(&self) -> &EndedGs {
        &self.ended
    }
}

impl<T: Send + 'static> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("gs", &self.gs.len()).finish_non_exhaustive()
    }
}
