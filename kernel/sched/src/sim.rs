//! The simulator's memory: atomics that may switch CPUs at every access.
//!
//! Only with feature `sim`. At each access through `sync.rs` the simulation
//! (`tests/sim`) may switch to another virtual CPU. Memory is x86's: a plain store
//! waits in its CPU's store buffer, first in first out, until chance, a locked
//! operation or a full fence drains it; only its own CPU sees it before. So a
//! missing fence has its effect here, too.
//!
//! A machine belongs to one thread; each test thread has its own.

extern crate std;

use crate::p::Random;
use core::marker::PhantomData;
use core::sync::atomic::AtomicU64 as Word;
use core::sync::atomic::Ordering::{self, SeqCst};
use std::cell::RefCell;
use std::collections::VecDeque;
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
}

std::thread_local! {
    static MACHINE: RefCell<Machine> = const {
        RefCell::new(Machine {
            switch: None,
            cpu: NOBODY,
            buffers: Vec::new(),
            planted: None,
            random: Random(1),
            every: 1,
        })
    };
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
        }
    }

    fn flush(&mut self, cpu: usize) {
        while !self.buffers[cpu].is_empty() {
            self.let_out(cpu);
        }
    }
}

/// Before each access: may drain a store or switch.
fn point() {
    let switch = MACHINE.with_borrow_mut(|m| {
        let switch = m.active()?;
        let r = m.random.next();
        if r.is_multiple_of(8) {
            m.let_out(m.cpu);
        }
        (r >> 8).is_multiple_of(m.every).then_some(switch)
    });
    if let Some(switch) = switch {
        switch();
    }
}

/// A spin hint: always switches to another CPU.
pub(crate) fn spin_loop() {
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

fn load(word: &Word) -> u64 {
    point();
    MACHINE.with_borrow(|m| {
        let own = m.buffers.get(m.cpu).filter(|_| m.active().is_some());
        let newest = own.and_then(|b| b.iter().rev().find(|(w, _)| core::ptr::eq(*w, word)));
        newest.map_or_else(|| word.load(SeqCst), |&(_, value)| value)
    })
}

fn store(word: &Word, value: u64) {
    point();
    MACHINE.with_borrow_mut(|m| {
        if m.active().is_none() {
            return word.store(value, SeqCst);
        }
        let cpu = m.cpu;
        if m.buffers[cpu].len() == BUFFER_MAX {
            m.let_out(cpu);
        }
        m.buffers[cpu].push_back((word, value));
    });
}

/// A locked operation: drains the buffer, then does one step.
fn update(word: &Word, f: impl FnOnce(u64) -> Option<u64>) -> Result<u64, u64> {
    point();
    flush_own();
    let old = word.load(SeqCst);
    match f(old) {
        Some(new) => {
            word.store(new, SeqCst);
            Ok(old)
        }
        None => Err(old),
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
