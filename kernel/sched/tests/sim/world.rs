//! The simulated machine: its CPUs, its interrupts, its Gs, its invariants.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use sched::sim::{self, Planted};
use sched::{G, Home, Next, P, PSlot, RUNQ_CAPACITY, Sched, Status, Stop, Wake};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Steps for each CPU after which an unfinished machine counts as stuck.
const STEPS_MAX: u64 = 1_000_000;

/// The state of a G's script.
struct Script {
    /// CPU + 1 whose stack it is on, or 0.
    on_cpu: AtomicUsize,
    /// Stops that the G makes before it ends.
    left: AtomicU32,
}

#[derive(Clone, Copy)]
enum Doing {
    /// In `sched`, interrupts off.
    Deciding,
    /// Runs a G, interrupts on.
    Running,
    /// Halted, interrupts on.
    Halted,
    /// Halted, interrupts on, and keeps its P and its G, which is in a call.
    InCall(&'static G<Script>),
}

impl Doing {
    fn is_halted(self) -> bool {
        matches!(self, Doing::Halted | Doing::InCall(_))
    }
}

struct Cpu {
    doing: Cell<Doing>,
    /// An interrupt is pending.
    pending: Cell<bool>,
    /// The slice timer runs.
    timed: Cell<bool>,
    /// The CPU gets one in this many turns: slow CPUs have a large number.
    slowness: u64,
}

struct World {
    sched: &'static Sched<Script>,
    cpus: Vec<Cpu>,
    /// Interrupts under way: when, to which CPU.
    sent: RefCell<Vec<(u64, usize)>>,
    now: Cell<u64>,
    random: RefCell<Rng>,
    gs: RefCell<Vec<&'static G<Script>>>,
    /// Gs that are parked, or about to be: the code that takes one out readies it.
    waiting: RefCell<Vec<&'static G<Script>>>,
    /// Gs that have not ended, and how many more may be made.
    alive: Cell<usize>,
    budget: Cell<usize>,
    /// Gs that a G makes at a time: in some worlds enough to fill a ring.
    burst: usize,
    /// How often the limit may still change: each change interrupts many CPUs.
    limit_changes: Cell<u32>,
    over: Cell<bool>,
}

thread_local! {
    static YIELDERS: RefCell<Vec<*const Yielder<(), ()>>> = const { RefCell::new(vec![]) };
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(vec![]) };
}

/// Switches to another CPU.
fn switch() {
    let yielder = YIELDERS.with_borrow(|all| all[sim::cpu()]);
    // SAFETY: a CPU's yielder lives as long as its coroutine, which is running here.
    let yielder = unsafe { &*yielder };
    yielder.suspend(());
}

/// Runs the machine of `seed` to its end. Panics if an invariant fails.
pub fn simulate(seed: u64, cpus: usize, planted: Option<Planted>) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..8 {
        let _ = rng.next();
    }
    let slots: Vec<PSlot<Script>> = (0..cpus).map(|_| PSlot::new()).collect();
    let sched: &'static Sched<Script> = Box::leak(Box::new(Sched::new(Vec::leak(slots))));
    // A large machine takes many steps to do anything: switch less often.
    let every = ([1, 2, 4, 16][rng.below(4)] * cpus.div_ceil(8)) as u32;
    let burst = if rng.one_in(4) { RUNQ_CAPACITY + 1 } else { 1 };
    let world = Rc::new(World {
        sched,
        cpus: (0..cpus)
            .map(|_| Cpu {
                doing: Cell::new(Doing::Deciding),
                pending: Cell::new(false),
                timed: Cell::new(false),
                slowness: [1, 1, 2, 10][rng.below(4)],
            })
            .collect(),
        sent: RefCell::default(),
        now: Cell::new(0),
        gs: RefCell::default(),
        waiting: RefCell::default(),
        alive: Cell::new(0),
        budget: Cell::new(4 + rng.below(12) + cpus + 4 * (burst - 1)),
        burst,
        limit_changes: Cell::new(if rng.one_in(4) { 8 } else { 0 }),
        over: Cell::new(false),
        random: RefCell::new(rng),
    });
    let mut ps: Vec<P<Script>> = (0..cpus).map(|i| sched.acquire(i, seed).expect("new")).collect();
    let _ = world.spawn(&mut ps[0]);
    YIELDERS.set(vec![std::ptr::null(); cpus]);
    let mut coroutines: Vec<_> = ps.into_iter().map(|p| start_cpu(Rc::clone(&world), p)).collect();
    sim::begin(cpus, seed, every, planted, switch);
    let result = catch_unwind(AssertUnwindSafe(|| world.drive(&mut coroutines)));
    // Wind up: with nothing switching, each CPU leaves its loop.
    sim::end();
    world.over.set(true);
    match result {
        Ok(()) => {
            for (cpu, mut coroutine) in coroutines.into_iter().enumerate() {
                sim::set_cpu(Some(cpu));
                while !coroutine.done() {
                    let _ = coroutine.resume(());
                }
                STACKS.with_borrow_mut(|pool| pool.push(coroutine.into_stack()));
            }
            assert_eq!(world.alive.get(), 0);
        }
        Err(panic) => {
            // Coroutines in the middle of a call cannot be unwound; their stacks leak.
            // A failure is rare.
            coroutines.into_iter().for_each(std::mem::forget);
            std::panic::resume_unwind(panic);
        }
    }
}

type CpuCoroutine = Coroutine<(), (), (), DefaultStack>;

fn start_cpu(world: Rc<World>, p: P<Script>) -> CpuCoroutine {
    let stack = STACKS.with_borrow_mut(Vec::pop);
    let stack = stack.unwrap_or_else(|| DefaultStack::new(128 << 10).expect("no memory"));
    Coroutine::with_stack(stack, move |yielder, ()| {
        YIELDERS.with_borrow_mut(|all| all[p.index()] = yielder);
        world.cpu_loop(p, yielder);
    })
}

impl World {
    /// The machine itself: gives CPUs their turns, delivers interrupts.
    fn drive(&self, coroutines: &mut [CpuCoroutine]) {
        loop {
            self.now.set(self.now.get() + 1);
            assert!(self.now.get() < STEPS_MAX * self.cpus.len() as u64, "no progress");
            self.deliver();
            let Some(cpu) = self.choose() else {
                if self.alive.get() == 0 {
                    return;
                }
                self.nobody_runs();
                continue;
            };
            sim::set_cpu(Some(cpu));
            coroutines[cpu].resume(());
            sim::set_cpu(None);
            let r = self.random(4 * self.cpus.len());
            if r < self.cpus.len() {
                sim::let_out(r);
            }
            self.check();
        }
    }

    fn deliver(&self) {
        let now = self.now.get();
        self.sent.borrow_mut().retain(|&(at, cpu)| {
            if at <= now {
                self.cpus[cpu].pending.set(true);
            }
            at > now
        });
    }

    /// A CPU that can run, at random and by slowness.
    fn choose(&self) -> Option<usize> {
        let n = self.cpus.len();
        let can = |cpu: usize| {
            let c = &self.cpus[cpu];
            !c.doing.get().is_halted() || c.pending.get()
        };
        let start = self.random(n);
        let in_turn = (0..n).map(|i| (start + i) % n).filter(|&cpu| can(cpu));
        let mut first = None;
        for cpu in in_turn {
            first = first.or(Some(cpu));
            if self.random(self.cpus[cpu].slowness as usize) == 0 {
                return Some(cpu);
            }
        }
        first
    }

    /// All CPUs halt. Either an interrupt is under way, or a device has one, or the
    /// scheduler has lost a G.
    fn nobody_runs(&self) {
        if let Some(&(at, _)) = self.sent.borrow().iter().min() {
            return self.now.set(at);
        }
        sim::flush_all();
        let in_call = |cpu: &&Cpu| matches!(cpu.doing.get(), Doing::InCall(_));
        if let Some(cpu) = self.cpus.iter().find(in_call) {
            return cpu.pending.set(true); // the monitor's tick
        }
        for g in self.gs.borrow().iter() {
            assert!(g.status() != Status::Runnable, "all halt, G {} waits", g.id());
        }
        assert!(!self.waiting.borrow().is_empty(), "all halt, nobody waits for a device");
        self.cpus[self.random(self.cpus.len())].pending.set(true);
    }

    /// The invariants, after every switch. `step_on` checks that no G runs twice.
    fn check(&self) {
        let counts = self.sched.counts();
        let bound = self.cpus.len().div_ceil(2).max(1);
        assert!(counts.spinning <= bound, "{} spin of {}", counts.spinning, self.cpus.len());
        // Work conservation: in a quiet moment (no CPU decides, no interrupt is under
        // way) no CPU halts while a G waits that it could run.
        if !self.sent.borrow().is_empty() {
            return;
        }
        let mut halted = false;
        for (i, cpu) in self.cpus.iter().enumerate() {
            if matches!(cpu.doing.get(), Doing::Deciding) || cpu.pending.get() {
                return;
            }
            halted |= matches!(cpu.doing.get(), Doing::Halted) && i < self.sched.limit();
        }
        if halted || counts.global > 0 {
            sim::flush_all(); // so that memory is up to date
        }
        let global = self.sched.counts().global;
        for (i, cpu) in self.cpus.iter().enumerate() {
            let hog = matches!(cpu.doing.get(), Doing::Running) && !cpu.timed.get();
            assert!(!hog || global == 0, "CPU {i} has no timer, a G waits");
            if let Doing::InCall(g) = cpu.doing.get() {
                assert!(!g.is_woken(), "CPU {i} halts in a call that is over");
            }
        }
        if !halted {
            return;
        }
        for g in self.gs.borrow().iter() {
            let waits = g.status() == Status::Runnable && g.pin().is_none();
            assert!(!waits, "a CPU halts, G {} waits", g.id());
        }
    }

    /// The endless loop of the M on a CPU.
    fn cpu_loop(&self, mut p: P<Script>, yielder: &Yielder<(), ()>) {
        let me = &self.cpus[p.index()];
        while !self.over.get() {
            match self.sched.find_runnable(&mut p) {
                Next::Run(run) => {
                    self.send(p.index(), run.wake);
                    self.run(&mut p, run.g);
                }
                Next::Park(wake) => {
                    self.send(p.index(), wake);
                    me.doing.set(Doing::Halted);
                    while !me.pending.get() && !self.over.get() {
                        yielder.suspend(());
                    }
                    me.doing.set(Doing::Deciding);
                    let _ = self.interrupt(&mut p); // no G runs here
                }
            }
        }
    }

    /// Runs `g` until it stops in a way that ends in `find_runnable`.
    fn run(&self, p: &mut P<Script>, g: &'static G<Script>) {
        self.step_on(p, g);
        loop {
            if self.work(p) {
                self.step_off(g);
                let wake = self.sched.stopped(p, g, Stop::Displace);
                return self.send(p.index(), wake);
            }
            if let Some(left) = g.kernel.left.load(Relaxed).checked_sub(1) {
                g.kernel.left.store(left, Relaxed);
            } else {
                self.step_off(g);
                let _ = self.sched.stopped(p, g, Stop::Exit);
                return self.alive.set(self.alive.get() - 1);
            }
            match self.random(8) {
                0 | 1 => {
                    for _ in 0..self.burst {
                        let wake = self.spawn(p);
                        self.send(p.index(), wake);
                    }
                }
                2 => self.ready_one(p),
                3 => {
                    self.step_off(g);
                    let wake = self.sched.stopped(p, g, Stop::Yield);
                    return self.send(p.index(), wake);
                }
                4 => {
                    if !self.call(p, g) {
                        return;
                    }
                }
                5 => {
                    self.step_off(g);
                    let wake = self.sched.stopped(p, g, Stop::Expire);
                    return self.send(p.index(), wake);
                }
                _ => {
                    self.begin_park(g);
                    return self.park(p, g);
                }
            }
        }
    }

    fn begin_park(&self, g: &'static G<Script>) {
        g.begin_park();
        sim::flush_own(); // the lock of the object it waits for
        self.waiting.borrow_mut().push(g);
        switch(); // on its stack still, and other CPUs may ready it
    }

    fn park(&self, p: &mut P<Script>, g: &'static G<Script>) {
        self.step_off(g);
        let wake = self.sched.stopped(p, g, Stop::Park);
        self.send(p.index(), wake);
    }

    /// The G blocks in a call. Its CPU halts and keeps it, until it is readied or the
    /// monitor retakes the P; or does not wait for the monitor. True if the G continues
    /// here.
    fn call(&self, p: &mut P<Script>, g: &'static G<Script>) -> bool {
        let me = &self.cpus[p.index()];
        g.enter_call(p.index());
        self.begin_park(g);
        while self.random(3) > 0 && g.halt_on(p.index()) {
            me.doing.set(Doing::InCall(g));
            while !me.pending.get() && !self.over.get() {
                switch();
            }
            me.doing.set(Doing::Deciding);
            let _ = self.interrupt(p); // a G that is about to park is not displaced
        }
        if g.is_woken() && self.random(2) == 0 {
            assert!(g.cancel_park());
            g.exit_call();
            return true;
        }
        self.park(p, g);
        false
    }

    fn step_on(&self, p: &P<Script>, g: &'static G<Script>) {
        let before = g.kernel.on_cpu.swap(p.index() + 1, Relaxed);
        assert!(before == 0, "G {} runs twice", g.id());
        match g.home() {
            Home::Anywhere => {}
            Home::Pinned(cpu) => assert!(cpu == p.index(), "G {} on a wrong CPU", g.id()),
            Home::InCall(_) if self.random(2) == 0 => g.exit_call(),
            Home::InCall(_) => g.enter_call(p.index()), // its M came along
        }
    }

    fn step_off(&self, g: &'static G<Script>) {
        g.kernel.on_cpu.store(0, Relaxed);
    }

    /// The G computes for a while, interrupts on. True if it is displaced.
    fn work(&self, p: &mut P<Script>) -> bool {
        let me = &self.cpus[p.index()];
        me.timed.set(self.sched.needs_timer(p));
        for _ in 0..self.random(6) {
            me.doing.set(Doing::Running);
            switch();
            me.doing.set(Doing::Deciding);
            if me.pending.get() || self.random(16) == 0 {
                if self.interrupt(p) && self.random(4) > 0 {
                    return true;
                }
                me.timed.set(self.sched.needs_timer(p));
            }
        }
        false
    }

    /// The interrupt handler: a device may ready a G, the limit may change, the inbox
    /// is emptied. True if the running G is displaced.
    fn interrupt(&self, p: &mut P<Script>) -> bool {
        if self.over.get() {
            return false;
        }
        self.cpus[p.index()].pending.set(false);
        let ready = self.take_waiting();
        if let Some(g) = ready {
            let wake = self.sched.ready_from_interrupt(p.index(), g.handle(), |_, _| ());
            self.send(p.index(), wake);
        }
        if self.limit_changes.get() > 0 && self.random(8) == 0 {
            self.limit_changes.set(self.limit_changes.get() - 1);
            for cpu in self.sched.set_limit(1 + self.random(self.cpus.len())) {
                self.send(usize::MAX, Wake::Cpu(cpu));
            }
        }
        let arrival = self.sched.arrive(p);
        self.send(p.index(), arrival.wake);
        arrival.displace
    }

    /// A G readies another.
    fn ready_one(&self, p: &mut P<Script>) {
        if let Some(g) = self.take_waiting() {
            let wake = self.sched.ready(p, g.handle(), |_, _| ());
            self.send(p.index(), wake);
            // Once more, as a second channel of a `select` might.
            let wake = self.sched.ready(p, g.handle(), |_, _| ());
            self.send(p.index(), wake);
        }
    }

    fn take_waiting(&self) -> Option<&'static G<Script>> {
        let mut waiting = self.waiting.borrow_mut();
        let n = waiting.len();
        (n > 0).then(|| waiting.swap_remove(self.random(n)))
    }

    /// A G makes another, if the budget allows.
    fn spawn(&self, p: &mut P<Script>) -> Wake {
        let Some(budget) = self.budget.get().checked_sub(1) else { return Wake::Nobody };
        self.budget.set(budget);
        self.alive.set(self.alive.get() + 1);
        let left = AtomicU32::new(2 + self.random(8) as u32);
        let g = self.sched.take_dead(p).unwrap_or_else(|| {
            let script = Script { on_cpu: AtomicUsize::new(0), left: AtomicU32::new(0) };
            let g: &'static G<Script> = Box::leak(Box::new(G::new(script)));
            self.gs.borrow_mut().push(g);
            g
        });
        g.kernel.left.store(left.into_inner(), Relaxed);
        let pin = (self.random(6) == 0).then(|| self.random(self.cpus.len()));
        self.sched.start(p, g, pin)
    }

    /// Carries out a wake-up, and interrupts the CPUs that need a timer now.
    fn send(&self, from: usize, wake: Wake) {
        while let Some(cpu) = self.sched.take_untimed() {
            self.post(from, cpu);
        }
        if let Wake::Cpu(cpu) = wake {
            self.post(from, cpu);
        }
    }

    /// Sends an interrupt, which arrives at once or late.
    fn post(&self, from: usize, cpu: usize) {
        if cpu == from {
            return self.cpus[cpu].pending.set(true);
        }
        let delay = if self.random(3) == 0 { self.random(200) as u64 } else { 0 };
        self.sent.borrow_mut().push((self.now.get() + delay, cpu));
    }

    fn random(&self, n: usize) -> usize {
        self.random.borrow_mut().below(n)
    }
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}
