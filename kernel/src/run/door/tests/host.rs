//! Threads in place of Gs, for host tests, doctests, Miri and fuzz targets: what each function does
//! is written where the machine's own is.
#![allow(missing_docs, reason = "documented where the machine's own is")]

use crate::arch::irq::IrqState;
use crate::arch::lock::IrqLock;
use crate::run::attached::Attached;
use crate::run::door::{Reason, SpawnOptions, Wait};
use crate::run::error::SpawnError;
use crate::run::sys::PANICKING;
use crate::run::{BOOT, BlockingError, Instance, Job, Joiner, Permit, pair_in};
use sched::Kept;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, LazyLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

pub use begin_park as begin_wait;
pub use is_killed as was_killed;
pub use ready as ready_from_interrupt;
pub use std::thread::yield_now;

/// Names a thread. Readied before it parks, it does not wait.
#[derive(Clone)]
pub struct GHandle(Arc<Parker>);

struct Parker {
    thread: Thread,
    is_readied: AtomicBool,
    permit: Permit,
    /// A [`Wait`], packed.
    waiting: AtomicU64,
    limit_over: AtomicBool,
}

impl GHandle {
    pub fn waits_for(&self) -> Wait {
        Wait::unpack(self.0.waiting.load(Relaxed))
    }
}

thread_local! {
    static ATTACHED: Attached = const { Attached::new() };
    static ME: GHandle = GHandle(Arc::new(Parker {
        thread: thread::current(),
        is_readied: AtomicBool::new(false),
        permit: Permit::default(),
        waiting: AtomicU64::new(0),
        limit_over: AtomicBool::new(false),
    }));
    static NAME: u64 = (NAMES.fetch_add(1, Relaxed) + 1) << 6;
}

/// How many names were given to threads; no two are the same.
static NAMES: AtomicU64 = AtomicU64::new(0);
/// The names of threads that are gone.
static GONE: spin::Mutex<Vec<u64>> = spin::Mutex::new(Vec::new());
static CREATED: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

pub fn spawn<J: Job + 'static>(
    options: SpawnOptions,
    job: J,
) -> Result<Joiner<J::Outcome>, SpawnError> {
    // SAFETY: it borrows nothing.
    unsafe { spawn_borrowing(options, job) }
}

/// # Safety
/// As the machine's.
pub unsafe fn spawn_borrowing<J: Job>(
    options: SpawnOptions,
    job: J,
) -> Result<Joiner<J::Outcome>, SpawnError> {
    // SAFETY: no inline cell; the caller's promise.
    let (work, joiner) = unsafe { pair_in(None, job) }.map_err(|_| SpawnError::NoMemory)?;
    let run = move || {
        work.run();
        ENDED.fetch_add(1, Relaxed);
    };
    let thread = thread::Builder::new().name(options.name.into()).spawn(run);
    thread.map_err(|_| SpawnError::NoMemory)?;
    CREATED.fetch_add(1, Relaxed);
    Ok(joiner)
}

pub fn created_and_ended() -> (u64, u64) {
    let ended = ENDED.load(Relaxed);
    (CREATED.load(Relaxed).max(ended), ended)
}

pub fn num_goroutines() -> usize {
    let (created, ended) = created_and_ended();
    1 + (created - ended) as usize
}

pub fn this() -> GHandle {
    ME.with(GHandle::clone)
}

pub fn attached<R>(f: impl FnOnce(&Attached) -> R) -> R {
    ATTACHED.with(f)
}

pub fn has_attached() -> bool {
    attached(|list| !list.is_empty())
}

pub fn name_of(g: &GHandle) -> Option<String> {
    Some(g.0.thread.name().unwrap_or_default().into())
}

pub fn keep(kept: Kept) -> Option<Kept> {
    Some(kept) // the host's scheduler decides
}

pub fn worker<T>(_: &Joiner<T>) -> Option<(GHandle, u64)> {
    None // it is not known which thread it is
}

pub fn permit(g: &GHandle) {
    g.0.permit.give(0);
}

pub fn take_permit() -> bool {
    this().0.permit.take(0)
}

pub fn random() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0)
}

pub fn begin_park(wait: Wait) -> GHandle {
    let me = this();
    me.0.waiting.store(wait.pack(), Relaxed);
    me.0.is_readied.store(false, SeqCst);
    me
}

pub fn cancel_park() -> bool {
    park_until(0) // a deadline that has passed
}

pub fn park() {
    wait_until(u64::MAX);
}

/// # Safety
/// The caller holds the lock.
pub unsafe fn park_unlock<T>(_: IrqState, _: GHandle, _: Reason, lock: &IrqLock<T>) {
    // SAFETY: the caller's promise.
    unsafe { lock.open() };
    park();
}

pub fn ready_from(_: IrqState, g: GHandle) {
    ready(g);
}

pub fn park_until(deadline_ns: u64) -> bool {
    let me = this();
    me.0.waiting.store(me.waits_for().with_deadline().pack(), Relaxed);
    let is_over = || me.0.limit_over.load(SeqCst);
    !is_over() && wait_until(deadline_ns) && !is_over()
}

pub fn end_limit(g: &GHandle) {
    g.0.limit_over.store(true, SeqCst);
}

pub fn set_limit_over(is_over: bool) {
    this().0.limit_over.store(is_over, SeqCst);
}

pub fn is_limit_over() -> bool {
    this().0.limit_over.load(SeqCst)
}

fn wait_until(deadline_ns: u64) -> bool {
    let me = this();
    while !me.0.is_readied.load(SeqCst) {
        let left = Duration::from_nanos(deadline_ns.saturating_sub(now_ns()));
        if left.is_zero() {
            return false;
        }
        thread::park_timeout(left);
    }
    true
}

pub fn ready(g: GHandle) {
    g.0.is_readied.store(true, SeqCst);
    g.0.thread.unpark();
}

pub fn call<T, E>(f: impl FnOnce() -> Result<T, E>) -> Result<Result<T, E>, BlockingError> {
    Ok(f())
}

pub fn program() -> &'static Instance {
    &BOOT
}

pub fn is_killed() -> bool {
    false
}

pub fn check_kill() {}

pub fn die() -> ! {
    unreachable!("a thread is never killed")
}

pub fn me() -> u64 {
    current_id() | if thread::panicking() { PANICKING } else { 0 }
}

pub fn current_id() -> u64 {
    NAME.with(|name| *name)
}

/// Whether the thread of that name is gone, as [`abandon_locks`] says.
///
/// # Safety
/// None on the host; there are conditions on the machine.
pub unsafe fn is_gone(name: u64) -> bool {
    GONE.lock().contains(&(name & !PANICKING))
}

/// As if the thread of that number had ended without unwinding: the next thread that takes one
/// of its locks finds it abandoned. Threads that wait already are not woken.
pub fn abandon_locks(id: u64) -> usize {
    assert_eq!(id, current_id(), "a thread can abandon its own locks only");
    GONE.lock().push(id);
    0
}

pub fn look_for_cycle(_: bool) {}

/// Threads have no ranks.
pub fn is_urgent() -> bool {
    false
}

pub fn passed_on(_: usize, _: u64) {}

pub fn taken_over(_: usize, _: u64) -> bool {
    false
}

pub fn stop_lending() {}

pub fn may_spin() -> bool {
    !cfg!(miri)
}

pub fn may_wait() -> bool {
    #[cfg(debug_assertions)]
    return crate::arch::lock::order::outermost().is_none();
    #[cfg(not(debug_assertions))]
    true
}

pub fn interrupt_this_cpu() {}

pub fn now_ns() -> u64 {
    START.elapsed().as_nanos() as u64
}

pub fn clock_uncertainty_ns() -> u64 {
    0 // all threads read one clock
}
