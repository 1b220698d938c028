//! What is typed: bytes and lines from the serial port, for programs.
//!
//! [`read`] gives bytes as they come. [`read_line`] gives lines, as a terminal
//! would: what is typed is shown, backspace takes the last character back, and
//! Ctrl-D says that there is no more. The bytes come from
//! [`drivers::serial::input`](crate::drivers::serial::input); a G that waits for
//! them costs neither M nor CPU.
//!
//! Readers take turns: one that waits has the console until it has got what it
//! wanted, or its deadline came. A line that is half typed then is kept, and the
//! next [`read_line`] goes on with it.
//!
//! A serial line has no end: a sender that goes away looks like one that thinks.
//! What arrives is not trusted: any byte may come, in any order and number.
#![forbid(unsafe_code)]

pub(crate) mod line;

use crate::drivers::serial::input::INPUT;
use crate::log;
use crate::print;
use crate::sync::{LockTimeoutError, Mutex, MutexGuard};
use crate::time::Instant;
use alloc::string::String;
use line::{Editor, Typed};

pub use crate::drivers::serial::input::{InputError, InputStats};
pub use crate::log::dmesg;
pub use line::LINE_MAX;

/// What [`read_line`] gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line, without its end; what is not UTF-8 in it has been replaced.
    Text(String),
    /// Ctrl-D at the beginning of a line: no more will come.
    End,
}

/// The line that is being typed. Whoever reads holds the lock.
static EDITOR: Mutex<Editor> = Mutex::new(Editor::new());

/// Before Gs run: who waits for its turn to read waits for somebody at the
/// keyboard, whichever program that one's G is of.
pub(crate) fn init() {
    crate::deadlock::expect_from_outside(&EDITOR);
}

/// Takes at least one byte, as they come, and waits for it if need be; gives
/// their number. Nothing is shown.
///
/// # Errors
/// There is nothing to read from.
///
/// ```
/// use runnext::console::{self, InputError};
/// // In a test there is no serial port.
/// assert_eq!(console::read(&mut [0; 80]), Err(InputError::NoPort));
/// ```
pub fn read(buffer: &mut [u8]) -> Result<usize, InputError> {
    read_by(buffer, None)
}

/// As [`read`], until `deadline` at most.
///
/// # Errors
/// [`InputError::TimedOut`], and as for [`read`].
///
/// ```
/// use runnext::{console, prelude::*};
/// assert!(console::read_until(&mut [0; 80], Instant::now()).is_err());
/// ```
pub fn read_until(buffer: &mut [u8], deadline: Instant) -> Result<usize, InputError> {
    read_by(buffer, Some(deadline))
}

/// Takes a line, showing what is typed, and waits for it if need be.
///
/// Return and line feed end a line, both together end one. A line has
/// [`LINE_MAX`] bytes at most; what is typed beyond is not taken.
///
/// # Errors
/// There is nothing to read from.
///
/// ```no_run
/// use runnext::console::{self, Line};
/// while let Line::Text(name) = console::read_line()? {
///     runnext::println!("hello, {name}");
/// }
/// # Ok::<(), runnext::console::InputError>(())
/// ```
pub fn read_line() -> Result<Line, InputError> {
    read_line_by(None)
}

/// As [`read_line`], until `deadline` at most. What was typed until then is kept
/// for the next one.
///
/// # Errors
/// [`InputError::TimedOut`], and as for [`read_line`].
///
/// ```
/// use runnext::{console, prelude::*};
/// assert!(console::read_line_until(Instant::now()).is_err());
/// ```
pub fn read_line_until(deadline: Instant) -> Result<Line, InputError> {
    read_line_by(Some(deadline))
}

/// What was counted of the port's input.
///
/// ```
/// assert_eq!(runnext::console::input_stats().overruns, 0);
/// ```
#[must_use]
pub fn input_stats() -> InputStats {
    INPUT.stats()
}

/// Shows `text` on the serial line and nowhere else: not on the screen, and not in
/// what [`dmesg`] keeps. For programs that talk to a person: what is
/// typed comes back this way, and a table that is redrawn every second.
///
/// The text stays together, as that of [`print!`] does.
///
/// ```
/// runnext::console::write("> ");
/// assert!(!runnext::console::dmesg().unwrap().ends_with(b"> "));
/// ```
pub fn write(text: &str) {
    log::write_serial(text);
}

/// Whether a person sits at the serial port, says the command line: `terminal=on`.
///
/// ```
/// assert!(!runnext::console::is_terminal());
/// ```
#[must_use]
pub fn is_terminal() -> bool {
    crate::OPTIONS.get().is_some_and(|options| options.terminal)
}

/// Ctrl-C, caught: it is no byte that is read, but ends a wait for it. For those
/// who run something for a person, and one at a time. Dropped, it is a byte again.
///
/// ```
/// use runnext::console::InterruptKey;
/// let key = InterruptKey::catch();
/// drop(key);
/// assert!(!InterruptKey::wait(), "it is not caught");
/// ```
#[must_use]
pub struct InterruptKey(());

impl InterruptKey {
    /// From now on.
    pub fn catch() -> Self {
        INPUT.catch_key(true);
        InterruptKey(())
    }

    /// Waits until it is pressed; by any G. False if it is not caught, or not any
    /// more.
    #[must_use]
    pub fn wait() -> bool {
        INPUT.wait_for_key()
    }
}

impl Drop for InterruptKey {
    fn drop(&mut self) {
        INPUT.catch_key(false);
    }
}

/// Why nothing can be read, if so.
pub(crate) fn input_trouble() -> Option<InputError> {
    INPUT.trouble()
}

fn read_by(buffer: &mut [u8], deadline: Option<Instant>) -> Result<usize, InputError> {
    let _turn = take_turn(deadline)?;
    INPUT.read(buffer, deadline.map(Instant::as_nanos))
}

fn read_line_by(deadline: Option<Instant>) -> Result<Line, InputError> {
    let mut editor = take_turn(deadline)?;
    loop {
        // One by one: what is behind the line's end is the next reader's.
        let mut byte = [0];
        INPUT.read(&mut byte, deadline.map(Instant::as_nanos))?;
        match editor.push(byte[0]) {
            Typed::Nothing => {}
            Typed::Added(letter) => print!("{letter}"),
            Typed::Erased(n) => (0..n).for_each(|_| print!("\x08 \x08")),
            Typed::Line => {
                print!("\n");
                return Ok(Line::Text(editor.take()));
            }
            Typed::End => return Ok(Line::End),
        }
    }
}

/// Until another reader is served. A reader that panicked leaves nothing that
/// the next could not use.
fn take_turn(deadline: Option<Instant>) -> Result<MutexGuard<'static, Editor>, InputError> {
    let Some(deadline) = deadline else {
        return EDITOR.lock().or_else(|error| error.guard().ok_or(InputError::Abandoned));
    };
    match EDITOR.lock_timeout(deadline - Instant::now()) {
        Ok(editor) => Ok(editor),
        Err(LockTimeoutError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(LockTimeoutError::Abandoned) => Err(InputError::Abandoned),
        Err(LockTimeoutError::TimedOut) => Err(InputError::TimedOut),
    }
}
