//! A thread for each G, from a pool. `system=pool`.
//!
//! # What it is
//!
//! As [`one_to_one`](super::one_to_one), but a thread whose G has ended is kept for the next G. It
//! is what a server does that is written with threads: creating one is dear, so none is thrown
//! away.
//!
//! # Its four answers
//!
//! - **Where does a ready G wait?** In one list of ready threads: the operating system's.
//! - **Where does a processor look?** At the head of that list.
//! - **Whose is the M?** Its own, from its start to its end; then it waits in the pool with the
//!   record of the G, and both serve the next G.
//! - **What does a call do that blocks?** Nothing more than any other wait: the G leaves the CPU
//!   with its M, as always.
//!
//! # Its drawbacks
//!
//! - **Memory**: a G has two stacks, its own and its M's, of which four pages are there from the
//!   start. A million Gs are 20 GiB; here there are never more Ms than 10,000, and a G that would
//!   need one more is refused with an error.
//! - **Every switch is one of threads**: the M under a CPU changes with each G.
//! - **No large stacks**: a G runs on its M's stack, which has a fixed size.
//! - The list of ready threads is the queue of [`shared`], with its lock.
//!
//! # Where it wins
//!
//! A call that blocks costs nothing at all: there is nothing to hand off. And creating a G costs a
//! fraction of what it costs with a fresh thread: reuse is what makes the difference, not the kind
//! of thread.

use super::{About, OwnM, Places, Promises, Rules, System, shared};

/// See the head of this file.
pub struct Pool;

/// See the head of this file.
pub static ABOUT: About = About {
    name: "pool",
    answers: [
        "in one list of ready threads",
        "at the head of that list",
        "its own for life; the next G uses it again",
        "leaves with its M, as every wait does",
    ],
    drawback: "two stacks for every G, and no more Gs than Ms",
    rules: Rules { m: OwnM::Pooled, ..Rules::GO },
    promises: Promises { many_gs: false, ..shared::PROMISES },
};

impl<K: Sync + 'static> System<K> for Pool {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn places(&self) -> Option<&'static dyn Places<K>> {
        Some(&shared::Shared)
    }
}
