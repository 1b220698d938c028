//! Nothing commits a page of its stack with interrupts off: `program=probes`.
//!
//! Whoever turns interrupts off probes its stack first (`arch::probe_stack`), as
//! far as what it does may reach. Here everything that a program can ask for is
//! done at every distance from the end of a page, with the next page not there
//! yet; what reaches further than it has probed is then a commit that came late,
//! and those are counted.

use crate::check::{self, checks};
use core::arch::naked_asm;
use core::hint::black_box;
use runnext::inspect;
use runnext::internals::mem::PAGE_SIZE;
use runnext::prelude::*;
use runnext::sync::{Mutex, WaitGroup};

runnext::main!(probes, main);

fn main() {
    check::run(checks![nothing_reaches_further_than_it_has_probed]);
}

/// Something that a program may ask for.
type Act = (&'static str, fn());

/// Distances from the end of a page at which each is done.
const STEP: usize = 64;

const ACTS: &[Act] = &[
    ("alloc", || drop(black_box(Box::new([0u64; 5])))),
    ("refill", || (0..40).for_each(|_| _ = Box::leak(black_box(Box::new([1u8; 1500]))))),
    ("grow", || _ = black_box(vec![0u8; 400_000]).leak()),
    ("spawn", || _ = go(|| ()).join()),
    ("spawn many", || (0..20).for_each(|_| drop(go(park)))),
    ("spawn large", || _ = Go::new().stack_size(300_000).spawn(park)),
    ("rendezvous", rendezvous),
    ("select", select),
    ("mutex", mutex),
    ("group", group),
    ("yield", yield_now),
    ("sleep", || sleep(Duration::from_micros(1))),
    ("unpark", || current().unpark()),
    ("hog", hog),
    ("call", || blocking(|| ())),
    ("call that waits", || blocking(|| sleep(Duration::from_micros(1)))),
    ("print", || print!("{}{}\r", black_box(""), black_box(' '))),
    ("stats", || drop(black_box(stats()))),
    ("memory", || _ = black_box(inspect::memory())),
    ("gomaxprocs", || _ = set_gomaxprocs(gomaxprocs())),
];

fn nothing_reaches_further_than_it_has_probed() {
    let distances = PAGE_SIZE / STEP;
    let pages = 2 * distances * ACTS.len() + 8;
    let late = || inspect::memory().stacks.late_commits;
    assert_eq!(late(), 0, "late commits before the first act");
    let try_all = move || {
        let here = black_box(0u8);
        let mut page = (&raw const here).addr() / PAGE_SIZE * PAGE_SIZE;
        for (name, act) in ACTS {
            for distance in (1..=distances).map(|n| n * STEP) {
                // One page for it, and one below that nobody has touched.
                page -= 2 * PAGE_SIZE;
                // SAFETY: an act, on this G's own stack, below all that is in use.
                unsafe { call_at(page + distance, *act as *const () as usize) };
                assert_eq!(late(), 0, "{name}, {distance} bytes above the end of a page");
            }
        }
    };
    let g = Go::new().stack_size(pages * PAGE_SIZE).spawn(try_all).expect("memory");
    if let Err(error) = g.join() {
        panic!("{error}");
    }
}

/// Calls `act` with the stack pointer at `sp`.
///
/// # Safety
/// `act` is the address of a `fn()` that does not unwind; `sp` is aligned to 16
/// and on the stack of the caller, with nothing below it that is in use.
#[unsafe(naked)]
unsafe extern "C" fn call_at(sp: usize, act: usize) {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret"
    )
}

fn rendezvous() {
    let (tx, rx) = chan::rendezvous();
    let (back, answers) = chan::bounded(1);
    drop(go(move || rx.iter().for_each(|n: u32| back.send(n + 1).expect("open"))));
    tx.send(1).expect("open");
    assert_eq!(answers.recv(), Ok(2));
}

fn select() {
    let (tx, rx) = chan::rendezvous::<u32>();
    let (_open, never) = chan::rendezvous::<u32>();
    drop(go(move || tx.send(1)));
    let got = select! {
        recv(rx) -> n => n,
        recv(never) -> n => n,
        after(Duration::from_secs(3600)) => Ok(0),
    };
    assert_eq!(got, Ok(1));
}

fn mutex() {
    static LOCK: Mutex<u32> = Mutex::new(0);
    let held = LOCK.lock().expect("no panic");
    let other = go(|| *LOCK.lock().expect("no panic") += 1);
    yield_now();
    drop(held);
    assert_eq!(other.join(), Ok(()));
}

fn group() {
    static GROUP: WaitGroup = WaitGroup::new();
    GROUP.add(2);
    drop(go(|| GROUP.done()));
    drop(go(|| GROUP.done()));
    GROUP.wait();
}

/// Until it was preempted, if anybody else is there.
fn hog() {
    let other = go(|| ());
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2) {
        check::spin();
    }
    assert_eq!(other.join(), Ok(()));
}
