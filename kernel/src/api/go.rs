//! `go`: starting a G, and waiting for its result.
//!
//! The closure moves to the G, and its result comes back, in a block that both the G and the join
//! handle own (`run::job`): in the G's record if it is small and the place is free, else on the heap.
//! The G's panic is caught at its root and becomes the result; dropping the handle detaches
//! the G, and its result is dropped when it ends.
#![forbid(unsafe_code)]

pub use crate::run::error::{JoinError, SpawnError};
pub use crate::run::local::set_name;
pub use crate::run::pin::{CpuLock, PinError, lock_to_cpu};
pub use crate::run::priority::Priority;

use super::gref::GRef;
use super::tasks::{self, KillError, Killed};
use crate::run::door::SpawnOptions;
use crate::run::ended::{EndedGs, InSet};
use crate::run::sys::PANICKING;
use crate::run::unwind::{self, Caught};
use crate::run::{Instance, Joiner, door};
use crate::wait::limit::Limit;
use alloc::string::String;
use alloc::sync::Arc;
use core::panic::Location;
use core::time::Duration;

/// Starts `f` on a new G (Go: the `go` statement, newproc).
///
/// # Panics
/// When there is no memory for a G; [`Go::spawn`] gives an error instead.
///
/// ```
/// use runnext::prelude::*;
/// let sum = go(|| (1..=10).sum::<u32>());
/// assert_eq!(sum.join(), Ok(55));
/// ```
#[track_caller]
pub fn go<T, F>(f: F) -> JoinHandle<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    Go::new().spawn(f).unwrap_or_else(|error| panic!("go: {error}"))
}

/// Ends the calling G here: it unwinds, so its destructors run, and its join gives
/// [`JoinError::Exited`] (Go: `runtime.Goexit`). When a program's main does, its other Gs go on;
/// when none of them is left, that is a deadlock, as in Go.
///
/// # Panics
/// In a destructor of a G that unwinds already, or in a panic hook.
///
/// ```
/// use runnext::prelude::*;
/// let g = go(|| {
///     if num_cpus() > 0 {
///         runnext::go::goexit();
///     }
/// });
/// assert_eq!(g.join(), Err(JoinError::Exited));
/// ```
pub fn goexit() -> ! {
    assert!(door::me() & PANICKING == 0, "goexit of a G that panics already");
    unwind::resume(JoinError::Exited)
}

/// The options of a G that is about to be started.
///
/// ```
/// use runnext::prelude::*;
/// let worker = Go::new().name("worker").stack_size(256 * 1024).spawn(|| 6 * 7)?;
/// assert_eq!(worker.join(), Ok(42));
/// # Ok::<(), runnext::go::SpawnError>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "nothing runs before spawn"]
pub struct Go(SpawnOptions);

impl Go {
    /// A G without a name and with a stack of the usual size: 99 KiB, or as `stack=` says.
    pub const fn new() -> Self {
        let (stack, site) = (crate::mem::stack::DEFAULT_SIZE, Location::caller());
        let priority = Priority::Normal;
        Go(SpawnOptions { name: "", site, stack, pin: None, program: None, priority })
    }

    /// Gives it a name, for reports. A G that makes up its name calls [`set_name`].
    pub const fn name(mut self, name: &'static str) -> Self {
        self.0.name = name;
        self
    }

    /// Reserves that many bytes of addresses for its stack, at least the usual size and 1 GiB at
    /// most; memory is taken page by page as the stack grows.
    pub const fn stack_size(mut self, bytes: usize) -> Self {
        self.0.stack = bytes;
        self
    }

    /// Lets it run on this CPU only.
    pub const fn pin(mut self, cpu: usize) -> Self {
        self.0.pin = Some(cpu);
        self
    }

    /// Gives it a priority. An urgent G runs at once when it is readied, and has up to a third of a
    /// CPU that normal Gs want; a background G runs when no other G wants the CPU, and now and then.
    ///
    /// ```
    /// use runnext::prelude::*;
    /// let alarm = Go::new().priority(Priority::Urgent).spawn(|| "seen at once")?;
    /// assert_eq!(alarm.join(), Ok("seen at once"));
    /// # Ok::<(), runnext::go::SpawnError>(())
    /// ```
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.0.priority = priority;
        self
    }

    /// Makes it a G of that program, not of the one whose G starts it.
    pub(crate) const fn of(mut self, program: &'static Instance) -> Self {
        self.0.program = Some(program);
        self
    }

    /// The options of a G that is started by the caller.
    #[track_caller]
    pub(super) const fn here(self) -> SpawnOptions {
        SpawnOptions { site: Location::caller(), ..self.0 }
    }

    /// Starts it as a G of a [`JoinSet`](crate::sync::JoinSet), where it has that number.
    pub(super) fn spawn_in<T, F>(
        self,
        site: &'static Location<'static>,
        set: Arc<EndedGs>,
        number: u64,
        f: F,
    ) -> Result<JoinHandle<T>, SpawnError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let options = SpawnOptions { site, ..self.0 };
        let joiner = door::spawn(options, InSet { f: Caught(f), set, number })?;
        Ok(JoinHandle { joiner })
    }

    /// Starts it. After an error nothing has been started, and `f` was dropped.
    #[track_caller]
    pub fn spawn<T, F>(self, f: F) -> Result<JoinHandle<T>, SpawnError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        door::spawn(self.here(), Caught(f)).map(|joiner| JoinHandle { joiner })
    }
}

impl Default for Go {
    fn default() -> Self {
        Self::new()
    }
}

/// Waits for a G's result. Dropping it detaches the G.
#[must_use = "dropping a join handle detaches its G"]
pub struct JoinHandle<T> {
    joiner: Joiner<Result<T, JoinError>>,
}

impl<T> JoinHandle<T> {
    /// Waits until the G has ended; an error if it did not return. Blocks this G only, no CPU.
    pub fn join(self) -> Result<T, JoinError> {
        door::might_park();
        seen(self.joiner.join())
    }

    /// As [`join`](Self::join), for `timeout` at most: then it gives the handle back.
    pub fn join_timeout(self, timeout: Duration) -> Result<Result<T, JoinError>, Self> {
        self.join_until(timeout)
    }

    /// As [`join`](Self::join), until `limit` at most: then it gives the handle back.
    ///
    /// ```
    /// use runnext::prelude::*;
    /// let (tx, rx) = chan::rendezvous::<u32>();
    /// let worker = go(move || rx.recv());
    /// let worker = worker.join_until(Duration::from_millis(1)).expect_err("it waits");
    /// assert!(!worker.is_finished());
    /// tx.send(7).unwrap();
    /// assert_eq!(worker.join(), Ok(Ok(7)));
    /// ```
    pub fn join_until<'l>(self, limit: impl Into<Limit<'l>>) -> Result<Result<T, JoinError>, Self> {
        door::might_park();
        let joined = limit.into().during(|deadline_ns| self.joiner.join_by(deadline_ns));
        joined.map(seen).map_err(|joiner| JoinHandle { joiner })
    }

    /// Whether the G has ended, or is about to end and has its result: `join` does not wait.
    pub fn is_finished(&self) -> bool {
        self.joiner.is_done()
    }

    /// For `select!`.
    pub(crate) fn joiner(&mut self) -> &mut Joiner<Result<T, JoinError>> {
        &mut self.joiner
    }

    /// The G, while it has not ended; `None` afterwards.
    ///
    /// ```no_run
    /// use runnext::prelude::*;
    /// let worker = go(park);
    /// let g = worker.gref().expect("it waits");
    /// g.unpark();
    /// assert_eq!(worker.join(), Ok(()));
    /// ```
    pub fn gref(&self) -> Option<GRef> {
        GRef::of(&self.joiner)
    }

    /// The number of the G, as [`gref`](Self::gref) has it.
    ///
    /// ```no_run
    /// use runnext::prelude::*;
    /// let worker = go(park);
    /// assert_eq!(worker.id(), worker.gref().map(|g| g.id()));
    /// ```
    pub fn id(&self) -> Option<u64> {
        Some(self.gref()?.id())
    }

    /// The name of the G; `None` if it has ended, empty if it has none.
    ///
    /// ```no_run
    /// use runnext::prelude::*;
    /// let worker = Go::new().name("worker").spawn(park)?;
    /// assert_eq!(worker.name().as_deref(), Some("worker"));
    /// # Ok::<(), runnext::go::SpawnError>(())
    /// ```
    pub fn name(&self) -> Option<String> {
        self.gref()?.name()
    }

    /// Asks the G to end, as [`tasks::kill`] does; its join then gives [`JoinError::Killed`].
    ///
    /// ```no_run
    /// use runnext::prelude::*;
    /// let worker = go(|| sleep(Duration::from_secs(3600)));
    /// let _ = worker.kill();
    /// assert_eq!(worker.join(), Err(JoinError::Killed));
    /// ```
    pub fn kill(&self) -> Result<Killed, KillError> {
        tasks::kill(self.id().ok_or(KillError::NoSuchG)?)
    }
}

/// A G of a program that has ended does not see the ends of the others.
pub(super) fn seen<T>(joined: Result<T, JoinError>) -> Result<T, JoinError> {
    if matches!(joined, Err(JoinError::Killed)) && door::is_killed() {
        door::die();
    }
    joined
}
