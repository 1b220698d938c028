//! The promises of printing, tested on the host with vectors as consoles.

use super::text::HEAP_BUFFER;
use super::*;
use std::sync::{Arc, Mutex, MutexGuard};

/// A console that stores its text, for tests to read.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    fn text(&self) -> String {
        String::from_utf8(self.bytes().clone()).expect("tests print UTF-8")
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("no test panics here")
    }
}

impl Sink for Memory {
    fn write(&mut self, bytes: &[u8], _: Color) {
        // In small pieces: without the console's lock, lines would mix. (No yield in between: all
        // other threads spin until their slice is over.)
        for chunk in bytes.chunks(16) {
            self.bytes().extend_from_slice(chunk);
        }
    }
}

fn printer() -> (&'static Printer<Memory, Memory>, Memory, Memory) {
    let printer = Box::leak(Box::new(Printer::new()));
    let (serial, screen) = (Memory::default(), Memory::default());
    printer.with(|c: &mut Console<Memory, Memory>| {
        c.serial.attach(serial.clone(), &c.ring);
        c.screen.attach(screen.clone(), &c.ring);
    });
    (printer, serial, screen)
}

#[test]
fn lines_of_eight_cpus_stay_whole() {
    const LINES: usize = 30;
    let (printer, serial, screen) = printer();
    std::thread::scope(|scope| {
        for cpu in 0..8 {
            scope.spawn(move || {
                for i in 0..LINES {
                    // Some short, some longer than the buffer on the stack.
                    let tail = "x".repeat(i * 30);
                    printer.print(format_args!("<{cpu} {i} {tail}>\n"), Color::Normal);
                }
            });
        }
    });
    let text = serial.text();
    assert_eq!(text, screen.text());
    let mut next = [0; 8];
    for line in text.lines() {
        let line = line.strip_prefix('<').and_then(|l| l.strip_suffix('>')).expect("whole line");
        let words: Vec<&str> = line.split(' ').collect();
        let (cpu, i): (usize, usize) =
            (words[0].parse().expect("a number"), words[1].parse().expect("a number"));
        assert_eq!(words[2].len(), i * 30);
        assert_eq!(i, next[cpu], "order of one CPU's lines");
        next[cpu] += 1;
    }
    assert_eq!(next, [LINES; 8]);
}

#[test]
fn display_that_prints_does_not_deadlock() {
    struct Chatty(&'static Printer<Memory, Memory>);
    impl fmt::Display for Chatty {
        fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
            self.0.print(format_args!("inner {}\n", 1), Color::Normal);
            f.write_str("outer")
        }
    }
    let (printer, serial, _) = printer();
    printer.print(format_args!("{}\n", Chatty(printer)), Color::Normal);
    assert_eq!(serial.text(), "inner 1\nouter\n");
}

#[test]
fn display_that_panics_leaves_the_console_usable() {
    struct Bomb;
    impl fmt::Display for Bomb {
        fn fmt(&self, _: &mut fmt::Formatter) -> fmt::Result {
            std::panic::resume_unwind(Box::new("bomb"))
        }
    }
    let (printer, serial, _) = printer();
    let print = || printer.print(format_args!("half {Bomb}\n"), Color::Normal);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(print)).is_err());
    printer.print(format_args!("still {}\n", "here"), Color::Normal);
    assert_eq!(serial.text(), "still here\n");
}

#[test]
fn what_was_printed_before_is_replayed_once() {
    let printer: &Printer<Memory, Memory> = Box::leak(Box::new(Printer::new()));
    printer.print(format_args!("early\n"), Color::Normal);
    let serial = Memory::default();
    printer.with(|c| c.serial.attach(serial.clone(), &c.ring));
    printer.print(format_args!("late\n"), Color::Normal);
    let screen = Memory::default();
    printer.with(|c| c.screen.attach(screen.clone(), &c.ring));
    assert_eq!(serial.text(), "early\nlate\n");
    assert_eq!(screen.text(), "early\nlate\n");
}

#[test]
fn console_that_is_off_is_silent() {
    let (printer, serial, screen) = printer();
    printer.print(format_args!("1\n"), Color::Normal);
    printer.with(|c| c.set_sinks(Sinks::Serial));
    printer.print(format_args!("2\n"), Color::Normal);
    assert_eq!((serial.text().as_str(), screen.text().as_str()), ("1\n2\n", "1\n"));
    printer.with(|c| c.set_sinks(Sinks::None));
    printer.print(format_args!("3\n"), Color::Normal);
    assert_eq!(serial.text(), "1\n2\n");
    printer.with(|c| c.set_sinks(Sinks::Both));
    printer.print(format_args!("4\n"), Color::Normal);
    assert_eq!((serial.text().as_str(), screen.text().as_str()), ("1\n2\n4\n", "1\n4\n"));
}

#[test]
fn text_is_complete_at_every_length() {
    let lengths = [0, 1, 511, 512, 513, 1024, 100_000, 1 << 20];
    for length in lengths {
        let (printer, serial, _) = printer();
        let text = "y".repeat(length);
        printer.print(format_args!("{}{text}{}\n", 1, 2), Color::Normal);
        assert_eq!(serial.text(), format!("1{text}2\n"));
    }
}

#[test]
fn long_text_goes_out_in_one_piece() {
    let mut lengths = Vec::new();
    let mut text = Text::new(|part: &[u8]| lengths.push(part.len()));
    let part = "w".repeat(HEAP_BUFFER / 64);
    for _ in 0..64 {
        text.write_str(&part).expect("never fails");
    }
    text.finish();
    assert_eq!(lengths, [HEAP_BUFFER]);
}

#[test]
fn text_without_memory_is_cut_at_line_ends() {
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let mut text = Text::new(|piece: &[u8]| pieces.push(piece.to_vec()));
    // A text longer than the heap buffer is treated like missing memory.
    let line = format!("{}\n", "z".repeat(HEAP_BUFFER / 5));
    for _ in 0..12 {
        text.write_str(&line).expect("never fails");
    }
    text.finish();
    assert!(pieces.len() > 1);
    assert!(pieces.iter().all(|piece| piece.ends_with(b"\n") && piece.len() <= HEAP_BUFFER));
    assert!(pieces.concat() == line.repeat(12).into_bytes());
}

#[test]
fn ring_keeps_the_last_whole_lines() {
    let mut ring = Box::new(Ring::new());
    for i in 0..20_000 {
        ring.push(format!("line {i}\n").as_bytes());
    }
    let [older, newer] = ring.since(0);
    let text = String::from_utf8([older, newer].concat()).expect("tests print UTF-8");
    assert!(text.len() > RING_SIZE - 20 && text.len() <= RING_SIZE);
    let first: usize =
        text["line ".len()..].split('\n').next().expect("a line").parse().expect("n");
    let expected: String = (first..20_000).map(|i| format!("line {i}\n")).collect();
    assert_eq!(text, expected);
}

#[test]
fn ring_takes_texts_longer_than_itself() {
    let mut ring = Box::new(Ring::new());
    ring.push(b"abc");
    let long: Vec<u8> = (0..RING_SIZE * 2 + 77).map(|i| b'a' + (i % 23) as u8).collect();
    ring.push(&long);
    let [older, newer] = ring.since(0);
    assert_eq!([older, newer].concat(), long[long.len() - RING_SIZE..]);
    assert_eq!(ring.since(ring.written)[0].len(), 0);
}

#[test]
fn emergency_gets_through_a_held_lock() {
    let (printer, serial, _) = printer();
    core::mem::forget(printer.console.lock());
    // SAFETY: the forgotten guard is never used again.
    let mut console = unsafe { printer.seize(1000) };
    console.write(b"panic\n", To::All(Color::Error));
    drop(console);
    printer.print(format_args!("after\n"), Color::Normal);
    assert_eq!(serial.text(), "panic\nafter\n");
}

#[test]
fn emergency_waits_for_a_holder_that_finishes() {
    let (printer, serial, _) = printer();
    std::thread::scope(|scope| {
        let mut held = printer.console.lock();
        scope.spawn(move || {
            // SAFETY: so many tries outlast the holder, so the lock is not broken.
            let mut console = unsafe { printer.seize(u32::MAX) };
            console.write(b"second\n", To::All(Color::Error));
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        held.write(b"first\n", To::All(Color::Normal));
    });
    assert_eq!(serial.text(), "first\nsecond\n");
}

#[test]
fn messages_have_time_level_and_the_cpu_of_trouble() {
    let show = |level, now_ns| {
        let args = format_args!("no HPET");
        let record = Record::builder().level(level).args(args).build();
        line(now_ns, 3, &record).to_string()
    };
    assert_eq!(show(Level::Info, 123_456_789), "[   0.123456] info: no HPET");
    assert_eq!(show(Level::Warn, 0), "[   0.000000] warn: cpu 3: no HPET");
    assert_eq!(show(Level::Error, 12_000_001_000), "[  12.000001] error: cpu 3: no HPET");
}

/// A console that records how much it got at a time.
#[derive(Clone, Default)]
struct Pieces(Arc<Mutex<Vec<Vec<u8>>>>);

impl Sink for Pieces {
    fn write(&mut self, bytes: &[u8], _: Color) {
        self.0.lock().expect("no test panics here").push(bytes.into());
    }
}

#[test]
fn no_console_gets_more_than_a_piece_at_a_time() {
    let printer: &Printer<Pieces, Pieces> = Box::leak(Box::new(Printer::new()));
    let serial = Pieces::default();
    printer.with(|c| c.serial.attach(serial.clone(), &c.ring));
    serial.0.lock().expect("no panic").clear();
    // Interrupts are off for as long as one of these takes. One line is longer than a piece.
    let line = |n: usize| "x".repeat(if n == 300 { 10 * PIECE } else { n % 150 }) + "\n";
    let text: String = (0..600).map(line).collect();
    printer.print(format_args!("{text}{}", "end"), Color::Normal);
    let pieces = serial.0.lock().expect("no panic").clone();
    assert_eq!(pieces.concat(), format!("{text}end").into_bytes());
    assert!(pieces.iter().all(|piece| piece.len() <= PIECE), "interrupts are off for too long");
    for (piece, next) in pieces.iter().zip(&pieces[1..]) {
        let cuts_short_line =
            !piece.ends_with(b"\n") && !is_long_line(piece) && !is_long_line(next);
        assert!(!cuts_short_line, "a line of less than a piece was cut");
    }
    let least = text.len() / PIECE;
    assert!((least..3 * least).contains(&pieces.len()), "{} pieces", pieces.len());

    fn is_long_line(piece: &[u8]) -> bool {
        piece.len() == PIECE || piece.iter().filter(|&&b| b == b'\n').count() <= 1
    }
}

/// A text of several pieces, as from a G that is preempted between two.
struct Half(u64);

impl Half {
    fn begin(printer: &Printer<Memory, Memory>, part: &str) -> Self {
        let half = Half(printer.with(|console| console.new_text()));
        half.put(printer, part, false);
        half
    }

    fn put(&self, printer: &Printer<Memory, Memory>, part: &str, is_last: bool) {
        let to = To::All(Color::Normal);
        printer.with(|console| console.put(part.as_bytes(), self.0, is_last, to));
    }
}

/// As an interrupt handler prints: without a turn.
fn print_in_interrupt(printer: &Printer<Memory, Memory>, text: &str) {
    let lock = IrqLock::new(());
    let _held = lock.lock(); // so the caller may not wait
    printer.print(format_args!("{text}{}", ""), Color::Normal);
}

#[test]
fn what_an_interrupt_prints_in_the_middle_of_a_line_has_a_line_of_its_own() {
    for (aside, shown) in [("irq\n", "irq\n"), ("irq", "irq\n"), ("1\n2\n", "1\n2\n")] {
        let (printer, serial, screen) = printer();
        let _turn = printer.turn.take(); // an interrupt does not wait for it
        let half = Half::begin(printer, "one line ");
        print_in_interrupt(printer, aside);
        half.put(printer, "of two pieces\n", true);
        print_in_interrupt(printer, aside);
        assert_eq!(serial.text(), format!("one line \n{shown}of two pieces\n{aside}"));
        assert_eq!(serial.text(), screen.text());
    }
}

#[test]
fn a_prompt_is_continued_and_not_broken() {
    let (printer, serial, _) = printer();
    printer.print(format_args!("{}", "> "), Color::Normal);
    print_in_interrupt(printer, "typed\n");
    assert_eq!(serial.text(), "> typed\n");
}

#[test]
fn what_comes_after_a_text_that_never_ended_begins_a_line() {
    let (printer, serial, _) = printer();
    Half::begin(printer, "an abandoned G's");
    printer.print(format_args!("the next {}\n", "G's"), Color::Normal);
    printer.print(format_args!("and {}\n", "another"), Color::Normal);
    assert_eq!(serial.text(), "an abandoned G's\nthe next G's\nand another\n");
}

#[test]
fn an_emergency_in_the_middle_of_a_line_begins_a_line() {
    let (printer, serial, _) = printer();
    Half::begin(printer, "half");
    printer.with(|console| {
        console.end_cut_line();
        console.write(b"kernel panic ", To::All(Color::Error));
        console.write(b"on CPU 0\n", To::All(Color::Error));
    });
    assert_eq!(serial.text(), "half\nkernel panic on CPU 0\n");
}

#[test]
fn lines_longer_than_a_piece_stay_whole_too() {
    let (printer, serial, _) = printer();
    std::thread::scope(|scope| {
        for letter in ["a", "b", "c", "d"] {
            scope.spawn(move || {
                for _ in 0..8 {
                    printer.print(format_args!("{}\n", letter.repeat(PIECE * 50)), Color::Normal);
                }
            });
        }
    });
    let text = serial.text();
    assert_eq!(text.lines().count(), 32);
    for line in text.lines() {
        assert_eq!(line.len(), PIECE * 50);
        assert!(line.bytes().all(|byte| byte == line.as_bytes()[0]), "two lines were mixed");
    }
}

#[test]
fn the_turn_of_one_that_is_gone_goes_to_the_next_who_is_there() {
    let turn: &Turn = Box::leak(Box::new(Turn::new()));
    let name = |send: std::sync::mpsc::Sender<u64>| {
        send.send(crate::run::door::me()).expect("it is asked")
    };
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        // It takes the turn and is abandoned with it.
        scope.spawn(move || {
            core::mem::forget(turn.take());
            name(tell);
            crate::run::door::abandon_locks(crate::run::door::current_id());
        });
        let gone = told.recv().expect("it said so");
        let next = scope.spawn(|| drop(turn.take()));
        while turn.0.lock().waiting(0) == 0 {
            std::thread::yield_now();
        }
        turn.pass_from(gone + 64);
        assert!(!next.is_finished(), "it has the turn, and nobody else is meant");
        turn.pass_from(gone);
        next.join().expect("no panic");
        drop(turn.take());
    });
}
