//! A scheduling system of your own, in one file (`lifo.rs`) and one line below:
//! `make run APP=examples/system ARGS=system=lifo`.
#![no_std]
#![no_main]

mod lifo;

use runnext::prelude::*;
use runnext::system;

runnext::system!(lifo::Lifo);
runnext::main!(lifo, main);

/// Starts five Gs on one P, and says in which order they ran.
fn main() {
    set_gomaxprocs(1);
    let (ran, order) = chan::bounded(5);
    for n in 1..=5 {
        let ran = ran.clone();
        let _detached = go(move || ran.send(n).expect("main listens"));
    }
    let order: Vec<String> = order.iter().take(5).map(|n: u32| format!("{n}")).collect();
    println!("system {}: started 1 2 3 4 5, ran {}", system::running().name, order.join(" "));
}
