//! Kernel internals, for its own tests: the feature `internals`.
//!
//! Safe code can break memory or end the machine with these items, so they are not part of the
//! public API. The feature is off unless a crate requests it: `tests/guest` and `fuzz` do, programs
//! must not. Cargo gives a crate one set of features for everything that is built in one command,
//! so an image of programs is built in a command of its own; the standard image refuses to be built
//! otherwise ([`HAS_INTERNALS`](crate::__private::HAS_INTERNALS)).

/// The machine.
pub mod arch {
    pub use crate::arch::irq;

    /// Page tables.
    pub mod paging {
        pub use crate::arch::paging::{
            Flags, Translation, map_mmio, map_page, translate, unmap_page,
        };
    }
}

/// Random preemption and delays.
pub mod chaos {
    pub use crate::chaos::is_on;
}

/// Devices.
pub mod drivers {
    /// Interrupt lines.
    pub mod irq {
        pub use crate::drivers::irq::{Handler, claim, mask_isa, route_isa, taken};
    }

    /// The serial port.
    pub mod serial {
        /// Console input.
        pub mod input {
            pub use crate::drivers::serial::input::INPUT;
        }
    }

    /// The disk.
    pub mod virtio_blk {
        pub use crate::drivers::virtio_blk::{Disk, Failure, Job, SECTOR, SLOT_BYTES, disk};

        /// Slots for requests.
        pub mod slots {
            pub use crate::drivers::virtio_blk::slots::SLOTS;
        }
    }
}

/// The watchdog.
pub mod watchdog {
    pub use crate::watchdog::{Counts, counts};
}

/// Properties that hold for any input bytes.
#[cfg(not(target_os = "none"))]
pub mod hostile {
    pub use crate::hostile::*;
}

/// Checks of the scheduler's invariants.
pub mod invariant {
    pub use crate::invariant::{
        Beside, Broken, Census, check, forget_beside_idle, longest_beside_idle,
    };
}

/// Spin locks.
pub mod lock {
    pub use crate::lock::IrqLock;
}

/// Memory.
pub mod mem {
    pub use crate::mem::{PAGE_SIZE, PHYS_OFFSET, Stats, phys_to_virt, stats};

    /// Physical pages.
    pub mod frames {
        pub use crate::mem::frames::{Frame, alloc, alloc_contiguous, free, free_many};
    }

    /// Stacks.
    pub mod stack {
        pub use crate::mem::stack::DEFAULT_SIZE;

        /// Their addresses.
        pub mod slot {
            pub use crate::mem::stack::slot::{GUARD_PAGES, Slot, locate};
        }
    }
}

/// Parking and readying.
pub mod park {
    pub use crate::park::{abandon_locks, park};
}

/// Readiness of devices.
pub mod poller {
    pub use crate::poller::{Direction, PollDesc, PollError};
}

/// The scheduler.
pub mod schedule {
    pub use crate::schedule::find;
}

/// Names of functions.
pub mod symbols {
    pub use crate::symbols::lookup;
}

/// Events.
#[cfg(target_os = "none")]
pub mod trace {
    pub use crate::trace::interrupt_before_init_cpu;
}

/// Panics that unwind.
pub mod unwind {
    pub use crate::unwind::{catch, resume};
}
