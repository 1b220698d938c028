//! Packed stacks: what is on them stays as it was, whatever touches it; `program=packing`.

use crate::check::{self, checks};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use runnext::inspect::{self, pack_parked};
use runnext::internals::{invariant, mem};
use runnext::prelude::*;
use runnext::tasks;
use runnext::time::sleep_until;

runnext::main!(packing, main);

fn main() {
    check::run(checks![
        a_parked_g_is_packed_and_finds_its_stack_as_it_was,
        looking_at_packed_gs_unpacks_none,
        a_value_is_received_on_a_packed_stack,
        a_backtrace_of_a_packed_g_is_complete,
        gs_that_are_woken_while_they_are_packed_lose_nothing,
        a_deep_stack_stays_and_what_it_no_longer_uses_goes,
        with_memory_full_packed_gs_are_woken,
        with_memory_full_each_g_that_uses_more_goes_on_or_is_told,
        sleepers_are_woken_and_none_too_early,
        parked_gs_are_packed_while_hogs_run,
    ]);
}

const GS: usize = 500;

fn packed() -> usize {
    inspect::memory().pack.packed
}

/// Gs that each hold a pattern on their stack while they wait for the channel to close.
fn park(gs: usize, gate: &chan::Receiver<()>) -> Vec<JoinHandle<bool>> {
    let waiting = &*Box::leak(Box::new(AtomicUsize::new(0)));
    let wait = |n: usize| {
        let gate = gate.clone();
        move || {
            let pattern = core::hint::black_box([n as u64; 24]);
            waiting.fetch_add(1, Relaxed);
            let _closed = gate.recv();
            core::hint::black_box(&pattern).iter().all(|&word| word == n as u64)
        }
    };
    let parked = (0..gs).map(|n| Go::new().name("parked").spawn(wait(n)).expect("memory"));
    let parked = parked.collect();
    check::wait_until(|| waiting.load(Relaxed) == gs);
    sleep(Duration::from_millis(20));
    parked
}

fn a_parked_g_is_packed_and_finds_its_stack_as_it_was() {
    let (gate, opened) = chan::rendezvous::<()>();
    let parked = park(GS, &opened);
    let (before, free) = (packed(), inspect::memory().frames.free);
    pack_parked();
    assert!(packed() >= before + GS * 9 / 10, "{} packed", packed() - before);
    let freed = inspect::memory().frames.free.saturating_sub(free);
    assert!(freed > GS / 2, "{freed} frames freed");
    gate.close();
    assert!(parked.into_iter().all(|g| g.join().expect("it ends")), "a stack has changed");
}

fn looking_at_packed_gs_unpacks_none() {
    let (gate, opened) = chan::rendezvous::<()>();
    let parked = park(GS, &opened);
    pack_parked();
    let unpacks = || inspect::memory().pack.unpacks;
    let before = unpacks();
    let seen = tasks::gs().iter().filter(|g| g.name == "parked").count();
    assert!(seen >= GS && num_goroutines() >= GS);
    for g in tasks::gs().iter().filter(|g| g.name == "parked") {
        assert!(tasks::backtrace(g.id).expect("it waits").len() >= 2);
    }
    invariant::check().expect("memory").expect("a sound machine");
    assert!(unpacks() < before + GS as u64 / 10, "{} were unpacked", unpacks() - before);
    gate.close();
    parked.into_iter().for_each(|g| assert!(g.join().expect("it ends")));
}

fn a_value_is_received_on_a_packed_stack() {
    for n in 0..20_u64 {
        let (tx, rx) = chan::rendezvous::<[u64; 8]>();
        let receiver = go(move || rx.recv());
        sleep(Duration::from_millis(2));
        pack_parked();
        tx.send([n; 8]).expect("it waits");
        assert_eq!(receiver.join().expect("it ends"), Ok([n; 8]));
    }
}

fn a_backtrace_of_a_packed_g_is_complete() {
    let (gate, opened) = chan::rendezvous::<()>();
    let parked = park(20, &opened);
    pack_parked();
    let gs = tasks::gs();
    let g = gs.iter().find(|g| g.name == "parked").expect("it is parked");
    let frames = tasks::backtrace(g.id).expect("it waits").len();
    assert!(frames >= 2, "{frames} frames");
    gate.close();
    parked.into_iter().for_each(|g| assert!(g.join().expect("it ends")));
}

/// One G packs without a pause, the others send each other numbers.
fn gs_that_are_woken_while_they_are_packed_lose_nothing() {
    let is_over = &*Box::leak(Box::new(AtomicBool::new(false)));
    let packer = go(move || {
        while !is_over.load(Relaxed) {
            pack_parked();
            yield_now();
        }
    });
    let rings = (0..8).map(|_| {
        go(|| {
            let ((to, from), (back, there)) = (chan::rendezvous::<u64>(), chan::rendezvous());
            let echo = go(move || from.iter().for_each(|n| back.send(n + 1).expect("it waits")));
            for n in 0..100 {
                to.send(n).expect("it waits");
                assert_eq!(there.recv(), Ok(n + 1));
            }
            drop(to);
            echo.join().expect("it ends");
        })
    });
    rings.collect::<Vec<_>>().into_iter().for_each(|g| g.join().expect("nothing is lost"));
    is_over.store(true, Relaxed);
    packer.join().expect("it ends");
}

#[inline(never)]
fn sum_down(n: u64) -> u64 {
    let frame = core::hint::black_box([n; 32]);
    if n == 0 { frame[5] } else { sum_down(n - 1) + frame[n as usize % 32] }
}

#[inline(never)]
fn wait_below(n: u64, opened: &chan::Receiver<()>) -> u64 {
    let frame = core::hint::black_box([n; 32]);
    if n == 0 {
        let _closed = opened.recv();
        return frame[5];
    }
    wait_below(n - 1, opened) + frame[n as usize % 32]
}

fn a_deep_stack_stays_and_what_it_no_longer_uses_goes() {
    let (gate, opened) = chan::rendezvous::<()>();
    let (deep, shallow) = (opened.clone(), opened);
    let deep = go(move || wait_below(60, &deep));
    let shallow = go(move || {
        let sum = sum_down(100);
        let _closed = shallow.recv();
        sum
    });
    sleep(Duration::from_millis(20));
    let free = inspect::memory().frames.free;
    pack_parked();
    assert!(inspect::memory().frames.free > free + 4, "the pages below its stack pointer");
    gate.close();
    assert_eq!((deep.join(), shallow.join()), (Ok(60 * 61 / 2), Ok(100 * 101 / 2)));
}

/// All memory that the heap can have, until it is dropped.
fn fill_heap() -> Vec<Vec<u8>> {
    let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(40_000);
    for size in [1 << 20, 1 << 16, 1 << 12, 1 << 9] {
        while blocks.len() < blocks.capacity() {
            let mut block = Vec::new();
            if block.try_reserve_exact(size).is_err() {
                break;
            }
            blocks.push(block);
        }
    }
    assert!(mem::stats().frames.free < 1_000, "memory is full");
    blocks
}

/// With a page each they would need all of the memory, and more. The heap has it: those that are
/// woken have only the reserve, one after another.
const VERY_MANY: usize = 12_000;

fn with_memory_full_packed_gs_are_woken() {
    let (gate, opened) = chan::rendezvous::<()>();
    let parked = park(VERY_MANY, &opened);
    pack_parked();
    let blocks = fill_heap();
    gate.close();
    assert!(parked.into_iter().all(|g| g.join().expect("it ends")), "a stack has changed");
    drop(blocks);
}

const MANY: usize = 1_000;

/// Uses more of the stack than is ever packed, and waits there.
#[inline(never)]
fn wait_with_much(opened: &chan::Receiver<()>) -> bool {
    let much = core::hint::black_box([7_u64; 250]);
    let _closed = opened.recv();
    core::hint::black_box(&much).iter().all(|&word| word == 7)
}

/// Is dropped with the G that has it, however that ends.
struct Owned(&'static AtomicUsize);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Each G that is woken keeps a page from then on, so that there are not enough for all: some find
/// none, and end, with their destructors. None hangs, and the others find what is theirs. The G that wakes them uses so much
/// of its stack that it keeps its page.
fn with_memory_full_each_g_that_uses_more_goes_on_or_is_told() {
    let own = core::hint::black_box([7_u64; 250]);
    let dropped = &*Box::leak(Box::new(AtomicUsize::new(0)));
    let (gate, opened) = chan::rendezvous::<()>();
    let (second, opened_again) = chan::rendezvous::<()>();
    let start = |_| {
        let (opened, again) = (opened.clone(), opened_again.clone());
        go(move || {
            let _owned = Owned(dropped);
            let _closed = opened.recv();
            wait_with_much(&again)
        })
    };
    let gs: Vec<_> = (0..MANY).map(start).collect();
    sleep(Duration::from_millis(20));
    pack_parked();
    let blocks = fill_heap();
    gate.close();
    sleep(Duration::from_millis(20));
    second.close();
    let (mut well, mut told) = (0, 0);
    gs.into_iter().for_each(|g| match g.join() {
        Ok(true) => well += 1,
        Err(JoinError::NoMemory) => told += 1,
        other => panic!("{other:?}"),
    });
    drop(blocks);
    println!("PACKING {well} of {MANY} went on, {told} found no memory");
    assert_eq!(dropped.load(Relaxed), MANY, "what a G owned is lost");
    assert!(told > 0 && well > 0 && core::hint::black_box(&own).iter().all(|&word| word == 7));
}

/// How late is asserted from outside, in virtual time.
fn sleepers_are_woken_and_none_too_early() {
    let start = Instant::now();
    let sleepers = (1..=20).map(|n| {
        go(move || {
            let at = start + Duration::from_millis(100 + 5 * n);
            sleep_until(at);
            Instant::now().duration_since(at)
        })
    });
    let sleepers: Vec<_> = sleepers.collect();
    sleep(Duration::from_millis(10));
    let before = packed();
    pack_parked();
    assert!(packed() > before + 10, "they sleep, packed");
    let late = sleepers.into_iter().map(|g| g.join().expect("it is woken")).max();
    println!("PACKING woken {} ns late at the most", late.unwrap_or_default().as_nanos());
}

/// No CPU is idle, and none has another G to switch to.
fn parked_gs_are_packed_while_hogs_run() {
    let (gate, opened) = chan::rendezvous::<()>();
    let parked = park(1_200, &opened);
    let (before, start) = (packed(), Instant::now());
    let is_packed = move || packed() >= before + 1_000;
    let is_over = move || is_packed() || start.elapsed() > Duration::from_secs(20);
    let hog = move || while !is_over() {};
    let hogs: Vec<_> = (1..gomaxprocs()).map(|_| go(hog)).collect();
    hog();
    hogs.into_iter().for_each(|g| g.join().expect("it ends"));
    assert!(is_packed(), "{} of 1200", packed() - before);
    gate.close();
    assert!(parked.into_iter().all(|g| g.join().expect("it ends")));
}
