//! CPUs, ticks, and the race between a timer and a wake-up.

use super::heap::tests::{Random, fired, sleepers};
use super::*;
use std::boxed::Box;
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::vec::Vec;

fn timers() -> &'static Timers {
    static ALL: Mutex<Vec<&Timers>> = Mutex::new(Vec::new()); // as in `sleepers`
    let timers = Box::leak(Box::new(Timers::new()));
    ALL.lock().unwrap().push(timers);
    timers
}

fn tick(timers: &Timers, cpu: usize, now_ns: u64) -> Vec<usize> {
    timers.on_tick(cpu, now_ns, |_| ());
    fired().into_iter().map(|(number, _)| number).collect()
}

#[test]
fn timer_fires_on_the_cpu_that_armed_it() {
    let (timers, all) = (timers(), sleepers(2));
    assert!(timers.arm(3, &all[0], 100));
    assert!(timers.arm(255, &all[1], 200));
    assert_eq!(tick(timers, 0, 1_000), []);
    assert_eq!(tick(timers, 255, 199), []);
    assert_eq!(tick(timers, 255, 200), [1]);
    assert_eq!(tick(timers, 3, 200), [0]);
}

#[test]
fn hardware_is_to_be_set_only_for_a_new_first_deadline() {
    let (timers, all) = (timers(), sleepers(4));
    let here = 1;
    assert!(timers.arm(here, &all[0], 100));
    assert!(!timers.arm(here, &all[1], 100));
    assert!(!timers.arm(here, &all[2], 101));
    assert!(timers.arm(here, &all[3], 99));
    assert_eq!(timers.first_ns(1), 99);
    assert_eq!(timers.waiting(1), 4);
}

#[test]
fn first_deadline_follows_every_change() {
    let (timers, all) = (timers(), sleepers(3));
    let here = 7;
    assert_eq!(timers.first_ns(7), NEVER);
    for (s, deadline) in all.iter().zip([30, 10, 20]) {
        let _ = timers.arm(here, s, deadline);
    }
    assert_eq!(timers.first_ns(7), 10);
    assert!(timers.cancel(&all[1]));
    assert_eq!(timers.first_ns(7), 20);
    assert_eq!(tick(timers, 7, 25), [2]);
    assert_eq!(timers.first_ns(7), 30);
    assert_eq!(tick(timers, 7, 30), [0]);
    assert_eq!(timers.first_ns(7), NEVER);
}

#[test]
fn cancel_finds_the_timer_from_wherever_the_g_woke_up() {
    let (timers, all) = (timers(), sleepers(1));
    let _ = timers.arm(5, &all[0], 100);
    assert!(timers.cancel(&all[0]));
    assert_eq!(tick(timers, 5, 1_000), []);
    // The same after it has moved.
    let _ = timers.arm(6, &all[0], 100);
    assert_eq!(tick(timers, 5, 1_000), []);
    assert_eq!(tick(timers, 6, 1_000), [0]);
    assert!(!timers.cancel(&all[0]));
}

#[test]
fn deadline_in_the_past_fires_at_the_next_tick() {
    let (timers, all) = (timers(), sleepers(2));
    for s in all {
        let _ = timers.arm(0, s, 0);
    }
    assert_eq!(timers.first_ns(0), 0); // long past, and not "never"
    assert_eq!(tick(timers, 0, 1), [0, 1]);
}

#[test]
fn timer_for_ever_sets_no_hardware_and_can_be_cancelled() {
    let (timers, all) = (timers(), sleepers(1));
    assert!(!timers.arm(0, &all[0], NEVER));
    assert_eq!(timers.first_ns(0), NEVER);
    assert_eq!(tick(timers, 0, NEVER - 1), []);
    assert!(timers.cancel(&all[0]));
}

#[test]
fn one_tick_readies_so_many_and_leaves_the_rest_overdue() {
    let (timers, all) = (timers(), sleepers(FIRES_PER_TICK + 3));
    for s in all {
        let _ = timers.arm(0, s, 50);
    }
    let first: Vec<_> = (0..FIRES_PER_TICK).collect();
    assert_eq!(tick(timers, 0, 60), first);
    assert_eq!(timers.first_ns(0), 50); // fires again at once
    assert_eq!(tick(timers, 0, 60), [FIRES_PER_TICK, FIRES_PER_TICK + 1, FIRES_PER_TICK + 2]);
}

/// A G in a wait, and the number of waits that its deadline has ended.
struct Racer {
    node: Node,
    is_in_wait: AtomicBool,
    fired: AtomicUsize,
}

impl Timed for Racer {
    fn timer(&'static self) -> &'static Node {
        &self.node
    }

    fn due(&'static self, _: u64) -> Option<GHandle> {
        std::thread::yield_now(); // a slow handler: `cancel` must wait for it
        assert!(self.is_in_wait.load(SeqCst), "a wait that is over was readied");
        self.fired.fetch_add(1, SeqCst);
        None
    }
}

#[test]
fn wait_ends_for_exactly_one_reason_and_no_timer_comes_after_it() {
    static G: Racer =
        Racer { node: Node::new(), is_in_wait: AtomicBool::new(false), fired: AtomicUsize::new(0) };
    static DONE: AtomicBool = AtomicBool::new(false);
    let timers = timers();
    let rounds = if cfg!(miri) { 10 } else { 20_000 };
    // CPU 0 ticks over and over, while other threads ready the G at once.
    let ticks = std::thread::spawn(move || {
        while !DONE.load(SeqCst) {
            timers.on_tick(0, 10, |_| ());
            std::thread::yield_now();
        }
    });
    let mut random = Random(4);
    let mut cancelled = 0;
    for round in 1..=rounds {
        G.is_in_wait.store(true, SeqCst);
        let _ = timers.arm(0, &G, 10);
        for _ in 0..random.below(if cfg!(miri) { 8 } else { 200 }) {
            std::hint::spin_loop();
        }
        cancelled += usize::from(timers.cancel(&G));
        G.is_in_wait.store(false, SeqCst);
        assert_eq!(cancelled + G.fired.load(SeqCst), round);
    }
    DONE.store(true, SeqCst);
    ticks.join().unwrap();
}

#[test]
fn sleepers_of_many_cpus_all_wake_once_and_on_time() {
    const CPUS: usize = 4;
    let each = if cfg!(miri) { 20 } else { 25_000 };
    let (timers, all) = (timers(), sleepers(CPUS * each));
    let cpu = |index: usize| {
        move || {
            let mine = &all[index * each..][..each];
            let mut random = Random(index as u64 + 1);
            let deadlines: Vec<_> = mine.iter().map(|_| 1 + random.below(1_000_000)).collect();
            for (s, &deadline) in mine.iter().zip(&deadlines) {
                let _ = timers.arm(index, s, deadline);
            }
            let mut count = 0;
            let mut last = 0;
            while timers.first_ns(index) != NEVER {
                let now = timers.first_ns(index);
                timers.on_tick(index, now, |_| ());
                let fired = fired();
                assert!(!fired.is_empty(), "one that is due stays");
                for (number, at) in &fired {
                    assert_eq!(deadlines[number - index * each], *at);
                    assert!(*at >= last);
                }
                count += fired.len();
                last = now;
            }
            assert_eq!(count, each);
        }
    };
    let cpus: Vec<_> = (0..CPUS).map(|index| std::thread::spawn(cpu(index))).collect();
    for cpu in cpus {
        cpu.join().unwrap();
    }
}
