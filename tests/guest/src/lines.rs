//! Many Gs print at once; the harness checks that every line came whole.
//!
//! `lines` prints short lines; `longlines <bytes> [stop]` two long ones beside a G that
//! spins, and says how late a sleeper was woken meanwhile: as late as interrupts were off.
//! With `stop` the kernel is made to panic in the middle of it.

use crate::check::{join_all, wait_until, with_sleeper};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use runnext::prelude::*;

runnext::main!(lines, main);
runnext::main!(longlines, long);

/// Lines that each G prints.
const LINES: usize = 50;

fn main() {
    let printers: Vec<_> = (0..2 * num_cpus())
        .map(|g| {
            go(move || {
                for i in 0..LINES {
                    // The same digit over and over: a torn line shows.
                    let digit = char::from(b'a' + (g % 26) as u8);
                    println!("LINE {g} {i} {}", String::from_iter([digit; 40]));
                    yield_now();
                }
            })
        })
        .collect();
    for printer in printers {
        printer.join().expect("a printer does not panic");
    }
    println!("LINES {}", 2 * num_cpus() * LINES);
}

fn long() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let bytes = args().first().and_then(|word| word.parse().ok()).expect("a number of bytes");
    let spinner = go(|| {
        // Without a pause, each of which is slow in virtual time.
        while !STOP.load(Relaxed) {
            core::hint::black_box(0);
        }
    });
    let texts = ['a', 'b'].map(|letter| String::from_iter((0..bytes).map(|_| letter)));
    if args().get(1).is_some_and(|word| word == "stop") {
        stop_while_printing(texts);
    }
    let ((), late_ns, wakes) =
        with_sleeper(|| drop(join_all(texts.map(|text| go(move || println!("LONG {text}."))))));
    STOP.store(true, Relaxed);
    spinner.join().expect("it spins");
    println!("LATE {late_ns} {wakes}");
}

/// The kernel panics while two Gs print long lines, one after another.
fn stop_while_printing(texts: [String; 2]) -> ! {
    static PRINTED: AtomicUsize = AtomicUsize::new(0);
    for text in texts {
        let _detached = go(move || {
            loop {
                println!("LONG {text}.");
                PRINTED.fetch_add(1, Relaxed);
            }
        });
    }
    wait_until(|| PRINTED.load(Relaxed) > 1);
    runnext::internals::arch::irq::disable();
    panic!("in the middle of a line");
}
