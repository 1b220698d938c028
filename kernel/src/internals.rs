//! Kernel internals, for its own tests: the feature `internals`.
//!
//! Safe code can break memory or end the machine with these items, so they are not part of the
//! public API. The feature is off unless a crate requests it: `tests/guest` and `fuzz` do, programs
//! must not. Cargo gives a crate one set of features for everything that is built in one command,
//! so an image of programs is built in a command of its own; the standard image refuses to be built
//! otherwise ([`HAS_INTERNALS`](crate::__private::HAS_INTERNALS)).

/// Re-exports what is public in each of these private modules.
macro_rules! open {
    ($($module:ident: $($path:ident)::*,)*) => {
        $(
            #[doc = concat!("The kernel's `", stringify!($module), "`.")]
            pub mod $module {
                pub use crate::$($path)::*::*;
            }
        )*
    };
}

open! {
    arch: arch,
    chaos: check::chaos,
    watchdog: fail::watchdog,
    invariant: check::invariant,
    lock: arch::lock,
    poller: run::poller,
    symbols: watch::symbols,
    unwind: run::unwind,
}

pub mod drivers {
    pub use crate::drivers::serial::input;
    pub use crate::drivers::{irq, virtio, virtio_blk};
}

pub mod mem {
    pub use crate::mem::{PAGE_SIZE, PHYS_OFFSET, Stats, dma, frames, phys_to_virt, stack, stats};
}

/// The scheduler.
pub mod schedule {
    pub use crate::fail::kill::find;
}

/// Parking and readying.
pub mod park {
    pub use crate::fail::abandon::abandon_locks;
    pub use crate::run::door::*;
}

/// The parsers of bytes that are not trusted, for the crate `fuzz`.
#[cfg(not(target_os = "none"))]
pub mod parsers {
    pub use crate::api::console::line::{Editor, Typed};
    pub use crate::arch::{MAX_CPUS, acpi};
    pub use crate::drivers::framebuffer::{Cell, Screen};
    pub use crate::drivers::fw_cfg::{FileError, FwCfg, Registers};
    pub use crate::drivers::log::{Color, Sink};
    pub use crate::drivers::pci::{Address, Device, functions};
    pub use crate::drivers::serial::input::{Input, TAKE_MAX};
    pub use crate::drivers::virtio::probe::structure;
    pub use crate::drivers::virtio::slots::{Answer, RING, Slots};
    pub use crate::init::cmdline::{MAX_LENGTH, Options};
    pub use crate::mem::frames::{Frames, LOW_END, Stock, cut_bitmap};
    pub use crate::mem::survey::{Map, Why, survey};
    pub use crate::run::preempt::NEVER;
    pub use crate::watch::backtrace::{MAX_FRAMES, follow};
    pub use crate::watch::symbols::{MAX_SHOWN, Symbols};

    pub mod ustar {
        pub use crate::api::fs::ustar::{BLOCK, Block, Damage, Kind, normal, walk};
    }
}

pub mod trace {
    pub use crate::run::ring::{RING_SLOT, RINGS};
}
