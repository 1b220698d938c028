//! Parking and readying: the interface between public API and scheduler.
//!
//! Channels, locks, timers and joins are built on six functions: start a G, begin to park, cancel
//! that, park (for ever or until a time), ready. On the machine they are `run`'s own. On the host
//! threads stand in for Gs, so that everything above this interface runs in plain tests, in
//! doctests, and under Miri.
//!
//! # How to wait
//!
//! 1. Under the lock of the awaited object: check that the G must wait, call [`begin_park`], store
//!    the handle where the waker finds it.
//! 2. Drop the lock.
//! 3. [`park`] or [`park_until`].
//! 4. Check again, under the lock: a wake-up means "check again", not "granted".
//!
//! From 1 on a [`ready`] is not lost. A handle names one life of a G, so a stale handle does no
//! harm to later lives; but it may wake a later wait of the same G early, which is why step 4 is
//! mandatory.

#[cfg(not(target_os = "none"))]
pub use host::{
    GHandle, abandon_locks, begin_park, call, cancel_park, check_kill, created_and_ended,
    current_id, die, interrupt_this_cpu, is_gone, is_killed, is_killed as was_killed,
    look_for_cycle, may_spin, may_wait, me, now_ns, num_goroutines, park, park_from, park_until,
    permit, program, random, ready, ready as ready_from_interrupt, ready_from, spawn, take_permit,
    this, yield_now,
};

#[cfg(target_os = "none")]
pub use super::kill::{check_kill, die, is_killed, was_killed};
#[cfg(target_os = "none")]
pub use super::{
    GHandle, begin_park, call, cancel_park, created_and_ended, current_id, is_gone, may_spin,
    may_wait, me, num_goroutines, park, park_from, park_until, permit, program, random, ready,
    ready_from, ready_from_interrupt, spawn, take_permit, this, yield_now,
};
#[cfg(target_os = "none")]
pub use crate::arch::now_ns;

pub(crate) use super::waiting::deadline_after;
pub use super::waiting::{Reason, Wait};

use super::Instance;
use core::panic::Location;

/// The running G is about to wait for a lock, or does: looks for a cycle of such waits.
#[cfg(target_os = "none")]
pub fn look_for_cycle(waits: bool) {
    (crate::run::hooks::get().look_for_cycle)(waits);
}

/// Makes this CPU take an interrupt, at whose end it moves the Gs that [`ready_from_interrupt`] has
/// put into its inbox: for callers of that function outside of interrupts, with interrupts off.
#[cfg(target_os = "none")]
pub fn interrupt_this_cpu() {
    crate::arch::wake(crate::arch::cpu_index());
}

/// Asserts that the caller may park: it is a G, with interrupts on, and holds no kernel lock. The
/// first line of every call that waits, also when it need not wait this time. Without debug
/// assertions this is nothing.
///
/// # Panics
/// With debug assertions, if the caller may not park.
#[inline(always)]
#[cfg_attr(debug_assertions, track_caller)]
pub fn might_park() {
    #[cfg(debug_assertions)]
    {
        if let Some(held) = crate::arch::lock::order::outermost() {
            panic!("might park with the {held} held");
        }
        // With interrupts on, a running G is on its own stack, or on that of its M in a call, where
        // it may park as well.
        #[cfg(target_os = "none")]
        {
            assert!(crate::arch::irq::enabled(), "might park with interrupts off");
            assert!(crate::run::is_running(), "might park where no G runs");
        }
    }
}

/// The options of a new G: name and site for reports, stack size, CPU and program.
#[derive(Clone, Copy, Debug)]
pub struct SpawnOptions {
    /// Its name, or "".
    pub name: &'static str,
    /// Where it was started.
    pub site: &'static Location<'static>,
    /// Bytes of addresses for its stack.
    pub stack: usize,
    /// The CPU that it must run on, if any.
    pub pin: Option<usize>,
    /// Its program, if not that of the G that starts it.
    pub program: Option<&'static Instance>,
}

/// Threads in place of Gs: what each function does is written where the machine's own is.
#[cfg(not(target_os = "none"))]
#[allow(missing_docs, reason = "documented where the machine's own is")]
mod host {
    use crate::arch::irq::IrqState;
    use crate::run::door::{SpawnOptions, Wait};
    use crate::run::error::{JoinError, SpawnError};
    use crate::run::sys::PANICKING;
    use crate::run::{BlockingError, Instance, Job, Joiner, Permit, pair};
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::{Arc, Condvar, Mutex, PoisonError};
    use std::time::{Duration, Instant};

    /// Names a thread. Readied before it parks, it does not wait.
    #[derive(Clone)]
    pub struct GHandle(Arc<Parker>);

    #[derive(Default)]
    struct Parker {
        readied: Mutex<bool>,
        changed: Condvar,
        permit: Permit,
        /// A [`Wait`], packed.
        waiting: AtomicU64,
    }

    impl GHandle {
        pub fn waits_for(&self) -> Wait {
            Wait::unpack(self.0.waiting.load(Relaxed))
        }
    }

    thread_local! {
        static PARKER: Arc<Parker> = Arc::default();
        static NAME: u64 = (NAMES.fetch_add(1, Relaxed) + 1) << 6;
    }

    /// How many names were given to threads; no two are the same.
    static NAMES: AtomicU64 = AtomicU64::new(0);
    /// The names of threads that are gone.
    static GONE: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    static CREATED: AtomicU64 = AtomicU64::new(0);
    static ENDED: AtomicU64 = AtomicU64::new(0);
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

    pub fn spawn<J: Job>(options: SpawnOptions, job: J) -> Result<Joiner<J::Outcome>, SpawnError> {
        let (work, joiner) = pair(job).map_err(|_| SpawnError::NoMemory)?;
        let builder = std::thread::Builder::new().name(options.name.into());
        let run = move || {
            work.run();
            ENDED.fetch_add(1, Relaxed);
        };
        builder.spawn(run).map_err(|_| SpawnError::NoMemory)?;
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
        PARKER.with(|parker| GHandle(parker.clone()))
    }

    pub fn permit(GHandle(parker): &GHandle) {
        parker.permit.give(0);
    }

    pub fn take_permit() -> bool {
        PARKER.with(|parker| parker.permit.take(0))
    }

    pub fn random() -> u64 {
        std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0)
    }

    pub fn begin_park(wait: Wait) -> GHandle {
        PARKER.with(|parker| {
            parker.waiting.store(wait.pack(), Relaxed);
            *parker.readied.lock().unwrap_or_else(PoisonError::into_inner) = false;
            GHandle(parker.clone())
        })
    }

    pub fn cancel_park() -> bool {
        park_until(0) // a deadline that has passed
    }

    pub fn park() {
        wait_until(u64::MAX);
    }

    pub fn park_from(_: IrqState, _: GHandle) {
        park();
    }

    pub fn ready_from(_: IrqState, g: GHandle) {
        ready(g);
    }

    pub fn park_until(deadline_ns: u64) -> bool {
        PARKER.with(|parker| {
            let wait = Wait::unpack(parker.waiting.load(Relaxed)).with_deadline();
            parker.waiting.store(wait.pack(), Relaxed);
        });
        wait_until(deadline_ns)
    }

    fn wait_until(deadline_ns: u64) -> bool {
        PARKER.with(|parker| {
            let mut readied = parker.readied.lock().unwrap_or_else(PoisonError::into_inner);
            while !*readied {
                let left = Duration::from_nanos(deadline_ns.saturating_sub(now_ns()));
                if left.is_zero() {
                    return false;
                }
                let waited = parker.changed.wait_timeout(readied, left);
                readied = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            true
        })
    }

    pub fn ready(g: GHandle) {
        *g.0.readied.lock().unwrap_or_else(PoisonError::into_inner) = true;
        g.0.changed.notify_one();
    }

    pub fn call<T>(f: impl FnOnce() -> T) -> Result<T, BlockingError> {
        Ok(f())
    }

    pub fn program() -> &'static Instance {
        &crate::run::BOOT
    }

    pub fn is_killed() -> bool {
        false
    }

    pub fn check_kill() {}

    pub fn die() -> ! {
        unreachable!("a thread is never killed")
    }

    pub fn me() -> u64 {
        let panicking = if std::thread::panicking() { PANICKING } else { 0 };
        NAME.with(|name| *name) | panicking
    }

    /// Whether the thread of that name is gone, as [`abandon_locks`] says.
    ///
    /// # Safety
    /// None on the host; there are conditions on the machine.
    pub unsafe fn is_gone(name: u64) -> bool {
        GONE.lock().unwrap_or_else(PoisonError::into_inner).contains(&(name & !PANICKING))
    }

    /// As if the thread of that number had ended without unwinding: the next thread that takes one
    /// of its locks finds it abandoned. Threads that wait already are not woken.
    pub fn abandon_locks(id: u64) -> usize {
        assert_eq!(id, current_id(), "a thread can abandon its own locks only");
        GONE.lock().unwrap_or_else(PoisonError::into_inner).push(me() & !PANICKING);
        0
    }

    pub fn look_for_cycle(_: bool) {}

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

    pub fn yield_now() {
        std::thread::yield_now();
    }

    pub fn current_id() -> u64 {
        PARKER.with(|parker| Arc::as_ptr(parker).addr() as u64)
    }

    pub fn now_ns() -> u64 {
        START.elapsed().as_nanos() as u64
    }
}
