//! M:P:N: Go's scheduler since 1.1. `system=mpn`, the default.
//!
//! # What it is
//!
//! Many Gs run on few Ms, as under [`shared`](super::shared) and
//! [`distributed`](super::distributed); but what a G needs to run, the ring above all, belongs to
//! neither G nor M but to a third thing, the P. There are as many Ps as Gs that may run at once,
//! and an M needs one to run Gs. An M that blocks in a call leaves its P behind.
//!
//! # Its four answers
//!
//! - **Where does a ready G wait?** In the run-next slot of the P whose G readied it, which the old
//!   occupant leaves for the ring's tail; in the global queue if the ring is full, or if its slice
//!   is over.
//! - **Where does a processor look?** In its own P's slot and ring, without a lock; every 61st
//!   slice in the global queue first; and if its own are empty, in the global queue, in its inbox,
//!   and in the rings of the other busy Ps, of which it steals half of one.
//! - **Whose is the M?** Any G's. A G has one of its own only while it is in a call.
//! - **What does a call do that blocks?** M and G leave the CPU together, and a spare M takes over
//!   CPU and P. The ring stays with the P: nothing moves.
//!
//! # What it costs
//!
//! It is by far the longest of the six: `proc`, `runq` and `idle` are its code, and the essay of
//! this crate is about it. It gives up the strict order of one queue: two Gs that became ready one
//! after the other on two Ps run in either order, and a G in a long ring waits while a shorter ring
//! is served. The Ps must be woken one by one, and spin a little before they sleep, so that a G in
//! a ring that no P looks into is found. It has no deadlines. Priorities and distances between CPUs,
//! which Go has not, are beside it (`priority`, `near`), off its fast paths.
//!
//! # Why there is no code here
//!
//! The other five are asked through [`Places`](super::Places), behind a bit that is clear under
//! this one: the fast paths of `proc` are its answers.

use super::{About, Promises, Rules, System};

/// See the head of this file.
pub struct Mpn;

/// See the head of this file.
pub static ABOUT: About = About {
    name: "mpn",
    answers: [
        "in the ring of a P, or the slot before it; in the global queue if its slice was over",
        "in its P's ring, every 61st time in the global queue first; then in other Ps' rings",
        "any M's; its own only during a call",
        "hands its P to a spare M, and the ring stays",
    ],
    drawback: "no order between Gs of two Ps, and the longest code of the six",
    rules: Rules::GO,
    promises: Promises::ALL,
};

impl<K: Sync + 'static> System<K> for Mpn {
    fn about(&self) -> &'static About {
        &ABOUT
    }
}
