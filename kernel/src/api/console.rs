//! Console input: bytes and lines from the serial port, for programs.
//!
//! [`read`] gives bytes as they come. [`read_line`] gives lines, as a terminal would: typed
//! characters are echoed, backspace erases the last character, and Ctrl-D means end of input. A G
//! that waits for bytes ([`crate::drivers::serial::input`]) costs neither M nor CPU.
//!
//! Readers take turns: a reader that waits owns the console until it has its input, or its deadline
//! came. If a reader is killed, the next [`read_line`] continues its half-typed line.
//!
//! Input is untrusted, and has no end: a sender that goes away looks like one that pauses.
#![forbid(unsafe_code)]

pub(crate) mod line;

use super::sync::{LockError, LockResult, Mutex, MutexGuard};
use crate::drivers::log;
use crate::drivers::serial::input::INPUT;
use crate::print;
use crate::run::door::check_kill;
use crate::wait::limit::Limit;
use crate::wait::queue::TimedOut;
use alloc::string::String;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use line::{Editor, Typed};

pub use crate::drivers::log::dmesg;
pub use crate::drivers::serial::input::{InputError, InputStats};
pub use line::LINE_MAX;

/// The result of [`read_line`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line, without its end; invalid UTF-8 in it has been replaced.
    Text(String),
    /// Ctrl-D at the beginning of a line: no more will come.
    End,
}

static IS_TERMINAL: AtomicBool = AtomicBool::new(false);
/// The line that is being typed. The current reader holds the lock.
static EDITOR: Mutex<Editor> = Mutex::new(Editor::empty());

/// Before Gs run. `is_terminal`: a person types. A wait for the turn to read counts as external:
/// the holder waits for the keyboard and may be a G of another program.
pub(crate) fn init(is_terminal: bool) {
    IS_TERMINAL.store(is_terminal, Relaxed);
    crate::fail::deadlock::expect_from_outside(&EDITOR);
}

/// Waits for at least one byte; returns the number of bytes. Nothing is echoed.
///
/// ```
/// use runnext::console::{self, InputError};
/// // In a test there is no serial port.
/// assert_eq!(console::read(&mut [0; 80]), Err(InputError::NoPort));
/// ```
pub fn read(buffer: &mut [u8]) -> Result<usize, InputError> {
    read_by(buffer, None)
}

/// As [`read`], until `limit` at most; then the error is [`InputError::TimedOut`].
pub fn read_until<'l>(buffer: &mut [u8], limit: impl Into<Limit<'l>>) -> Result<usize, InputError> {
    limit.into().during(|deadline_ns| read_by(buffer, Some(deadline_ns)))
}

/// As [`read`], without waiting: if nothing has been typed, or another G reads, the error is
/// [`InputError::WouldBlock`], as from a descriptor of Unix that is set to non-blocking. For a G
/// that serves several sources by turns, with [`wait_ready`] where none of them has anything; a G
/// for each source that simply waits needs neither (compare the programs `echo` and `echoloop`).
///
/// ```
/// use runnext::console::{self, InputError};
/// // In a test there is no serial port.
/// assert_eq!(console::try_read(&mut [0; 80]), Err(InputError::NoPort));
/// ```
pub fn try_read(buffer: &mut [u8]) -> Result<usize, InputError> {
    let _turn = turn(EDITOR.try_lock(), InputError::WouldBlock)?;
    INPUT.try_read(buffer).inspect_err(|_| check_kill())
}

/// Waits until [`try_read`] would give a byte, until `limit` at most; then the error is
/// [`InputError::TimedOut`]. Another G may take the byte first.
///
/// ```
/// use runnext::console::{self, InputError};
/// use runnext::prelude::*;
/// assert_eq!(console::wait_ready(Duration::from_millis(5)), Err(InputError::NoPort));
/// ```
pub fn wait_ready<'l>(limit: impl Into<Limit<'l>>) -> Result<(), InputError> {
    limit.into().during(|deadline_ns| {
        let _turn = take_turn(Some(deadline_ns))?;
        INPUT.wait_for_byte(Some(deadline_ns))
    })
}

/// Waits for a line, echoing what is typed. Return and line feed end a line, both together end one.
/// A line has [`LINE_MAX`] bytes at most; characters beyond that are dropped.
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

/// As [`read_line`], until `limit` at most; then the error is [`InputError::TimedOut`], and what
/// was typed of the line is for the next reader of one.
pub fn read_line_until<'l>(limit: impl Into<Limit<'l>>) -> Result<Line, InputError> {
    limit.into().during(|deadline_ns| read_line_by(Some(deadline_ns)))
}

fn read_line_by(deadline_ns: Option<u64>) -> Result<Line, InputError> {
    let mut editor = take_turn(deadline_ns)?;
    loop {
        // One by one: the bytes after the line's end belong to the next reader.
        let mut byte = [0];
        INPUT.read(&mut byte, deadline_ns)?;
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

/// The counters of the port's input.
#[must_use]
pub fn input_stats() -> InputStats {
    INPUT.stats()
}

/// Writes `text` to the serial line only, in one piece: not to the screen, and not to the ring of
/// [`dmesg`]. For programs that talk to a person, as with a table that is redrawn every second.
///
/// ```
/// runnext::console::write("> ");
/// assert!(!runnext::console::dmesg().unwrap().ends_with(b"> "));
/// ```
pub fn write(text: &str) {
    log::write_serial(text);
}

/// Whether a person uses the serial port, according to the command line: `terminal=on`.
#[must_use]
pub fn is_terminal() -> bool {
    IS_TERMINAL.load(Relaxed)
}

/// Catches Ctrl-C: it is then not read as a byte, but ends [`InterruptKey::wait`]. For programs
/// that run a command for a person, one at a time. When this is dropped, Ctrl-C is a byte again.
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
    /// Catches it from now on.
    pub fn catch() -> Self {
        INPUT.catch_key(true);
        InterruptKey(())
    }

    /// Waits until it is pressed; any G may wait. False if it is not caught, or not any more.
    #[must_use]
    pub fn wait() -> bool {
        INPUT.wait_for_key(None).unwrap_or(false)
    }

    /// As [`wait`](Self::wait), until `limit` at most.
    ///
    /// # Errors
    /// [`TimedOut`] if it was not pressed in time.
    pub fn wait_until<'l>(limit: impl Into<Limit<'l>>) -> Result<bool, TimedOut> {
        limit.into().during(|deadline_ns| INPUT.wait_for_key(Some(deadline_ns)))
    }
}

impl Drop for InterruptKey {
    fn drop(&mut self) {
        INPUT.catch_key(false);
    }
}

fn read_by(buffer: &mut [u8], deadline_ns: Option<u64>) -> Result<usize, InputError> {
    let _turn = take_turn(deadline_ns)?;
    INPUT.read(buffer, deadline_ns)
}

/// Waits until no other reader is served.
fn take_turn(deadline_ns: Option<u64>) -> Result<MutexGuard<'static, Editor>, InputError> {
    turn(EDITOR.lock_by(deadline_ns), InputError::TimedOut)
}

/// The turn to read, if it was free. A reader that panicked leaves the editor in a usable state.
fn turn(
    taken: LockResult<MutexGuard<'static, Editor>>,
    if_held: InputError,
) -> Result<MutexGuard<'static, Editor>, InputError> {
    taken.or_else(|error| match error {
        LockError::Poisoned(editor) => Ok(editor),
        LockError::Abandoned => Err(InputError::Abandoned),
        LockError::Held => Err(if_held),
    })
}
