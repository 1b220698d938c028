//! The order of the kernel's locks, declared here and checked in debug builds.
//!
//! A lock may be taken only while all locks that this CPU holds are of a lower [`Level`]: so no two
//! CPUs can wait for each other. No two locks of one level may be held at once. Most locks are
//! [`Level::Plain`], and code under one of them may need memory, or print, and nothing else. A
//! `try_lock` does not wait, so it is allowed at any time.
//!
//! In builds with debug assertions (the profile `checked`, and every test on the host) each CPU
//! records the locks that it holds, and a lock that is taken against the order stops the kernel
//! with both names, also when no deadlock would have happened this time. A release build has only
//! the names of the levels.

/// What a lock guards, from the outermost to the innermost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// A simulated device, which records its requests.
    Device,
    /// Sleepers, which are readied under it (`timer`).
    Timers,
    /// A request to a simulated device, completed when it is due.
    Request,
    /// Everything that is not named here: one at a time.
    #[default]
    Plain,
    /// Waiters for a device (`poller`): drivers ready them.
    Poll,
    /// What is to be written of events (`trace`): those under the locks above are recorded, too.
    Events,
    /// Unused stacks (`mem::stack`).
    Stacks,
    /// The addresses for registers of devices (`arch::paging`).
    Window,
    /// The heap's lists, which grow from frames.
    Heap,
    /// The frames of the machine.
    Frames,
    /// The consoles: any code may print.
    Console,
}

#[cfg(debug_assertions)]
pub use checked::{TakenLock, check, freed, holder, outermost, stop, taken};

#[cfg(debug_assertions)]
mod checked {
    use super::Level;
    use arrayvec::ArrayVec;
    use core::fmt;
    use core::panic::Location;
    use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

    /// A lock that is taken: its level, and where it is taken.
    #[derive(Clone, Copy, Debug)]
    pub struct TakenLock {
        pub lock: usize,
        pub level: Level,
        /// The type of the guarded value.
        pub name: &'static str,
        pub site: &'static Location<'static>,
    }

    impl fmt::Display for TakenLock {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{:?} lock of {} (at {})", self.level, self.name, self.site)
        }
    }

    /// The locks that a CPU holds, in the order in which they were taken.
    pub type Held = ArrayVec<TakenLock, 8>;

    /// The kernel goes down, and takes the locks that it needs.
    static IS_OFF: AtomicBool = AtomicBool::new(false);

    /// Stops all checks: for the panic path.
    pub fn stop() {
        IS_OFF.store(true, Relaxed);
    }

    /// This CPU is about to wait for that lock. Interrupts off.
    pub fn check(place: TakenLock) {
        let forbids = |held: &&TakenLock| held.level >= place.level;
        let held = super::here::with(|held| held.iter().find(forbids).copied());
        if let Some(held) = held.filter(|_| !IS_OFF.load(Relaxed)) {
            panic!("lock order: {place} is taken under the {held}");
        }
    }

    /// This CPU has taken that lock. Interrupts off.
    pub fn taken(place: TakenLock) {
        // Without room, the lock is not checked; that does no harm.
        super::here::with(|held| _ = held.try_push(place));
    }

    /// This CPU has released it. Interrupts off.
    pub fn freed(lock: usize) {
        super::here::with(|held| held.retain(|held| held.lock != lock));
    }

    /// A lock that this CPU holds, if any.
    pub fn outermost() -> Option<TakenLock> {
        super::here::with(|held| held.first().copied())
    }

    pub fn holder(lock: usize) -> Option<usize> {
        super::here::find(|held| held.iter().any(|held| held.lock == lock))
    }
}

/// The locks that this CPU holds.
#[cfg(all(debug_assertions, target_os = "none"))]
mod here {
    use super::checked::Held;
    use crate::arch::{self, MAX_CPUS};
    use core::cell::UnsafeCell;

    struct PerCpu(UnsafeCell<Held>);

    // SAFETY: written by its own CPU only, with interrupts off; `find` tolerates torn reads.
    unsafe impl Sync for PerCpu {}

    static HELD: [PerCpu; MAX_CPUS] =
        [const { PerCpu(UnsafeCell::new(Held::new_const())) }; MAX_CPUS];

    pub(super) fn with<R>(f: impl FnOnce(&mut Held) -> R) -> R {
        let irqs = arch::irq::disable();
        // SAFETY: this CPU's own, interrupts off, and `f` is of this file, which takes no lock.
        let result = f(unsafe { &mut *HELD[arch::cpu_index()].0.get() });
        arch::irq::restore(irqs);
        result
    }

    /// The CPU for whose locks `f` is true. They may change meanwhile: this is for a report about
    /// CPUs that are stuck.
    pub(super) fn find(f: impl Fn(&Held) -> bool) -> Option<usize> {
        let holds = |&cpu: &usize| {
            // SAFETY: plain words that exist for ever. A lock that is taken or freed at this
            // instant may be read half; only its address is compared, and nothing is dereferenced.
            let held = unsafe { HELD[cpu].0.get().read_volatile() };
            f(&held)
        };
        (0..arch::num_cpus()).find(holds)
    }
}

/// The locks that this thread holds: on the host a thread stands for a CPU.
#[cfg(all(debug_assertions, not(target_os = "none")))]
mod here {
    use super::checked::Held;
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Held> = const { RefCell::new(Held::new_const()) };
    }

    pub(super) fn with<R>(f: impl FnOnce(&mut Held) -> R) -> R {
        HELD.with_borrow_mut(f)
    }

    pub(super) fn find(f: impl Fn(&Held) -> bool) -> Option<usize> {
        HELD.with_borrow(f).then_some(0)
    }
}
