//! Stealing: many Gs are started on one P, and record where they ran.
//!
//! `go` puts a new G into the queue of its own P. A queue holds 1024; when it is full,
//! half of it goes to the global queue, where any P takes a batch. So a G that ran on
//! another CPU was stolen from this P's queue, or came from the global queue: the
//! scheduler's counters say how many were stolen. Arguments: how many Gs (10000), and
//! how many rounds of work each does (2000).

use alloc::sync::Arc;
use core::hint::black_box;
use core::sync::atomic::{AtomicUsize, Ordering};
use runnext::prelude::*;
use runnext::sync::{Mutex, Ticket, WaitGroup};

runnext::main!(fanout, main);

/// The state that the Gs share.
struct Shared {
    /// How many Gs ended on each CPU.
    ran_on: Mutex<Vec<usize>>,
    /// The result of all of them, so that the compiler keeps the work.
    sum: AtomicUsize,
}

fn main() {
    let gs = argument(0).unwrap_or(10_000);
    let rounds = argument(1).unwrap_or(2_000);
    let ran_on = Mutex::new(vec![0; num_cpus()]);
    let shared = Arc::new(Shared { ran_on, sum: AtomicUsize::new(0) });
    let group = Arc::new(WaitGroup::new()); // not done yet

    let home = current_cpu();
    let stolen_before = stolen();
    println!("fanout: {gs} Gs of {rounds} rounds each, all started on CPU {home}");
    let mut started = 0;
    for seed in 0..gs {
        let (ticket, shared) = (WaitGroup::ticket(group.clone()), shared.clone());
        let leaf = move || leaf(seed, rounds, &shared, ticket);
        // No memory for another G: continue with those that run.
        let Ok(_detached) = Go::new().name("leaf").spawn(leaf) else {
            break;
        };
        started += 1;
    }
    group.wait();

    let ran_on = shared.ran_on.lock().expect("nobody has panicked");
    for (cpu, count) in ran_on.iter().enumerate() {
        println!("  CPU {cpu:3}: {count:8} Gs{}", if cpu == home { " (home)" } else { "" });
    }
    let elsewhere: usize = started - ran_on[home];
    let stolen = stolen() - stolen_before;
    let ran: usize = ran_on.iter().sum();
    println!("started {started}, ran {ran}, {elsewhere} of them on other CPUs; stolen {stolen}");
}

/// How many Gs all Ps have stolen so far.
fn stolen() -> u64 {
    stats().cpus.iter().map(|cpu| cpu.stolen).sum()
}

/// One G: some work, then a mark for the CPU it is on.
fn leaf(seed: usize, rounds: usize, shared: &Shared, _ticket: Ticket<Arc<WaitGroup>>) {
    let work = (0..rounds).fold(seed, |sum, i| black_box(sum.wrapping_mul(31).wrapping_add(i)));
    shared.sum.fetch_xor(work, Ordering::Relaxed);
    shared.ran_on.lock().expect("nobody has panicked")[current_cpu()] += 1;
}

fn argument(n: usize) -> Option<usize> {
    args().get(n).and_then(|word| word.parse().ok())
}
