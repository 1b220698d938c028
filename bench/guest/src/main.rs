//! What the benchmarks boot: `program=bench -- <workload>[=<number>] …`.
//!
//! Each workload is the one of the same name in `bench/go`: the same work,
//! counted the same way, so a change here is a change there. Most are repeated
//! operations: a quarter of them to warm up, then all of them timed. The others
//! report figures of their own. `pairs`, `spawn_each` and `idle` are ours alone: they
//! say what more CPUs cost. What a nanosecond is, the machine decides: under
//! `-icount shift=0` it is an instruction.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

mod channels;
mod latency;
mod million;
mod report;
mod sharing;
mod slices;
mod switching;
mod systems;
mod tasks;

use runnext::prelude::*;

runnext::main!(bench, main);

/// What there is to measure.
enum Workload {
    /// Does about so many operations and says how many it did.
    Each(fn(u64) -> u64),
    /// Reports by itself. The number is how much of it.
    Own(fn(u64)),
}
use Workload::{Each, Own};

/// By name, with the number that is meant if none is given.
const WORKLOADS: &[(&str, u64, Workload)] = &[
    ("yield", 200_000, Each(switching::yield_two)),
    ("yield_many", 1_000_000, Each(switching::yield_many)),
    ("chan_pingpong", 100_000, Each(channels::ping_pong)),
    ("chan_buf_1x1", 400_000, Each(channels::buffered_1x1)),
    ("chan_buf_4x4", 400_000, Each(channels::buffered_4x4)),
    ("spawn_join", 200_000, Each(tasks::spawn_join)),
    ("select4", 100_000, Each(channels::select4)),
    ("select4_ready", 100_000, Each(channels::select4_ready)),
    ("mutex8", 800_000, Each(switching::mutex8)),
    ("forkjoin", 1 << 16, Each(tasks::fork_join)),
    ("forkjoin_join", 1 << 16, Each(tasks::fork_join_scoped)),
    ("blocking_nop", 200_000, Each(tasks::blocking_nop)),
    ("pairs", 400_000, Each(channels::pairs)),
    ("spawn_each", 200_000, Each(tasks::spawn_each)),
    ("idle", 100, Each(latency::idle)),
    ("skynet", 1_000_000, Each(tasks::skynet)),
    ("steal", 1_000, Own(sharing::steal)),
    ("fairness", 2_000, Own(sharing::fairness)),
    ("timer_late", 100, Own(latency::timer_late)),
    ("wake_busy", 50, Own(latency::wake_busy)),
    ("handoff", 200, Own(latency::handoff)),
    ("waiting_g", 500, Own(systems::waiting_g)),
    ("contended", 100_000, Own(systems::contended)),
    ("elsewhere", 0, Own(systems::elsewhere)),
    ("calls", 200, Own(systems::calls)),
    ("turns", 40_000, Own(systems::turns)),
    ("vector_to_g", 20_000, Own(slices::vector_to_g)),
    ("displace", 200, Own(slices::displace)),
    ("call_to_g", 200, Own(slices::call_to_g)),
    ("urgent_to_g", 200, Own(slices::urgent_to_g)),
    ("share_5us", 10_000, Own(slices::share_5us)),
    ("share_50us", 20_000, Own(slices::share_50us)),
    ("share_500us", 100_000, Own(slices::share_500us)),
    ("short1", 20, Own(slices::short1)),
    ("short4", 20, Own(slices::short4)),
    ("million", 1_000_000, Own(million::run)),
    ("live", 1_000, Own(million::live)),
    ("boot_1", 1, Own(report::boot)),
    ("boot_8", 1, Own(report::boot)),
    ("boot_64", 1, Own(report::boot)),
];

fn main() {
    report::main_begins();
    for word in args() {
        let (name, number) = word.split_once('=').unwrap_or((word, ""));
        let Some((name, usual, run)) = WORKLOADS.iter().find(|row| row.0 == name) else {
            println!("no workload is called {name:?}");
            exit(2);
        };
        let number = number.parse().ok().filter(|&n| n > 0).unwrap_or(*usual);
        match run {
            Own(run) => run(number),
            Each(run) => {
                run(number / 4);
                report::timed(name, || run(number));
            }
        }
    }
    println!("BENCH end");
}
