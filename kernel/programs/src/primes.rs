//! The sieve of Gs: each G of a chain passes on what its prime does not divide.
//!
//! The classic of channel programs (Hoare 1978, and every introduction to Go):
//! nearly every step is a hand-over, and the chain grows by a G for each prime.
//! `program=primes -- 200` finds so many.

use runnext::chan::{Receiver, Sender};
use runnext::prelude::*;

runnext::main!(primes, main);

const COUNT: usize = 200;

fn main() {
    let count = args().first().and_then(|word| word.parse().ok()).unwrap_or(COUNT);
    let (tx, mut numbers) = chan::rendezvous();
    drop(go(move || (2..).try_for_each(|n| tx.send(n))));

    let mut primes: Vec<u32> = vec![];
    for _ in 0..count {
        // The first number to reach the end of the chain is a prime.
        let prime = numbers.recv().expect("there is always another prime");
        primes.push(prime);
        let (tx, next) = chan::rendezvous();
        drop(go(move || filter(prime, &numbers, &tx)));
        numbers = next;
    }
    println!("the first {count} primes: {primes:?}");
    // Dropping the end of the chain ends all its Gs, one after the other.
}

/// Passes on the numbers that `prime` does not divide, until the receiver is dropped.
fn filter(prime: u32, from: &Receiver<u32>, to: &Sender<u32>) {
    for n in from {
        if n % prime != 0 && to.send(n).is_err() {
            return;
        }
    }
}
