//! The dining philosophers: a deadlock that the kernel names, and the same in order.
//!
//! `philosophers` has each take the left fork, then the right one. A barrier between the two makes
//! sure that it goes wrong: each has one fork and waits for its neighbour's. The kernel finds the
//! ring, prints who holds what, and ends the program; the machine, and others on it, go on.
//! `philosophers_in_order` has each take the fork of the lower number first: no ring can close.

use runnext::prelude::*;
use runnext::sync::{Barrier, Mutex};

runnext::main!(philosophers, in_a_ring);
runnext::main!(philosophers_in_order, in_order);

const SEATS: usize = 5;
const NAMES: [&str; SEATS] = ["Plato", "Hypatia", "Kant", "Arendt", "Hume"];

/// A fork counts the meals that it was used for.
type Forks = [Mutex<usize>; SEATS];

fn in_a_ring() {
    static FORKS: Forks = [const { Mutex::new(0) }; SEATS];
    static ALL_HAVE_ONE: Barrier = Barrier::new(SEATS);
    dine(
        &FORKS,
        1,
        |seat| [seat, (seat + 1) % SEATS],
        || {
            ALL_HAVE_ONE.wait();
        },
    );
    unreachable!("none of them eats");
}

fn in_order() {
    static FORKS: Forks = [const { Mutex::new(0) }; SEATS];
    let lower_first = |seat| if seat + 1 < SEATS { [seat, seat + 1] } else { [0, seat] };
    dine(&FORKS, 100, lower_first, yield_now);
    let used: usize = FORKS.iter().map(|fork| *fork.lock().expect("no panic")).sum();
    println!("{} meals, with two forks each", used / 2);
}

/// Each philosopher eats so often: takes the forks of `order`, and calls `between` the two.
fn dine(forks: &'static Forks, meals: usize, order: fn(usize) -> [usize; 2], between: fn()) {
    let eat = move |seat| {
        let [first, second] = order(seat).map(|fork| &forks[fork]);
        for _ in 0..meals {
            let mut first = first.lock().expect("no panic");
            between();
            let mut second = second.lock().expect("no panic");
            *first += 1;
            *second += 1;
        }
    };
    let start = |seat| Go::new().name(NAMES[seat]).spawn(move || eat(seat)).expect("memory");
    let philosophers: Vec<_> = (0..SEATS).map(start).collect();
    philosophers.into_iter().for_each(|g| g.join().expect("no panic"));
}
