//! Walks through the events of all CPUs at once, in the order of time.
//!
//! Each CPU has a [`Place`] (the G that runs on it, the M, since when it is
//! halted) and each G a [`Life`] (its state, since when, the G that woke it). An event
//! changes both. Nothing is required of the order: an event that does not fit
//! what was seen before is taken as news of something that was not.
//!
//! # Woken before it sleeps
//!
//! A G that parks can be readied by another CPU before its own CPU has noted that
//! it left. The wake-up is kept, and used when the G starts without another one;
//! it may even start elsewhere first, and then its first CPU's note is late news.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::elsewhere::Watch;
use super::waits::Longest;
use super::{Clock, Cpu, G, Gap, Instant, Interval, Left, Model, Mount, Point, Span};
use super::{Steal, Wait, Wake, Woken};
use crate::decode::{Stream, Track};
use crate::palette;
use crate::wire::{Event, Kind};

pub(super) fn build(stream: &Stream) -> Model {
    let mut walk = Walk::new(stream);
    for (cpu, track) in stream.tracks.iter().enumerate() {
        if begins_halted(track) {
            walk.halt(cpu, 0);
        }
    }
    let clock = Clock(stream.header);
    // The next event of each CPU, the earliest on top; within a CPU time stands
    // still rather than going back.
    let next_of = |cpu: usize, index: usize, now: u64| {
        let event = stream.tracks[cpu].events.get(index)?;
        Some(Reverse((clock.ns(event.tsc).max(now), cpu, index)))
    };
    let mut queue: BinaryHeap<_> =
        (0..stream.tracks.len()).filter_map(|cpu| next_of(cpu, 0, 0)).collect();
    while let Some(Reverse((now, cpu, index))) = queue.pop() {
        let track = &stream.tracks[cpu];
        let gap = track.gaps.binary_search_by_key(&index, |gap| gap.at);
        if let Ok(found) = gap {
            walk.gap(cpu, now, track.gaps[found].lost);
        }
        walk.event(cpu, now, track.events[index]);
        queue.extend(next_of(cpu, index + 1, now));
    }
    walk.finish(stream)
}

/// A CPU that goes on, and did nothing before, was halted when the trace began; so
/// was one that did nothing at all.
fn begins_halted(track: &Track) -> bool {
    let does = |kind: &Kind| {
        !matches!(
            kind,
            Kind::Create
                | Kind::Ready
                | Kind::Fire
                | Kind::Tick
                | Kind::WakeSent
                | Kind::WakeReceived
                | Kind::Irq
                | Kind::Mount
                | Kind::Procs
                | Kind::Pack
        )
    };
    let first = track.events.iter().filter_map(|event| event.kind()).find(does);
    track.lost == 0 && first.is_none_or(|kind| kind == Kind::Resume)
}

/// What is known at one moment.
struct Walk {
    model: Model,
    places: Vec<Place>,
    lives: Vec<Life>,
    /// From a G's number to its index in `lives` and in the model.
    index_of: HashMap<u32, u32>,
    queued: Longest,
    parked: Longest,
    /// For each CPU, when it should have been running.
    watches: Vec<Watch>,
    runnable: u32,
    idle_ps: u32,
    unknown: u64,
}

/// A CPU.
#[derive(Default)]
struct Place {
    /// The running G, since when, and the G that woke it.
    running: Option<(u32, u64, Option<Woken>)>,
    idle_since: Option<u64>,
    /// The G that left in a call; how it waits may still be said.
    called: Option<u32>,
    m: u32,
    m_since: u64,
    last_event: u64,
}

/// A G.
#[derive(Clone, Copy, Default)]
struct Life {
    does: Does,
    since: u64,
    /// Where it runs, if it does.
    cpu: usize,
    woken: Option<Woken>,
    reason: u8,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Does {
    /// Nothing that was seen.
    #[default]
    Unseen,
    Queue,
    Run,
    Wait,
    Rest,
}

impl Walk {
    fn new(stream: &Stream) -> Walk {
        let cpus = stream.tracks.len();
        let counters = stream.counters.iter();
        let model = Model {
            cpus: counters.map(|&counters| Cpu { counters, ..Cpu::default() }).collect(),
            events: stream.events(),
            lost: stream.lost(),
            exit: stream.exit,
            distances: stream.distances.clone(),
            warnings: stream.warnings.clone(),
            ..Model::default()
        };
        // Until an event says otherwise M i is on CPU i.
        let place = |m| Place { m, ..Place::default() };
        Walk {
            model,
            places: (0..cpus as u32).map(place).collect(),
            lives: Vec::new(),
            index_of: HashMap::new(),
            queued: Longest::default(),
            parked: Longest::default(),
            watches: vec![Watch::default(); cpus],
            runnable: 0,
            idle_ps: 0,
            unknown: 0,
        }
    }

    fn event(&mut self, cpu: usize, now: u64, event: Event) {
        self.places[cpu].last_event = now;
        self.model.end_ns = self.model.end_ns.max(now);
        let Some(kind) = event.kind() else {
            self.unknown += 1;
            return;
        };
        self.model.cpus[cpu].counts.add(kind);
        let arg = event.arg();
        match kind {
            Kind::Create => self.create(cpu, now, event.g),
            Kind::Start => self.start(cpu, now, event),
            Kind::Yield | Kind::Expire | Kind::Park | Kind::Exit | Kind::Displace => {
                self.leaves(cpu, now, left(kind, arg as u8));
            }
            Kind::Ready => {
                let how = if arg & 1 == 1 { Wake::Interrupt } else { Wake::Readied };
                self.ready(cpu, now, event.g, how);
            }
            Kind::Fire => {
                self.instant(cpu, now, kind, arg);
                self.ready(cpu, now, event.g, Wake::Timer);
            }
            Kind::Halt => self.halt(cpu, now),
            Kind::Resume => self.resume(cpu, now),
            Kind::Handoff => {
                let before = self.places[cpu].running.map(|(g, ..)| g);
                self.leaves(cpu, now, Left::InCall);
                self.places[cpu].called = before;
                self.mount(cpu, now, arg);
            }
            Kind::Mount => self.mount(cpu, now, arg),
            Kind::Steal => self.steal(cpu, now, event),
            Kind::Tick
            | Kind::WakeSent
            | Kind::WakeReceived
            | Kind::Irq
            | Kind::Procs
            | Kind::Pack => {
                match kind {
                    Kind::Tick => self.watches[cpu].ticked(now, arg),
                    Kind::WakeReceived => self.watches[cpu].woken(now),
                    Kind::WakeSent => {
                        self.watches
                            .get_mut(arg as usize)
                            .into_iter()
                            .for_each(|one| one.sent(now));
                    }
                    _ => {}
                }
                self.instant(cpu, now, kind, arg);
            }
        }
    }

    fn create(&mut self, cpu: usize, now: u64, number: u32) {
        let Some(g) = self.index(number) else { return };
        self.model.gs[g as usize].created.get_or_insert(now);
        let life = &mut self.lives[g as usize];
        if matches!(life.does, Does::Unseen | Does::Rest) {
            (life.does, life.since) = (Does::Wait, now); // for this
        }
        self.ready(cpu, now, number, Wake::Created);
    }

    fn start(&mut self, cpu: usize, now: u64, event: Event) {
        if let Some((kind, reason)) = event.before() {
            self.model.cpus[cpu].counts.add(kind);
            self.leaves(cpu, now, left(kind, reason));
        }
        // A G that runs on although another starts: the event of its leaving is missing.
        self.leaves(cpu, now, Left::Unseen);
        self.places[cpu].called = None;
        self.resume(cpu, now);
        let Some(g) = self.index(event.g) else { return };
        let life = self.lives[g as usize];
        match life.does {
            Does::Queue => self.queue_ends(g, cpu, now),
            // Woken before it slept, or the waker was not seen.
            Does::Wait => self.wait_ends(g, cpu, now),
            // It still runs elsewhere, by a clock that is behind, or so says the
            // stream.
            Does::Run | Does::Unseen | Does::Rest => {}
        }
        let runs = Life { does: Does::Run, since: now, cpu, ..Life::default() };
        self.lives[g as usize] = runs;
        self.model.gs[g as usize].switches += 1;
        self.places[cpu].running = Some((g, now, life.woken));
    }

    /// The G that runs on `cpu`, if there is one, leaves it.
    fn leaves(&mut self, cpu: usize, now: u64, left: Left) {
        let place = &mut self.places[cpu];
        let Some((g, from, woken)) = place.running.take() else {
            self.called_says(cpu, now, left);
            return;
        };
        let time = Interval { from, to: now };
        self.model.cpus[cpu].spans.push(Span { time, g, m: place.m, left, woken });
        let facts = &mut self.model.gs[g as usize];
        facts.run_ns = facts.run_ns.saturating_add(time.ns());
        let life = &mut self.lives[g as usize];
        // It has started elsewhere in the meantime: what it does is known.
        if life.does != Does::Run || life.cpu != cpu {
            return;
        }
        life.since = now;
        match left {
            Left::Yielded | Left::Preempted | Left::Displaced => {
                life.woken = None;
                self.enqueue(g, now);
            }
            Left::Parked(reason) => (life.does, life.reason) = (Does::Wait, reason),
            Left::InCall => (life.does, life.reason) = (Does::Wait, 0),
            Left::Exited => {
                life.does = Does::Rest;
                facts.ended = Some(now);
            }
            Left::StillRunning | Left::Unseen => life.does = Does::Unseen,
        }
    }

    /// A G that left in a call has said how it waits, after the fact.
    fn called_says(&mut self, cpu: usize, now: u64, left: Left) {
        let Some(g) = self.places[cpu].called.take() else { return };
        let life = &mut self.lives[g as usize];
        if life.does != Does::Wait {
            return;
        }
        match left {
            Left::Parked(reason) => life.reason = reason,
            Left::Yielded | Left::Preempted | Left::Displaced => {
                life.woken = None;
                self.enqueue(g, now);
            }
            _ => {}
        }
    }

    fn ready(&mut self, cpu: usize, now: u64, number: u32, how: Wake) {
        let Some(g) = self.index(number) else { return };
        let by = match how {
            Wake::Created | Wake::Readied => self.places[cpu].running.map(|(g, ..)| g),
            Wake::Interrupt | Wake::Timer => None,
        };
        let woken = Some(Woken { at: now, cpu: cpu as u32, by, how });
        match self.lives[g as usize].does {
            Does::Wait | Does::Unseen => {
                self.wait_ends(g, cpu, now);
                self.lives[g as usize].woken = woken;
                self.enqueue(g, now);
            }
            Does::Run => self.lives[g as usize].woken = woken, // see "Woken before it sleeps"
            Does::Queue | Does::Rest => {}
        }
    }

    fn enqueue(&mut self, g: u32, now: u64) {
        let life = &mut self.lives[g as usize];
        (life.does, life.since) = (Does::Queue, now);
        self.runnable += 1;
        point(&mut self.model.runnable, now, self.runnable);
    }

    fn queue_ends(&mut self, g: u32, cpu: usize, now: u64) {
        let time = Interval { from: self.lives[g as usize].since, to: now };
        let sum = &mut self.model.gs[g as usize].queued_ns;
        *sum = sum.saturating_add(time.ns());
        self.queued.show(Wait { g, time, cpu: cpu as u32, reason: 0 });
        self.runnable -= 1;
        point(&mut self.model.runnable, now, self.runnable);
    }

    fn wait_ends(&mut self, g: u32, cpu: usize, now: u64) {
        let Life { does, since, reason, .. } = self.lives[g as usize];
        if does == Does::Wait {
            let time = Interval { from: since, to: now };
            let sum = &mut self.model.gs[g as usize].parked_ns;
            *sum = sum.saturating_add(time.ns());
            self.parked.show(Wait { g, time, cpu: cpu as u32, reason });
        }
    }

    fn halt(&mut self, cpu: usize, now: u64) {
        self.leaves(cpu, now, Left::Unseen);
        if self.places[cpu].idle_since.is_none() {
            self.places[cpu].idle_since = Some(now);
            self.idle_ps += 1;
            point(&mut self.model.idle_ps, now, self.idle_ps);
        }
    }

    fn resume(&mut self, cpu: usize, now: u64) {
        if let Some(from) = self.places[cpu].idle_since.take() {
            self.model.cpus[cpu].idle.push(Interval { from, to: now });
            self.idle_ps -= 1;
            point(&mut self.model.idle_ps, now, self.idle_ps);
        }
    }

    fn mount(&mut self, cpu: usize, now: u64, m: u32) {
        let place = &mut self.places[cpu];
        let time = Interval { from: place.m_since, to: now };
        let before = Mount { m: place.m, cpu: cpu as u32, time };
        if place.m != m {
            (place.m, place.m_since) = (m, now);
            if time.ns() > 0 {
                self.model.mounts.push(before);
            }
        }
    }

    fn steal(&mut self, cpu: usize, now: u64, event: Event) {
        let g = self.index(event.g);
        let (victim, count) = (event.arg() >> 12, event.arg() & 0xfff);
        self.model.steals.push(Steal { at: now, thief: cpu as u32, victim, count, g });
    }

    fn instant(&mut self, cpu: usize, now: u64, kind: Kind, arg: u32) {
        self.model.instants.push(Instant { at: now, cpu: cpu as u32, kind, arg });
    }

    /// Events of this CPU are missing up to now: what it did is not known.
    fn gap(&mut self, cpu: usize, now: u64, lost: u64) {
        let from = self.places[cpu].last_event;
        self.leaves(cpu, from, Left::Unseen);
        self.resume(cpu, from);
        self.places[cpu].called = None;
        self.model.cpus[cpu].gaps.push(Gap { time: Interval { from, to: now }, lost });
    }

    /// The index of the G of that number; `None` for none.
    fn index(&mut self, number: u32) -> Option<u32> {
        if number == 0 {
            return None;
        }
        let Walk { model, lives, index_of, .. } = self;
        Some(*index_of.entry(number).or_insert_with(|| {
            lives.push(Life::default());
            model.gs.push(G { number, ..G::default() });
            model.gs.len() as u32 - 1
        }))
    }

    fn finish(mut self, stream: &Stream) -> Model {
        let end = self.model.end_ns;
        for cpu in 0..self.places.len() {
            self.leaves(cpu, end, Left::StillRunning);
            self.resume(cpu, end);
            self.mount(cpu, end, u32::MAX);
        }
        for name in &stream.names {
            if let Some(&g) = self.index_of.get(&name.g) {
                let g = &mut self.model.gs[g as usize];
                g.name.clone_from(&name.name);
                g.site.clone_from(&name.site);
            }
        }
        let unknown = self.unknown;
        if unknown > 0 {
            self.model.warnings.add(|| format!("{unknown} events are of an unknown kind"));
        }
        self.model.longest_queued = self.queued.into_waits();
        self.model.longest_parked = self.parked.into_waits();
        for (cpu, watch) in self.model.cpus.iter_mut().zip(self.watches) {
            cpu.elsewhere = watch.into_intervals();
        }
        by_number(&mut self.model);
        palette::paint(&mut self.model);
        self.model
    }
}

fn left(kind: Kind, reason: u8) -> Left {
    match kind {
        Kind::Yield => Left::Yielded,
        Kind::Expire => Left::Preempted,
        Kind::Park => Left::Parked(reason),
        Kind::Exit => Left::Exited,
        Kind::Displace => Left::Displaced,
        Kind::Handoff => Left::InCall,
        _ => Left::Unseen,
    }
}

/// Two changes in one moment are one.
fn point(points: &mut Vec<Point>, at: u64, value: u32) {
    // Time 0 on one CPU may come after time 1 of another that was at a gap.
    let at = points.last().map_or(at, |last| last.at.max(at));
    match points.last_mut() {
        Some(last) if last.at == at => last.value = value,
        _ => points.push(Point { at, value }),
    }
}

/// Sorts the Gs by number; until here they are in the order of appearance.
fn by_number(model: &mut Model) {
    let mut order: Vec<u32> = (0..model.gs.len() as u32).collect();
    order.sort_by_key(|&old| model.gs[old as usize].number);
    let mut new_of = vec![0; order.len()];
    for (new, &old) in order.iter().enumerate() {
        new_of[old as usize] = new as u32;
    }
    model.gs.sort_by_key(|g| g.number);
    let rename = |g: &mut u32| *g = new_of[*g as usize];
    for span in model.cpus.iter_mut().flat_map(|cpu| &mut cpu.spans) {
        rename(&mut span.g);
        span.woken.iter_mut().filter_map(|woken| woken.by.as_mut()).for_each(rename);
    }
    model.steals.iter_mut().filter_map(|steal| steal.g.as_mut()).for_each(rename);
    let waits = model.longest_queued.iter_mut().chain(&mut model.longest_parked);
    waits.for_each(|wait| rename(&mut wait.g));
}
