//! Printing: whole lines, to every console.
//!
//! Holds `print!` and `println!`, the `log` crate's back end, the ring of the last 64 KiB
//! (`dmesg`), and the panic path. The consoles are drivers, which the boot code attaches
//! ([`attach_serial`], [`attach_screen`]); what was printed before is replayed to each.
//!
//! # How lines stay whole while interrupts get in
//!
//! Two locks, one inside the other:
//!
//! - the *turn* ([`turn`]): a parking lock that a G holds for the text of one `print`
//!   call. The other Gs that print wait for it in order, without a CPU.
//! - the *console lock*: an [`IrqLock`] around ring and consoles. The holder of the turn
//!   takes it for [`PIECE`] bytes at a time, so interrupts are off for at most 128
//!   bytes: 11 ms on a real serial port (87 µs a byte), and what it takes to draw
//!   [`DRAWN`] characters on the screen.
//!
//! A caller that cannot park (interrupt handler, interrupts off, no G, a G that is about to park or
//! whose stack was full) takes the console lock only, piece by piece. Between two pieces of another
//! line its text starts and ends on a line of its own ([`Console::put`]), and the rest of the other
//! line follows. So does the text after a G that was abandoned in the middle of a line. A fault or
//! a panic uses [`emergency`], which keeps the console lock. Handlers must not allocate: their
//! texts are short.
//!
//! Printing neither fails nor unwinds, also in a G that is killed.
//!
//! # Why a text is formatted before the turn is taken
//!
//! Formatting straight into the consoles would run a program's `Display` with the turn held: it may
//! print itself, panic, or wait for a G that waits for the turn. So the text is complete before
//! ([`text`]): in 512 bytes on the stack, or in the heap when it gets longer. The holder of the
//! turn runs no code of a program, so each wait for the turn ends. If there is no memory for a
//! text, or it is longer than 32 MiB, it goes out in parts that end at line ends where there are
//! any, and lines of others may come between.
//!
//! The text of one call stays together; a line made of several `print!` calls does not. Holding
//! back partial lines per CPU was rejected, because a prompt must appear at once, and a G that
//! prints half a line may finish it on another CPU.

mod ring;
mod text;
mod turn;

use super::framebuffer::Screen;
use super::serial::Serial;
use crate::arch;
use crate::arch::lock::{IrqGuard, IrqLock, Level as LockLevel};
use crate::run::door;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt::{self, Write};
use log::{Level, LevelFilter, Log, Metadata, Record};
use ring::{RING_SIZE, Ring};
use text::Text;
use turn::Turn;

/// Maximum number of bytes under one hold of the console lock. Most lines are shorter.
pub const PIECE: usize = 128;

/// Characters that are drawn under one hold of the console lock: each takes 3,000 instructions.
const DRAWN: usize = 32;

/// Tries of [`emergency`] to get the lock before it breaks it: some 50 ms on real machines, a few
/// seconds in an emulator that counts time in instructions.
const EMERGENCY_TRIES: u32 = 1 << 20;

/// Prints to the consoles. The text of one call stays together.
#[macro_export]
macro_rules! print {
    ($($arg:tt)*) => { $crate::__private::print(format_args!($($arg)*)) };
}

/// Prints a line to the consoles. The line stays whole, whatever else prints.
///
/// ```
/// runnext::println!("{} CPUs online", 8);
/// assert!(runnext::console::dmesg().unwrap().ends_with(b"8 CPUs online\n"));
/// ```
#[macro_export]
macro_rules! println {
    () => { $crate::__private::print(format_args!("\n")) };
    ($($arg:tt)*) => { $crate::__private::print_line(format_args!($($arg)*)) };
}

/// A destination of text: a serial port, a screen, a vector in a test.
pub trait Sink: Send {
    /// Writes all of it, or loses some; never waits without a limit. `draw` may follow.
    fn write(&mut self, bytes: &[u8], color: Color);

    /// Draws at most `most` characters that were written. Whether there are more.
    fn draw(&mut self, most: usize) -> bool {
        let _ = most;
        false
    }
}

/// The severity of a text, for consoles with colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    Normal,
    Warning,
    Error,
}

/// Which of the consoles are used: `console=` on the command line. The ring keeps everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sinks {
    Both,
    Serial,
    Screen,
    None,
}

static CONSOLE: Printer<Serial, Screen<'static>> = Printer::new();

/// Prints formatted text. Use [`print!`](crate::print!).
pub fn print(args: fmt::Arguments) {
    CONSOLE.print(args, Color::Normal);
}

/// Prints formatted text and a line feed. Use [`println!`](crate::println!).
pub fn print_line(args: fmt::Arguments) {
    CONSOLE.print(format_args!("{args}\n"), Color::Normal);
}

/// Makes the `log` crate's macros print here, from `info` up. Needs neither heap nor consoles.
pub fn init() {
    if log::set_logger(&Logger).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

/// Attaches the serial port, and replays to it what was printed before.
pub fn attach_serial(serial: Serial) {
    CONSOLE.with(|console| console.serial.attach(serial, &console.ring));
}

/// Attaches the screen, and replays to it what was printed before.
pub fn attach_screen(screen: Screen<'static>) {
    CONSOLE.with(|console| console.screen.attach(screen, &console.ring));
}

pub fn set_sinks(sinks: Sinks) {
    CONSOLE.with(|console| console.set_sinks(sinks));
}

/// Calls `f` with the serial port, if there is one, under the console lock. `f` must not print.
pub fn with_serial<R>(f: impl FnOnce(&mut Serial) -> R) -> Option<R> {
    CONSOLE.with(|console| console.serial.sink.as_mut().map(Cell::get_mut).map(f))
}

/// Writes to the serial port only, in turn with all that is printed.
pub(crate) fn write_serial(text: &str) {
    CONSOLE.write(text.as_bytes(), To::Serial);
}

/// The G of this name ([`door::me`]) was abandoned: if it had the turn to print, passes it on.
pub(crate) fn pass_turn_of(gone: u64) {
    CONSOLE.turn.pass_from(gone);
}

pub fn screen_size() -> Option<(usize, usize)> {
    CONSOLE.with(|console| console.screen.sink.as_mut().map(|screen| screen.get_mut().size()))
}

/// The last 64 KiB that were printed, from the start of a line on.
pub fn dmesg() -> Result<Vec<u8>, TryReserveError> {
    let mut text = Vec::new();
    text.try_reserve_exact(RING_SIZE)?;
    CONSOLE.with(|console| {
        console.ring.since(0).iter().for_each(|part| text.extend_from_slice(part));
    });
    Ok(text)
}

/// The writer of the panic path: works even when the lock is held by a CPU that died, or by the
/// interrupted code. It tries for a bounded time, then breaks the lock, and keeps it.
///
/// # Safety
/// For a kernel that is going down only, and after the other CPUs have been told to stop: a holder
/// of the lock that goes on running would share the consoles with this writer.
pub unsafe fn emergency() -> Emergency {
    // SAFETY: the caller's promise is passed on.
    Emergency(unsafe { CONSOLE.seize(EMERGENCY_TRIES) })
}

/// As [`emergency`], for a kernel that continues: `None` if the lock is not free within `tries`.
pub fn try_emergency(tries: u32) -> Option<Emergency> {
    CONSOLE.try_lock(tries).map(Emergency)
}

pub struct Emergency(IrqGuard<'static, Console<Serial, Screen<'static>>>);

impl Write for Emergency {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.end_cut_line();
        self.0.write(text.as_bytes(), To::All(Color::Error));
        self.0.draw(usize::MAX);
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum To {
    All(Color),
    Serial,
}

struct Printer<A, B> {
    /// Outer: the right of one G to print a text.
    turn: Turn,
    /// Inner: ring and consoles, for a piece at a time.
    console: IrqLock<Console<A, B>>,
}

impl<A: Sink, B: Sink> Printer<A, B> {
    const fn new() -> Self {
        let ring = Ring::new();
        let serial = Slot::new();
        let screen = Slot::new();
        let console = Console { ring, serial, screen, texts: 0, cut: None };
        Printer { turn: Turn::new(), console: IrqLock::at(LockLevel::Console, console) }
    }

    fn print(&self, args: fmt::Arguments, color: Color) {
        let send = |bytes: &[u8]| self.write(bytes, To::All(color));
        // The usual text without arguments needs no buffer.
        if let Some(text) = args.as_str() {
            return send(text.as_bytes());
        }
        let mut text = Text::new(send);
        // An error comes from a `Display` of the caller; what it wrote until then is printed.
        let _ = text.write_fmt(args);
        text.finish();
    }

    /// Writes a text in pieces under the console lock: in one turn, if the caller can wait for it.
    fn write(&self, mut bytes: &[u8], to: To) {
        let turn = door::may_wait().then(|| self.turn.take());
        // A text without a turn may be the last that is ever printed.
        let drawn = if turn.is_some() { DRAWN } else { usize::MAX };
        let mut text = None;
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(piece_length(bytes));
            self.with(|console| {
                let text = *text.get_or_insert_with(|| console.new_text());
                console.put(piece, text, rest.is_empty(), to);
                console.draw(drawn);
            });
            bytes = rest;
        }
        while self.with(|console| console.draw(drawn)) {}
    }

    fn with<R>(&self, f: impl FnOnce(&mut Console<A, B>) -> R) -> R {
        f(&mut self.console.lock())
    }

    fn try_lock(&self, tries: u32) -> Option<IrqGuard<'_, Console<A, B>>> {
        (0..tries).find_map(|_| {
            self.console.try_lock().or_else(|| {
                arch::relax();
                None
            })
        })
    }

    /// Takes the lock, by force after `tries`.
    ///
    /// # Safety
    /// As for [`emergency`].
    unsafe fn seize(&self, tries: u32) -> IrqGuard<'_, Console<A, B>> {
        loop {
            if let Some(console) = self.try_lock(tries) {
                return console;
            }
            // SAFETY: the caller promises that the holder does not run any more.
            unsafe { self.console.break_open() };
        }
    }
}

/// The length of the next piece of `text`: whole lines, or [`PIECE`] of a longer line.
fn piece_length(text: &[u8]) -> usize {
    let most = text.len().min(PIECE);
    match text[..most].iter().rposition(|&byte| byte == b'\n') {
        Some(end) if most < text.len() => end + 1,
        _ => most,
    }
}

struct Console<A, B> {
    ring: Ring,
    serial: Slot<A>,
    screen: Slot<B>,
    texts: u64,
    /// The text whose line was begun last and is to be continued by its next piece.
    cut: Option<u64>,
}

/// A sink, and whether it is not used.
struct Slot<S> {
    /// In a `Cell` for its layout alone: that makes `None` all zero, and so the console, with its
    /// ring, takes no space in the kernel's image.
    sink: Option<Cell<S>>,
    off: bool,
}

impl<A: Sink, B: Sink> Console<A, B> {
    fn new_text(&mut self) -> u64 {
        self.texts += 1;
        self.texts
    }

    /// Writes a piece of a text. Between two pieces of another text's line it gets its own line.
    fn put(&mut self, piece: &[u8], text: u64, is_last: bool, to: To) {
        let is_aside = self.cut.is_some_and(|cut| cut != text);
        let is_whole = piece.ends_with(b"\n");
        if is_aside {
            self.write(b"\n", to);
        }
        self.write(piece, to);
        if is_aside && is_last && !is_whole {
            self.write(b"\n", to);
        }
        self.cut = (!is_last && !is_whole).then_some(text);
    }

    /// Ends a line that waits for its next piece, before text is written past [`put`](Self::put).
    fn end_cut_line(&mut self) {
        if self.cut.take().is_some() {
            self.write(b"\n", To::All(Color::Error));
        }
    }

    fn write(&mut self, bytes: &[u8], to: To) {
        match to {
            To::All(color) => {
                self.ring.push(bytes);
                self.serial.show(bytes, color);
                self.screen.show(bytes, color);
            }
            To::Serial => self.serial.show(bytes, Color::Normal),
        }
    }

    fn draw(&mut self, most: usize) -> bool {
        self.screen.sink_in_use().is_some_and(|screen| screen.draw(most))
    }

    fn set_sinks(&mut self, sinks: Sinks) {
        self.serial.off = !matches!(sinks, Sinks::Both | Sinks::Serial);
        self.screen.off = !matches!(sinks, Sinks::Both | Sinks::Screen);
    }
}

impl<S: Sink> Slot<S> {
    const fn new() -> Self {
        Slot { sink: None, off: false }
    }

    /// Begins with what was printed before.
    fn attach(&mut self, mut sink: S, ring: &Ring) {
        ring.since(0).into_iter().for_each(|part| sink.write(part, Color::Normal));
        sink.draw(usize::MAX);
        self.sink = Some(Cell::new(sink));
    }

    fn sink_in_use(&mut self) -> Option<&mut S> {
        self.sink.as_mut().filter(|_| !self.off).map(Cell::get_mut)
    }

    fn show(&mut self, bytes: &[u8], color: Color) {
        if let Some(sink) = self.sink_in_use() {
            sink.write(bytes, color);
        }
    }
}

struct Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let color = match record.level() {
            Level::Error => Color::Error,
            Level::Warn => Color::Warning,
            _ => Color::Normal,
        };
        let line = line(arch::now_ns(), arch::cpu_index(), record);
        CONSOLE.print(format_args!("{line}\n"), color);
    }

    fn flush(&self) {}
}

/// A message as it is printed: `[   0.123456] warn: cpu 3: the message`. The time is 0 until there
/// is a clock.
fn line(now_ns: u64, cpu: usize, record: &Record) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let (seconds, rest) = (now_ns / 1_000_000_000, now_ns % 1_000_000_000);
        write!(f, "[{seconds:4}.{:06}] ", rest / 1000)?;
        match record.level() {
            // A failure may concern one CPU only.
            Level::Error => write!(f, "error: cpu {cpu}: ")?,
            Level::Warn => write!(f, "warn: cpu {cpu}: ")?,
            Level::Info => f.write_str("info: ")?,
            Level::Debug => f.write_str("debug: ")?,
            Level::Trace => f.write_str("trace: ")?,
        }
        f.write_fmt(*record.args())
    })
}

#[cfg(test)]
mod tests;
