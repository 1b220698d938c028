//! Many Gs print at once; the harness checks that every line came whole.

use runnext::prelude::*;

runnext::main!(lines, main);

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
