//! Host threads as CPUs, all events at once: nothing lost, nothing run twice.
//!
//! For Miri (strict provenance, preemption on) and ThreadSanitizer: the context of a G
//! is a plain cell, so a G that is run before its context is saved, or without a
//! happens-before edge from where it was saved, is a data race that they report.
//! Numbers are small under Miri.
#![cfg(not(any(loom, feature = "sim")))]

mod common;

use common::{exit, finish_park, g, machine};
use sched::{G, Next, P, Sched, Wake};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex};
use std::thread;

const CPUS: usize = 4;
const GS: usize = if cfg!(miri) { 32 } else { 2_000 };
const STEPS: u32 = if cfg!(miri) { 12 } else { 200 };

/// Stands for the saved context of a G: how often it has run.
struct Context {
    runs: UnsafeCell<u32>,
    on_cpu: AtomicBool,
}

// SAFETY: `runs` is touched only by the CPU that runs the G. The test checks that this
// is one CPU at a time, with an edge from each to the next.
unsafe impl Sync for Context {}

/// The interrupt line of a CPU: an interrupt stays pending until taken.
#[derive(Default)]
struct Line {
    pending: Mutex<bool>,
    rung: Condvar,
}

struct Machine {
    sched: &'static Sched<Context>,
    lines: [Line; CPUS],
    waiting: Mutex<Vec<&'static G<Context>>>,
    ended: AtomicUsize,
}

impl Machine {
    fn send(&self, from: usize, wake: Wake) {
        if let Wake::Cpu(cpu) = wake
            && cpu != from
        {
            self.interrupt(cpu);
        }
    }

    fn interrupt(&self, cpu: usize) {
        *self.lines[cpu].pending.lock().unwrap() = true;
        self.lines[cpu].rung.notify_one();
    }

    fn halt(&self, cpu: usize) {
        let mut pending = self.lines[cpu].pending.lock().unwrap();
        while !*pending {
            pending = self.lines[cpu].rung.wait(pending).unwrap();
        }
        *pending = false;
    }

    /// Readies one G that waits, as another G or as an interrupt would.
    fn ready_one(&self, p: &mut P<Context>, by_interrupt: bool) -> bool {
        let Some(g) = self.waiting.lock().unwrap().pop() else { return false };
        let wake = if by_interrupt {
            self.sched.ready_from_interrupt(p.index(), g.handle(), |_, _| ())
        } else {
            self.sched.ready(p, g.handle(), |_, _| ())
        };
        self.send(p.index(), wake);
        true
    }

    fn cpu(&self, mut p: P<Context>) {
        while self.ended.load(SeqCst) < GS {
            match self.sched.find_runnable(&mut p) {
                Next::Run(run) => {
                    self.send(p.index(), run.wake);
                    self.run(&mut p, run.g);
                }
                Next::Park(wake) => {
                    self.send(p.index(), wake);
                    // A device readies a G that waits.
                    if !self.ready_one(&mut p, true) && self.ended.load(SeqCst) < GS {
                        self.halt(p.index());
                    }
                }
            }
        }
        // A waker may have claimed this P as a spinner meanwhile: check once more.
        let last = self.sched.find_runnable(&mut p);
        assert!(matches!(last, Next::Park(_)), "all have ended");
        (0..CPUS).for_each(|cpu| self.interrupt(cpu));
    }

    /// Runs `g` for a step, after which it stops in one of several ways.
    fn run(&self, p: &mut P<Context>, g: &'static G<Context>) {
        assert!(!g.kernel.on_cpu.swap(true, SeqCst), "runs twice");
        // SAFETY: this CPU runs the G.
        let runs = unsafe { &mut *g.kernel.runs.get() };
        *runs += 1;
        let step = *runs;
        let choice = step as usize + g.id() as usize;
        if choice.is_multiple_of(3) {
            let _ = self.ready_one(p, choice.is_multiple_of(2));
        }
        if step < STEPS && choice % 4 == 3 {
            g.begin_park();
            self.waiting.lock().unwrap().push(g);
            // Still on its stack; another CPU may ready it now.
            *runs += 1;
            g.kernel.on_cpu.store(false, SeqCst);
            let wake = finish_park(self.sched, p, g);
            return self.send(p.index(), wake);
        }
        g.kernel.on_cpu.store(false, SeqCst);
        let wake = match choice % 4 {
            _ if step >= STEPS => {
                exit(self.sched, p, g);
                self.ended.fetch_add(1, SeqCst);
                Wake::Nobody
            }
            0 => self.sched.expired(p, g),
            _ => {
                self.sched.yielded(p, g);
                Wake::Nobody
            }
        };
        self.send(p.index(), wake);
    }
}

#[test]
fn everything_at_once_loses_no_g_and_runs_none_twice() {
    let (sched, mut ps) = machine(CPUS);
    for _ in 0..GS {
        let context = Context { runs: UnsafeCell::new(0), on_cpu: AtomicBool::new(false) };
        let _ = sched.start(&mut ps[0], g(context), None);
    }
    let machine = Machine {
        sched,
        lines: Default::default(),
        waiting: Mutex::new(vec![]),
        ended: AtomicUsize::new(0),
    };
    let machine = &machine;
    thread::scope(|scope| {
        for p in ps {
            scope.spawn(move || machine.cpu(p));
        }
    });
    assert_eq!(machine.ended.load(SeqCst), GS);
    assert_eq!(sched.counts().global, 0);
    // A CPU that was woken as the last G ended may have left without a check: it counts
    // as spinning for ever. One at most, as no CPU is woken while a P spins.
    assert!(sched.counts().spinning <= 1);
}
