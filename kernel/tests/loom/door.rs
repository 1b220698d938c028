//! A G as the models see it: `crate::run::door` with loom behind it.
//!
//! As on the machine: one state word for each G, `begin_park` a plain store, and
//! a `ready` that finds the G running is lost. So a lost wake-up is a G that
//! waits for ever, which loom calls a deadlock.

#[path = "../../src/api/gref.rs"]
pub mod gref;

use crate::run::permit::Permit;
use crate::run::sys::IrqLock;
use crate::run::told::note;
pub(crate) use crate::run::waiting::deadline_after;
pub use crate::run::waiting::{Reason, Wait};
use crate::wait::held;
use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*, fence};
use loom::sync::{Mutex, Notify};
use std::cell::Cell;
use std::sync::Arc;

/// Locks are loom's own here.
pub fn might_park() {}

/// In place of a name: the lock is free.
const FREE: u64 = 1;

const RUNNING: usize = 0;
const PARKING: usize = 1;
const WOKEN: usize = 2;

#[derive(Clone)]
pub struct GHandle(Arc<G>);

struct G {
    state: AtomicUsize,
    // Not `unpark`: loom's also wakes a thread that waits for a mutex.
    notify: Notify,
    permit: Permit,
    limit_over: AtomicBool,
    name: u64,
}

loom::thread_local! {
    static CURRENT: Arc<G> = Arc::new(G {
        state: AtomicUsize::new(RUNNING),
        notify: Notify::new(),
        permit: Permit::default(),
        limit_over: AtomicBool::new(false),
        name: new_name(),
    });
}

loom::lazy_static! {
    static ref GONE: AtomicUsize = AtomicUsize::new(0);
    // The holder to which the urgent G of the model lends its rank; FREE if the lock has none, 0 if
    // it lends none.
    static ref LENT_TO: Mutex<u64> = Mutex::new(0);
    // Whether it lends it, as `COUNT` of `run::priority`.
    static ref IS_LENT: AtomicBool = AtomicBool::new(false);
    static ref CHANGES: Notify = Notify::new();
}

std::thread_local! {
    // Loom runs all threads of a model on one thread of the host.
    static NOW_STEP: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    static NAMES: Cell<u64> = const { Cell::new(0) };
    // Whether somebody goes in this model; where not, nobody need ask.
    static MORTAL: Cell<bool> = const { Cell::new(false) };
    // The urgent G, what it waits for, and which G it joins.
    static URGENT: Cell<u64> = const { Cell::new(0) };
    static WAIT: Cell<Wait> = const { Cell::new(Wait::new(Reason::Park, 0)) };
    static JOINED: Cell<u64> = const { Cell::new(0) };
}

/// Preemptions in one run of a model, at most: three threads have too many ways
/// to go for all of them.
const PREEMPTIONS: usize = 3;

/// Checks a model in which time stands still.
pub fn model(model: impl Fn() + Sync + Send + 'static) {
    model_with_clock(0, model);
}

/// The same with one preemption less, unless `RUNNEXT_TEST` is `full`: for a model that takes
/// more time than all others of its file.
pub fn large_model(model: impl Fn() + Sync + Send + 'static) {
    large_model_with_clock(0, model);
}

/// As [`large_model`] and [`model_with_clock`].
pub fn large_model_with_clock(step_ns: u64, model: impl Fn() + Sync + Send + 'static) {
    let is_full = std::env::var("RUNNEXT_TEST").is_ok_and(|effort| effort == "full");
    check(if is_full { PREEMPTIONS } else { PREEMPTIONS - 1 }, step_ns, model);
}

/// Checks a model in which each look at the clock finds it `step_ns` later.
pub fn model_with_clock(step_ns: u64, model: impl Fn() + Sync + Send + 'static) {
    check(PREEMPTIONS, step_ns, model);
}

fn check(preemptions: usize, step_ns: u64, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        NOW_STEP.set((1, step_ns));
        NAMES.set(0);
        MORTAL.set(false);
        URGENT.set(0);
        model();
    });
}

fn new_name() -> u64 {
    NAMES.set(NAMES.get() + 1);
    NAMES.get() << 6
}

/// The name of this G, for the words of locks.
pub fn me() -> u64 {
    CURRENT.with(|g| g.name)
}

/// # Safety
/// None here.
pub unsafe fn is_gone(name: u64) -> bool {
    MORTAL.get() && name != 0 && GONE.load(Relaxed) as u64 == name
}

/// Says at the beginning of a model that [`abandon_locks`] will be called.
pub fn somebody_goes() {
    MORTAL.set(true);
}

/// The calling G is gone, and holds what it holds. `forget` takes its node out of the queue that
/// it waited in, if it did. Wakes that waiter as the machine does: if its lock has the name of
/// the calling G by then, or is `noted` to be abandoned.
pub fn abandon_locks(
    waiter: GHandle,
    forget: impl FnOnce(u64),
    owner: impl Fn() -> u64,
    noted: u64,
) {
    GONE.store(me() as usize, Relaxed);
    loom::sync::atomic::fence(SeqCst);
    forget(me());
    let owner = owner();
    if owner == me() || owner == noted {
        ready(waiter);
    }
}

/// As `watch::holder::lend_rank`, for the one G that has a rank to lend.
pub fn look_for_cycle(_: bool) {
    while is_urgent() {
        let holder = holder();
        if holder == me() {
            return;
        }
        lend_to(&mut LENT_TO.lock().unwrap(), holder);
        fence(SeqCst);
        if self::holder() == holder {
            return;
        }
        stop_lending();
    }
}

/// The G that the urgent one waits for, or FREE; itself if it waits for none.
fn holder() -> u64 {
    let Wait { reason, object, .. } = WAIT.get();
    match reason {
        Reason::Join => JOINED.get(),
        Reason::MutexLock => {
            let word = (object - held::WORD_BEFORE_QUEUE) as *const AtomicU64;
            // SAFETY: the urgent G waits for that lock, so it is there.
            match held::owner_in(reason, unsafe { &*word }.load(Relaxed)) {
                0 => FREE,
                owner => owner,
            }
        }
        _ => me(),
    }
}

fn lend_to(lent_to: &mut u64, holder: u64) {
    *lent_to = holder;
    IS_LENT.store(holder != 0, SeqCst);
    CHANGES.notify();
}

/// The calling G is the one of the model that is urgent; `joins`: the G that it joins, if it does.
pub fn be_urgent(joins: u64) {
    URGENT.set(me());
    JOINED.set(joins);
}

/// Waits until the urgent G lends its rank to the calling one, or `has_ended`, after which it calls
/// [`tell_lent`].
pub fn wait_until_lent(has_ended: impl Fn() -> bool) {
    while *LENT_TO.lock().unwrap() != me() && !has_ended() {
        CHANGES.wait();
    }
}

pub fn tell_lent() {
    CHANGES.notify();
}

/// Whether the urgent G lends its rank.
pub fn is_lent() -> bool {
    *LENT_TO.lock().unwrap() != 0
}

pub fn is_urgent() -> bool {
    URGENT.get() == me()
}

/// As in `run::priority`, for one loan.
pub fn passed_on(object: usize, name: u64) {
    if URGENT.get() == 0 {
        return;
    }
    // On the machine changing the lock's word was one.
    fence(SeqCst);
    if IS_LENT.load(SeqCst) {
        let mut lent_to = LENT_TO.lock().unwrap();
        if *lent_to == me() && WAIT.get().object == object {
            lend_to(&mut lent_to, if [0, URGENT.get()].contains(&name) { FREE } else { name });
        }
    }
}

pub fn taken_over(object: usize, name: u64) -> bool {
    if URGENT.get() == 0 {
        return false;
    }
    // As above: taking the lock.
    fence(SeqCst);
    let is_lent = IS_LENT.load(SeqCst);
    if is_lent {
        let mut lent_to = LENT_TO.lock().unwrap();
        let is_other = *lent_to != name && name != URGENT.get();
        if *lent_to != 0 && is_other && WAIT.get().object == object {
            lend_to(&mut lent_to, name);
        }
    }
    is_lent
}

pub fn stop_lending() {
    if is_urgent() && IS_LENT.load(SeqCst) {
        lend_to(&mut LENT_TO.lock().unwrap(), 0);
    }
}

pub fn now_ns() -> u64 {
    let (now, step) = NOW_STEP.get();
    NOW_STEP.set((now + step, step));
    now
}

pub fn clock_uncertainty_ns() -> u64 {
    0
}

pub fn this() -> GHandle {
    CURRENT.with(|g| GHandle(g.clone()))
}

#[track_caller]
pub fn begin_park(wait: Wait) -> GHandle {
    if is_urgent() {
        WAIT.set(wait);
    }
    note("begins to park: from here on it can be readied");
    // Relaxed, as in `sched`: what is waited for must do the ordering.
    CURRENT.with(|g| g.state.store(PARKING, Relaxed));
    this()
}

#[track_caller]
pub fn park() {
    note("parks, unless it was readied");
    CURRENT.with(|g| {
        // A notice of an earlier wait may be there: look again.
        while g.state.compare_exchange(WOKEN, RUNNING, Acquire, Relaxed).is_err() {
            g.notify.wait();
        }
    });
    note("was readied, and runs again");
}

/// There are no interrupts in a model.
#[derive(Clone, Copy)]
pub struct IrqState;

impl IrqState {
    pub const ON: IrqState = IrqState;
}

/// As on the machine: no state before the G is parked, and the lock is freed after that.
pub fn begin_wait(_: Wait) -> GHandle {
    this()
}

/// # Safety
/// The caller holds the lock.
pub unsafe fn park_unlock<T>(_: IrqState, g: GHandle, _: Reason, lock: &IrqLock<T>) {
    g.0.state.store(PARKING, Relaxed);
    // SAFETY: the caller's promise.
    unsafe { lock.open() };
    park();
}

pub fn ready_from(_: IrqState, g: GHandle) {
    ready(g);
}

/// Time does not pass while anybody can run: the deadline comes at once.
#[track_caller]
pub fn park_until(deadline_ns: u64) -> bool {
    if deadline_ns != u64::MAX {
        let is_readied = CURRENT.with(|g| g.state.swap(RUNNING, AcqRel) == WOKEN);
        note(if is_readied { "was readied, and runs again" } else { "its deadline has come" });
        return is_readied;
    }
    // As in `run::proc`.
    loom::sync::atomic::fence(SeqCst);
    if CURRENT.with(|g| g.limit_over.load(SeqCst)) {
        cancel_park();
        return false;
    }
    park();
    !CURRENT.with(|g| g.limit_over.load(SeqCst))
}

pub fn end_limit(GHandle(g): &GHandle) {
    g.limit_over.store(true, SeqCst);
    loom::sync::atomic::fence(SeqCst);
}

pub fn set_limit_over(is_over: bool) {
    CURRENT.with(|g| g.limit_over.store(is_over, SeqCst));
}

pub fn is_limit_over() -> bool {
    CURRENT.with(|g| g.limit_over.load(SeqCst))
}

pub fn cancel_park() -> bool {
    park_until(0)
}

pub use ready as ready_from_interrupt;

pub fn interrupt_this_cpu() {}

/// Nobody is killed here.
pub fn is_killed() -> bool {
    false
}

/// Nor is there anything to heed.
pub fn check_kill() {}

pub fn die() -> ! {
    unreachable!("nobody is killed here")
}

#[track_caller]
pub fn ready(GHandle(g): GHandle) {
    let is_readied = g.state.load(Relaxed) == PARKING
        && g.state.compare_exchange(PARKING, WOKEN, AcqRel, Relaxed).is_ok();
    note(if is_readied { "readies the G" } else { "readies a G that does not wait: nothing" });
    if is_readied {
        g.notify.notify();
    }
}

pub fn permit(GHandle(g): &GHandle) {
    g.permit.give(0);
}

pub fn take_permit() -> bool {
    CURRENT.with(|g| g.permit.take(0))
}

pub fn current_id() -> u64 {
    0
}

pub fn random() -> u64 {
    0
}
