//! Hello from every CPU: the smallest program that uses them all.

use runnext::prelude::*;

runnext::main!(hello, main);

/// Starts one G per CPU and waits for all of them. The scheduler decides which CPU runs which
/// G: run it twice and compare.
fn main() {
    println!("hello from a G; this machine has {} CPUs", num_cpus());
    let greetings: Vec<_> = (0..num_cpus())
        .map(|i| go(move || println!("  G {i} says hello from CPU {}", current_cpu())))
        .collect();
    for greeting in greetings {
        greeting.join().expect("a greeting does not panic");
    }
    println!("all of them came back; goodbye");
}
