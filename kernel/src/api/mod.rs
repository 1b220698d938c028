//! What a program sees.
//!
//! Starting Gs ([`go`], [`mod@scope`]), channels, [`mod@select`] and timers ([`timer`]), [`sync`],
//! blocking calls, the console, disk and files, programs, and what can be known of Gs and the
//! machine ([`tasks`], [`mod@stats`], [`inspect`]). The unsafe code behind it is in `wait` and below.

pub mod blocking;
pub mod chan;
pub mod console;
pub mod disk;
pub mod float;
pub mod fs;
pub mod go;
pub mod gref;
pub mod inspect;
pub mod local;
pub mod map;
pub mod panic;
pub mod program;
pub mod random;
pub mod scope;
pub mod select;
pub mod stats;
pub mod sync;
pub mod system;
pub mod tasks;
pub mod timer;

pub use crate::arch::num_cpus;

use crate::fail::end;
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
pub fn exit(code: u32) -> ! {
    let program = door::program();
    end::end_program(program, program.id(), program::Ended::Code(code));
    door::die()
}

/// The CPU that runs this G at this instant; it may be another at the next.
pub fn current_cpu() -> usize {
    crate::arch::cpu_index()
}
