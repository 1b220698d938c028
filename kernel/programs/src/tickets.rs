//! Tickets: a planted mistake that plain runs miss and `make explore PROGRAM=tickets` finds.
//!
//! Two counters sell one ticket. Each looks whether there is one left, starts a G that prints
//! it, and then takes it: under the lock both times, but the lock is free in between. If the
//! other counter looks in that moment, the ticket is sold twice. Both are on one CPU, so that
//! takes a preemption between the two; a slice is a thousand times as long as a sale.
//! `-- mended` keeps the lock from the look to the sale.

use alloc::sync::Arc;
use runnext::prelude::*;
use runnext::sync::Mutex;

runnext::main!(tickets, main);

const COUNTERS: usize = 2;

fn main() {
    let sell = if args().iter().any(|word| word == "mended") { sell_mended } else { sell };
    let left = Arc::new(Mutex::new(1));
    let counters: Vec<_> = (0..COUNTERS)
        .map(|_| {
            let left = left.clone();
            Go::new().pin(0).spawn(move || sell(&left)).expect("memory for a G")
        })
        .collect();
    let sold = counters.into_iter().map(|g| g.join().expect("no panic"));
    let sold = sold.filter(|&has_sold| has_sold).count();
    assert_eq!(sold, 1, "one ticket was sold {sold} times");
    println!("one ticket, sold once");
}

/// Wrong: what was seen under the first lock need not be true under the second.
fn sell(left: &Mutex<u32>) -> bool {
    let has_one = *left.lock().expect("no panic") > 0;
    if has_one {
        drop(go(yield_now)); // prints the ticket
        let mut left = left.lock().expect("no panic");
        *left = left.saturating_sub(1);
    }
    has_one
}

fn sell_mended(left: &Mutex<u32>) -> bool {
    let mut left = left.lock().expect("no panic");
    let has_one = *left > 0;
    if has_one {
        drop(go(yield_now)); // prints the ticket
    }
    *left = left.saturating_sub(1);
    has_one
}
