//! The order of the kernel's locks, declared here and checked where that is paid for.
//!
//! A lock may be taken only while all that this CPU holds are of a lower [`Level`]:
//! so no two CPUs can wait for each other. There is no level at which two may be
//! held. Most locks are [`Level::Plain`], and what is done under one of them may
//! need memory, or print, and nothing else. A lock that is only tried for waits for
//! nobody, so it may be tried for at any time.
//!
//! In builds with debug assertions (the profile `checked`, and every test on the
//! host) each CPU notes what it holds, and a lock that is taken against the order
//! stops the kernel with both names, also when all would have gone well this time.
//! A release build has nothing of it, but for the names of the levels.

use core::fmt;

/// What a lock guards, from the outermost to the innermost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// A simulated device, which notes its requests.
    Device,
    /// Sleepers, who are readied under it (`timer`).
    Timers,
    /// A request to a simulated device, answered when its time comes.
    Request,
    /// Everything that is not named here: one at a time.
    #[default]
    Plain,
    /// Who waits for a device (`poller`): drivers tell it.
    Poll,
    /// Stacks that nobody uses (`mem::stack`).
    Stacks,
    /// The addresses for registers of devices (`arch::paging`).
    Window,
    /// The heap's lists, which grow from frames.
    Heap,
    /// The frames of the machine.
    Frames,
    /// The consoles: anybody may print.
    Console,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Level::Device => "device",
            Level::Timers => "timers",
            Level::Request => "request",
            Level::Plain => "plain",
            Level::Poll => "poll",
            Level::Stacks => "stacks",
            Level::Window => "window",
            Level::Heap => "heap",
            Level::Frames => "frames",
            Level::Console => "console",
        })
    }
}

#[cfg(debug_assertions)]
pub use checked::{Place, check, freed, holder, outermost, stop, taken};

#[cfg(debug_assertions)]
mod checked {
    use super::Level;
    use core::fmt;
    use core::panic::Location;
    use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

    /// A lock that is taken: what it guards, and who takes it.
    #[derive(Clone, Copy, Debug)]
    pub struct Place {
        /// Where the lock is.
        pub lock: usize,
        /// What it guards.
        pub level: Level,
        /// The type of what it guards.
        pub name: &'static str,
        /// Who takes it.
        pub site: &'static Location<'static>,
    }

    impl fmt::Display for Place {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} lock of {} (at {})", self.level, self.name, self.site)
        }
    }

    /// Locks that one CPU holds at most: one of each level, and some that were
    /// tried for.
    const MOST: usize = 8;

    /// What a CPU holds, in the order in which it was taken.
    #[derive(Clone, Copy)]
    pub struct Held {
        places: [Option<Place>; MOST],
    }

    impl Held {
        /// Nothing.
        pub const NONE: Held = Held { places: [None; MOST] };

        /// The held lock that forbids to take one of `level`.
        fn forbids(&self, level: Level) -> Option<Place> {
            self.places.iter().flatten().find(|held| held.level >= level).copied()
        }

        fn push(&mut self, place: Place) {
            // If there is no room, it is not checked; that harms nobody.
            if let Some(free) = self.places.iter_mut().find(|held| held.is_none()) {
                *free = Some(place);
            }
        }

        fn remove(&mut self, lock: usize) {
            for held in &mut self.places {
                held.take_if(|held| held.lock == lock);
            }
        }
    }

    /// The kernel goes down, and takes what it needs.
    static IS_OFF: AtomicBool = AtomicBool::new(false);

    /// Checks nothing from here on: for the panic path.
    pub fn stop() {
        IS_OFF.store(true, Relaxed);
    }

    /// This CPU is about to wait for that lock. Interrupts off.
    pub fn check(place: Place) {
        let forbids = super::here::with(|held| held.forbids(place.level));
        if let Some(held) = forbids.filter(|_| !IS_OFF.load(Relaxed)) {
            panic!("lock order: {place} is taken under the {held}");
        }
    }

    /// This CPU has taken that lock. Interrupts off.
    pub fn taken(place: Place) {
        super::here::with(|held| held.push(place));
    }

    /// This CPU has let go of it. Interrupts off.
    pub fn freed(lock: usize) {
        super::here::with(|held| held.remove(lock));
    }

    /// A lock that this CPU holds, if any.
    pub fn outermost() -> Option<Place> {
        super::here::with(|held| held.places.iter().flatten().next().copied())
    }

    /// The CPU that holds that lock, if that can be seen.
    pub fn holder(lock: usize) -> Option<usize> {
        super::here::find(|held| held.places.iter().flatten().any(|held| held.lock == lock))
    }
}

/// What this CPU holds.
#[cfg(all(debug_assertions, target_os = "none"))]
mod here {
    use super::checked::Held;
    use crate::arch::{self, MAX_CPUS};
    use core::cell::UnsafeCell;

    struct PerCpu(UnsafeCell<Held>);

    // SAFETY: written by its own CPU only, with interrupts off; `find` copes.
    unsafe impl Sync for PerCpu {}

    static HELD: [PerCpu; MAX_CPUS] = [const { PerCpu(UnsafeCell::new(Held::NONE)) }; MAX_CPUS];

    pub(super) fn with<R>(f: impl FnOnce(&mut Held) -> R) -> R {
        let irqs = arch::irq::disable();
        // SAFETY: this CPU's own, interrupts off, and `f` is of this file, which
        // takes no lock.
        let result = f(unsafe { &mut *HELD[arch::cpu_index()].0.get() });
        arch::irq::restore(irqs);
        result
    }

    /// The CPU of whose locks that is true. They may change meanwhile: this is for
    /// a report about CPUs that are stuck.
    pub(super) fn find(f: impl Fn(&Held) -> bool) -> Option<usize> {
        let holds = |&cpu: &usize| {
            // SAFETY: plain words that are there for ever. A lock that is taken or
            // freed at this instant may be read half; what is compared is an address,
            // and nothing is followed.
            let held = unsafe { HELD[cpu].0.get().read_volatile() };
            f(&held)
        };
        (0..arch::num_cpus()).find(holds)
    }
}

/// What this thread holds: on the host one stands for a CPU.
#[cfg(all(debug_assertions, not(target_os = "none")))]
mod here {
    use super::checked::Held;
    use std::cell::Cell;

    thread_local! {
        static HELD: Cell<Held> = const { Cell::new(Held::NONE) };
    }

    pub(super) fn with<R>(f: impl FnOnce(&mut Held) -> R) -> R {
        let mut held = HELD.get();
        let result = f(&mut held);
        HELD.set(held);
        result
    }

    pub(super) fn find(f: impl Fn(&Held) -> bool) -> Option<usize> {
        f(&HELD.get()).then_some(0)
    }
}
