//! `go`: starting a G, and waiting for its result.
//!
//! The closure moves to the G, and its result comes back, in a block that both the G and the join
//! handle own (`run::job`): beside the G's stack if it is small and the place is free, else on the
//! heap. The G's panic is caught at its root and becomes the result; dropping the handle detaches
//! the G, and its result is dropped when it ends.
#![forbid(unsafe_code)]

pub use crate::run::error::{JoinError, SpawnError};

use crate::run::door::SpawnOptions;
use crate::run::unwind::Caught;
use crate::run::{Instance, Joiner, door};
use core::panic::Location;

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
    match Go::new().spawn(f) {
        Ok(handle) => handle,
        Err(error) => panic!("go: {error}"),
    }
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
pub struct Go {
    name: &'static str,
    stack_size: usize,
    pin: Option<usize>,
    program: Option<&'static Instance>,
}

impl Go {
    /// A G without a name and with a stack of the usual size: 99 KiB, or as `stack=` says.
    pub const fn new() -> Self {
        Go { name: "", stack_size: crate::mem::stack::DEFAULT_SIZE, pin: None, program: None }
    }

    /// Gives it a name, for reports.
    pub const fn name(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Reserves that many bytes of addresses for its stack, at least the usual size and 1 GiB at
    /// most; memory is taken page by page as the stack grows.
    pub const fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = bytes;
        self
    }

    /// Lets it run on this CPU only.
    pub const fn pin(mut self, cpu: usize) -> Self {
        self.pin = Some(cpu);
        self
    }

    /// Makes it a G of that program, not of the one whose G starts it.
    pub(crate) const fn of(mut self, program: &'static Instance) -> Self {
        self.program = Some(program);
        self
    }

    /// Starts it. After an error nothing has been started, and `f` was dropped.
    #[track_caller]
    pub fn spawn<T, F>(self, f: F) -> Result<JoinHandle<T>, SpawnError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let Go { name, stack_size: stack, pin, program } = self;
        let options = SpawnOptions { name, site: Location::caller(), stack, pin, program };
        door::spawn(options, Caught(f)).map(|joiner| JoinHandle { joiner })
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
        let joined = self.joiner.join();
        // As all Gs of a program that has ended: it does not see the ends of the others.
        if matches!(joined, Err(JoinError::Killed)) && door::is_killed() {
            door::die();
        }
        joined
    }
}
