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
//! `full`.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;
use sched::system::{self, MRing, System};
use sched::{G, Next, P, PSlot, Priority, RUNQ_CAPACITY, Sched, Status, Wake};

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

/// A scheduler with `n` Ps, under Go's system.
fn machine(n: usize) -> (&'static Sched<usize>, Vec<P<usize>>) {
    machine_under(n, "mpn")
}

/// The same under the system of that name.
fn machine_under(n: usize, name: &str) -> (&'static Sched<usize>, Vec<P<usize>>) {
    let slots: Vec<PSlot<usize>> = (0..n).map(|_| PSlot::new()).collect();
    let sched: &'static Sched<usize> = Box::leak(Box::new(Sched::new(Vec::leak(slots))));
    let system = system::all().into_iter().find(|system| system.about().name == name);
    let system: &'static dyn System<usize> = system.expect("a name of the table");
    let ps = (0..n).map(|i| sched.acquire_under(i, 7, system.places()).expect("new")).collect();
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

/// P 0 runs a G that makes another, by `start`, and keeps running. P 1 parks meanwhile.
fn no_wake_up_is_lost(system: &'static str, start: fn(&Sched<usize>, &mut P<usize>) -> Wake) {
    bounded(move || {
        let (sched, mut ps) = machine_under(2, system);
        let mut p1 = ps.pop().unwrap();
        let mut p0 = ps.pop().unwrap();
        let other = thread::spawn(move || {
            let found = find(sched, &mut p1);
            (p1, found)
        });
        let wake = start(sched, &mut p0);
        let (p1, (found, wake1)) = other.join().unwrap();
        let mut ps = [p0, p1];
        let mut ran = deliver(sched, &mut ps, vec![wake, wake1]);
        ran.extend(found);
        assert_eq!(ran, [1], "the other CPU sleeps while a G waits");
        assert_eq!(sched.counts().spinning, 0);
    });
}

#[test]
fn submit_against_park_loses_no_wake_up() {
    no_wake_up_is_lost("mpn", |sched, p| sched.start(p, g(1), None));
}

/// The systems with one queue: P 0 puts the G there, under its lock.
#[test]
fn submit_to_the_shared_queue_against_park_loses_no_wake_up() {
    no_wake_up_is_lost("shared", |sched, p| sched.start_asking(p, g(1), None, Priority::Normal));
}

/// As above, for Gs that are not normal: one goes to an inbox or to the lane, by an interrupt, the
/// other to the lane at once.
#[test]
fn submit_of_a_ranked_g_against_park_loses_no_wake_up() {
    for priority in [Priority::Urgent, Priority::Background] {
        bounded(move || {
            let (sched, mut ps) = machine(2);
            let (mut p1, mut p0) = (ps.pop().unwrap(), ps.pop().unwrap());
            let other = thread::spawn(move || {
                let found = find(sched, &mut p1);
                (p1, found)
            });
            let mut wake = sched.start_asking(&mut p0, g(1), None, priority);
            if wake == Wake::Cpu(0) {
                p0.set_lends(false); // its G has lent all: the other goes to the lane
                wake = sched.arrive(&mut p0).wake;
            }
            let (p1, (found, wake1)) = other.join().unwrap();
            let mut ran = deliver(sched, &mut [p0, p1], vec![wake, wake1]);
            ran.extend(found);
            assert_eq!(ran, [1], "the other CPU sleeps while a {priority} G waits");
            assert_eq!(sched.counts().spinning, 0);
        });
    }
}

/// The M of P 0 leaves with its ring, in which a G waits, and a new M comes, with a ring that is
/// new to thieves, and starts another G. P 1 parks meanwhile.
#[test]
fn ring_that_leaves_with_its_m_is_searched_by_a_parker() {
    bounded_large(|| {
        let (sched, mut ps) = machine_under(2, "distributed");
        let mut p1 = ps.pop().unwrap();
        let mut p0 = ps.pop().unwrap();
        let mut wakes = vec![sched.start(&mut p0, g(1), None)];
        let other = thread::spawn(move || {
            let found = find(sched, &mut p1);
            (p1, found)
        });
        let ring = sched.add_ring(Box::leak(Box::new(MRing::new()))).expect("new");
        let _left = p0.swap_ring(ring);
        wakes.push(sched.start(&mut p0, g(2), None));
        let (mut p1, (found, wake1)) = other.join().unwrap();
        wakes.push(wake1);
        let mut ran: Vec<_> = found.into_iter().collect();
        // P 1 runs its G to the end, and looks again: all are found where they are.
        while let (Some(more), wake) = find(sched, &mut p1) {
            ran.push(more);
            wakes.push(wake);
        }
        ran.extend(deliver(sched, &mut [p0, p1], wakes));
        ran.sort_unstable();
        assert_eq!(ran, [1, 2], "a G waits in a ring that no CPU reads");
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

/// The slice of the G on this P is over: what the kernel does. Returns the next G and the wake-ups.
fn expire(
    sched: &'static Sched<usize>,
    p: &mut P<usize>,
    g: &'static G<usize>,
) -> (Option<usize>, [Wake; 2]) {
    match sched.expire(p, g) {
        Some(next) => (Some(next.kernel), [Wake::Nobody; 2]),
        None => {
            let wake = sched.expired(p, g);
            let (found, wake1) = find(sched, p);
            (found, [wake, wake1])
        }
    }
}

/// Runs Gs on a P until the last runs there; the slices of the others are over, and they wait in
/// the global queue.
fn hogs<const N: usize>(
    sched: &'static Sched<usize>,
    p: &mut P<usize>,
    names: [usize; N],
) -> [&'static G<usize>; N] {
    let run = |p: &mut P<usize>| match sched.find_runnable(p) {
        Next::Run(run) => run.g,
        Next::Park(_) => panic!("no G"),
    };
    // A slice, so that it is not the global queue's turn.
    let _ = sched.start(p, g(0), None);
    let first = run(p);
    sched.yielded(p, first);
    let second = run(p);
    assert!(sched.exited(p, second));
    let gs = names.map(g);
    for (i, g) in gs.into_iter().enumerate() {
        let _ = sched.start(p, g, None);
        if i > 0 {
            let _ = sched.expired(p, gs[i - 1]);
        }
        assert_eq!(run(p).kernel, g.kernel);
    }
    gs
}

/// A hog hands over to the one in the global queue while another P goes idle, which is told
/// nothing: it must take a G, whichever of the two, as the queue is empty at no time.
#[test]
fn hand_over_between_hogs_is_seen_by_a_parker() {
    bounded(|| {
        let (sched, mut ps) = machine(2);
        let mut p1 = ps.pop().unwrap();
        let mut p0 = ps.pop().unwrap();
        let [waits, runs] = hogs(sched, &mut p0, [1, 2]);
        let other = thread::spawn(move || {
            let found = find(sched, &mut p1);
            (p1, found)
        });
        let (next, [wake, wake0]) = expire(sched, &mut p0, runs);
        let (p1, (found, wake1)) = other.join().unwrap();
        let mut ps = [p0, p1];
        let mut run = deliver(sched, &mut ps, vec![wake, wake0, wake1]);
        run.extend(next.into_iter().chain(found));
        run.sort_unstable();
        assert_eq!(run, [1, 2], "a CPU sleeps while a hog waits, or both run one");
        assert_eq!([waits.status(), runs.status()], [Status::Running; 2]);
        assert_eq!(sched.counts().spinning, 0);
    });
}

/// Two hogs hand over at once, with a third in the global queue.
#[test]
fn two_hogs_that_hand_over_at_once_run_on_one_cpu_each() {
    bounded(|| {
        let (sched, mut ps) = machine(2);
        let mut p1 = ps.pop().unwrap();
        let mut p0 = ps.pop().unwrap();
        let [_, first] = hogs(sched, &mut p0, [1, 2]);
        let [second] = hogs(sched, &mut p1, [3]);
        let other = thread::spawn(move || expire(sched, &mut p1, second).0);
        let (next, _) = expire(sched, &mut p0, first);
        let (next, next1) = (next.expect("one waits"), other.join().unwrap().expect("one waits"));
        assert_ne!(next, next1, "both run one");
        assert!(next == 1 || next1 == 1, "the oldest still waits");
        assert_eq!(sched.counts().global, 1);
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
            assert!(sched.exited(&mut p0, run.g));
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
        if !waiting.finish_park() {
            let _ = sched.put_back(&mut p0, waiting);
        }
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
        if !waiting.finish_park() {
            let _ = sched.put_back(&mut p0, waiting);
        }
        let queued: usize = p0.len() + readiers.map(|t| t.join().unwrap()).iter().sum::<usize>();
        assert_eq!((queued, waiting.status()), (1, Status::Runnable));
    });
}

/// A G parks under a lock: no G that takes the lock is too early, and one that readies it by an
/// older handle, at any time, puts it into a queue once it is parked, with its context saved, or
/// not at all.
#[test]
fn a_g_that_parks_under_a_lock_is_readied_by_it_and_perhaps_before() {
    bounded(|| {
        let (sched, mut ps) = machine(3);
        let mut p2 = ps.pop().unwrap();
        let mut p1 = ps.pop().unwrap();
        let mut p0 = ps.pop().unwrap();
        let _ = sched.start(&mut p0, g(1), None);
        let Next::Run(run) = sched.find_runnable(&mut p0) else { panic!("no G") };
        let waiting = run.g;
        let context = Arc::new(UnsafeCell::new(false));
        let saved = context.clone();
        let list = Arc::new(Mutex::new(None));
        let held = list.lock().unwrap();
        let by_the_lock = {
            let (saved, list) = (saved.clone(), list.clone());
            thread::spawn(move || {
                let handle = list.lock().unwrap().take().expect("the lock was held until then");
                let ready = sched.ready_parked(&mut p1, &handle);
                if ready.is_some() {
                    // SAFETY: loom checks it.
                    saved.with(|saved| assert!(unsafe { *saved }));
                }
                (usize::from(ready.is_some()), p1.len())
            })
        };
        let old = waiting.handle();
        let by_an_old_handle = thread::spawn(move || {
            let _ = sched.ready(&mut p2, old, |_, was| {
                assert_eq!(was, Status::Parked);
                // SAFETY: loom checks it.
                saved.with(|saved| assert!(unsafe { *saved }));
            });
            p2.len()
        });
        let mut held = held;
        *held = Some(waiting.to_park());
        // SAFETY: loom checks it.
        context.with_mut(|saved| unsafe { *saved = true });
        waiting.park_locked();
        drop(held);
        let (readied, queued) = by_the_lock.join().unwrap();
        let earlier = by_an_old_handle.join().unwrap();
        assert_eq!((readied + earlier, queued + earlier), (1, 1), "lost, or in two queues");
        assert_eq!(waiting.status(), Status::Runnable);
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
        assert!(call.finish_park());
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
        let _ = sched.expired(p, run.g);
    });
}

#[test]
fn hog_without_a_timer_is_told_of_a_ring_that_overflows() {
    hog_without_a_timer(|sched, p| {
        let Next::Run(run) = sched.find_runnable(p) else { panic!("no G") };
        sched.yielded(p, run.g);
        let _ = find(sched, p); // returns the CPU to wake for the overflow
    });
}
