//! Kernel internals, for its own tests: the feature `internals`.
//!
//! Safe code can break memory or end the machine with these items, so they are not part of the
//! public API. The feature is off unless a crate requests it: `tests/guest` and `fuzz` do, programs
//! must not. Cargo gives a crate one set of features for everything that is built in one command,
//! so an image of programs is built in a command of its own; the standard image refuses to be built
//! otherwise ([`HAS_INTERNALS`](crate::__private::HAS_INTERNALS)).

/// Re-exports what is public in each of these private modules.
macro_rules! open {
    ($($module:ident)*) => {
        $(
            #[doc = concat!("The kernel's `", stringify!($module), "`.")]
            pub mod $module {
                pub use crate::$module::*;
            }
        )*
    };
}

open!(arch chaos guardian invariant lock park poller symbols unwind);

/// Devices.
pub mod drivers {
    pub use crate::drivers::{irq, virtio_blk};

    /// The serial port.
    pub mod serial {
        /// Console input.
        pub mod input {
            pub use crate::drivers::serial::input::INPUT;
        }
    }
}

/// Memory.
pub mod mem {
    pub use crate::mem::{PAGE_SIZE, PHYS_OFFSET, Stats, dma, frames, phys_to_virt, stack, stats};
}

/// The scheduler.
pub mod schedule {
    pub use crate::schedule::find;
}

/// Properties that hold for any input bytes.
#[cfg(not(target_os = "none"))]
pub mod hostile {
    pub use crate::hostile::*;
}

/// Events.
#[cfg(target_os = "none")]
pub mod trace {
    pub use crate::trace::interrupt_before_init_cpu;
}
