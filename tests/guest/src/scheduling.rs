//! Checks who runs, where and when: preemption, pins, gomaxprocs, sleep.
//!
//! Host time says nothing here (`hazards`: a tick may come 300 ms late), so every
//! check waits for counts, and a promise that is broken for good is a hang.

use crate::check::{self, checks, counters, go_on, join_all, wait_until};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use runnext::inspect;
use runnext::prelude::*;
use runnext::sync::Mutex;
use runnext::time::sleep_until;

runnext::main!(scheduling, main);

fn main() {
    check::run(checks![
        an_idle_cpu_takes_no_ticks,
        a_g_alone_on_its_cpu_takes_no_ticks,
        a_hog_without_calls_is_preempted,
        all_hogs_of_a_cpu_get_on,
        an_idle_cpu_steals_from_a_busy_one,
        pinned_gs_run_only_on_their_cpu,
        a_pin_to_a_cpu_that_is_not_there_is_an_error,
        gomaxprocs_goes_down_and_up_and_nobody_is_lost,
        a_hog_that_nobody_waits_for_leaves_a_cpu_beyond_gomaxprocs,
        a_pinned_g_runs_beyond_gomaxprocs,
        a_ping_pong_pair_shares_a_slice_and_starves_nobody,
        sleep_is_never_over_early,
        sleepers_of_a_cpu_wake_in_the_order_of_their_deadlines,
        ten_thousand_sleepers_wake,
        a_sleeper_wakes_although_every_cpu_has_a_hog,
    ]);
}

/// Longer than any timer that an earlier check has left armed.
const SETTLE: Duration = Duration::from_millis(40);
/// Ten slices: ticks that nobody needs would show.
const LONG: Duration = Duration::from_millis(100);

fn ticks() -> Vec<u64> {
    stats().cpus.iter().map(|cpu| cpu.ticks).collect()
}

/// Computes for so long, without letting anybody else run.
fn spin_for(d: Duration) {
    let start = Instant::now();
    while start.elapsed() < d {
        check::spin();
    }
}

fn an_idle_cpu_takes_no_ticks() {
    if check::chaos_on() {
        return;
    }
    let (before, after) = go_on(0, || {
        sleep(SETTLE);
        let before = ticks();
        sleep(LONG);
        (before, ticks())
    })
    .join()
    .expect("no panic");
    // The sleeper's own CPU takes the tick that ends its sleep; two, if the first
    // came a moment early.
    assert!(after[0] - before[0] <= 2, "{before:?}, then {after:?}");
    assert_eq!(before[1..], after[1..], "CPUs without any G took ticks");
}

fn a_g_alone_on_its_cpu_takes_no_ticks() {
    if check::chaos_on() {
        return;
    }
    for cpu in [0, num_cpus() - 1] {
        let (before, after) = go_on(cpu, move || {
            spin_for(SETTLE);
            let counted = move || (stats().cpus[cpu].ticks, stats().cpus[cpu].preemptions);
            let before = counted();
            spin_for(LONG);
            (before, counted())
        })
        .join()
        .expect("no panic");
        assert_eq!(before, after, "(ticks, preemptions) of CPU {cpu}");
    }
}

/// Without calls and without a `pause`: nothing but the timer ends its slice.
fn hog(progress: &AtomicU64, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        progress.store(progress.load(Relaxed) + 1, Relaxed);
    }
}

/// A hog holds each CPU; then a G that can run on that CPU alone runs, and
/// ends.
fn a_hog_without_calls_is_preempted() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let progress = counters::<AtomicU64>(num_cpus());
    let before: Vec<_> = stats().cpus.iter().map(|cpu| cpu.preemptions).collect();
    let hogs: Vec<_> =
        (0..num_cpus()).map(|cpu| go_on(cpu, move || hog(&progress[cpu], &STOP))).collect();
    wait_until(|| progress.iter().all(|count| count.load(Relaxed) > 0));
    for _ in 0..2 {
        join_all((0..num_cpus()).map(|cpu| go_on(cpu, || ())));
    }
    for (cpu, before) in before.into_iter().enumerate() {
        let preemptions = stats().cpus[cpu].preemptions - before;
        assert!(preemptions > 0, "CPU {cpu} ran others without a preemption");
    }
    STOP.store(true, Relaxed);
    join_all(hogs);
}

fn all_hogs_of_a_cpu_get_on() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let cpu = num_cpus() - 1;
    let progress = counters::<AtomicU64>(3);
    let hogs: Vec<_> = progress.iter().map(|count| go_on(cpu, move || hog(count, &STOP))).collect();
    for _ in 0..3 {
        let seen: Vec<_> = progress.iter().map(|count| count.load(Relaxed)).collect();
        wait_until(|| progress.iter().zip(&seen).all(|(now, &then)| now.load(Relaxed) > then));
    }
    STOP.store(true, Relaxed);
    join_all(hogs);
}

/// They are made in the queue of one P, which their maker keeps busy.
fn an_idle_cpu_steals_from_a_busy_one() {
    static STOLEN: AtomicUsize = AtomicUsize::new(0);
    if num_cpus() == 1 {
        return;
    }
    let steals = || stats().cpus.iter().map(|cpu| cpu.steals).sum::<u64>();
    let before = steals();
    let maker = go_on(0, || {
        while STOLEN.load(Relaxed) < 10 {
            drop(go(|| STOLEN.fetch_add(usize::from(current_cpu() != 0), Relaxed)));
            spin_for(Duration::from_millis(1));
        }
    });
    join_all([maker]);
    assert!(steals() > before, "none of them was counted");
}

fn pinned_gs_run_only_on_their_cpu() {
    let (tx, rx) = chan::bounded(4);
    let gs: Vec<_> = (0..4 * num_cpus())
        .map(|i| {
            let (cpu, tx) = (i % num_cpus(), tx.clone());
            go_on(cpu, move || {
                for round in 0..60 {
                    match round % 3 {
                        0 => yield_now(),
                        1 => tx.send(()).expect("somebody receives"),
                        _ => sleep(Duration::from_micros(50)),
                    }
                    assert_eq!(current_cpu(), cpu, "in round {round}");
                }
            })
        })
        .collect();
    drop(tx);
    assert_eq!(rx.iter().count(), 20 * gs.len());
    join_all(gs);
}

fn a_pin_to_a_cpu_that_is_not_there_is_an_error() {
    for cpu in [num_cpus(), usize::MAX] {
        let spawned = Go::new().pin(cpu).spawn(|| ());
        assert!(matches!(spawned, Err(SpawnError::NoSuchCpu)), "CPU {cpu}");
    }
}

/// Restores gomaxprocs, also after a panic.
struct Restore(usize);

impl Restore {
    fn after_setting(n: usize) -> Self {
        Restore(set_gomaxprocs(n))
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        set_gomaxprocs(self.0);
    }
}

/// Gs that yield and Gs that never do; each says where it is and that it gets on.
fn gomaxprocs_goes_down_and_up_and_nobody_is_lost() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let cpus = num_cpus();
    let _restore = Restore(cpus);
    let rounds = counters::<AtomicU64>(2 * cpus + 2);
    let ran_on = counters::<AtomicU64>(cpus);
    let worker = |count: &'static AtomicU64, yields: bool| {
        go(move || {
            while !STOP.load(Relaxed) {
                ran_on[current_cpu()].fetch_add(1, Relaxed);
                count.fetch_add(1, Relaxed);
                if yields {
                    yield_now();
                }
            }
        })
    };
    let workers: Vec<_> =
        rounds.iter().enumerate().map(|(i, count)| worker(count, i >= 2)).collect();
    let all_get_on = |by: u64| {
        let seen: Vec<_> = rounds.iter().map(|count| count.load(Relaxed)).collect();
        wait_until(|| rounds.iter().zip(&seen).all(|(now, then)| now.load(Relaxed) >= then + by));
    };
    for n in [cpus, 1, cpus, cpus.div_ceil(2), 1, cpus] {
        set_gomaxprocs(n);
        assert_eq!(gomaxprocs(), n);
        // A CPU that is on its way to a G when the limit falls may run it until
        // the interrupt arrives: so not at once, but soon and for good.
        let mut beyond = u64::MAX;
        for _ in 0..20 {
            all_get_on(2);
            ran_on.iter().for_each(|count| count.store(0, Relaxed));
            all_get_on(20);
            beyond = ran_on[n..].iter().map(|count| count.load(Relaxed)).sum();
            if beyond == 0 {
                break;
            }
        }
        assert_eq!(beyond, 0, "rounds on CPUs from {n} on");
        // Asleep meanwhile: a CPU whose only G is this one, which yields, is not idle and
        // steals nothing.
        while ran_on[..n].iter().any(|count| count.load(Relaxed) == 0) {
            sleep(Duration::from_millis(1));
        }
    }
    STOP.store(true, Relaxed);
    join_all(workers);
}

/// A hog for each CPU but the first: no slice ends, for there is nobody to run
/// instead. Who looks is on the first, and disturbs no other.
fn a_hog_that_nobody_waits_for_leaves_a_cpu_beyond_gomaxprocs() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let ran_on = counters::<AtomicU64>(num_cpus());
    let rounds = counters::<AtomicU64>(num_cpus() - 1);
    let start = |rounds: &'static AtomicU64| {
        go(move || {
            while !STOP.load(Relaxed) {
                ran_on[current_cpu()].fetch_add(1, Relaxed);
                rounds.fetch_add(1, Relaxed);
            }
        })
    };
    let hogs: Vec<_> = rounds.iter().map(start).collect();
    let watcher = go_on(0, move || {
        let ran = || ran_on.iter().map(|count| count.swap(0, Relaxed) > 0).collect::<Vec<_>>();
        let each_has_its_own = || !ran().iter().enumerate().any(|(cpu, &ran)| ran == (cpu == 0));
        // Two rounds: the host may have stopped a CPU in the middle of one.
        let all_get_on = || rounds.iter().all(|count| count.load(Relaxed) >= 2);
        sleep_until_true(each_has_its_own);
        sleep(SETTLE);
        let _restore = Restore::after_setting(1);
        sleep_until_true(|| {
            rounds.iter().for_each(|count| count.store(0, Relaxed));
            ran();
            sleep_until_true(all_get_on);
            !ran()[1..].contains(&true)
        });
    });
    join_all([watcher]);
    STOP.store(true, Relaxed);
    join_all(hogs);
}

/// As `wait_until`, but is hardly ever there.
fn sleep_until_true(condition: impl Fn() -> bool) {
    while !condition() {
        sleep(Duration::from_millis(5));
    }
}

fn a_pinned_g_runs_beyond_gomaxprocs() {
    let _restore = Restore::after_setting(1);
    let cpu = num_cpus() - 1;
    assert_eq!(go_on(cpu, current_cpu).join(), Ok(cpu));
}

/// On one P, two Gs that always ready each other would run for ever if each
/// turn began a slice of its own.
fn a_ping_pong_pair_shares_a_slice_and_starves_nobody() {
    if check::chaos_on() {
        return;
    }
    static ROUNDS: AtomicU64 = AtomicU64::new(0);
    static STOP: AtomicBool = AtomicBool::new(false);
    let _restore = Restore::after_setting(1);
    let (ping, ping_rx) = chan::rendezvous();
    let (pong, pong_rx) = chan::rendezvous();
    let first = go(move || {
        // Ends in any case, so that a broken promise is a failure and no hang.
        while !STOP.load(Relaxed) && ROUNDS.fetch_add(1, Relaxed) < 1_000_000 {
            ping.send(()).expect("the other one listens");
            pong_rx.recv().expect("the other one answers");
        }
        inspect::slices()
    });
    let second = go(move || {
        while ping_rx.recv().is_ok() {
            pong.send(()).expect("the other one listens");
        }
        inspect::slices()
    });
    wait_until(|| ROUNDS.load(Relaxed) > 100);
    go(|| ()).join().expect("no panic");
    assert!(ROUNDS.load(Relaxed) < 1_000_000, "the third G ran after the pair had ended");
    let until = ROUNDS.load(Relaxed) + 10_000;
    wait_until(|| ROUNDS.load(Relaxed) >= until);
    STOP.store(true, Relaxed);
    let slices: u64 = join_all([first, second]).iter().sum();
    let rounds = ROUNDS.load(Relaxed);
    // Each of our own looks lets them begin one, and so does every tick.
    assert!(slices < rounds / 4, "{slices} slices for {rounds} rounds");
}

fn sleep_is_never_over_early() {
    // Long and alone: no delay of the host's hides that it is too short.
    for ms in [10, 20, 30] {
        let (start, d) = (Instant::now(), Duration::from_millis(ms));
        sleep(d);
        assert!(start.elapsed() >= d, "{:?} instead of {d:?}", start.elapsed());
    }
    join_all((0..8 * num_cpus()).map(|i| {
        go(move || {
            for round in 0..10 {
                let d = Duration::from_micros((i as u64 * 37 + round * 211) % 3000);
                let start = Instant::now();
                sleep(d);
                assert!(start.elapsed() >= d, "{:?} instead of {d:?}", start.elapsed());
            }
        })
    }));
}

fn sleepers_of_a_cpu_wake_in_the_order_of_their_deadlines() {
    if check::chaos_on() {
        return;
    }
    let cpu = num_cpus() - 1;
    let mut lead = Duration::from_millis(20);
    while !wake_in_order(cpu, lead) {
        lead *= 2; // some came too late to sleep at all, or were held up
    }
}

/// False if it was not put to the test.
fn wake_in_order(cpu: usize, lead: Duration) -> bool {
    const SLEEPERS: usize = 32;
    static WOKEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    WOKEN.lock().expect("no panic").clear();
    let preemptions = || stats().cpus[cpu].preemptions;
    let before = preemptions();
    let base = Instant::now() + lead;
    let sleepers: Vec<_> = (0..SLEEPERS)
        .map(|i| {
            // 13 and 32 are coprime: every place once, and not in order.
            let place = i * 13 % SLEEPERS;
            go_on(cpu, move || {
                let at = base + Duration::from_micros(100) * place as u32;
                let in_time = Instant::now() < base;
                sleep_until(at);
                assert!(Instant::now() >= at, "woken early");
                WOKEN.lock().expect("no panic").push(place);
                in_time
            })
        })
        .collect();
    // Who is preempted between its wake-up and its entry is overtaken.
    if !join_all(sleepers).into_iter().all(|in_time| in_time) || preemptions() > before {
        return false;
    }
    assert_eq!(*WOKEN.lock().expect("no panic"), (0..SLEEPERS).collect::<Vec<_>>());
    true
}

fn ten_thousand_sleepers_wake() {
    const SLEEPERS: usize = 10_000;
    static WOKEN: AtomicUsize = AtomicUsize::new(0);
    let sleepers: Vec<_> = (0..SLEEPERS)
        .map(|i| {
            go(move || {
                let at = Instant::now() + Duration::from_micros((i * 7919 % 50_000) as u64);
                sleep_until(at);
                assert!(Instant::now() >= at, "woken early");
                WOKEN.fetch_add(1, Relaxed);
            })
        })
        .collect();
    join_all(sleepers);
    assert_eq!(WOKEN.load(Relaxed), SLEEPERS);
}

fn a_sleeper_wakes_although_every_cpu_has_a_hog() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let progress = counters::<AtomicU64>(2 * num_cpus());
    let hogs: Vec<_> = progress.iter().map(|count| go(move || hog(count, &STOP))).collect();
    wait_until(|| progress.iter().all(|count| count.load(Relaxed) > 0));
    join_all(
        (0..num_cpus())
            .map(|cpu| go_on(cpu, || (0..3).for_each(|_| sleep(Duration::from_millis(1))))),
    );
    STOP.store(true, Relaxed);
    join_all(hogs);
}
