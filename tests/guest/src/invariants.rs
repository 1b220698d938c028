//! The whole machine is sound while it works: `program=invariants -- <checks>`.
//!
//! All kinds of work at the same time, and again and again everything is stopped
//! and counted (`runnext::invariant`). Then faults are planted, and must be found.

use crate::check::{self, checks, join_all, wait_until};
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use runnext::blocking;
use runnext::internals::arch::paging::{self, Flags};
use runnext::internals::invariant;
use runnext::internals::mem::stack::slot::{self, Slot};
use runnext::internals::mem::{PAGE_SIZE, frames};
use runnext::prelude::*;
use runnext::sync::Mutex;
use runnext::tasks::{self, GState};

runnext::main!(invariants, main);

fn main() {
    check::run(checks![
        every_g_is_in_one_place_whenever_one_looks,
        a_stack_without_a_guard_is_found,
        a_write_over_the_top_of_a_stack_is_found,
        a_stack_that_was_written_over_is_found, // the last: its G must not go on
    ]);
}

static STOP: AtomicBool = AtomicBool::new(false);

fn every_g_is_in_one_place_whenever_one_looks() {
    let checks: usize = args().first().and_then(|word| word.parse().ok()).unwrap_or(20);
    let workers: Vec<_> = (0..60 * num_cpus()).map(|n| go(move || work(n))).collect();
    let (mut queued, mut parked) = (0, 0);
    for _ in 0..checks {
        let found = invariant::check().expect("memory for a G on each CPU");
        let census = found.unwrap_or_else(|broken| panic!("{broken}"));
        queued += census.queued.len();
        parked += census.parked;
        sleep(Duration::from_micros(700));
    }
    STOP.store(true, Relaxed);
    join_all(workers);
    println!("INVARIANT {checks} checks, {queued} Gs in queues, {parked} parked");
    // Else there was nothing to find.
    assert!(queued >= checks && parked >= checks, "{queued} in queues, {parked} parked");
}

/// A bit of everything, until told to stop.
fn work(n: usize) {
    static LOCK: Mutex<u64> = Mutex::new(0);
    static TURNS: AtomicU64 = AtomicU64::new(0);
    while !STOP.load(Relaxed) {
        match n % 6 {
            0 => yield_now(),
            1 => *LOCK.lock().expect("no panic") += 1,
            2 => sleep(Duration::from_micros(n as u64)),
            3 => go(|| ()).join().expect("no panic"),
            4 => blocking(|| sleep(Duration::from_micros(50))),
            _ => {
                let pinned = Go::new().pin(n % num_cpus()).spawn(|| ()).expect("memory for a G");
                pinned.join().expect("no panic");
            }
        }
        TURNS.fetch_add(1, Relaxed);
    }
}

/// A G that waits for ever: its number, and where on its stack something of it is.
fn sleeper() -> (u64, usize) {
    static PLACE: AtomicUsize = AtomicUsize::new(0);
    let (tx, rx) = chan::bounded(1);
    drop(go(move || {
        let local = black_box(0u8);
        PLACE.store((&raw const local).addr(), Relaxed);
        tx.send(current().id()).expect("somebody asks");
        park();
        black_box(local);
    }));
    let id = rx.recv().expect("it says so");
    wait_until(|| tasks::gs().iter().any(|g| g.id == id && g.state == GState::Waiting));
    (id, PLACE.load(Relaxed))
}

/// What a check finds now; and says so.
fn found() -> Result<(), String> {
    let found = invariant::check().expect("memory for a G on each CPU").map(drop);
    found.inspect_err(|broken| println!("INVARIANT broken: {broken}"))
}

fn a_stack_without_a_guard_is_found() {
    assert_eq!(found(), Ok(()));
    let (id, place) = sleeper();
    let guard = slot::locate(place as u64).expect("a stack").0.base();
    let frame = frames::alloc().expect("memory").addr();
    let table = || frames::alloc().map(|frame| frame.addr());
    // SAFETY: a frame of our own, where nothing is.
    unsafe { paging::map_page(guard, frame, Flags::DATA, table) }.expect("nothing is there");
    assert_eq!(found(), Err(format!("the stack of G {id} has no guard")));
    // SAFETY: nobody uses it. Other CPUs have not looked there, but in the tables.
    unsafe { paging::unmap_page(guard) };
    assert_eq!(found(), Ok(()));
}

/// What somebody writes who goes up, from the first frame on; of a G and of an M. In a
/// build without canaries nothing is to be found.
fn a_write_over_the_top_of_a_stack_is_found() {
    assert_eq!(found(), Ok(()));
    let (id, place) = sleeper();
    let stack = slot::locate(place as u64).expect("a stack").0;
    written_over(stack, &format!("G {id}"));
    if let Some(m) = blocking::ms().first() {
        let stack = slot::locate(m.stack.start).expect("a stack").0;
        written_over(stack, &format!("M {}", m.id));
    }
    assert_eq!(found(), Ok(()));
}

/// One byte above the first frame of a stack is changed, of each word in turn.
fn written_over(stack: Slot, owner: &str) {
    let end = if cfg!(debug_assertions) { stack.end() } else { stack.start() };
    for at in (stack.start()..end).step_by(size_of::<u64>()) {
        let byte = at as *mut u8;
        // SAFETY: in the top page, which is there, and nobody's: no frame, no record.
        unsafe { *byte ^= 1 };
        assert_eq!(found(), Err(format!("the top of the stack of {owner} was written over")));
        // SAFETY: as above.
        unsafe { *byte ^= 1 };
    }
}

fn a_stack_that_was_written_over_is_found() {
    assert_eq!(found(), Ok(()));
    let (id, place) = sleeper();
    // What it goes on with is a little below what it has.
    let page = place & !(PAGE_SIZE - 1);
    // SAFETY: none; that is the point. It is all of one stack, whose G never goes on.
    unsafe { (page as *mut u8).write_bytes(0x5a, place - page) };
    assert_eq!(found(), Err(format!("what G {id} goes on with was written over")));
}
