//! The program and the CPU that the calling G runs on.
#![forbid(unsafe_code)]

use super::program;
use crate::arch;
use crate::run::door;
use alloc::string::String;

/// The program's own arguments: the words after `--` on the command line, or those passed to
/// [`program::start`].
///
/// ```no_run
/// let rounds: u32 = runnext::args().first().and_then(|w| w.parse().ok()).unwrap_or(10);
/// ```
pub fn args() -> &'static [String] {
    door::program().args()
}

/// Ends the program with `code`; 0 means success. If it is the booted program, the machine ends
/// with it.
///
/// ```no_run
/// runnext::exit(3);
/// ```
pub fn exit(code: u32) -> ! {
    program::exit(code)
}

/// How many CPUs came up.
pub fn num_cpus() -> usize {
    arch::num_cpus()
}

/// The CPU that runs this G at this instant; it may be another at the next.
pub fn current_cpu() -> usize {
    arch::cpu_index()
}
