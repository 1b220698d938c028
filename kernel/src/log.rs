//! Printing: whole lines, to every console there is.
//!
//! Holds `print!` and `println!`, the `log` crate's back end, the ring of the
//! last 64 KiB (`dmesg`), and the panic path. The consoles themselves are
//! drivers, handed over by the boot code with [`attach_serial`] and
//! [`attach_screen`]; what was printed before is replayed to each.
//!
//! # Why a text is formatted before the lock is taken
//!
//! Lines stay whole because a `print` call gives each of them to the
//! consoles under one acquisition of the console lock. Formatting straight into
//! the consoles would be the shortest way to that, and wrong: a `Display` of a
//! program may itself print (waiting for ever for the lock that its own caller
//! holds), panic, or compute for a second with interrupts off. So the text is
//! formatted first, without the lock: into 512 bytes on the stack, and into the
//! heap when it gets longer. Without a heap, or beyond 64 KiB, it goes out in
//! pieces that end at line ends where there are any, and only a single line
//! longer than the buffer may then be mixed with others.
//!
//! The promise is for each call: `println!` of a line is whole. A line made of
//! several `print!` calls is not; holding back partial lines per CPU was
//! rejected, because a prompt must appear at once, and a G that prints half a
//! line may finish it on another CPU.
//!
//! The price is that a line goes out with interrupts off, 87 µs a byte on a
//! real serial port. So a long text gives the lock back after every 4 KiB of whole lines
//! ([`PIECE`]): 64 KiB at once would take more than 5 s, and the guardian calls a CPU
//! stuck after 2. Others may print between two pieces, but a report of usual
//! length is one. Interrupt handlers may print short texts (they must not
//! allocate); a fault or a panic uses [`emergency`].

mod ring;

use self::ring::{RING_SIZE, Ring};
use crate::arch;
use crate::drivers::framebuffer::Screen;
use crate::drivers::serial::Serial;
use crate::lock::{IrqGuard, IrqLock, Level as LockLevel};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicPtr, Ordering};
use log::{Level, LevelFilter, Log, Metadata, Record};

/// What a text may have without touching the heap.
const STACK_BUFFER: usize = 512;

/// What a text may have in one piece.
const HEAP_BUFFER: usize = 64 * 1024;

/// What goes out under one hold of the lock at most, unless a single line is longer.
const PIECE: usize = 4096;

/// How often [`emergency`] tries to get the lock before it breaks it: some
/// 50 ms on real machines, a few seconds in an emulator that counts time in
/// instructions.
const EMERGENCY_TRIES: u32 = 1 << 20;

/// Prints to the consoles. The lines of one call stay whole, and a text of up to 4 KiB
/// together.
#[macro_export]
macro_rules! print {
    ($($arg:tt)*) => { $crate::__private::print(format_args!($($arg)*)) };
}

/// Prints a line to the consoles. The line stays whole, whoever else prints.
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

/// Where text goes: a serial port, a screen, a vector in a test.
pub trait Sink: Send {
    /// Writes all of it, or loses some; never waits without a limit.
    fn write(&mut self, bytes: &[u8]);

    /// What follows is in this colour, if there are any.
    fn set_color(&mut self, color: Color) {
        let _ = color;
    }
}

/// What a text is about, for consoles with colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// Anything.
    Normal,
    /// A warning.
    Warning,
    /// An error.
    Error,
}

/// Which of the consoles are used: `console=` on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sinks {
    /// Every console there is.
    #[default]
    Both,
    /// The serial port only.
    Serial,
    /// The screen only.
    Screen,
    /// Neither; the ring still keeps everything.
    None,
}

/// The console of this machine.
static CONSOLE: Printer<Serial, Screen<'static>> = Printer::new();

/// Prints formatted text. Use [`print!`](crate::print!).
pub fn print(args: fmt::Arguments) {
    CONSOLE.print(args, Color::Normal);
    crate::park::end_if_killed();
}

/// Prints formatted text and a line feed. Use [`println!`](crate::println!).
pub fn print_line(args: fmt::Arguments) {
    CONSOLE.print(format_args!("{args}\n"), Color::Normal);
    crate::park::end_if_killed();
}

/// Makes the `log` crate's macros print here, from `info` up. The first call of
/// the boot code; needs neither heap nor consoles. Later calls do nothing.
pub fn init() {
    static LOGGER: Logger = Logger;
    if log::set_logger(&LOGGER).is_ok() {
        set_max_level(LevelFilter::Info);
    }
}

/// Which messages are printed at all: `log=` on the command line.
pub fn set_max_level(level: LevelFilter) {
    log::set_max_level(level);
}

/// Gives messages their time, in nanoseconds since the start. Until then they
/// carry 0. May be called again when a better clock is found.
pub fn set_clock(now_ns: fn() -> u64) {
    CLOCK.store(now_ns as *mut (), Ordering::Release); // pairs with the load in `now_ns`
}

/// Hands the serial port over, and replays to it what was printed before.
pub fn attach_serial(serial: Serial) {
    CONSOLE.with(|console| console.attach_serial(serial));
}

/// Hands the screen over, and replays to it what was printed before.
pub fn attach_screen(screen: Screen<'static>) {
    CONSOLE.with(|console| console.attach_screen(screen));
}

/// Chooses the consoles to use. One that was off gets what it missed.
pub fn set_sinks(sinks: Sinks) {
    CONSOLE.with(|console| console.set_sinks(sinks));
}

/// Calls `f` with the serial port, if there is one, under the console lock: to
/// read from it, or to ask what it lost. `f` must not print.
pub fn with_serial<R>(f: impl FnOnce(&mut Serial) -> R) -> Option<R> {
    CONSOLE.with(|console| console.serial.sink.as_mut().map(Cell::get_mut).map(f))
}

/// Columns and rows of the screen, if there is one.
pub fn screen_size() -> Option<(usize, usize)> {
    CONSOLE.with(|console| console.screen.sink.as_mut().map(|screen| screen.get_mut().size()))
}

/// The last 64 KiB that were printed, from the start of a line on.
pub fn dmesg() -> Result<Vec<u8>, TryReserveError> {
    let mut text = Vec::new();
    text.try_reserve_exact(RING_SIZE)?;
    CONSOLE.with(|console| {
        let (older, newer) = console.ring.since(0);
        text.extend_from_slice(older);
        text.extend_from_slice(newer);
    });
    Ok(text)
}

/// The writer of the panic path: gets through even when the lock is held by a
/// CPU that died, or by the very code that was interrupted.
///
/// It tries for a bounded time, then breaks the lock. It keeps the consoles
/// until it is dropped, so that nobody prints in between.
///
/// # Safety
///
/// For a kernel that is going down only, and after the other CPUs have been
/// told to stop: a holder of the lock that goes on running would share the
/// consoles with this writer.
pub unsafe fn emergency() -> Emergency {
    // SAFETY: the caller's promise is passed on.
    Emergency { console: unsafe { CONSOLE.seize(EMERGENCY_TRIES) } }
}

/// As [`emergency`], for a kernel that goes on: nothing is broken, and nothing is
/// given if the lock cannot be had in so many tries. Interrupts off; any context.
pub fn try_emergency(tries: u32) -> Option<Emergency> {
    for _ in 0..tries {
        if let Some(console) = CONSOLE.console.try_lock() {
            return Some(Emergency { console });
        }
        arch::relax();
    }
    None
}

/// What [`emergency`] gives.
pub struct Emergency {
    console: IrqGuard<'static, Console<Serial, Screen<'static>>>,
}

impl Write for Emergency {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.console.write(text.as_bytes(), Color::Error);
        Ok(())
    }
}

/// A console behind its lock.
struct Printer<A, B> {
    console: IrqLock<Console<A, B>>,
}

impl<A: Sink, B: Sink> Printer<A, B> {
    const fn new() -> Self {
        Printer { console: IrqLock::at(LockLevel::Console, Console::new()) }
    }

    /// Formats without the lock, then prints under it.
    fn print(&self, args: fmt::Arguments, color: Color) {
        // The usual text without arguments needs no buffer.
        if let Some(text) = args.as_str() {
            return self.write(text.as_bytes(), color);
        }
        let mut text = Text {
            stack: [0; STACK_BUFFER],
            used: 0,
            heap: Vec::new(),
            send: |bytes: &[u8]| self.write(bytes, color),
        };
        // An error comes from a `Display` of the caller's; what it wrote until
        // then is printed, and the rest is its own business.
        let _ = text.write_fmt(args);
        text.finish();
    }

    /// Writes in pieces of whole lines, each under the lock.
    fn write(&self, mut bytes: &[u8], color: Color) {
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(piece_length(bytes));
            self.with(|console| console.write(piece, color));
            bytes = rest;
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Console<A, B>) -> R) -> R {
        f(&mut self.console.lock())
    }

    /// Takes the lock, by force after `tries`.
    ///
    /// # Safety
    ///
    /// As for [`emergency`].
    unsafe fn seize(&self, tries: u32) -> IrqGuard<'_, Console<A, B>> {
        let mut tried = 0;
        loop {
            if let Some(console) = self.console.try_lock() {
                return console;
            }
            arch::relax();
            tried += 1;
            if tried == tries {
                // SAFETY: the caller says that the holder does not run any more.
                unsafe { self.console.break_open() };
                tried = 0;
            }
        }
    }
}

/// How much of `text` goes out at once: as many whole lines as [`PIECE`] has room for,
/// and one at least.
fn piece_length(text: &[u8]) -> usize {
    let is_end = |&byte: &u8| byte == b'\n';
    let Some(first) = text.get(..PIECE) else { return text.len() };
    let last_end = first.iter().rposition(is_end);
    let end = last_end.or_else(|| text.iter().position(is_end));
    end.map_or(text.len(), |end| end + 1)
}

/// A text on its way: on the stack, then on the heap, else in pieces.
struct Text<F: FnMut(&[u8])> {
    stack: [u8; STACK_BUFFER],
    used: usize,
    /// Holds everything so far once it is not empty; the stack is unused then.
    heap: Vec<u8>,
    send: F,
}

impl<F: FnMut(&[u8])> Text<F> {
    fn finish(&mut self) {
        match self.heap.is_empty() {
            true if self.used == 0 => {}
            true => (self.send)(&self.stack[..self.used]),
            false => (self.send)(&self.heap),
        }
        self.used = 0;
        self.heap.clear();
    }

    /// Room for `more` on the heap, with what the stack holds moved there.
    fn grow(&mut self, more: usize) -> bool {
        let needed = self.used + self.heap.len() + more;
        if needed > HEAP_BUFFER || self.heap.try_reserve(needed - self.heap.len()).is_err() {
            return false;
        }
        self.heap.extend_from_slice(&self.stack[..self.used]);
        self.used = 0;
        true
    }

    /// Sends up to the last line end, or everything if there is none.
    fn send_lines(&mut self) {
        let text = if self.heap.is_empty() { &self.stack[..self.used] } else { &self.heap };
        let cut = text.iter().rposition(|&b| b == b'\n').map_or(text.len(), |at| at + 1);
        (self.send)(&text[..cut]);
        if self.heap.is_empty() {
            self.stack.copy_within(cut..self.used, 0);
            self.used -= cut;
        } else {
            self.heap.drain(..cut);
        }
    }
}

impl<F: FnMut(&[u8])> Write for Text<F> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut bytes = text.as_bytes();
        while !bytes.is_empty() {
            if self.heap.is_empty() && bytes.len() <= STACK_BUFFER - self.used {
                self.stack[self.used..][..bytes.len()].copy_from_slice(bytes);
                self.used += bytes.len();
                return Ok(());
            }
            if self.grow(bytes.len()) {
                self.heap.extend_from_slice(bytes);
                return Ok(());
            }
            // No memory, or a text without an end: in pieces.
            if self.used + self.heap.len() > 0 {
                self.send_lines();
            } else {
                let (piece, rest) = bytes.split_at(bytes.len().min(STACK_BUFFER));
                (self.send)(piece);
                bytes = rest;
            }
        }
        Ok(())
    }
}

/// The ring and the two places where text is shown.
struct Console<A, B> {
    ring: Ring,
    serial: Slot<A>,
    screen: Slot<B>,
}

/// A sink, and how much of the ring it has seen.
struct Slot<S> {
    /// In a `Cell` for its layout alone: that makes `None` all zero, and so the
    /// console, with its ring, costs nothing in the kernel's image.
    sink: Option<Cell<S>>,
    off: bool,
    seen: u64,
}

impl<A: Sink, B: Sink> Console<A, B> {
    const fn new() -> Self {
        Console { ring: Ring::new(), serial: Slot::new(), screen: Slot::new() }
    }

    fn write(&mut self, bytes: &[u8], color: Color) {
        let start = self.ring.written;
        self.ring.push(bytes);
        self.serial.show(bytes, start, color);
        self.screen.show(bytes, start, color);
    }

    fn attach_serial(&mut self, serial: A) {
        self.serial.sink = Some(Cell::new(serial));
        self.serial.catch_up(&self.ring);
    }

    fn attach_screen(&mut self, screen: B) {
        self.screen.sink = Some(Cell::new(screen));
        self.screen.catch_up(&self.ring);
    }

    fn set_sinks(&mut self, sinks: Sinks) {
        self.serial.off = !matches!(sinks, Sinks::Both | Sinks::Serial);
        self.screen.off = !matches!(sinks, Sinks::Both | Sinks::Screen);
        self.serial.catch_up(&self.ring);
        self.screen.catch_up(&self.ring);
    }
}

impl<S: Sink> Slot<S> {
    const fn new() -> Self {
        Slot { sink: None, off: false, seen: 0 }
    }

    fn sink_in_use(&mut self) -> Option<&mut S> {
        self.sink.as_mut().filter(|_| !self.off).map(Cell::get_mut)
    }

    /// Shows text that stands in the ring from `start` on. A sink in use has
    /// seen everything before it: `catch_up` runs whenever one comes into use.
    fn show(&mut self, bytes: &[u8], start: u64, color: Color) {
        if let Some(sink) = self.sink_in_use() {
            sink.set_color(color);
            sink.write(bytes);
            self.seen = start + bytes.len() as u64;
        }
    }

    /// Shows what the ring still has of the text that this sink has missed.
    fn catch_up(&mut self, ring: &Ring) {
        let (older, newer) = ring.since(self.seen);
        if let Some(sink) = self.sink_in_use() {
            sink.set_color(Color::Normal);
            sink.write(older);
            sink.write(newer);
            self.seen = ring.written;
        }
    }
}

/// The back end of the `log` crate's macros.
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
        let line = Line { now_ns: now_ns(), cpu: arch::cpu_index(), record };
        CONSOLE.print(format_args!("{line}\n"), color);
    }

    fn flush(&self) {}
}

/// A message as it is printed: `[   0.123456] warn: cpu 3: the message`.
struct Line<'a> {
    now_ns: u64,
    cpu: usize,
    record: &'a Record<'a>,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (seconds, rest) = (self.now_ns / 1_000_000_000, self.now_ns % 1_000_000_000);
        write!(f, "[{seconds:4}.{:06}] ", rest / 1000)?;
        match self.record.level() {
            // Trouble may be the trouble of one CPU.
            Level::Error => write!(f, "error: cpu {}: ", self.cpu)?,
            Level::Warn => write!(f, "warn: cpu {}: ", self.cpu)?,
            Level::Info => f.write_str("info: ")?,
            Level::Debug => f.write_str("debug: ")?,
            Level::Trace => f.write_str("trace: ")?,
        }
        f.write_fmt(*self.record.args())
    }
}

/// The time source: a `fn() -> u64`, or null.
static CLOCK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

fn now_ns() -> u64 {
    let clock = CLOCK.load(Ordering::Acquire); // pairs with the store in `set_clock`
    if clock.is_null() {
        return 0;
    }
    // SAFETY: the only value stored besides null is the `fn() -> u64` that
    // `set_clock` got, and on this machine both kinds of pointer are alike.
    let clock = unsafe { core::mem::transmute::<*mut (), fn() -> u64>(clock) };
    clock()
}

#[cfg(test)]
mod tests;
