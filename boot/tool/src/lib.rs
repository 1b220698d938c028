//! What every host tool begins and ends with.
//!
//! - [`tree`] finds the source tree that the tool works on;
//! - [`args`] reads its command line;
//! - [`end`] turns what came of it into an exit status;
//! - [`install`] is for tests that start a program which they have written.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;

pub mod args;
pub mod tree;

/// Words that state the clocks of a guest in virtual time: QEMU counts an instruction as a
/// nanosecond, and drives the local APICs' timers with 1 GHz.
pub const VIRTUAL_CLOCKS: &str = "tsc=1000 lapic=1000";

/// The exit status of the tool `name`. An error goes to standard error.
pub fn end(name: &str, done: Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("{name}: {error:#}");
        ExitCode::FAILURE
    })
}

/// Copies `from` to `to` as a program that can be started.
///
/// Another process does it. If this one wrote the file, a child that another thread starts
/// meanwhile would have it open for writing until its `exec`, and until then Linux does not
/// start it: "Text file busy".
///
/// # Panics
/// It cannot be written.
pub fn install(from: impl AsRef<Path>, to: &Path) {
    let status = Command::new("install").args(["-m", "755"]).arg(from.as_ref()).arg(to).status();
    assert!(status.expect("install(1) starts").success(), "{} is not written", to.display());
}
