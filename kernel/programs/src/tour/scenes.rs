//! The scenes. Each proves one promise of the model on this machine.
//!
//! Assertions that depend on the number of Ps use the actual number: one P has no victim to
//! steal from. Those that depend on the scheduling system ask what it promises, and assert the
//! opposite of what it does not.

use super::Scene;
use super::inversion::inversion;
use super::stage::{Hogs, Stage, comes, counters, counts, go_on, join_all, total};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use runnext::inspect;
use runnext::prelude::*;
use runnext::program::{self, Ended};
use runnext::simulated::{Config, Device, Latency, Request};
use runnext::sync::{Mutex, Semaphore};
use runnext::system;
use runnext::tasks::{self, GState};
use runnext::time::sleep_until;
use runnext::waiting::Reason;

/// All scenes, in the order in which they are played.
#[rustfmt::skip]
pub static ALL: &[Scene] = &[
    Scene { title: "System", look: "its four answers, and a count that only its promises explain", play: answers },
    Scene { title: "Gs are cheap", look: "ten thousand at once, each with a stack of its own", play: cheap },
    Scene { title: "Stealing", look: "200 Gs start on P0, which stays busy; see where they ran", play: stealing },
    Scene { title: "Near and far", look: "which CPUs share a core, a cache, a node; how far Gs went so far", play: near_and_far },
    Scene { title: "Preemption", look: "hogs that never call anything share the CPUs with those that do", play: preemption },
    Scene { title: "Run next", look: "two Gs that ready each other go on in one slice", play: run_next },
    Scene { title: "Blocking calls", look: "100 calls wait, each with its M; the Ps go on without them", play: blocking_calls },
    Scene { title: "Poller", look: "a device's interrupts wake Gs although every CPU is busy", play: poller },
    Scene { title: "Timers", look: "sleepers wake in the order of their deadlines, none too early", play: timers },
    Scene { title: "Channels", look: "a pipeline: every value arrives once, in order", play: channels },
    Scene { title: "Select", look: "two channels that are always ready: both get their share", play: select_is_fair },
    Scene { title: "Mutex", look: "Gs on all Ps want one lock, and yield while they have it", play: mutex },
    Scene { title: "Priorities", look: "an urgent G wants what a background G has, while normal Gs run", play: inversion },
    Scene { title: "Panic", look: "a G panics, and the kernel says where: destructors run, the join knows", play: panic_is_caught },
    Scene { title: "GOMAXPROCS", look: "the number of Ps changes while Gs run", play: gomaxprocs_changes },
    Scene { title: "Deadlock", look: "two Gs of a program take two locks in two orders; the kernel notices", play: deadlock },
    Scene { title: "Accounting", look: "what was counted adds up", play: accounting },
];

fn answers(stage: &mut Stage) {
    const YIELDS: u64 = 1_000;
    let about = system::running();
    let questions =
        ["A ready G waits", "A processor looks", "The M under a G:", "A call that blocks"];
    stage.show(format_args!("system={}", about.name));
    for (question, answer) in questions.into_iter().zip(about.answers) {
        stage.show(format_args!("{question} {answer}."));
    }
    stage.show(format_args!("Its drawback: {}.", about.drawback));
    // On one P, so that the two have only each other.
    let ps = set_gomaxprocs(1);
    let before = total(|cpu| cpu.locked);
    let yields = || go(|| (0..YIELDS).for_each(|_| yield_now()));
    let ended = join_all([yields(), yields()]).len();
    let locks = total(|cpu| cpu.locked) - before;
    set_gomaxprocs(ps);
    stage.check(ended == 2, "two Gs yield to each other a thousand times");
    match about.promises.no_shared_lock {
        true => stage.check(locks == 0, "no switch takes a lock that all CPUs share"),
        false => {
            let text = format_args!("each switch takes the shared lock twice: {locks} times");
            stage.check(locks >= 4 * YIELDS, text);
        }
    }
}

fn cheap(stage: &mut Stage) {
    /// In a small machine fewer, so that the other scenes have memory, too. A G that waits
    /// has a page of stack, and shares others for its record and page tables.
    const GS: usize = 10_000;
    const FRAMES_OF_A_G: usize = 3;
    let most = GS.min(inspect::memory().frames.free / FRAMES_OF_A_G);
    let gate = Arc::new(Semaphore::new(0));
    let before = stats();
    let waits = |i: usize| {
        let gate = gate.clone();
        let wait = move || {
            gate.acquire(1);
            i
        };
        Go::new().spawn(wait)
    };
    let mut gs = Vec::new();
    let mut refused = None;
    for i in 0..most {
        match waits(i) {
            Ok(g) => gs.push(g),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    let (alive, stacks, n) = (num_goroutines(), inspect::memory().stacks.made, gs.len());
    gate.release(n);
    let sum: usize = join_all(gs).into_iter().sum();
    if most < GS {
        stage.show(format_args!("memory for {most} Gs, and not for {GS}"));
    }
    stage.show(format_args!("{alive} Gs at once on {stacks} stacks, made when first needed"));
    if system::running().promises.many_gs || refused.is_none() {
        stage.check(n == most && alive > n, "all of them were there at the same time");
    } else {
        stage.show(format_args!(
            "after {n} of {most}: {}",
            refused.map(|e| e.to_string()).unwrap_or_default()
        ));
        stage.check(alive > n, "no more than there are Ms, or memory for: the next was refused");
    }
    stage.check(sum == n * (n - 1) / 2, format_args!("each gave its number; the sum is {sum}"));
    stage.check(stats().created - before.created >= n as u64, "and each was counted");
}

/// Fewer than a ring holds: Gs that do not fit go to the global queue, and taking them from there
/// is no steal.
const STEALABLE: u64 = 200;

fn stealing(stage: &mut Stage) {
    let elsewhere = |ran_on: &[u64]| ran_on[1..].iter().sum::<u64>();
    let mut tries = (0..10).map(|_| start_on_a_busy_p());
    // A host that gives the other CPUs no time for many slices gets another try.
    let enough = |ran_on: &[u64]| gomaxprocs() == 1 || elsewhere(ran_on) > STEALABLE / 2;
    let mut run = tries.next().unwrap_or_default();
    while let Some(next) = (!enough(&run.1)).then(|| tries.next()).flatten() {
        run = next;
    }
    let (ended, ran_on, steals) = run;
    let away = elsewhere(&ran_on);
    stage.show(format_args!("started on CPU 0; ran elsewhere: {away} of {STEALABLE}"));
    stage.show(format_args!("on CPU 0, 1, …: {ran_on:?} after {steals} steals"));
    let once = ended == STEALABLE && ran_on.iter().sum::<u64>() == STEALABLE;
    stage.check(once, "every G ran, and ran once");
    if gomaxprocs() > 1 {
        let thieves = ran_on[1..].iter().filter(|count| **count > 0).count();
        // From one queue that all share nothing is stolen.
        let is_shared = !system::running().promises.no_shared_lock;
        let took = away > STEALABLE / 2 && (steals > 0) != is_shared;
        stage.check(took, format_args!("other Ps took most of them: {thieves}"));
    } else {
        stage.check(ran_on[0] == STEALABLE, "there is one P, so nothing was stolen");
    }
}

/// Starts Gs in the queue of P0 and nowhere else; their parent stays there and computes. Returns
/// how many have ended, how many ran on each CPU, and how many steals there were.
fn start_on_a_busy_p() -> (u64, Vec<u64>, u64) {
    let ran_on = counters(num_cpus());
    let before = total(|cpu| cpu.steals);
    let counting = ran_on.clone();
    let maker = go_on(0, move || {
        let count = || {
            let ran_on = counting.clone();
            go(move || {
                ran_on[current_cpu()].fetch_add(1, Relaxed);
            })
        };
        let gs: Vec<_> = (0..STEALABLE).map(|_| count()).collect();
        if gomaxprocs() > 1 {
            let all_ran = || counts(&counting).iter().sum::<u64>() == STEALABLE;
            (0..50_000_000u64).take_while(|_| !all_ran()).for_each(|_| core::hint::spin_loop());
        }
        join_all(gs).len() as u64
    });
    let ended = maker.join().unwrap_or(0);
    (ended, counts(&ran_on), total(|cpu| cpu.steals) - before)
}

fn near_and_far(stage: &mut Stage) {
    use inspect::{Distance, distance};
    let sum = |i: usize| stats().cpus.iter().map(|cpu| cpu.steals_at[i]).sum::<u64>();
    // Before the sum of all: a steal is counted there first.
    let steals: [u64; 5] = core::array::from_fn(sum);
    let all = total(|cpu| cpu.steals);
    if distance(0, 0).is_none() {
        stage.show("this machine is flat: each CPU is as far from any other");
        return stage.check(steals == [0; 5], "so no steal is counted by its distance");
    }
    let from_0 =
        |far: Distance| (1..num_cpus()).filter(|&cpu| distance(0, cpu) == Some(far)).count();
    let named = Distance::ALL.map(|far| format!("{} {far}", from_0(far))).join(", ");
    stage.show(format_args!("from CPU 0 the others share: {named}"));
    let named = Distance::ALL.iter().zip(steals).map(|(far, n)| format!("{n} {far}"));
    let named = named.collect::<Vec<_>>().join(", ");
    stage.show(format_args!("{all} steals so far, by distance: {named}"));
    let others: usize = Distance::ALL.into_iter().map(from_0).sum();
    stage.check(others == num_cpus() - 1, "every CPU is at one distance from CPU 0");
    let back = (0..num_cpus()).all(|cpu| distance(0, cpu) == distance(cpu, 0));
    stage.check(back, "the way back is as far");
    stage.check(steals.iter().sum::<u64>() <= all, "no steal is counted over two distances");
}

fn preemption(stage: &mut Stage) {
    let before = total(|cpu| cpu.preemptions);
    let n = 2 * num_cpus();
    let wanted = 2 * n as u64;
    let hogs = Hogs::start(n);
    let preemptions = || total(|cpu| cpu.preemptions) - before;
    let came = comes(|| hogs.running() == n && preemptions() >= wanted);
    let ended = join_all((0..10).map(|i| go(move || i))).len();
    let (running, preemptions) = (hogs.running(), preemptions());
    drop(hogs);
    stage
        .show(format_args!("{n} hogs, {preemptions} times one had to leave; {ended} others ended"));
    stage.check(came && running == n, "every hog got on");
    stage.check(preemptions >= wanted, format_args!("at least {wanted} preemptions"));
    stage.check(ended == 10, "those that came later ran to their end meanwhile");
}

fn run_next(stage: &mut Stage) {
    const ROUNDS: u64 = 10_000;
    // On one P: on several, a thief may come between the two.
    let ps = set_gomaxprocs(1);
    let before = total(|cpu| cpu.switches);
    let (ping, ping_rx) = chan::rendezvous();
    let (pong, pong_rx) = chan::rendezvous();
    let first = go(move || {
        let rounds = (0..ROUNDS).take_while(|i| ping.send(*i).is_ok() && pong_rx.recv() == Ok(*i));
        (rounds.count() as u64, inspect::slices())
    });
    let second = go(move || {
        let rounds = ping_rx.iter().take_while(|i| pong.send(*i).is_ok());
        (rounds.count() as u64, inspect::slices())
    });
    let pair = join_all([first, second]);
    let switches = total(|cpu| cpu.switches) - before;
    set_gomaxprocs(ps);
    let rounds = pair.iter().map(|(rounds, _)| rounds).sum::<u64>();
    let slices = pair.iter().map(|(_, slices)| slices).sum::<u64>();
    stage.show(format_args!("{ROUNDS} rounds, {switches} switches, {slices} slices"));
    stage.check(rounds == 2 * ROUNDS, "every round was played");
    stage.check(switches >= 2 * ROUNDS, "each of them needs two switches");
    match system::running().promises.run_next {
        true => stage.check(
            slices < ROUNDS / 4,
            "few slices began: who is readied goes on in what is left of one",
        ),
        false => stage.check(
            slices >= ROUNDS,
            "each that is readied waits in the queue, and begins a slice of its own",
        ),
    }
}

fn blocking_calls(stage: &mut Stage) {
    const CALLS: u64 = 100;
    if !system::running().promises.calls_let_others_run {
        return one_call_stops_all(stage);
    }
    let gate = Arc::new(Semaphore::new(0));
    let call = |_| {
        let gate = gate.clone();
        go(move || blocking(|| gate.acquire(1)))
    };
    let calls: Vec<_> = (0..CALLS).map(call).collect();
    let all_wait = comes(|| stats().ms.blocked >= CALLS);
    let workers = 4 * num_cpus();
    let work = || (0..100_000u64).fold(0, |sum: u64, n| sum.wrapping_add(n * n));
    let computed = join_all((0..workers).map(|_| go(work))).len();
    let ms = stats().ms;
    gate.release(CALLS as usize);
    let ended = join_all(calls).len() as u64;
    stage.show(format_args!(
        "{} calls wait on {} Ms; {computed} Gs computed",
        ms.blocked, ms.created
    ));
    stage.check(all_wait && ms.blocked >= CALLS, "a hundred calls waited at the same time");
    stage.check(computed == workers, format_args!("all {workers} others ended meanwhile"));
    stage.check(ended == CALLS, "and then the calls did");
}

/// The scene of a system in which a call that waits keeps its CPU: a hundred of them would wait for
/// ever for a G that cannot run.
fn one_call_stops_all(stage: &mut Stage) {
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (stopped, counted) = (stop.clone(), count.clone());
    let other = go(move || {
        while !stopped.load(Relaxed) {
            counted.fetch_add(1, Relaxed);
            yield_now();
        }
    });
    let runs = comes(|| count.load(Relaxed) > 0);
    let during = blocking(|| {
        let before = count.load(Relaxed);
        sleep(Duration::from_millis(20));
        count.load(Relaxed) - before
    });
    stop.store(true, Relaxed);
    let ended = other.join().is_ok();
    stage.show(format_args!("a call slept for 20 ms; the other G ran {during} times meanwhile"));
    stage.check(runs && during == 0, "one call that waits stops every G");
    stage.check(ended, "and when it is over, they go on");
}

fn poller(stage: &mut Stage) {
    const REQUESTS: u64 = 64;
    let latency = Latency::Uniform { min_ns: 100_000, max_ns: 5_000_000 };
    let Ok(device) = Device::new(Config { seed: 7, latency, ..Config::default() }) else {
        return stage.check(false, "there is memory for a device");
    };
    let hogs = Hogs::start(num_cpus());
    // All are under way before the first is waited for, each by a G of its own.
    let requests: Vec<_> = (0..REQUESTS).filter_map(|word| device.submit(word).ok()).collect();
    let wait = |request: Request| go(move || request.wait(None).ok());
    let answers = join_all(requests.into_iter().map(wait).collect::<Vec<_>>());
    let busy = hogs.running();
    drop(hogs);
    let right =
        answers.iter().zip(0u64..).filter(|(answer, word)| **answer == Some(!*word)).count();
    let device = device.stats();
    stage.show(format_args!(
        "{} requests of a simulated device, {} answers, {} of them overtaken; {busy} hogs ran",
        device.submitted, device.answered, device.overtaken
    ));
    stage.check(device.answered == REQUESTS, "every request was answered, in an interrupt");
    stage.check(right as u64 == REQUESTS, "every answer woke the G that waited for it");
}

fn timers(stage: &mut Stage) {
    // A busy host may let the first deadline come before the last sleeps: then try later
    // ones.
    let lead = |tries: u32| Duration::from_millis(20 << tries);
    let Some(woken) = (0..10).find_map(|tries| wake_in_order(lead(tries))) else {
        return stage.check(false, "all were asleep before the first should wake");
    };
    let n = woken.len();
    let early = woken.iter().filter(|woke| woke.is_early).count();
    let passed_over: usize = woken.iter().map(|woke| woke.asleep_before_it).sum();
    stage.show(format_args!("{n} sleepers, 100 us apart, started in another order; {early} early"));
    stage.check(passed_over == 0 && n > 0, "none woke while one with an earlier deadline slept");
    stage.check(early == 0, "none woke too early");
}

/// What a sleeper sees when it wakes.
struct Woke {
    is_early: bool,
    /// Sleepers with earlier deadlines that are still asleep. Sleepers that are awake may run
    /// in any order: an interrupt that wakes the next sleeper lets it run at once.
    asleep_before_it: usize,
}

/// Starts sleepers with deadlines from `lead` on. `None` if they were not all asleep at one
/// moment: a sleeper that comes after its deadline does not sleep, and proves nothing.
fn wake_in_order(lead: Duration) -> Option<Vec<Woke>> {
    const SLEEPERS: usize = 32;
    let ids = counters(SLEEPERS);
    let base = Instant::now() + lead;
    let sleepers = (0..SLEEPERS).map(|i| {
        // 13 and 32 are coprime: every place once, and not in order.
        let (ids, place) = (ids.clone(), i * 13 % SLEEPERS);
        go_on(0, move || {
            ids[place].store(current().id(), Relaxed);
            let at = base + Duration::from_micros(100) * place as u32;
            sleep_until(at);
            let is_early = Instant::now() < at;
            Woke { is_early, asleep_before_it: asleep(&ids[..place]) }
        })
    });
    let sleepers: Vec<_> = sleepers.collect();
    let all_slept = loop {
        match asleep(&ids) {
            SLEEPERS => break true,
            _ if Instant::now() >= base => break false,
            _ => sleep(Duration::from_millis(1)),
        }
    };
    let woken = join_all(sleepers);
    (all_slept && woken.len() == SLEEPERS).then_some(woken)
}

/// How many of the Gs with these numbers sleep.
fn asleep(ids: &[AtomicU64]) -> usize {
    let ids = counts(ids);
    let sleeps = |g: &tasks::GInfo| {
        // In a call, where each G has an M for life.
        let waits = matches!(g.state, GState::Waiting | GState::InCall);
        waits && g.wait.is_some_and(|wait| wait.reason == Reason::Sleep)
    };
    tasks::gs().iter().filter(|g| sleeps(g) && ids.contains(&g.id)).count()
}

fn channels(stage: &mut Stage) {
    const VALUES: u64 = 5_000;
    const STAGES: usize = 8;
    let (first, mut rx) = chan::bounded(16);
    let mut gs = vec![go(move || (0..VALUES).all(|value| first.send(value).is_ok()))];
    for _ in 0..STAGES {
        let (tx, next) = chan::bounded(16);
        let from = core::mem::replace(&mut rx, next);
        gs.push(go(move || from.iter().all(|value| tx.send(value + 1).is_ok())));
    }
    let got: Vec<u64> = rx.iter().collect();
    let good = join_all(gs).into_iter().filter(|good| *good).count();
    stage.show(format_args!(
        "{} values through {STAGES} Gs and {} channels",
        got.len(),
        STAGES + 1
    ));
    stage.check(good == STAGES + 1, "nobody sent to a channel that was closed");
    let expected = (0..VALUES).map(|value| value + STAGES as u64);
    stage
        .check(got.into_iter().eq(expected), "each arrived once, in order, and one more each time");
}

fn select_is_fair(stage: &mut Stage) {
    const ROUNDS: u64 = 2_000;
    let (a_tx, a) = chan::bounded(1);
    let (b_tx, b) = chan::bounded(1);
    let (mut from_a, mut from_b) = (0, 0);
    for _ in 0..ROUNDS {
        // Both are always ready.
        let _ = (a_tx.try_send(()), b_tx.try_send(()));
        select! {
            recv(a) -> _ => from_a += 1,
            recv(b) -> _ => from_b += 1,
        }
    }
    stage.show(format_args!("{from_a} from the first, {from_b} from the second"));
    stage.check(from_a + from_b == ROUNDS, "each round took one");
    // A fair choice leaves this band once in 10^70 runs.
    stage.check(from_a.min(from_b) > ROUNDS / 3, "and neither was preferred");
}

fn mutex(stage: &mut Stage) {
    const ROUNDS: u64 = 500;
    let gs = 4 * num_cpus() as u64;
    let (count, inside) = (Arc::new(Mutex::new(0u64)), Arc::new(AtomicUsize::new(0)));
    let most = Arc::new(AtomicUsize::new(0));
    let worker = |_| {
        let (count, inside, most) = (count.clone(), inside.clone(), most.clone());
        go(move || {
            for round in 0..ROUNDS {
                let Ok(mut count) = count.lock() else { return };
                most.fetch_max(inside.fetch_add(1, Relaxed) + 1, Relaxed);
                let read = *count;
                if round % 16 == 0 {
                    yield_now(); // other Gs run, and find it locked
                }
                *count = read + 1;
                inside.fetch_sub(1, Relaxed);
            }
        })
    };
    join_all((0..gs).map(worker).collect::<Vec<_>>());
    let count = count.lock().map(|count| *count).unwrap_or(0);
    let most = most.load(Relaxed);
    stage.show(format_args!(
        "{gs} Gs, {ROUNDS} rounds each: counted {count}, at most {most} inside"
    ));
    stage.check(count == gs * ROUNDS, "no round was lost");
    stage.check(most == 1, "never were two inside");
}

fn panic_is_caught(stage: &mut Stage) {
    /// Records its name when it is dropped.
    struct Leaves(&'static str, Arc<Mutex<Vec<&'static str>>>);
    impl Drop for Leaves {
        fn drop(&mut self) {
            if let Ok(mut left) = self.1.lock() {
                left.push(self.0);
            }
        }
    }
    let left = Arc::new(Mutex::new(Vec::new()));
    let notes = left.clone();
    let panics = go(move || {
        let _first = Leaves("first", notes.clone());
        let _second = Leaves("second", notes);
        let empty: Vec<u32> = Vec::new();
        empty[current_cpu()]
    });
    let other = go(|| 7);
    let (result, other) = (panics.join(), other.join());
    let left = left.lock().map(|left| left.clone()).unwrap_or_default();
    let error = result.err();
    stage.show(format_args!("join says {error:?}; destructors ran for {left:?}"));
    stage.check(matches!(error, Some(JoinError::Panicked { .. })), "the join knows of the panic");
    stage.check(left == ["second", "first"], "destructors ran, the latest first");
    stage.check(other == Ok(7), "another G did not notice");
}

fn gomaxprocs_changes(stage: &mut Stage) {
    let before = gomaxprocs();
    let (stop, ran_on) = (Arc::new(AtomicBool::new(false)), counters(num_cpus()));
    let rounds = Arc::new(AtomicU64::new(0));
    let worker = |_| {
        let (stop, ran_on, rounds) = (stop.clone(), ran_on.clone(), rounds.clone());
        go(move || {
            while !stop.load(Relaxed) {
                ran_on[current_cpu()].fetch_add(1, Relaxed);
                rounds.fetch_add(1, Relaxed);
                yield_now();
            }
        })
    };
    let workers: Vec<_> = (0..2 * num_cpus()).map(worker).collect();
    // Runs so many more rounds; returns their CPUs.
    let watch = || {
        ran_on.iter().for_each(|count| count.store(0, Relaxed));
        let until = rounds.load(Relaxed) + 1_000;
        comes(|| rounds.load(Relaxed) >= until).then(|| counts(&ran_on))
    };
    set_gomaxprocs(1);
    // A CPU that is switching to a G when the limit falls may run it until the interrupt
    // arrives: so not at once, but soon and for good.
    let alone = |seen: &Vec<u64>| seen[1..].iter().all(|count| *count == 0);
    let with_one = (0..50).filter_map(|_| watch()).find(alone);
    set_gomaxprocs(before);
    let all = |seen: &Vec<u64>| seen[..before].iter().all(|count| *count > 0);
    let with_all = (0..200).filter_map(|_| watch()).find(all);
    stop.store(true, Relaxed);
    let ended = join_all(workers).len();
    stage.show(format_args!("rounds by CPU with 1 P: {:?}", with_one.as_deref().unwrap_or(&[])));
    stage.show(format_args!("with {before} again: {:?}", with_all.as_deref().unwrap_or(&[])));
    stage.check(with_one.is_some(), "with one P, one CPU runs Gs");
    stage.check(with_all.is_some(), format_args!("with {before}, all {before} do"));
    stage.check(ended == 2 * num_cpus(), "no G was lost on the way");
}

fn deadlock(stage: &mut Stage) {
    let Ok(run) = program::start("deadlock", Vec::new()) else {
        return stage.check(false, "the program is in this image");
    };
    let ended = run.wait_until(Duration::from_secs(60));
    run.stop(); // in case the deadlock was not found
    let log = runnext::console::dmesg().unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let named = ["left first", "right first"].iter().filter(|name| log.contains(**name)).count();
    stage.show(format_args!(
        "the program ended by itself: {}",
        ended.map_or("no".into(), |e| format!("{e}"))
    ));
    stage.check(
        ended == Some(Ended::Deadlock),
        "it was found, and the program ended; nobody else did",
    );
    stage.check(named == 2, "both Gs are named, and what they wait for");
}

fn accounting(stage: &mut Stage) {
    const GS: u64 = 500;
    // A G that has given its result may not have ended yet, here and in earlier scenes.
    let settled = || {
        let ended = stats().ended;
        sleep(Duration::from_millis(2));
        stats().ended == ended
    };
    comes(settled);
    let before = stats();
    join_all((0..GS).map(|_| go(yield_now)).collect::<Vec<_>>());
    comes(|| stats().ended - before.ended >= GS);
    let after = stats();
    let created = after.created - before.created;
    let ended = after.ended - before.ended;
    let switches: u64 =
        after.cpus.iter().zip(&before.cpus).map(|(now, then)| now.switches - then.switches).sum();
    stage.show(format_args!("{created} Gs created, {ended} ended, {switches} switches"));
    stage.check(created == GS && ended == GS, "as many ended as were created");
    stage.check(switches >= 2 * GS, "each was switched to twice: it yielded once");
    stage.check(after.alive() == before.alive(), "who is left is who was there before");
    time_of_this_g(stage);
}

/// This G's time on a CPU, in a queue and waiting, between two readings: the sum is the
/// elapsed time.
fn time_of_this_g(stage: &mut Stage) {
    let me = current().id();
    let _full = runnext::stats::FullAccounting::begin();
    let read = || {
        let before = Instant::now();
        let g = tasks::gs().into_iter().find(|g| g.id == me)?;
        Some((before, [g.cpu_ns, g.queued_ns?, g.waiting_ns?], Instant::now()))
    };
    let first = read();
    sleep(Duration::from_millis(3));
    (0..100).for_each(|_| yield_now());
    let (Some((a, then, b)), Some((c, now, d))) = (first, read()) else {
        return stage.check(false, "this G is in the list of all");
    };
    let [cpu, queued, waited] = [0, 1, 2].map(|i| u128::from(now[i].saturating_sub(then[i])));
    // A reading lies between the clocks before and after it; the counters of two CPUs may
    // differ slightly.
    let slack = 4 * u128::from(inspect::clock_uncertainty_ns()) + 1_000;
    let (least, most) = ((c - b).as_nanos(), (d - a).as_nanos());
    let sum = cpu + queued + waited;
    stage.show(format_args!(
        "this G: {} us on a CPU, {} us in a queue, {} us waiting",
        cpu / 1000,
        queued / 1000,
        waited / 1000
    ));
    let adds_up = least <= sum + slack && sum <= most + slack;
    stage.check(adds_up, "which is all the time there was, by the clock");
}
