//! Patterns of concurrent programs, one file each: `make run APP=examples/patterns`.
//!
//! Each is a program by itself (`PROGRAM=philosophers`). The one of this file starts the others, one
//! after the other, and says how each has ended.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

mod back_pressure;
mod crawler;
mod merge_sort;
mod nbody;
mod philosophers;
mod pub_sub;
mod rate_limiter;

use runnext::prelude::*;
use runnext::program;

runnext::main!(tour, main);

fn main() {
    let others = ["merge_sort", "crawler", "rate_limiter", "pub_sub", "nbody", "back_pressure"];
    for name in others.into_iter().chain(["philosophers", "philosophers_in_order"]) {
        println!("--- {name}");
        let run = program::start(name, Vec::new()).expect("it is in this image");
        println!("{name}: {}", run.wait());
    }
}
