//! Placing: where a new G waits for its first turn.
//!
//! A thread that starts another has three places for it: its own CPU, next; behind all others; or
//! another CPU. Boot this with `place=here` (Go's answer, and the default), `place=queue` or
//! `place=other`. The first line shows the order in which five Gs of one P run: the newest first,
//! or first come, first served. In the second P0 is busy, so what it starts must run elsewhere: by
//! steals from its queue, or without one, because the Gs wait where other Ps look anyway.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use runnext::prelude::*;

runnext::main!(placing, main);

fn main() {
    let ps = set_gomaxprocs(1);
    let (ran, order) = chan::bounded(5);
    for n in 1..=5 {
        let ran = ran.clone();
        let _detached = go(move || _ = ran.send(n));
    }
    let order: Vec<String> = order.iter().take(5).map(|n: u32| format!("{n}")).collect();
    println!("one P: started 1 2 3 4 5, ran {}", order.join(" "));
    set_gomaxprocs(ps);
    if ps == 1 {
        return println!("another place for a G takes another P: SMP=2 or more");
    }
    let Ok(Ok([steals, here, elsewhere])) = Go::new().pin(0).spawn(busy).map(JoinHandle::join)
    else {
        return println!("no memory for a G");
    };
    println!("busy P0 started {GS}: {here} ran there, {elsewhere} elsewhere, {steals} steals");
}

/// Fewer than a ring holds, so that none goes to the global queue for lack of room.
const GS: u64 = 50;

/// Starts Gs, and keeps this CPU until all have run: the steals meanwhile, and how many ran here
/// and elsewhere.
fn busy() -> [u64; 3] {
    let steals = || stats().cpus.iter().map(|cpu| cpu.steals).sum::<u64>();
    let ran = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let (home, before) = (current_cpu(), steals());
    for _ in 0..GS {
        let ran = ran.clone();
        let _detached = go(move || ran[usize::from(current_cpu() != home)].fetch_add(1, Relaxed));
    }
    let counts = || [0, 1].map(|i| ran[i].load(Relaxed));
    while counts().iter().sum::<u64>() < GS {
        core::hint::spin_loop();
    }
    let [here, elsewhere] = counts();
    [steals() - before, here, elsewhere]
}
