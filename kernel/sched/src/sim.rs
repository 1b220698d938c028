//! The simulator's memory: atomics that may switch CPUs at every access.
//!
//! Only with feature `sim`. At each access through `sync.rs` the simulation
//! (`tests/sim`) may switch to another virtual CPU. Memory is x86's: a plain store
//! waits in its CPU's store buffer, first in first out, until chance, a locked
//! operation or a full fence drains it; only its own CPU sees it before. So a
//! missing fence has its effect here, too.
//!
//! A machine belongs to one thread; each test thread has its own.
//!
//! A run can be recorded ([`plan`], [`take_log`]): each access with its value and its calls.
//! Two runs of one seed are the same whether recorded or not.

extern crate std;

pub mod lines;

use crate::p::Random;
use core::marker::PhantomData;
use core::sync::atomic::AtomicU64 as Word;
use core::sync::atomic::Ordering::{self, SeqCst};
use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::string::{String, ToString};
use std::vec::Vec;

/// Mistakes that the simulation plants, to check that it finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A parking P does not check again.
    NoLookAgain,
    /// A submitter has no fence.
    NoFence,
    /// A wake-up is decided and not sent.
    NoInterrupt,
    /// A ring's slot is published before it is written.
    PublishFirst,
    /// A G that was readied can be readied again.
    ReadyTwice,
    /// A borrower that is displaced itself is put into no queue.
    LoseBorrower,
    /// A CPU that halts for its G is not interrupted when the G is readied.
    ForgetHalted,
    /// A thief claims slots before it has read them.
    ClaimFirst,
    /// A P that comes out of a halt leaves its idle bit set.
    KeepIdleBit,
    /// A system puts a G into its queue, and no CPU is woken for it.
    PutAndForget,
    /// A P that parks does not check the rings of Ms that have left.
    SkipRingsOfMs,
    /// A thief does not search the Ps of other nodes.
    SkipOtherNodes,
    /// A waker claims an idle P of its own node or none.
    WakeOwnNode,
    /// A background G is put into its lane, and no CPU is woken for it.
    BackgroundUnseen,
    /// An urgent G is put into an inbox, and its CPU is not interrupted.
    UrgentUnsent,
    /// A raised G is taken out of the global queue and put into another, and no CPU is woken.
    RaisedUnseen,
    /// A G of a program is put into its lane, and no CPU is woken.
    LaneUnseen,
}

/// No CPU: see [`set_cpu`].
const NOBODY: usize = usize::MAX;

/// Entries of a CPU's store buffer.
const BUFFER_MAX: usize = 8;

struct Machine {
    /// Switches to another CPU. None: no simulation is running.
    switch: Option<fn()>,
    cpu: usize,
    buffers: Vec<VecDeque<(*const Word, u64)>>,
    planted: Option<Planted>,
    random: Random,
    /// One access in this many may switch.
    every: u32,
    /// Switches that chance asked for, and those of them that happened.
    switches: u64,
    switched: u64,
    /// The last steps, if they are recorded.
    log: VecDeque<Step>,
    /// Objects by their first address: their size and name.
    names: BTreeMap<usize, (usize, String)>,
    plan: Plan,
}

/// How the next machines of this thread differ from what their seeds say.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// How many of the last steps are recorded.
    pub steps: usize,
    /// Switches that do not happen, by number: ranges, sorted.
    pub left_out: Vec<core::ops::Range<u64>>,
}

/// A step of a recorded run.
#[derive(Debug)]
pub struct Step {
    /// The CPU that made it.
    pub cpu: usize,
    /// What it did.
    pub what: What,
    /// The object that the word belongs to, if it has a name ([`name`]).
    pub object: Option<String>,
    /// The calls that led to it.
    pub calls: Backtrace,
}

/// What a step did. Values are shown by [`name`] where they are addresses of named objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Read this value.
    Read(String),
    /// Put this value into the CPU's store buffer.
    Store(String),
    /// A store left the buffer: from here on other CPUs see it.
    Visible(String),
    /// Changed the word in a locked operation, from and to.
    Change(String, String),
    /// A compare-exchange that failed, with what it found.
    Refused(String),
    /// A full fence.
    Fence,
    /// A spin hint.
    Spin,
    /// The simulation says this ([`note`]).
    Note(String),
}

std::thread_local! {
    static PLAN: RefCell<Plan> = const { RefCell::new(Plan { steps: 0, left_out: Vec::new() }) };
    static MACHINE: RefCell<Machine> = const {
        RefCell::new(Machine {
            switch: None,
            cpu: NOBODY,
            buffers: Vec::new(),
            planted: None,
            random: Random(1),
            every: 1,
            switches: 0,
            switched: 0,
            log: VecDeque::new(),
            names: BTreeMap::new(),
            plan: Plan { steps: 0, left_out: Vec::new() },
        })
    };
}

/// Sets the plan for the machines that begin on this thread from now on.
pub fn plan(plan: Plan) {
    PLAN.set(plan);
}

/// The last steps of the machine that ended.
#[must_use]
pub fn take_log() -> Vec<Step> {
    MACHINE.with_borrow_mut(|m| core::mem::take(&mut m.log).into())
}

/// How many switches chance asked for in the machine that ended, and how many of them happened.
#[must_use]
pub fn switches() -> (u64, u64) {
    MACHINE.with_borrow(|m| (m.switches, m.switched))
}

/// Names an object for the log. Does nothing if no log is kept.
pub fn name<T>(object: &T, called: impl FnOnce() -> String) {
    if PLAN.with_borrow(|plan| plan.steps > 0) {
        let (at, called) = (core::ptr::from_ref(object).addr(), called());
        MACHINE.with_borrow_mut(|m| m.names.insert(at, (size_of::<T>(), called)));
    }
}

/// Says something in the log, in the name of the CPU that runs now.
pub fn note(text: impl FnOnce() -> String) {
    if MACHINE.with_borrow(|m| m.plan.steps > 0 && m.cpu != NOBODY) {
        let said = What::Note(text());
        MACHINE.with_borrow_mut(|m| m.record(None, said));
    }
}

/// Begins a simulation on this thread: `switch` is called at one in `every`
/// accesses. All atomics that are used in it must live until [`end`].
pub fn begin(cpus: usize, seed: u64, every: u32, planted: Option<Planted>, switch: fn()) {
    MACHINE.with_borrow_mut(|m| {
        *m = Machine {
            switch: Some(switch),
            cpu: NOBODY,
            buffers: (0..cpus).map(|_| VecDeque::new()).collect(),
            planted,
            random: Random(seed),
            every,
            switches: 0,
            switched: 0,
            log: VecDeque::new(),
            names: core::mem::take(&mut m.names),
            plan: PLAN.with_borrow(Clone::clone),
        };
    });
}

/// Drains all store buffers.
pub fn flush_all() {
    MACHINE.with_borrow_mut(|m| (0..m.buffers.len()).for_each(|cpu| m.flush(cpu)));
}

/// Ends the simulation: all buffers are drained, nothing switches any more.
pub fn end() {
    flush_all();
    MACHINE.with_borrow_mut(|m| {
        m.switch = None;
        m.planted = None;
    });
}

/// Sets the CPU that runs now. None: the simulation itself, whose memory accesses
/// are no events of the machine.
pub fn set_cpu(cpu: Option<usize>) {
    MACHINE.with_borrow_mut(|m| m.cpu = cpu.unwrap_or(NOBODY));
}

/// The CPU that runs now.
#[must_use]
pub fn cpu() -> usize {
    MACHINE.with_borrow(|m| m.cpu)
}

/// Drains one store from the buffer of `cpu`.
pub fn let_out(cpu: usize) {
    MACHINE.with_borrow_mut(|m| m.let_out(cpu));
}

impl Machine {
    /// How to switch, if a virtual CPU is running.
    fn active(&self) -> Option<fn()> {
        self.switch.filter(|_| self.cpu != NOBODY)
    }

    fn let_out(&mut self, cpu: usize) {
        if let Some((word, value)) = self.buffers[cpu].pop_front() {
            // SAFETY: it was a reference when it was stored, and `begin` requires
            // that atomics live until `end`, which empties the buffers.
            let word = unsafe { &*word };
            word.store(value, SeqCst);
            if self.plan.steps > 0 {
                let running = core::mem::replace(&mut self.cpu, cpu);
                self.record(Some(word), What::Visible(self.show(value)));
                self.cpu = running;
            }
        }
    }

    /// The value, or the object that it is the address of.
    fn show(&self, value: u64) -> String {
        match self.names.get(&(value as usize)) {
            Some((_, called)) => called.clone(),
            None => value.to_string(),
        }
    }

    fn record(&mut self, word: Option<&Word>, what: What) {
        let at = word.map(|word| core::ptr::from_ref(word).addr());
        let object = at.and_then(|at| {
            let (from, (size, called)) = self.names.range(..=at).next_back()?;
            (at < from + size).then(|| called.clone())
        });
        if self.log.len() == self.plan.steps {
            self.log.pop_front();
        }
        let calls = Backtrace::force_capture();
        self.log.push_back(Step { cpu: self.cpu, what, object, calls });
    }

    fn flush(&mut self, cpu: usize) {
        while !self.buffers[cpu].is_empty() {
            self.let_out(cpu);
        }
    }
}

/// Records an access of the CPU that runs now.
fn record(word: Option<&Word>, what: impl FnOnce(&Machine) -> What) {
    MACHINE.with_borrow_mut(|m| {
        if m.plan.steps > 0 && m.active().is_some() {
            let what = what(m);
            m.record(word, what);
        }
    });
}

/// Before each access: may drain a store or switch.
fn point() {
    let switch = MACHINE.with_borrow_mut(|m| {
        let switch = m.active()?;
        let r = m.random.next();
        if r.is_multiple_of(8) {
            m.let_out(m.cpu);
        }
        if !(r >> 8).is_multiple_of(m.every) {
            return None;
        }
        let number = m.switches;
        m.switches += 1;
        let left_out = m.plan.left_out.iter().any(|range| range.contains(&number));
        m.switched += u64::from(!left_out);
        (!left_out).then_some(switch)
    });
    if let Some(switch) = switch {
        switch();
    }
}

/// A spin hint: always switches to another CPU.
pub(crate) fn spin_loop() {
    record(None, |_| What::Spin);
    let switch = MACHINE.with_borrow_mut(|m| {
        let switch = m.active()?;
        m.flush(m.cpu);
        Some(switch)
    });
    if let Some(switch) = switch {
        switch();
    }
}

pub(crate) fn fence(order: Ordering) {
    point();
    if order == SeqCst {
        record(None, |_| What::Fence);
        flush_own();
    }
}

pub(crate) fn planted(what: Planted) -> bool {
    MACHINE.with_borrow(|m| m.planted == Some(what))
}

/// A locked operation of the simulated kernel itself (it takes a lock, say): drains
/// the buffer of the CPU that runs now.
pub fn flush_own() {
    MACHINE.with_borrow_mut(|m| {
        if m.active().is_some() {
            m.flush(m.cpu);
        }
    });
}

/// The CPU that runs now reads or writes data of its own program: for [`lines`] alone.
pub fn touch<T>(data: &T, writes: bool) {
    let at = core::ptr::from_ref(data).addr();
    if let Some(cpu) = MACHINE.with_borrow(|m| m.active().map(|_| m.cpu)) {
        lines::access(at, cpu, writes);
    }
}

fn load(word: &Word) -> u64 {
    point();
    touch(word, false);
    let value = MACHINE.with_borrow(|m| {
        let own = m.buffers.get(m.cpu).filter(|_| m.active().is_some());
        let newest = own.and_then(|b| b.iter().rev().find(|(w, _)| core::ptr::eq(*w, word)));
        newest.map_or_else(|| word.load(SeqCst), |&(_, value)| value)
    });
    record(Some(word), |m| What::Read(m.show(value)));
    value
}

fn store(word: &Word, value: u64) {
    point();
    touch(word, true);
    MACHINE.with_borrow_mut(|m| {
        if m.active().is_none() {
            return word.store(value, SeqCst);
        }
        let cpu = m.cpu;
        if m.buffers[cpu].len() == BUFFER_MAX {
            m.let_out(cpu);
        }
        m.buffers[cpu].push_back((word, value));
        if m.plan.steps > 0 {
            m.record(Some(word), What::Store(m.show(value)));
        }
    });
}

/// A locked operation: drains the buffer, then does one step.
fn update(word: &Word, f: impl FnOnce(u64) -> Option<u64>) -> Result<u64, u64> {
    point();
    touch(word, true);
    flush_own();
    let old = word.load(SeqCst);
    match f(old) {
        Some(new) => {
            word.store(new, SeqCst);
            record(Some(word), |m| What::Change(m.show(old), m.show(new)));
            Ok(old)
        }
        None => {
            record(Some(word), |m| What::Refused(m.show(old)));
            Err(old)
        }
    }
}

/// A value that fits a word of the simulated memory.
pub(crate) trait Value: Copy {
    fn to_word(self) -> u64;
    fn from_word(word: u64) -> Self;
}

macro_rules! integer_value {
    ($($t:ty),*) => {$(
        impl Value for $t {
            fn to_word(self) -> u64 {
                self as u64
            }
            fn from_word(word: u64) -> Self {
                word as $t
            }
        }
    )*};
}

integer_value!(u32, u64, usize);

impl Value for bool {
    fn to_word(self) -> u64 {
        u64::from(self)
    }
    fn from_word(word: u64) -> Self {
        word != 0
    }
}

impl<T> Value for *mut T {
    fn to_word(self) -> u64 {
        self.expose_provenance() as u64
    }
    fn from_word(word: u64) -> Self {
        core::ptr::with_exposed_provenance_mut(word as usize)
    }
}

/// As `core`'s atomic of a `V`.
pub(crate) struct Atomic<V> {
    word: Word,
    // Neither `Send` nor `Sync` depends on `V`, as with `core`'s.
    _value: PhantomData<fn() -> V>,
}

pub(crate) type AtomicBool = Atomic<bool>;
pub(crate) type AtomicU32 = Atomic<u32>;
pub(crate) type AtomicU64 = Atomic<u64>;
pub(crate) type AtomicUsize = Atomic<usize>;
pub(crate) type AtomicPtr<T> = Atomic<*mut T>;

macro_rules! const_new {
    ($($t:ty),*) => {$(
        impl Atomic<$t> {
            pub(crate) const fn new(value: $t) -> Self {
                Atomic { word: Word::new(value as u64), _value: PhantomData }
            }
        }
    )*};
}

const_new!(bool, u32, u64, usize);

impl<T> Atomic<*mut T> {
    /// Null only: the crate makes no other.
    pub(crate) const fn new(null: *mut T) -> Self {
        assert!(null.is_null());
        Atomic { word: Word::new(0), _value: PhantomData }
    }
}

impl<V: Value> Atomic<V> {
    pub(crate) fn load(&self, _: Ordering) -> V {
        V::from_word(load(&self.word))
    }

    pub(crate) fn store(&self, value: V, _: Ordering) {
        store(&self.word, value.to_word());
    }

    pub(crate) fn swap(&self, value: V, _: Ordering) -> V {
        self.always(|_| value.to_word())
    }

    pub(crate) fn compare_exchange(
        &self,
        old: V,
        new: V,
        _: Ordering,
        _: Ordering,
    ) -> Result<V, V> {
        update(&self.word, |now| (now == old.to_word()).then_some(new.to_word()))
            .map(V::from_word)
            .map_err(V::from_word)
    }

    pub(crate) fn compare_exchange_weak(
        &self,
        old: V,
        new: V,
        success: Ordering,
        failure: Ordering,
    ) -> Result<V, V> {
        self.compare_exchange(old, new, success, failure)
    }

    pub(crate) fn fetch_add(&self, by: V, _: Ordering) -> V {
        self.always(|now| V::from_word(now.wrapping_add(by.to_word())).to_word())
    }

    pub(crate) fn fetch_sub(&self, by: V, _: Ordering) -> V {
        self.always(|now| V::from_word(now.wrapping_sub(by.to_word())).to_word())
    }

    pub(crate) fn fetch_max(&self, than: V, _: Ordering) -> V {
        self.always(|now| now.max(than.to_word()))
    }

    pub(crate) fn fetch_or(&self, bits: V, _: Ordering) -> V {
        self.always(|now| now | bits.to_word())
    }

    pub(crate) fn fetch_and(&self, bits: V, _: Ordering) -> V {
        self.always(|now| now & bits.to_word())
    }

    fn always(&self, f: impl FnOnce(u64) -> u64) -> V {
        match update(&self.word, |now| Some(f(now))) {
            Ok(old) | Err(old) => V::from_word(old),
        }
    }
}
