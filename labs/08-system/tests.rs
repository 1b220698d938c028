//! Lab 8 on the host: what a system promises, and a contest in virtual time.
//!
//! The contest runs Gs on a made-up machine, event by event: CPUs that compute, switch, halt and
//! take interrupts, and the real scheduler between them. Nothing in it is random but the workload,
//! which follows from its seed. What a system gets is compared with first come, first served.
#![allow(missing_docs, reason = "a teacher's file uses a part of it")]

use sched::system::shared::Shared;
use sched::system::{Here, Places, Queued, Ready, Why};
use sched::{G, Next, P, PSlot, Priority, Sched, Wake};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a switch costs, and how long a wake-up takes to a CPU that halts, in microseconds.
const SWITCH_US: u64 = 1;
const WAKE_US: u64 = 3;
const SLICE_US: u64 = 10_000;
/// How long a workload runs.
const TIME_US: u64 = 3_000_000;

/// What a G does again and again.
#[derive(Clone, Copy, Debug)]
pub enum Does {
    /// Computes, and never waits.
    Hog,
    /// Computes for so long, then sleeps for so long.
    Sleeper { work_us: u64, sleep_us: u64 },
    /// Computes, then wakes the G beside it and waits for its turn.
    Pair { work_us: u64 },
    /// Computes for so long, yields, and so on.
    Yielder { work_us: u64 },
}

/// A workload. Times of sleepers vary by a half, by the seed.
#[derive(Clone, Debug)]
pub struct Workload {
    pub name: &'static str,
    pub cpus: usize,
    pub gs: Vec<(usize, Does)>,
    pub seed: u64,
}

/// Those that students see.
pub fn public() -> Vec<Workload> {
    let sleeper = |work_us, sleep_us| Does::Sleeper { work_us, sleep_us };
    let workload =
        |name, cpus, gs: &[(usize, Does)]| Workload { name, cpus, gs: gs.to_vec(), seed: 1 };
    vec![
        workload("hogs", 4, &[(17, Does::Hog)]),
        workload("server", 4, &[(40, sleeper(300, 9_000)), (10, Does::Hog)]),
        workload("pairs", 4, &[(16, Does::Pair { work_us: 200 }), (9, Does::Hog)]),
        workload(
            "mixed",
            8,
            &[
                (2, Does::Hog),
                (60, sleeper(150, 4_000)),
                (4, Does::Pair { work_us: 500 }),
                (1, Does::Yielder { work_us: 700 }),
            ],
        ),
    ]
}

/// What a system made of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// How much of the CPUs' time Gs computed.
    pub throughput: f64,
    /// 99 of 100 Gs that became ready waited for no longer than this, in microseconds.
    pub p99_us: u64,
    /// The hog with the least time against that with the most.
    pub fairness: f64,
    /// How often a CPU halted.
    pub halts: u64,
}

struct Script {
    does: Does,
    number: usize,
}

struct Life {
    g: &'static G<Script>,
    left_us: u64,
    ready_at: u64,
    is_asleep: bool,
    /// A G of a pair computes when it has the turn.
    has_turn: bool,
    /// The other G of the pair.
    other: usize,
    ran_us: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The G of that CPU has come to its next step, or to the end of its slice.
    Step(usize, u64),
    /// An interrupt for a CPU that halts.
    Interrupt(usize),
    /// The sleep of a G is over; the CPU on which it slept.
    Woken(usize, usize),
}

struct Cpu {
    runs: Option<usize>,
    since: u64,
    slice_ends: u64,
    /// Steps of an earlier run are void.
    run: u64,
}

struct Machine {
    sched: &'static Sched<Script>,
    ps: Vec<P<Script>>,
    cpus: Vec<Cpu>,
    lives: Vec<Life>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sent: u64,
    now: u64,
    waits: Vec<u64>,
    halts: u64,
    random: u64,
}

impl Machine {
    fn new(workload: &Workload, places: &'static dyn Places<Script>) -> Self {
        let n = workload.cpus;
        let slots: Vec<PSlot<Script>> = (0..n).map(|_| PSlot::new()).collect();
        let sched: &'static Sched<Script> = Box::leak(Box::new(Sched::new(Vec::leak(slots))));
        let acquire = |i| sched.acquire_under(i, workload.seed, Some(places)).expect("new");
        let ps = (0..n).map(acquire).collect();
        let cpu = || Cpu { runs: None, since: 0, slice_ends: 0, run: 0 };
        let mut machine = Machine {
            sched,
            ps,
            cpus: (0..n).map(|_| cpu()).collect(),
            lives: vec![],
            events: BinaryHeap::new(),
            sent: 0,
            now: 0,
            waits: vec![],
            halts: 0,
            random: workload.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        for (count, does) in &workload.gs {
            for i in 0..*count {
                machine.add(*does, i);
            }
        }
        (0..n).for_each(|cpu| machine.look(cpu));
        machine
    }

    fn add(&mut self, does: Does, i: usize) {
        let number = self.lives.len();
        let g: &'static G<Script> = Box::leak(Box::new(G::new(Script { does, number })));
        // Of a pair the first one begins.
        let has_turn = i.is_multiple_of(2);
        let other = if has_turn { number + 1 } else { number - 1 };
        let (left_us, is_asleep) = (self.work_of(does), false);
        // A hog's wait is its share, not a delay.
        let ready_at = if matches!(does, Does::Hog) { u64::MAX } else { 0 };
        let life = Life { g, left_us, ready_at, is_asleep, has_turn, other, ran_us: 0 };
        self.lives.push(life);
        if matches!(does, Does::Pair { .. }) && !has_turn {
            self.lives[number].left_us = 1;
        }
        let cpu = number % self.cpus.len();
        let wake = self.sched.start_asking(&mut self.ps[cpu], g, None, Priority::Normal);
        self.wake(wake);
    }

    /// A time, give or take a half.
    fn about(&mut self, us: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        us / 2 + self.random % us.max(1)
    }

    fn work_of(&mut self, does: Does) -> u64 {
        match does {
            Does::Hog => u64::MAX / 2,
            Does::Sleeper { work_us, .. } => self.about(work_us),
            Does::Pair { work_us } | Does::Yielder { work_us } => work_us,
        }
    }

    fn at(&mut self, at: u64, event: Event) {
        self.sent += 1;
        self.events.push(Reverse((at, self.sent, event)));
    }

    fn wake(&mut self, wake: Wake) {
        if let Wake::Cpu(cpu) = wake {
            self.at(self.now + WAKE_US, Event::Interrupt(cpu));
        }
    }

    /// The CPU has no G: it looks for one, or halts.
    fn look(&mut self, cpu: usize) {
        match self.sched.find_runnable(&mut self.ps[cpu]) {
            Next::Run(run) => {
                let number = run.g.kernel.number;
                self.wake(run.wake);
                let life = &mut self.lives[number];
                if life.ready_at != u64::MAX {
                    self.waits.push(self.now - life.ready_at);
                    life.ready_at = u64::MAX;
                }
                let begins = self.now + SWITCH_US;
                let here = &mut self.cpus[cpu];
                here.run += 1;
                (here.runs, here.since, here.slice_ends) =
                    (Some(number), begins, begins + SLICE_US);
                self.step(cpu);
            }
            Next::Park(wake) => {
                self.halts += 1;
                self.wake(wake);
            }
        }
    }

    /// When the G of the CPU comes to its next step.
    fn step(&mut self, cpu: usize) {
        let here = &self.cpus[cpu];
        let number = here.runs.expect("it runs a G");
        let at = (here.since + self.lives[number].left_us).min(here.slice_ends);
        let run = here.run;
        self.at(at, Event::Step(cpu, run));
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Step(cpu, run) if self.cpus[cpu].run == run => self.comes_to(cpu),
            Event::Step(..) => {}
            Event::Interrupt(cpu) => {
                if self.cpus[cpu].runs.is_none() {
                    self.look(cpu);
                }
            }
            Event::Woken(cpu, number) => self.woken(cpu, number),
        }
    }

    fn woken(&mut self, cpu: usize, number: usize) {
        let g = self.lives[number].g;
        self.lives[number].ready_at = self.now;
        self.lives[number].is_asleep = false;
        let wake = self.sched.ready_from_interrupt(cpu, g.handle(), |_, _| ());
        if self.cpus[cpu].runs.is_some() {
            let arrival = self.sched.arrive(&mut self.ps[cpu]);
            self.wake(arrival.wake);
            if wake != Wake::Cpu(cpu) {
                self.wake(wake);
            }
        } else {
            self.wake(wake);
            self.look(cpu);
        }
    }

    /// The G of this CPU has computed until now.
    fn comes_to(&mut self, cpu: usize) {
        let number = self.cpus[cpu].runs.expect("it runs a G");
        let ran = self.now - self.cpus[cpu].since;
        let life = &mut self.lives[number];
        life.ran_us += ran;
        life.left_us -= ran;
        self.cpus[cpu].since = self.now;
        let (g, is_done) = (life.g, life.left_us == 0);
        if !is_done {
            if !self.sched.needs_timer(&self.ps[cpu]) {
                self.cpus[cpu].slice_ends = self.now + SLICE_US; // no G waits
                return self.step(cpu);
            }
            self.cpus[cpu].runs = None;
            self.lives[number].ready_at = u64::MAX; // as when it was added
            let wake = self.sched.expired(&mut self.ps[cpu], g);
            self.wake(wake);
            return self.look(cpu);
        }
        let does = g.kernel.does;
        self.lives[number].left_us = self.work_of(does);
        self.cpus[cpu].runs = None;
        match does {
            Does::Hog => unreachable!("it computes for ever"),
            Does::Yielder { .. } => {
                self.lives[number].ready_at = self.now;
                self.sched.yielded(&mut self.ps[cpu], g);
            }
            Does::Sleeper { sleep_us, .. } => {
                self.park(g, number);
                let at = self.now + self.about(sleep_us);
                self.at(at, Event::Woken(cpu, number));
            }
            Does::Pair { .. } => self.passes_on(cpu, g, number),
        }
        self.look(cpu);
    }

    fn park(&mut self, g: &'static G<Script>, number: usize) {
        g.begin_park();
        assert!(g.finish_park(), "no other code readies it");
        self.lives[number].is_asleep = true;
    }

    /// Gives the turn to the other G of the pair, and waits for it.
    fn passes_on(&mut self, cpu: usize, g: &'static G<Script>, number: usize) {
        self.park(g, number);
        if !std::mem::take(&mut self.lives[number].has_turn) {
            return; // it has only begun
        }
        let other = self.lives[number].other;
        self.lives[other].has_turn = true;
        if self.lives[other].is_asleep {
            (self.lives[other].ready_at, self.lives[other].is_asleep) = (self.now, false);
            let handle = self.lives[other].g.handle();
            let wake = self.sched.ready(&mut self.ps[cpu], handle, |_, _| ());
            self.wake(wake);
        }
    }

    fn outcome(mut self) -> Outcome {
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at > TIME_US {
                break;
            }
            self.now = at;
            self.happens(event);
        }
        for cpu in &self.cpus {
            if let Some(number) = cpu.runs {
                self.lives[number].ran_us += TIME_US.saturating_sub(cpu.since);
            }
        }
        let ran: u64 = self.lives.iter().map(|life| life.ran_us).sum();
        let is_hog = |life: &&Life| matches!(life.g.kernel.does, Does::Hog);
        let hogs = || self.lives.iter().filter(is_hog).map(|life| life.ran_us.max(1));
        let (least, most) = (hogs().min().unwrap_or(1), hogs().max().unwrap_or(1));
        // A G that still waits has waited for so long at least.
        let waiting = self.lives.iter().filter(|life| life.ready_at != u64::MAX && !life.is_asleep);
        let still = waiting.map(|life| TIME_US - life.ready_at.min(TIME_US));
        let mut waits: Vec<u64> = self.waits.iter().copied().chain(still).collect();
        waits.sort_unstable();
        Outcome {
            throughput: ran as f64 / (self.cpus.len() as u64 * TIME_US) as f64,
            p99_us: waits.get(waits.len() * 99 / 100).copied().unwrap_or(0),
            fairness: least as f64 / most as f64,
            halts: self.halts,
        }
    }
}

/// First come, first served: what systems are compared with.
struct FirstCome;

// SAFETY: both call nothing but the methods of `Here`, and `put` queues its G.
unsafe impl<K: Sync + 'static> Places<K> for FirstCome {
    fn put(&self, at: &mut Here<'_, K>, g: Ready<K>, _: Why) -> Queued {
        at.push_back(g)
    }

    fn find(&self, at: &mut Here<'_, K>) -> Option<Ready<K>> {
        at.take()
    }
}

/// What the student's system makes of a workload, and what first come, first served does.
pub fn both(workload: &Workload) -> [Outcome; 2] {
    let run = |places: &'static dyn Places<Script>| Machine::new(workload, places).outcome();
    [run(&Shared), run(&FirstCome)]
}

/// The points of a result: 100 is as good as first come, first served.
pub fn points([own, base]: [Outcome; 2]) -> f64 {
    let ratio = |own: f64, base: f64, most: f64| (own / base).clamp(1.0 / most, most);
    let count = |n: u64| n as f64 + 10.0;
    let parts = [
        ratio(own.throughput, base.throughput, 4.0),
        ratio(count(base.p99_us), count(own.p99_us), 4.0),
        ratio(own.fairness, base.fairness, 4.0),
        ratio(count(base.halts), count(own.halts), 1.5),
    ];
    100.0 * parts.iter().product::<f64>().powf(1.0 / parts.len() as f64)
}

/// A line for each workload: what `make contest` reads.
pub fn report(workloads: &[Workload], kind: &str) {
    for workload in workloads {
        let [own, base] = both(workload);
        println!(
            "CONTEST {kind} {} {:.1} {:.4} {} {:.3} {}",
            workload.name,
            points([own, base]),
            own.throughput,
            own.p99_us,
            own.fairness,
            own.halts
        );
    }
}

#[test]
fn contest() {
    report(&public(), "public");
}

/// Loses nothing: throughput within 3 %, 99 of 100 waits and halts within a quarter (and 250 µs).
#[test]
fn as_good_as_first_come_first_served() {
    for workload in public() {
        let [own, base] = both(&workload);
        let name = workload.name;
        assert!(own.throughput > base.throughput * 0.97, "{name}: throughput {own:?}, {base:?}");
        let most = base.p99_us * 5 / 4 + 250;
        assert!(own.p99_us <= most, "{name}: of 100 waits the 99th took {own:?}, {base:?}");
        let most = base.halts * 5 / 4 + 10;
        assert!(own.halts <= most, "{name}: CPUs halted {own:?}, {base:?}");
    }
}

#[test]
fn hogs_have_equal_shares() {
    for workload in public() {
        let [own, base] = both(&workload);
        assert!(
            own.fairness > base.fairness * 0.85,
            "{}: the hog with the least had {:.2} of what the one with the most had ({:.2} if first \
             come is first served)",
            workload.name,
            own.fairness,
            base.fairness
        );
    }
}

/// A G that yields lets each G run that waits.
#[test]
fn a_yield_lets_others_run() {
    let slots: Vec<PSlot<usize>> = vec![PSlot::new()];
    let sched: &'static Sched<usize> = Box::leak(Box::new(Sched::new(Vec::leak(slots))));
    let mut p = sched.acquire_under(0, 7, Some(&Shared)).expect("new");
    for n in 0..4 {
        let _ = sched.start_asking(&mut p, Box::leak(Box::new(G::new(n))), None, Priority::Normal);
    }
    let mut ran = [0; 4];
    for _ in 0..64 {
        let Next::Run(run) = sched.find_runnable(&mut p) else { panic!("four Gs are ready") };
        ran[run.g.kernel] += 1;
        sched.yielded(&mut p, run.g);
    }
    assert!(ran.iter().all(|n| *n >= 8), "of 64 turns four Gs that yield had {ran:?}");
}
