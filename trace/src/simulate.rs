//! Streams of a skynet without a machine.
//!
//! The page must be drawn and tested without a machine, and with as many events
//! as are wanted. So here is a scheduler of a hundred lines: CPUs with queues that
//! steal from each other, halt and are woken, and a tree of Gs that spawn, wait
//! and sometimes call. It is made to look right, not to be right: the real one is
//! in `kernel/sched`. The same seed gives the same stream.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use crate::encode::Encoder;
use crate::random::Random;
use crate::reason;
use crate::wire::{Counters, Event, Header, Kind};

/// Counts of the machine's counter in a second, and at time 0.
const HZ: u64 = 2_500_000_000;
const ZERO: u64 = 1 << 40;
/// Children of a node, and levels below the first G.
const WIDTH: u32 = 10;
const DEPTH: u32 = 3;
/// Between ticks, while a G runs.
const TICK_NS: u64 = 1_000_000;
/// Events in a block.
const BLOCK: usize = 4096;
/// The first G's sleep between two trees.
const PAUSE_NS: u64 = 150_000;

/// What to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// CPUs, from 1 to 256.
    pub cpus: u32,
    /// It ends after about so many events.
    pub events: usize,
    /// The same seed, the same stream.
    pub seed: u64,
}

/// The stream of such a run, with names and counters.
///
/// ```
/// use trace::{check::{Agreement, compare}, decode::decode, model::Model, simulate};
/// let plan = simulate::Plan { cpus: 4, events: 1000, seed: 1 };
/// let model = Model::new(&decode(&simulate::stream(plan)).unwrap());
/// assert!(model.events >= 1000);
/// assert!(matches!(compare(&model), Agreement::Full(_)));
/// ```
pub fn stream(plan: Plan) -> Vec<u8> {
    let mut machine = Machine::new(plan);
    while machine.noted < plan.events {
        machine.step();
    }
    machine.encode()
}

struct Machine {
    cpus: Vec<Cpu>,
    gs: Vec<G>,
    global: VecDeque<usize>,
    /// Gs that sleep or are in a call, and until when.
    away: Vec<(u64, usize)>,
    spare_ms: Vec<u32>,
    ms: u32,
    noted: usize,
    random: Random,
}

#[derive(Default)]
struct Cpu {
    now: u64,
    m: u32,
    is_halted: bool,
    running: Option<usize>,
    /// How the one before left, until the next event tells.
    left: Option<(Kind, u8)>,
    queue: VecDeque<usize>,
    next_tick: u64,
    events: Vec<Event>,
    counters: Counters,
}

#[derive(Clone, Default)]
struct G {
    parent: Option<usize>,
    level: u32,
    to_spawn: u32,
    alive_children: u32,
    work_ns: u64,
    calls: bool,
    waits: bool,
    /// The M it left in a call with.
    m: Option<u32>,
}

impl Machine {
    fn new(plan: Plan) -> Machine {
        let count = plan.cpus.clamp(1, 256);
        let cpu = |m| Cpu { m, is_halted: m > 0, next_tick: TICK_NS, ..Cpu::default() };
        let mut machine = Machine {
            cpus: (0..count).map(cpu).collect(),
            gs: vec![G::default()],
            global: VecDeque::new(),
            away: Vec::new(),
            spare_ms: Vec::new(),
            ms: count,
            noted: 0,
            random: Random::new(plan.seed),
        };
        for cpu in 0..count as usize {
            machine.note(cpu, 0, Kind::Mount, cpu as u32);
            if cpu > 0 {
                machine.note(cpu, 0, Kind::Halt, 0);
                machine.cpus[cpu].counters.halts += 1;
            }
        }
        machine.gs[0].to_spawn = WIDTH;
        machine.note(0, 0, Kind::Create, 0);
        machine.cpus[0].queue.push_back(0);
        machine
    }

    /// The CPU whose clock is behind does the next thing.
    fn step(&mut self) {
        let awake = (0..self.cpus.len()).filter(|&cpu| !self.cpus[cpu].is_halted);
        let Some(cpu) = awake.min_by_key(|&cpu| self.cpus[cpu].now) else {
            return self.alarm();
        };
        self.arrivals(cpu);
        match self.cpus[cpu].running {
            None => self.find(cpu),
            Some(g) => self.act(cpu, g),
        }
    }

    /// All CPUs are halted until the first G that is away comes back.
    fn alarm(&mut self) {
        let first = self.away.iter().map(|&(until, _)| until).min().unwrap_or(0);
        let cpu = self.random.below(self.cpus.len() as u64) as usize;
        let idle = &mut self.cpus[cpu];
        idle.now = idle.now.max(first);
        idle.is_halted = false;
        self.note(cpu, 0, Kind::Resume, 0);
    }

    /// An interrupt readies the Gs whose time has come.
    fn arrivals(&mut self, cpu: usize) {
        let now = self.cpus[cpu].now;
        let Some(at) = self.away.iter().position(|&(until, _)| until <= now) else { return };
        let (_, g) = self.away.swap_remove(at);
        if self.gs[g].m.is_some() {
            self.note(cpu, 0, Kind::Irq, 11);
            self.note(cpu, number(g), Kind::Ready, 1);
            self.global.push_back(g);
        } else {
            self.note(cpu, number(g), Kind::Fire, 0);
            self.cpus[cpu].queue.push_front(g);
        }
        self.pass(cpu, 300);
    }

    /// Looks for a G: here, in the global queue, at the others'.
    fn find(&mut self, cpu: usize) {
        let found = self.cpus[cpu].queue.pop_front().or_else(|| self.global.pop_front());
        let Some(g) = found.or_else(|| self.rob(cpu)) else {
            self.tell_left(cpu);
            self.note(cpu, 0, Kind::Halt, 0);
            self.cpus[cpu].counters.halts += 1;
            self.cpus[cpu].is_halted = true;
            return;
        };
        let before = self.cpus[cpu].left.take();
        let merged =
            before.map_or(0, |(kind, reason)| (kind as u32) << 8 | u32::from(reason) << 16);
        self.note(cpu, number(g), Kind::Start, 1 | merged);
        self.cpus[cpu].counters.switches += 1;
        self.cpus[cpu].running = Some(g);
        if let Some(own) = self.gs[g].m.take() {
            let here = std::mem::replace(&mut self.cpus[cpu].m, own);
            self.spare_ms.push(here);
            self.note(cpu, 0, Kind::Mount, own);
        }
        self.pass(cpu, 120);
    }

    /// Half of what the fullest other P has.
    fn rob(&mut self, cpu: usize) -> Option<usize> {
        let others = (0..self.cpus.len()).filter(|&other| other != cpu);
        let victim = others.max_by_key(|&other| self.cpus[other].queue.len())?;
        let half = self.cpus[victim].queue.len().div_ceil(2).min(128);
        if half == 0 {
            return None;
        }
        self.tell_left(cpu);
        let mut stolen: VecDeque<usize> = self.cpus[victim].queue.drain(..half).collect();
        let first = stolen.pop_front()?;
        self.pass(cpu, 500);
        self.note(cpu, number(first), Kind::Steal, (victim as u32) << 12 | half as u32);
        self.cpus[cpu].counters.steals += 1;
        self.cpus[cpu].queue.append(&mut stolen);
        Some(first)
    }

    /// The G that runs does its next bit.
    fn act(&mut self, cpu: usize, g: usize) {
        if self.cpus[cpu].now >= self.cpus[cpu].next_tick {
            self.tick(cpu, g);
        } else if self.gs[g].to_spawn > 0 {
            self.spawn(cpu, g);
        } else if self.gs[g].work_ns > 0 {
            let until = self.cpus[cpu].next_tick - self.cpus[cpu].now;
            let part = self.gs[g].work_ns.min(until);
            self.gs[g].work_ns -= part;
            self.cpus[cpu].now += part;
        } else if std::mem::take(&mut self.gs[g].calls) {
            self.call(cpu, g);
        } else if self.gs[g].alive_children > 0 {
            self.gs[g].waits = true;
            self.leave(cpu, g, Kind::Park, reason::number("join"));
        } else if g == 0 {
            // The next tree, after a while.
            self.gs[0].to_spawn = WIDTH;
            self.away.push((self.cpus[cpu].now + PAUSE_NS, 0));
            self.leave(cpu, g, Kind::Park, reason::number("sleep"));
        } else {
            self.exit(cpu, g);
        }
    }

    fn tick(&mut self, cpu: usize, g: usize) {
        self.note(cpu, 0, Kind::Tick, 0);
        self.cpus[cpu].counters.ticks += 1;
        self.cpus[cpu].next_tick = self.cpus[cpu].now + TICK_NS;
        if self.gs[g].work_ns > 0 && !self.cpus[cpu].queue.is_empty() {
            self.cpus[cpu].counters.preemptions += 1;
            self.leave(cpu, g, Kind::Expire, 0);
            self.global.push_back(g);
        }
    }

    fn spawn(&mut self, cpu: usize, parent: usize) {
        let level = self.gs[parent].level + 1;
        let is_leaf = level == DEPTH;
        let hog = self.random.below(400) == 0;
        let child = G {
            parent: Some(parent),
            level,
            to_spawn: if is_leaf { 0 } else { WIDTH },
            work_ns: self.random.below(if hog { 90_000 } else { 5000 }) + 400,
            calls: is_leaf && self.random.below(120) == 0,
            ..G::default()
        };
        self.gs.push(child);
        let child = self.gs.len() - 1;
        self.gs[parent].to_spawn -= 1;
        self.gs[parent].alive_children += 1;
        let cost = 150 + self.random.below(300);
        self.pass(cpu, cost);
        self.note(cpu, number(child), Kind::Create, 0);
        self.cpus[cpu].queue.push_back(child);
        self.wake_one(cpu);
    }

    /// There is work: one halted CPU is woken to look for it.
    fn wake_one(&mut self, cpu: usize) {
        let Some(idle) = self.cpus.iter().position(|cpu| cpu.is_halted) else { return };
        self.note(cpu, 0, Kind::WakeSent, idle as u32);
        self.cpus[cpu].counters.wakes += 1;
        let now = self.cpus[cpu].now + 1500 + self.random.below(1500);
        let other = &mut self.cpus[idle];
        other.now = other.now.max(now);
        other.is_halted = false;
        self.note(idle, 0, Kind::WakeReceived, 0);
        self.note(idle, 0, Kind::Resume, 0);
        self.pass(idle, 250);
    }

    fn call(&mut self, cpu: usize, g: usize) {
        let spare = self.spare_ms.pop().unwrap_or_else(|| {
            self.ms += 1;
            self.ms - 1
        });
        self.note(cpu, number(g), Kind::Handoff, spare);
        self.cpus[cpu].counters.handoffs += 1;
        self.gs[g].m = Some(std::mem::replace(&mut self.cpus[cpu].m, spare));
        let until = self.cpus[cpu].now + 20_000 + self.random.below(60_000);
        self.away.push((until, g));
        self.leave(cpu, g, Kind::Park, reason::number("syscall"));
    }

    fn exit(&mut self, cpu: usize, g: usize) {
        if let Some(parent) = self.gs[g].parent {
            self.gs[parent].alive_children -= 1;
            if self.gs[parent].alive_children == 0 && std::mem::take(&mut self.gs[parent].waits) {
                self.note(cpu, number(parent), Kind::Ready, 0);
                self.cpus[cpu].queue.push_front(parent);
            }
        }
        self.leave(cpu, g, Kind::Exit, 0);
    }

    fn leave(&mut self, cpu: usize, g: usize, kind: Kind, reason: u8) {
        debug_assert_eq!(self.cpus[cpu].running, Some(g));
        self.cpus[cpu].running = None;
        self.cpus[cpu].left = Some((kind, reason));
    }

    /// No G follows at once: that a G left is an event of its own.
    fn tell_left(&mut self, cpu: usize) {
        if let Some((kind, reason)) = self.cpus[cpu].left.take() {
            self.note(cpu, 0, kind, u32::from(reason));
        }
    }

    fn pass(&mut self, cpu: usize, ns: u64) {
        self.cpus[cpu].now += ns;
    }

    fn note(&mut self, cpu: usize, g: u32, kind: Kind, arg: u32) {
        let g = if kind == Kind::Create && g == 0 { 1 } else { g };
        let cpu = &mut self.cpus[cpu];
        let tsc = ZERO + (u128::from(cpu.now) * u128::from(HZ) / 1_000_000_000) as u64;
        cpu.events.push(Event::new(tsc, g, kind, arg));
        cpu.counters.events += 1;
        self.noted += 1;
    }

    fn encode(&self) -> Vec<u8> {
        let cpus = self.cpus.len() as u32;
        let mut stream = Encoder::new(Header { cpus, hz: HZ, zero: ZERO });
        for (index, cpu) in self.cpus.iter().enumerate() {
            for (block, events) in cpu.events.chunks(BLOCK).enumerate() {
                stream.events(index as u32, (block * BLOCK) as u64, events);
            }
        }
        for (g, facts) in self.gs.iter().enumerate() {
            let (name, site) = match facts.level {
                0 => ("main", "programs/src/main.rs:9"),
                DEPTH => ("leaf", "programs/src/skynet.rs:44"),
                _ => ("node", "programs/src/skynet.rs:44"),
            };
            stream.name(number(g), name, site);
        }
        for (index, cpu) in self.cpus.iter().enumerate() {
            stream.stat(index as u32, cpu.counters);
        }
        stream.done(0);
        stream.into_bytes()
    }
}

fn number(g: usize) -> u32 {
    g as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Agreement, compare};
    use crate::decode::decode;
    use crate::model::{Left, Model};

    fn model(cpus: u32, events: usize) -> Model {
        Model::new(&decode(&stream(Plan { cpus, events, seed: 7 })).expect("a stream"))
    }

    #[test]
    fn it_has_all_that_a_page_must_show() {
        let model = model(4, 20_000);
        assert!(model.warnings.is_empty(), "{:?}", model.warnings);
        assert!(matches!(compare(&model), Agreement::Full(_)), "{}", compare(&model));
        assert!(!model.steals.is_empty() && !model.instants.is_empty());
        assert!(model.mounts.iter().any(|mount| mount.m >= 4), "spare Ms");
        assert!(model.cpus.iter().all(|cpu| cpu.spans.len() > 100 && cpu.idle.len() > 4));
        let spans = || model.cpus.iter().flat_map(|cpu| &cpu.spans);
        assert!(spans().all(|span| span.left != Left::Unseen));
        let woken = spans().filter(|span| span.woken.is_some()).count();
        assert!(woken > model.num_spans() * 9 / 10, "{woken} of {}", model.num_spans());
        assert_eq!(model.longest_queued.len(), 100);
    }

    #[test]
    fn one_cpu_robs_nobody() {
        let model = model(1, 2000);
        assert!(model.steals.is_empty());
        assert_eq!(model.cpus.len(), 1);
    }

    #[test]
    fn the_same_seed_gives_the_same_stream() {
        let plan = Plan { cpus: 3, events: 3000, seed: 5 };
        assert_eq!(stream(plan), stream(plan));
        assert_ne!(stream(plan), stream(Plan { seed: 6, ..plan }));
    }
}
