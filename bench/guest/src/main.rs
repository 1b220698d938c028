//! What the benchmarks boot: `program=bench -- <workload> …`.
//!
//! Each workload is the one of the same name in `bench/go/main.go`: the same
//! work, counted the same way, so a change here is a change there. For each
//! name a quarter of the work is done to warm up, then all of it is timed and
//! reported as `BENCH <name> <operations> <nanoseconds>`. What a nanosecond is,
//! the machine decides: under `-icount shift=0` it is an instruction.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

mod channels;
mod million;
mod switching;
mod tasks;

use runnext::prelude::*;

runnext::main!(bench, main);

/// Does about so many operations and says how many it did.
type Workload = fn(u64) -> u64;

/// All but `million`, which is measured in another way.
const WORKLOADS: [(&str, u64, Workload); 11] = [
    ("yield", 200_000, switching::yield_two),
    ("yield_many", 1_000_000, switching::yield_many),
    ("chan_pingpong", 100_000, channels::ping_pong),
    ("chan_buf_1x1", 400_000, channels::buffered_1x1),
    ("chan_buf_4x4", 400_000, channels::buffered_4x4),
    ("spawn_join", 200_000, tasks::spawn_join),
    ("select4", 100_000, channels::select4),
    ("select4_ready", 100_000, channels::select4_ready),
    ("mutex8", 800_000, switching::mutex8),
    ("forkjoin", 1 << 16, tasks::fork_join),
    ("blocking_nop", 200_000, tasks::blocking_nop),
];

fn main() {
    for name in args() {
        if let Some(gs) = name.strip_prefix("million=").and_then(|gs| gs.parse().ok()) {
            million::run(gs);
            continue;
        }
        let Some((name, operations, run)) = WORKLOADS.iter().find(|row| row.0 == *name) else {
            println!("no workload is called {name:?}");
            exit(2);
        };
        run(operations / 4);
        let start = Instant::now();
        let done = run(*operations);
        println!("BENCH {name} {done} {}", start.elapsed().as_nanos());
    }
    println!("BENCH end");
}
