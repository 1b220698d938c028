//! Programs: how they are registered and chosen, and what one run of them is.
//!
//! A program is linked with the kernel, as a Go program is with its runtime. [`main!`](crate::main)
//! puts its name and its main function into a section of the image; the linker script says where
//! that section begins and ends. So no list has to be kept by hand, and an external crate adds its
//! program the same way as this repository's crates.
//!
//! One program is booted. It may [`start`] others, each with its own Gs, arguments and end.

pub(crate) mod run;
pub(crate) mod test;

pub use crate::run::program::{Ended, ProgramId};
pub use crate::run::share::{NoShare, Share, ShareError};
pub use run::{Run, StartError, start, start_with_share};

use alloc::format;
use alloc::string::String;

/// The program that runs when none is chosen and the image holds more than one.
pub(crate) const DEFAULT: &str = "tour";

/// A program of this image.
#[derive(Clone, Copy)]
pub struct Program {
    name: &'static str,
    main: fn(),
    stack: usize,
}

impl Program {
    /// A program called `name`; [`main!`](crate::main) calls this.
    pub const fn new(name: &'static str, main: fn()) -> Self {
        Program { name, main, stack: crate::mem::stack::MAIN_SIZE }
    }

    /// Reserves that many bytes of addresses for the stack of its main function, 1 GiB at most.
    ///
    /// ```
    /// use runnext::program::Program;
    /// assert_eq!(Program::new("deep", || ()).stack_size(), 8 << 20);
    /// assert_eq!(Program::new("deep", || ()).with_stack_size(64 << 20).stack_size(), 64 << 20);
    /// ```
    ///
    /// # Panics
    /// If it is more; in [`main!`](crate::main) that is a compile error.
    #[must_use]
    pub const fn with_stack_size(mut self, bytes: usize) -> Self {
        assert!(bytes <= crate::mem::stack::MAX_SIZE, "a stack has 1 GiB at most");
        self.stack = bytes;
        self
    }

    /// Bytes of addresses for the stack of main.
    #[must_use]
    pub const fn stack_size(&self) -> usize {
        self.stack
    }

    /// The name that selects it with `program=`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn run(&self) {
        (self.main)()
    }
}

/// Registers a program under a name: `fn main()` runs as its first G.
///
/// When main returns, the program ends with 0 and its other Gs are dropped, as in Go; when it
/// panics, the machine ends with [`crate::EXIT_MAIN_PANIC`], if this is the booted program.
///
/// The G of main has 8 MiB of addresses for its stack; memory comes page by page as it is
/// touched. `stack = <bytes>` reserves more or less, up to 1 GiB.
///
/// ```
/// # mod hello {
/// runnext::main!(hello, main);
/// runnext::main!(deep, main, stack = 64 << 20);
///
/// fn main() {
///     runnext::println!("hello, world");
/// }
/// # }
/// ```
#[macro_export]
macro_rules! main {
    ($name:ident, $main:path $(, stack = $bytes:expr)? $(,)?) => {
        const _: () = {
            #[used]
            #[unsafe(link_section = ".runnext.programs")]
            static PROGRAM: $crate::program::Program =
                $crate::program::Program::new(stringify!($name), $main)
                    $(.with_stack_size($bytes))?;
            // For tools: the names can be read from the image without booting it.
            const LINE: &[u8] = concat!(stringify!($name), "\n").as_bytes();
            #[used]
            #[unsafe(link_section = ".runnext.names")]
            static NAME: [u8; LINE.len()] = *LINE.first_chunk().unwrap();
        };
    };
}

/// All programs of this image, in link order.
pub fn all() -> &'static [Program] {
    registered!(__programs_start, __programs_end)
}

/// The tests of this image, in link order: see [`tests!`](crate::tests).
pub(crate) fn all_tests() -> &'static [Program] {
    registered!(__tests_start, __tests_end)
}

/// The statics between two symbols of the linker script; on the host none.
macro_rules! registered {
    ($start:ident, $end:ident) => {{
        #[cfg(target_os = "none")]
        {
            unsafe extern "C" {
                static $start: u8;
                static $end: u8;
            }
            let start = (&raw const $start).cast::<Program>();
            let bytes = (&raw const $end).addr() - start.addr();
            // SAFETY: the linker script puts nothing but `Program` statics between
            // the two symbols, aligned to 8, and they live for ever.
            unsafe { core::slice::from_raw_parts(start, bytes / size_of::<Program>()) }
        }
        #[cfg(not(target_os = "none"))]
        &[]
    }};
}
use registered;

/// How many Gs were abandoned: they computed without calling the kernel when their program ended,
/// never run again, and what they owned is never freed.
pub use crate::fail::abandoned;

/// The program called `name`; without a name [`test::RUNNER`] if there are tests, the only one, or
/// [`DEFAULT`]; else a message.
pub(crate) fn choose(
    programs: &[Program],
    has_tests: bool,
    name: Option<&str>,
) -> Result<Program, String> {
    let find = |name| programs.iter().find(|p| p.name == name).copied();
    match (name, programs) {
        (None, _) if has_tests => Ok(test::RUNNER),
        (_, []) => Err("no program in this image".into()),
        (Some(name), _) => {
            find(name).ok_or_else(|| format!("no program called {name:?} in this image"))
        }
        (None, [only]) => Ok(*only),
        (None, _) => find(DEFAULT)
            .ok_or_else(|| "which program? say program=<name>, with make PROGRAM=<name>".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Program = Program::new("a", || ());
    const TOUR: Program = Program::new(DEFAULT, || ());

    fn chosen(programs: &[Program], name: Option<&str>) -> Result<&'static str, String> {
        choose(programs, false, name).map(|program| program.name())
    }

    #[test]
    fn the_named_program_is_chosen_or_missed_by_name() {
        assert_eq!(chosen(&[A, TOUR], Some("a")), Ok("a"));
        assert_eq!(chosen(&[A], Some("b")), Err("no program called \"b\" in this image".into()));
    }

    #[test]
    fn an_image_with_tests_runs_them_unless_a_program_is_named() {
        let chosen = |name| choose(&[A, TOUR], true, name).map(|program| program.name());
        assert_eq!(chosen(None), Ok("tests"));
        assert_eq!(chosen(Some("a")), Ok("a"));
    }

    #[test]
    fn without_a_name_the_only_one_or_the_default_runs() {
        assert_eq!(chosen(&[A], None), Ok("a"));
        assert_eq!(chosen(&[A, TOUR], None), Ok(DEFAULT));
        assert_eq!(
            chosen(&[A, A], None),
            Err("which program? say program=<name>, with make PROGRAM=<name>".into())
        );
        assert_eq!(chosen(&[], None), Err("no program in this image".into()));
    }
}
