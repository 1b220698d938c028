//! All interleavings of parking against submitting and readying.
//!
//! A halted CPU is one whose `find_runnable` returned `Park`; an interrupt is the
//! `Wake` that names it. After all threads are done, the interrupts that were sent are
//! delivered one after the other, as hardware would: then no G may wait while a CPU
//! halts.
//!
//! The models with a whole scheduler are bounded to [`PREEMPTIONS`] preemptions a run:
//! unbounded they take hours, and the races here need one or two. The largest, which
//! took more time than all others together, has one less unless `RUNNEXT_TEST` is
//! `overflow`.
#![cfg(loom)]

use loom::thread;
use sched::{G, Next, P, PSlot, RUNQ_CAPACITY, Sched, Status, Stop, Wake};

const PREEMPTIONS: usize = 3;

fn bounded(model: impl Fn() + Sync + Send + 'static) {
    bounded_to(PREEMPTIONS, model);
}

/// The same for a large model.
fn bounded_large(model: impl Fn() + Sync + Send + 'static) {
    let is_full = std::env::var("RUNNEXT_TEST").is_ok_and(|effort| effort == "full");
    bounded_to(if is_full { PREEMPTIONS } else { PREEMPTIONS - 1 }, model);
}

fn bounded_to(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn machine(n: usize) -> (&'static Sched<usize>, Vec<P<usize>>) {
    let slots: Vec<PSlot<usize>> = (0..n).map(|_| PSlot::new()).collect();
    let sched: &'static Sched<usize> = Box::leak(Box::new(Sched::new(Vec::leak(slots))));
    let ps = (0..n).map(|i| sched.acquire(i, 7).expect("new")).collect();
    (sched, ps)
}

fn g(n: usize) -> &'static G<usize> {
    Box::leak(Box::new(G::new(n)))
}

/// The G that a CPU found, and the CPU it wakes.
fn find(sched: &'static Sched<usize>, p: &mut P<usize>) -> (Option<usize>, Wake) {
    match sched.find_runnable(p) {
        Next::Run(run) => (Some(run.g.kernel), run.wake),
        Next::Park(wake) => (None, wake),
    }
}

/// Delivers interrupts until none is left; returns the Gs that ran.
fn deliver(sched: &'static Sched<usize>, ps: &mut [P<usize>], mut wakes: Vec<Wake>) -> Vec<usize> {
    let mut ran = vec![];
    while let Some(wake) = wakes.pop() {
        if let Wake::Cpu(cpu) = wake {
            let (found, wake) = find(sched, &mut ps[cpu]);
            ran.extend(found);
            wakes.push(wake);
        }
    }
    ran
}

#[test]
fn submit_against_park_loses_no_wake_up() {
    bounded(|| {
        let (sched, mut ps) = machine(2);
        let mut p1 = ps.pop().unwrap();
        let mut p0 = ps.pop().unwrap();
        let other = thread::spawn(move || {
            let found = find(sched, &mut p1);
            (p1, found)
        });
        // P 0 runs a G that makes another, and keeps running.
        let wake = sched.start(&mut p0, g(1), None);
        let (p1, (found, wake1)) = other.join().unwrap();
        let mut ps = [p0, p1];
        let mut ran = deliver(sched, &mut ps, vec![wake, wake1]);
        ran.extend(found);
        assert_eq!(ran, [1], "the other CPU sleeps while a G waits");
        assert_eq!(sched.counts().spinning, 0);
    });
}

/// P 0 halts, is interrupted for a G that is pinned there, and submits another. P 1, which
/// parks meanwhile, reads the queues of busy Ps only: it must not take P 0 for idle.
#[test]
fn submit_by_a_p_that_was_idle_is_seen_by_a_parker() {
    bounded(|| {
        let (sched, mut ps) = machine(2);
        let mut p1 = ps.pop().unwrap();
        let mut p0 = ps.pop().unwrap();
        assert_eq!(find(sched, &mut p0), (None, Wake::Nobody));
        assert_eq!(sched.start(&mut p1, g(1), Some(0)), Wake::Cpu(0));
        let other = thread::spawn(move || {
            let found = find(sched, &mut p1);
            (p1, found)
        });
        let (found0, wake0) = find(sched, &mut p0);
        assert_eq!(found0, Some(1));
        let wake = sched.start(&mut p0, g(2), None);
        let (p1, (found, wake1)) = other.join().unwrap();
        let mut ps = [p0, p1];
        let mut ran = deliver(sched, &mut ps, vec![wake0, wake, wake1]);
        ran.extend(found);
        assert_eq!(ran, [2], "P 1 sleeps while a G waits on P 0");
        assert_eq!(sched.counts().spinning, 0);
    });
}

#[test]
fn two_parkers_and_one_submit_lose_no_wake_up() {
    bounded_large(|| {
        let (sched, mut ps) = machine(3);
        let mut p0 = ps.remove(0);
        let others: Vec<_> = ps
            .into_iter()
            .map(|mut p| {
                thread::spawn(move || {
                    let found = find(sched, &mut p);
                    (p, found)
                })
            })
            .collect();
        let mut wakes = vec![sched.start(&mut p0, g(1), None)];
        let (mut ps, mut ran) = (vec![p0], vec![]);
        for other in others {
            let (p, (found, wake)) = other.join().unwrap();
            ps.push(p);
            ran.extend(found);
            wakes.push(wake);
        }
        ran.extend(deliver(sched, &mut ps, wakes));
        assert_eq!(ran, [1], "all sleep while a G waits, or it ran twice");
        assert_eq!(sched.counts().spinning, 0);
    });
}

#[test]
fn two_submitters_and_one_parker_lose_no_wake_up() {
    bounded(|| {
        let (sched, mut ps) = machine(3);
        let mut p2 = ps.pop().unwrap();
        let mut p1 = ps.pop().unwrap();
        let mut p0 = ps.pop().unwrap();
        let submitter = thread::spawn(move || {
            let wake = sched.start(&mut p1, g(1), None);
            (p1, wake)
        });
        let parker = thread::spawn(move || {
            let found = find(sched, &mut p2);
            (p2, found)
        });
        let wake0 = sched.start(&mut p0, g(0), None);
        let (p1, wake1) = submitter.join().unwrap();
        let (p2, (found, wake2)) = parker.join().unwrap();
        let mut ps = [p0, p1, p2];
        let mut ran = deliver(sched, &mut ps, vec![wake0, wake1, wake2]);
        ran.extend(found);
        // One G for P 2; the other may wait for its maker, which is busy.
        assert!(!ran.is_empty(), "P 2 sleeps while two Gs wait");
        assert_eq!(sched.counts().spinning, 0);
    });
}

/// A batch on its way from the global queue to a ring is in neither: a CPU that parks
/// meanwhile sees no G, and is woken when the batch has arrived.
#[test]
fn batch_that_a_parking_cpu_did_not_see_wakes_it() {
    bounded(|| {
        let (sched, mut ps) = machine(2);
        let mut p1 = ps.pop().unwrap();
        let mut p0 = ps.pop().unwrap();
        for n in 0..RUNQ_CAPACITY + 2 {
            let _ = sched.start(&mut p0, g(n), None);
        }
        while !p0.is_empty() {
            let Next::Run(run) = sched.find_runnable(&mut p0) else { panic!("no G") };
            let _ = sched.stopped(&mut p0, run.g, Stop::Exit);
        }
        assert_eq!(sched.counts().global, 2);
        let other = thread::spawn(move || {
            let found = find(sched, &mut p1);
            (p1, found)
        });
        let (found0, wake0) = find(sched, &mut p0);
        let (p1, (found1, wake1)) = other.join().unwrap();
        let mut ps = [p0, p1];
        let mut ran = deliver(sched, &mut ps, vec![wake0, wake1]);
        ran.extend(found0.into_iter().chain(found1));
        assert_eq!(ran.len(), 2, "a CPU sleeps while a G waits");
    });
}

#[test]
fn ready_while_parking_is_not_lost_and_not_doubled() {
    loom::model(|| {
        let (sched, mut ps) = machine(2);
        let mut p1 = ps.pop().unwrap();
        let mut p0 = ps.pop().unwrap();
        let _ = sched.start(&mut p0, g(1), None);
        let Next::Run(run) = sched.find_runnable(&mut p0) else { panic!("no G") };
        run.g.begin_park();
        let waiting = run.g;
        let readier = thread::spawn(move || {
            let _ = sched.ready(&mut p1, waiting.handle(), |_, _| ());
            p1.len()
        });
        let _ = sched.stopped(&mut p0, waiting, Stop::Park);
        let queued = p0.len() + readier.join().unwrap();
        assert_eq!((queued, waiting.status()), (1, Status::Runnable));
    });
}

#[test]
fn two_readiers_put_a_g_into_one_queue() {
    bounded(|| {
        let (sched, mut ps) = machine(3);
        let mut p2 = ps.pop().unwrap();
        let mut p1 = ps.pop().unwrap();
        let mut p0 = ps.pop().unwrap();
        let _ = sched.start(&mut p0, g(1), None);
        let Next::Run(run) = sched.find_runnable(&mut p0) else { panic!("no G") };
        run.g.begin_park();
        let waiting = run.g;
        let readiers = [
            thread::spawn(move || {
                let _ = sched.ready(&mut p1, waiting.handle(), |_, _| ());
                p1.len()
            }),
            thread::spawn(move || {
                let _ = sched.ready(&mut p2, waiting.handle(), |_, _| ());
                p2.len()
            }),
        ];
        let _ = sched.stopped(&mut p0, waiting, Stop::Park);
        let queued: usize = p0.len() + readiers.map(|t| t.join().unwrap()).iter().sum::<usize>();
        assert_eq!((queued, waiting.status()), (1, Status::Runnable));
    });
}

#[test]
fn cpu_that_halts_for_a_g_is_interrupted_or_does_not_halt() {
    loom::model(|| {
        let (sched, mut ps) = machine(2);
        let mut p1 = ps.pop().unwrap();
        let mut p0 = ps.pop().unwrap();
        let _ = sched.start(&mut p0, g(1), None);
        let Next::Run(run) = sched.find_runnable(&mut p0) else { panic!("no G") };
        run.g.begin_park();
        let waiting = run.g;
        let readier = thread::spawn(move || sched.ready(&mut p1, waiting.handle(), |_, _| ()));
        let halts = waiting.halt_on(0);
        let wake = readier.join().unwrap();
        assert_eq!(wake, if halts { Wake::Cpu(0) } else { Wake::Nobody });
        assert!(waiting.is_woken() && waiting.cancel_park());
    });
}

#[test]
fn call_that_ends_while_the_last_cpu_parks_is_taken_up() {
    bounded(|| {
        let (sched, mut ps) = machine(2);
        let mut p1 = ps.pop().unwrap();
        let mut p0 = ps.pop().unwrap();
        let call = g(1);
        let _ = sched.start(&mut p0, call, None);
        let Next::Run(_) = sched.find_runnable(&mut p0) else { panic!("no G") };
        call.enter_call(1);
        call.begin_park();
        let _ = sched.stopped(&mut p0, call, Stop::Park);
        let other = thread::spawn(move || {
            let found = find(sched, &mut p1);
            (p1, found)
        });
        // P 0 runs on; a device interrupts it.
        let wake = sched.ready_from_interrupt(0, call.handle(), |_, _| ());
        let (p1, (found, wake1)) = other.join().unwrap();
        let mut ps = [p0, p1];
        let mut ran = deliver(sched, &mut ps, vec![wake, wake1]);
        ran.extend(found);
        assert_eq!(ran, [1], "the other CPU sleeps while a G waits");
        assert_eq!(sched.counts().spinning, 0);
    });
}

/// A G is put into the global queue by `submit` while another P records that it runs
/// without a timer: that P sees the G, or is told.
fn hog_without_a_timer(
    submit: impl Fn(&'static Sched<usize>, &mut P<usize>) + Copy + Sync + Send + 'static,
) {
    bounded(move || {
        let (sched, mut ps) = machine(2);
        let p1 = ps.pop().unwrap();
        let mut p0 = ps.pop().unwrap();
        for n in 0..=RUNQ_CAPACITY {
            let _ = sched.start(&mut p0, g(n), None);
        }
        let hog = thread::spawn(move || sched.needs_timer(&p1));
        submit(sched, &mut p0);
        let told = sched.take_untimed();
        assert!(hog.join().unwrap() || told == Some(1), "a hog goes on while a G waits");
    });
}

#[test]
fn hog_without_a_timer_is_told_of_a_g_whose_slice_is_over() {
    hog_without_a_timer(|sched, p| {
        let Next::Run(run) = sched.find_runnable(p) else { panic!("no G") };
        let _ = sched.stopped(p, run.g, Stop::Expire);
    });
}

#[test]
fn hog_without_a_timer_is_told_of_a_ring_that_overflows() {
    hog_without_a_timer(|sched, p| {
        let Next::Run(run) = sched.find_runnable(p) else { panic!("no G") };
        let _ = sched.stopped(p, run.g, Stop::Yield);
        let _ = find(sched, p); // returns the CPU to wake for the overflow
    });
}
