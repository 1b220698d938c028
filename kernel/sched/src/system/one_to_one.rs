//! 1:1: a fresh thread for each G. `system=1to1`.
//!
//! # What it is
//!
//! The simplest way to run Gs on an operating system: leave it to the operating system. `go f()`
//! makes a thread that runs `f` and ends with it. There is no scheduler in the program at all. Here
//! the M is the thread: a stack of the kernel, on which its G runs.
//!
//! # Its four answers
//!
//! - **Where does a ready G wait?** In one list of ready threads: the operating system's.
//! - **Where does a processor look?** At the head of that list.
//! - **Whose is the M?** Its own: made when the G starts, freed when it ends.
//! - **What does a call do that blocks?** Nothing more than any other wait: the G leaves the CPU
//!   with its M, as always.
//!
//! # Its drawbacks
//!
//! - **Memory**: two stacks for every G. Go wants a million in a process.
//! - **Creation**: each G takes two stacks from the kernel, maps their first pages and gives them
//!   back, which is twenty times what Go's `go` costs.
//! - **Every switch is one of threads**, under the lock of one list ([`shared`]).
//! - **No large stacks**: that of a thread has a fixed size.
//!
//! # Where it wins
//!
//! A call that blocks costs nothing at all, and needs no scheduler that knows of it: any code, in
//! any language, may block anywhere. Nothing is hidden from the operating system, so its tools and
//! its priorities apply to every G.
//!
//! [`pool`](super::pool) keeps the threads; [`n1`](super::n1) does without them.

use super::{About, OwnM, Places, Promises, Rules, System, shared};

/// See the head of this file.
pub struct OneToOne;

/// See the head of this file.
pub static ABOUT: About = About {
    name: "1to1",
    answers: [
        "in one list of ready threads",
        "at the head of that list",
        "its own, made for it and freed with it",
        "leaves with its M, as every wait does",
    ],
    drawback: "two stacks for every G, both made when it starts, and no more Gs than Ms",
    rules: Rules { m: OwnM::Fresh, ..Rules::GO },
    promises: Promises { many_gs: false, ..shared::PROMISES },
};

impl<K: Sync + 'static> System<K> for OneToOne {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn places(&self) -> Option<&'static dyn Places<K>> {
        Some(&shared::Shared)
    }
}
