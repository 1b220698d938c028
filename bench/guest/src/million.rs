//! Very many Gs that wait for one channel.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use runnext::inspect;
use runnext::prelude::*;
use runnext::sync::WaitGroup;

use crate::report::{figure, timed};

static WAITING: AtomicU64 = AtomicU64::new(0);
static GROUP: WaitGroup = WaitGroup::new();

/// So many until all wait, all memory that is gone meanwhile, and from the close
/// of the channel until the last has ended. Then again, with their stacks packed.
pub fn run(gs: u64) {
    let free_before = inspect::memory().frames.free;
    let bytes_each = || {
        let frames = free_before.saturating_sub(inspect::memory().frames.free);
        (frames * inspect::PAGE_SIZE) as u64 / gs
    };
    let (gate, opened) = chan::rendezvous::<()>();
    timed("million_create", || wait_for(&opened, gs));
    figure("million_bytes", bytes_each());
    timed("million_wake", || wake(gate, gs));

    let (gate, opened) = chan::rendezvous::<()>();
    wait_for(&opened, gs);
    timed("million_pack", || {
        inspect::pack_parked();
        gs
    });
    figure("million_packed_bytes", bytes_each());
    timed("million_wake_packed", || wake(gate, gs));
}

/// Closes the channel; returns when all have ended.
fn wake(gate: chan::Sender<()>, gs: u64) -> u64 {
    gate.close();
    GROUP.wait();
    gs
}

/// So many that stay there, while other workloads are measured.
pub fn live(gs: u64) {
    let (gate, opened) = chan::rendezvous::<()>();
    wait_for(&opened, gs);
    core::mem::forget(gate); // it never opens
}

fn wait_for(opened: &chan::Receiver<()>, gs: u64) -> u64 {
    WAITING.store(0, Relaxed);
    for started in 0..gs {
        let opened = opened.clone();
        let wait = move || {
            WAITING.fetch_add(1, Relaxed);
            let _closed = opened.recv();
            GROUP.done();
        };
        GROUP.add(1);
        if let Err(error) = Go::new().spawn(wait) {
            println!("{error} after {started} of {gs}");
            exit(1);
        }
    }
    while WAITING.load(Relaxed) < gs {
        yield_now();
    }
    gs
}
