//! Gs that call C: `make run APP=examples/c`.
//!
//! A G calls C as it calls Rust: on its own stack, without a switch of stacks, because that stack
//! grows page by page under any code. Go's goroutines cannot: their stacks are moved when they
//! grow, so a call into C changes to the stack of a thread. And C code is preempted here like any
//! other, at every instruction: no part of it need be a safe point. What this takes of the compiler
//! is in `build.rs`.
//!
//! A call that waits belongs into `blocking`, in C as in Rust. It is then on the stack of its M.
#![no_std]
#![no_main]

use runnext::prelude::*;

runnext::main!(c, main);

// `C-unwind`, because a G whose stack is full in C unwinds through it to where it is caught.
unsafe extern "C-unwind" {
    /// Mixes sixteen words for so many rounds.
    safe fn mix(seed: u64, rounds: u64) -> u64;
    /// Uses so many KiB of stack; returns how many.
    safe fn dive(frames: u64) -> u64;
}

const ROUNDS: u64 = 2_000_000;

fn main() {
    let preemptions = || stats().cpus.iter().map(|cpu| cpu.preemptions).sum::<u64>();
    let before = preemptions();
    // Several on each CPU, so that each is preempted for the others, in C.
    let gs: Vec<_> = (0..3 * num_cpus() as u64).map(|n| go(move || mix(n << 32, ROUNDS))).collect();
    let results: Vec<_> = gs.into_iter().map(JoinHandle::join).collect();
    let preempted = preemptions() - before;
    let right = (0..).zip(&results).filter(|(n, got)| **got == Ok(mix_in_rust(n << 32, ROUNDS)));
    let (right, all) = (right.count(), results.len());
    println!("{right} of {all} Gs have the right result from C, after {preempted} preemptions");

    let on_m = blocking(|| mix(7, 1_000));
    println!("on the stack of an M: {}", on_m == mix_in_rust(7, 1_000));

    let deep = go(|| dive(48)).join();
    println!("C has used 48 KiB of a G's stack: {}", deep == Ok(48));
    let too_deep = go(|| dive(1_000_000)).join();
    let ended = too_deep.as_ref().map_or_else(ToString::to_string, |_| "it came back".into());
    println!("C without end: {ended}");
    if right < all || too_deep != Err(JoinError::StackOverflow) || deep != Ok(48) {
        exit(1);
    }
}

/// What `mix` computes.
fn mix_in_rust(seed: u64, rounds: u64) -> u64 {
    let mut words: [u64; 16] = core::array::from_fn(|n| seed.wrapping_add(n as u64));
    for i in 0..rounds {
        for n in 0..16 {
            let (before, by) = (words[(n + 15) % 16], 7 + 3 * n as u32);
            if n % 2 == 0 {
                words[n] = words[n].wrapping_add(before.rotate_left(by) ^ i);
            } else {
                words[n] ^= before.wrapping_add(words[(n + 5) % 16].rotate_left(by));
            }
        }
    }
    words.iter().fold(0, |all, word| all ^ word)
}
