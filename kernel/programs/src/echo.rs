//! Echo: a G that waits for the keyboard at the other end of a serial line.
//!
//! Typed lines come back with their length; `exit`, or Ctrl-D where a line begins, ends the
//! program. While it waits, the G is parked: it has no CPU and no M, and the CPUs halt. A key
//! makes the port interrupt; the handler moves the received bytes into a ring and readies the
//! G; that is all of it. At the end the program prints how many interrupts that took, and
//! whether bytes were lost.
//!
//! [`echo_loop`](crate::echo_loop) does the same without a call that waits.
//!
//! `program=echo -- hogs` keeps every CPU busy meanwhile: typing still works.

use core::sync::atomic::{AtomicBool, Ordering};
use runnext::console::{self, InputStats, Line};
use runnext::prelude::*;

runnext::main!(echo, main);

static STOP: AtomicBool = AtomicBool::new(false);

fn main() {
    STOP.store(false, Ordering::Relaxed); // the program may have run before
    let before = switches();
    let hogs: Vec<_> = match args().first().map(String::as_str) {
        Some("hogs") => (0..num_cpus()).map(|_| go(hog)).collect(),
        _ => Vec::new(),
    };
    println!("type a line; `exit` or Ctrl-D ends");
    if let Err(error) = echo() {
        println!("echo: {error}");
        exit(1);
    }
    STOP.store(true, Ordering::Relaxed);
    hogs.into_iter().for_each(|hog| hog.join().expect("a hog does not panic"));
    let InputStats { interrupts, bytes, overruns, garbled, .. } = console::input_stats();
    println!("{bytes} bytes in {interrupts} interrupts, {overruns} overruns, {garbled} garbled");
    println!("{} switches", switches() - before);
}

/// How often all CPUs together have switched to a G.
pub(crate) fn switches() -> u64 {
    stats().cpus.iter().map(|cpu| cpu.switches).sum()
}

fn echo() -> Result<(), console::InputError> {
    loop {
        print!("> ");
        match console::read_line()? {
            Line::Text(line) if line == "exit" => return Ok(()),
            Line::Text(line) => println!("{line} ({} bytes)", line.len()),
            Line::End => {
                println!();
                return Ok(());
            }
        }
    }
}

fn hog() {
    while !STOP.load(Ordering::Relaxed) {
        core::hint::spin_loop();
    }
}
