//! The simulated machine: its CPUs, its interrupts, its Gs, its invariants.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use sched::near::{Cpus, Row, Seat};
use sched::sim::{self, Planted};
use sched::system::{self, MRing, Rules, System};
use sched::{
    G, Next, Owner, P, PSlot, Priority, RUNQ_CAPACITY, Run, Sched, Share, ShareLane, Slice, Status,
    Wake,
};
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
    /// The G's name in messages: how many were made before, plus one. Not its id, as reading
    /// that is a step of the machine.
    number: AtomicU32,
}

fn number(g: &G<Script>) -> u32 {
    g.kernel.number.load(Relaxed)
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
    /// How many were made.
    made: Cell<u32>,
    steps_max: u64,
    /// Gs that a G makes at a time: in some worlds enough to fill a ring.
    burst: usize,
    /// How often the limit may still change: each change interrupts many CPUs.
    limit_changes: Cell<u32>,
    over: Cell<bool>,
    /// In some worlds some Gs are not normal; and the lock that the kernel has for their ranks.
    is_ranked: bool,
    /// Whether a rank counts under this system; a priority may be given under each.
    has_ranks: bool,
    ranking: Cell<bool>,
    /// In some worlds programs have lanes; that of a program whose share is another, if it is there;
    /// and the lock that the kernel has for them.
    lanes: [Option<ShareLane>; 3],
    other_lane: Cell<Option<ShareLane>>,
    sharing: Cell<bool>,
    rules: Rules,
    /// The rings of spare Ms, and of Ms that are away with a G in a call.
    spare_rings: RefCell<Vec<Owner<Script>>>,
    away_rings: RefCell<Vec<(*const G<Script>, Owner<Script>)>>,
}

thread_local! {
    /// How many Gs the last machine made.
    pub static MADE: Cell<u32> = const { Cell::new(0) };
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

/// A machine: how many CPUs, and what is not as its seed says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub cpus: usize,
    /// How many Gs are made at most.
    pub gs: Option<usize>,
    /// One access in this many may switch.
    pub every: Option<u32>,
    /// Steps for each CPU after which an unfinished machine counts as stuck.
    pub steps: u64,
    /// The scheduling system.
    pub system: &'static str,
    /// CPUs are near and far: two threads to a core, two cores to a node ([`seats`]).
    pub has_nodes: bool,
}

/// Where the CPUs of a machine with nodes sit.
pub fn seats(cpus: usize) -> Vec<Seat> {
    let seat = |i: u32| Seat { node: i / 4, package: i / 4, cache: i / 4, core: i / 2 };
    (0..cpus as u32).map(seat).collect()
}

/// Gives the Ps their rows.
pub fn seat<K: Sync + 'static>(sched: &Sched<K>, ps: &mut [P<K>]) {
    let seats = seats(ps.len());
    let cores = (0..ps.len()).map(|i| Cpus::of_core(&seats, i)).collect::<Vec<_>>().leak();
    for (i, p) in ps.iter_mut().enumerate() {
        sched.seat(p, Box::leak(Box::new(Row::new(&seats, i, cores))));
    }
}

impl Shape {
    pub fn of(cpus: usize) -> Self {
        let (gs, every, system) = (None, None, "mpn");
        Shape { cpus, gs, every, steps: STEPS_MAX, system, has_nodes: false }
    }
}

/// Runs the machine of `seed` to its end. Panics if an invariant fails.
pub fn simulate(seed: u64, shape: Shape, planted: Option<Planted>) {
    let cpus = shape.cpus;
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..8 {
        let _ = rng.next();
    }
    let slots: Vec<PSlot<Script>> = (0..cpus).map(|_| PSlot::new()).collect();
    let sched: &'static Sched<Script> = Box::leak(Box::new(Sched::new(Vec::leak(slots))));
    // A large machine takes many steps to do anything: switch less often.
    let every = ([1, 2, 4, 16][rng.below(4)] * cpus.div_ceil(8)) as u32;
    let every = shape.every.unwrap_or(every);
    let burst = if rng.one_in(4) { RUNQ_CAPACITY + 1 } else { 1 };
    for (i, slot) in sched.slots().iter().enumerate() {
        sim::name(slot, || format!("P {i}"));
    }
    let system = system::all().into_iter().find(|system| system.about().name == shape.system);
    let system: &'static dyn System<Script> = system.expect("a name of the table");
    let rules = system.about().rules;
    if rules.one_p {
        let _ = sched.set_limit(1);
    }
    let budget = |drawn: usize| shape.gs.unwrap_or(drawn);
    let is_shared = rng.one_in(2) && system.about().promises.shares;
    let most = Share::DEFAULT;
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
        budget: Cell::new(budget(4 + rng.below(12) + cpus + 4 * (burst - 1))),
        burst,
        made: Cell::new(0),
        steps_max: shape.steps * cpus as u64,
        limit_changes: Cell::new(if rng.one_in(4) && !rules.one_p { 8 } else { 0 }),
        over: Cell::new(false),
        is_ranked: rng.one_in(2),
        has_ranks: system.about().promises.priorities,
        ranking: Cell::new(false),
        lanes: if is_shared {
            [sched.add_lane(most), sched.add_lane(most), None]
        } else {
            [None; 3]
        },
        other_lane: Cell::new(None),
        sharing: Cell::new(!is_shared),
        rules,
        spare_rings: RefCell::default(),
        away_rings: RefCell::default(),
        random: RefCell::new(rng),
    });
    let acquire = |i| sched.acquire_under(i, seed, system.places()).expect("new");
    let mut ps: Vec<P<Script>> = (0..cpus).map(acquire).collect();
    if shape.has_nodes {
        seat(sched, &mut ps);
    }
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
            assert!(
                self.now.get() < self.steps_max,
                "the machine makes no progress: some CPU loops for ever"
            );
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
            assert!(
                g.status() != Status::Runnable,
                "every CPU halts while G {} is runnable: it is in a queue that no CPU reads, or in none",
                number(g)
            );
        }
        assert!(
            !self.waiting.borrow().is_empty(),
            "every CPU halts, and a G is neither parked nor runnable"
        );
        self.cpus[self.random(self.cpus.len())].pending.set(true);
    }

    /// The invariants, after every switch. `step_on` checks that no G runs twice.
    fn check(&self) {
        let counts = self.sched.counts();
        let bound = self.cpus.len().div_ceil(2).max(1);
        assert!(
            counts.spinning <= bound,
            "the spinning count is {}, more than half of {} CPUs: it was raised or lowered once too often",
            counts.spinning,
            self.cpus.len()
        );
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
            assert!(!hog || global == 0, "CPU {i} runs a G without a timer while a G waits");
            if let Doing::InCall(g) = cpu.doing.get() {
                assert!(!g.is_woken(), "CPU {i} halts for a G whose call is over");
            }
        }
        if !halted {
            return;
        }
        for g in self.gs.borrow().iter() {
            let waits = g.status() == Status::Runnable && g.pin().is_none();
            assert!(!waits, "a CPU halts while G {} is runnable: its wake-up was lost", number(g));
        }
    }

    /// The endless loop of the M on a CPU.
    fn cpu_loop(&self, mut p: P<Script>, yielder: &Yielder<(), ()>) {
        let me = &self.cpus[p.index()];
        let mut decided = None;
        while !self.over.get() {
            p.set_lends(self.random(2) == 0);
            self.sched.end_share(&mut p, self.now.get());
            match decided.take().unwrap_or_else(|| self.sched.find_runnable(&mut p)) {
                Next::Run(run) => {
                    self.send(p.index(), run.wake);
                    decided = self.run(&mut p, run.g);
                }
                Next::Park(wake) => {
                    self.send(p.index(), wake);
                    me.doing.set(Doing::Halted);
                    sim::note(|| "finds no G and halts".into());
                    while !me.pending.get() && !self.over.get() {
                        yielder.suspend(());
                    }
                    me.doing.set(Doing::Deciding);
                    let _ = self.interrupt(&mut p); // no G runs here
                }
            }
        }
    }

    /// Runs `g` until it stops; what comes next, if that is decided with it.
    fn run(&self, p: &mut P<Script>, g: &'static G<Script>) -> Option<Next<Script>> {
        self.step_on(p, g);
        if self.sched.shares_in_force() {
            self.sched.begin_share(p, g, self.lane(number(g)), self.now.get());
        }
        self.mount(p, g);
        loop {
            if self.work(p) {
                self.step_off(g);
                self.sched.displaced(p, g);
                self.send(p.index(), Wake::Nobody);
                return None;
            }
            if let Some(left) = g.kernel.left.load(Relaxed).checked_sub(1) {
                g.kernel.left.store(left, Relaxed);
            } else {
                self.step_off(g);
                if !self.sched.exited(p, g) {
                    g.exit();
                    self.sched.keep_dead(p, g);
                }
                self.alive.set(self.alive.get() - 1);
                return None;
            }
            match self.random(8) {
                0 | 1 => {
                    for _ in 0..self.burst {
                        let wake = self.spawn(p);
                        self.send(p.index(), wake);
                    }
                }
                2 => {
                    self.ready_one(p);
                    self.rank_one(p);
                    self.change_shares();
                }
                3 => {
                    self.step_off(g);
                    return Some(match self.sched.rotate(p, g) {
                        Ok(g) => Next::Run(Run { g, slice: Slice::New, wake: Wake::Nobody }),
                        Err(rest) => self.sched.rotate_slow(p, g, rest),
                    });
                }
                4 => {
                    if !self.call(p, g) {
                        return None;
                    }
                }
                5 => {
                    self.step_off(g);
                    if let Some(g) = self.sched.expire(p, g) {
                        let run = Run { g, slice: Slice::New, wake: Wake::Nobody };
                        return Some(Next::Run(run));
                    }
                    let wake = self.sched.expired(p, g);
                    self.send(p.index(), wake);
                    return None;
                }
                6 => {
                    self.begin_park(g);
                    self.park(p, g);
                    return None;
                }
                _ => {
                    self.step_off(g);
                    g.park_locked();
                    sim::flush_own(); // the lock of the object it waits for is freed
                    self.waiting.borrow_mut().push(g);
                    return None;
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
        let wake = if g.finish_park() { Wake::Nobody } else { self.sched.put_back(p, g) };
        self.send(p.index(), wake);
    }

    /// The G blocks in a call. Its CPU halts and keeps it, until it is readied or the
    /// monitor retakes the P; or does not wait for the monitor. True if the G continues
    /// here.
    fn call(&self, p: &mut P<Script>, g: &'static G<Script>) -> bool {
        let me = &self.cpus[p.index()];
        g.enter_call(p.index());
        self.begin_park(g);
        while (self.rules.keeps_p || self.random(3) > 0) && g.halt_on(p.index()) {
            if self.over.get() {
                break;
            }
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
        if self.rules.rings_of_ms {
            let spare = self.spare_rings.borrow_mut().pop();
            let new = || self.sched.add_ring(Box::leak(Box::new(MRing::new())));
            let spare = spare.or_else(new);
            let ring = p.swap_ring(spare.expect("new"));
            self.away_rings.borrow_mut().push((g, ring));
        }
        self.park(p, g);
        false
    }

    /// If `g` comes back with its M, the ring of that M comes, too.
    fn mount(&self, p: &mut P<Script>, g: &'static G<Script>) {
        let mut away = self.away_rings.borrow_mut();
        if let Some(at) = away.iter().position(|(of, _)| std::ptr::eq(*of, g)) {
            let (_, ring) = away.swap_remove(at);
            drop(away);
            let spare = p.swap_ring(ring);
            self.spare_rings.borrow_mut().push(spare);
        }
    }

    fn step_on(&self, p: &P<Script>, g: &'static G<Script>) {
        let before = g.kernel.on_cpu.swap(p.index() + 1, Relaxed);
        assert!(
            before == 0,
            "G {} runs on two CPUs at once: {} and {}",
            number(g),
            before - 1,
            p.index()
        );
        sim::note(|| format!("runs G {}", number(g)));
        if let Some(cpu) = g.pin() {
            assert!(
                cpu == p.index(),
                "G {} is pinned to CPU {cpu} and runs on CPU {}",
                number(g),
                p.index()
            );
        }
        if self.random(2) == 0 {
            g.exit_call(); // else it goes on in its call
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
        sim::note(|| "is interrupted".into());
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
        p.set_lends(self.random(2) == 0);
        let mut displace = false;
        if self.sched.is_asked(p) {
            let arrival = self.sched.sift(p);
            self.send(p.index(), arrival.wake);
            displace = arrival.displace;
        }
        let arrival = self.sched.arrive(p);
        self.send(p.index(), arrival.wake);
        displace | arrival.displace
    }

    /// A G readies another.
    fn ready_one(&self, p: &mut P<Script>) {
        if let Some(g) = self.take_waiting() {
            let handle = g.handle();
            let wake = match self.sched.ready_parked(p, &handle) {
                Some(wake) => wake,
                None => self.sched.ready(p, handle, |_, _| ()),
            };
            self.send(p.index(), wake);
            // Once more, as a second channel of a `select` might.
            let wake = self.sched.ready(p, g.handle(), |_, _| ());
            self.send(p.index(), wake);
        }
    }

    /// A G changes the rank of some G, in whatever state that is.
    fn rank_one(&self, p: &mut P<Script>) {
        let from = p.index();
        if self.is_ranked && !self.ranking.replace(true) {
            let g = self.gs.borrow()[self.random(self.gs.borrow().len())];
            let rank = if self.has_ranks { self.priority() } else { Priority::Normal };
            let before = g.rank();
            let (life, set) = (g.handle(), g.handle().set_rank(self.priority(), rank));
            self.ranking.set(false);
            if set && rank > before {
                p.set_lends(self.random(2) == 0);
                let wake = self.sched.raised(p, &life, |cpu| self.post(from, cpu));
                self.send(from, wake);
            }
        }
    }

    /// A program with a share of its own begins, or ends: shares are in force, or not.
    fn change_shares(&self) {
        if self.random(4) == 0 && !self.sharing.replace(true) {
            match self.other_lane.take() {
                Some(lane) => self.sched.remove_lane(lane),
                None => self.other_lane.set(self.sched.add_lane(Share::new(7).expect("in range"))),
            }
            self.sharing.set(false);
        }
    }

    /// The lane of the program of a G: two have one, and the third is outside of the shares.
    fn lane(&self, g: u32) -> Option<ShareLane> {
        self.lanes[g as usize % 3]
    }

    fn priority(&self) -> Priority {
        Priority::ALL[self.random(3)]
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
            let script = Script {
                on_cpu: AtomicUsize::new(0),
                left: AtomicU32::new(0),
                number: AtomicU32::new(0),
            };
            let g: &'static G<Script> = Box::leak(Box::new(G::new(script)));
            self.gs.borrow_mut().push(g);
            g
        });
        g.kernel.left.store(left.into_inner(), Relaxed);
        let pin = (self.random(6) == 0).then(|| self.random(self.cpus.len()));
        self.made.set(self.made.get() + 1);
        MADE.set(self.made.get());
        g.kernel.number.store(self.made.get(), Relaxed);
        sim::name(g, || format!("G {}", number(g)));
        sim::note(|| format!("makes G {}", number(g)));
        let may_rank = self.is_ranked && !self.ranking.get();
        let priority = if may_rank { self.priority() } else { Priority::Normal };
        let was = self.ranking.replace(self.ranking.get() || priority != Priority::Normal);
        let lane = if self.sched.shares_in_force() { self.lane(self.made.get()) } else { None };
        let wake = self.sched.start_in_lane(p, g, pin, priority, lane);
        self.ranking.set(was);
        wake
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
        sim::note(|| format!("sends an interrupt to CPU {cpu}"));
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
