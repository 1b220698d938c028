//! Service Gs of the kernel: drain rings, print reports, supervise programs.
//!
//! They are Gs like others, but belong to no program: a program neither counts them nor waits for
//! them, and the machine's end is theirs. One is started when its service is first requested.
#![forbid(unsafe_code)]

use super::KERNEL;
use super::door::{self, SpawnOptions};
use super::error::SpawnError;
use super::priority::Priority;
use super::unwind::Caught;
use crate::mem::stack::DEFAULT_SIZE;
use core::panic::Location;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How many there are: a program's count of Gs leaves them out.
pub(super) static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Starts a service G.
///
/// # Errors
/// [`SpawnError`] when there is no memory for it.
pub fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<(), SpawnError> {
    COUNT.fetch_add(1, Relaxed);
    let (site, program) = (Location::caller(), Some(&KERNEL));
    let priority = Priority::Normal;
    let options = SpawnOptions { name, site, stack: DEFAULT_SIZE, pin: None, program, priority };
    let counted = move || {
        work();
        COUNT.fetch_sub(1, Relaxed);
    };
    let detached = door::spawn(options, Caught(counted)).map(drop);
    detached.inspect_err(|_| _ = COUNT.fetch_sub(1, Relaxed))
}
