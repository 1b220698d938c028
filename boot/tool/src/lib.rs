//! What every host tool begins and ends with.
//!
//! - [`tree`] finds the source tree that the tool works on;
//! - [`args`] reads its command line;
//! - [`end`] turns what came of it into an exit status.

use std::process::ExitCode;

use anyhow::Result;

pub mod args;
pub mod tree;

/// The exit status of the tool `name`. An error goes to standard error.
pub fn end(name: &str, done: Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("{name}: {error:#}");
        ExitCode::FAILURE
    })
}
