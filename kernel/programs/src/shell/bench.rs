//! Small benchmarks: the cost of an operation on this machine, by the clock.
//!
//! For a first impression. `make bench` measures more, more carefully, and by counted
//! instructions, which do not depend on the load of the host.

use runnext::prelude::*;
use runnext::sync::Mutex;

/// The names of all benchmarks.
pub const NAMES: [&str; 6] = ["yield", "spawn", "pingpong", "chan", "mutex", "sleep"];

/// A measurement: operations, and how long they took.
pub struct Measured {
    /// The number of operations.
    pub operations: u64,
    /// Their total time.
    pub took: Duration,
}

/// Runs one of [`NAMES`]; `None` if there is no such name.
pub fn run(name: &str) -> Option<Measured> {
    let operations = match name {
        "yield" | "mutex" => 100_000,
        "chan" => 50_000,
        "spawn" | "pingpong" => 10_000,
        "sleep" => 100,
        _ => return None,
    };
    let start = Instant::now();
    match name {
        "yield" => (0..operations).for_each(|_| yield_now()),
        "spawn" => (0..operations).for_each(|_| end(go(|| ()))),
        "pingpong" => pingpong(operations),
        "chan" => buffered(operations),
        "mutex" => mutex(operations),
        _ => (0..operations).for_each(|_| sleep(Duration::from_micros(10))),
    }
    Some(Measured { operations, took: start.elapsed() })
}

fn end<T>(g: JoinHandle<T>) {
    g.join().expect("nothing here panics");
}

/// A value back and forth, by two channels without a buffer.
fn pingpong(rounds: u64) {
    let (ping, ping_rx) = chan::rendezvous();
    let (pong, pong_rx) = chan::rendezvous();
    let other = go(move || ping_rx.iter().all(|value: u64| pong.send(value).is_ok()));
    for round in 0..rounds {
        if ping.send(round).is_err() || pong_rx.recv().is_err() {
            break;
        }
    }
    drop(ping);
    end(other);
}

/// Values through a buffered channel.
fn buffered(values: u64) {
    let (tx, rx) = chan::bounded(128);
    let sender = go(move || (0..values).all(|value| tx.send(value).is_ok()));
    assert_eq!(rx.iter().count() as u64, values, "all of them arrive");
    end(sender);
}

/// A lock without contention.
fn mutex(rounds: u64) {
    let count = Mutex::new(0u64);
    for _ in 0..rounds {
        if let Ok(mut count) = count.lock() {
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_measured_and_no_other() {
        for name in NAMES {
            assert!(run(name).is_some_and(|measured| measured.operations > 0), "{name}");
        }
        assert!(run("nonsense").is_none());
    }
}
