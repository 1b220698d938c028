//! Gs of the kernel's own: those that drain rings, print reports, and see programs to
//! their end.
//!
//! They are Gs like others, but nobody's: a program neither counts them nor waits
//! for them, and its end is theirs. There is none unless somebody asks for what
//! it does.
#![forbid(unsafe_code)]

use crate::go::{Go, SpawnError};
use crate::program::KERNEL;
use crate::schedule;

/// Starts one, which does not end.
///
/// # Errors
/// [`SpawnError`] when there is no memory for it.
pub fn spawn(name: &'static str, work: fn()) -> Result<(), SpawnError> {
    counted(name, work)
}

/// Starts one that ends when its work is done.
///
/// # Errors
/// [`SpawnError`] when there is no memory for it.
pub fn spawn_for_a_while(
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> Result<(), SpawnError> {
    counted(name, move || {
        work();
        schedule::discount_attendant();
    })
}

fn counted(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<(), SpawnError> {
    schedule::count_attendant();
    match Go::new().name(name).of(&KERNEL).spawn(work) {
        Ok(detached) => {
            drop(detached);
            Ok(())
        }
        Err(error) => {
            schedule::discount_attendant();
            Err(error)
        }
    }
}
