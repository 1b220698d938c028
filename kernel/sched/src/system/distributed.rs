//! M:N with a queue for each M. `system=distributed`.
//!
//! # What it is
//!
//! The obvious cure for the lock of [`shared`](super::shared): each M has a ring of its own, to
//! which it pushes and from which it pops without a lock; an M whose ring is empty steals from
//! another's. It is a step that Go never shipped, and the reason why there are Ps.
//!
//! # Its four answers
//!
//! - **Where does a ready G wait?** In the ring of the M whose G readied it.
//! - **Where does a processor look?** In the ring of the M on it; then in the global queue; then in
//!   the ring of every M that there is, on a CPU or not.
//! - **Whose is the M?** Any G's; a G in a call has one of its own until it returns.
//! - **What does a call do that blocks?** The M leaves the CPU with its G *and its ring*, and a
//!   spare M comes with its own. The Gs in the ring that has left wait until a thief takes them.
//!
//! # Its drawback
//!
//! There are as many rings as Ms, and there are as many Ms as calls were ever blocked at once. A
//! thief cannot know which of a thousand rings has a G: it reads them all. So does a CPU before it
//! halts. With a thousand blocked calls, finding a G costs a hundred times what it costs with none,
//! and going idle as well. Under M:P:N the number of rings is that of the CPUs, for ever.
//! (Also, what a ring needs is kept for each M that blocks, where it is of no use.)
//!
//! # Where it wins
//!
//! As long as no call blocks, it *is* M:P:N: the same ring, the same stealing, the same figures.
//!
//! # How it is built
//!
//! The fast paths are those of M:P:N, with the ring that the P has at the moment
//! ([`P::swap_ring`](crate::P::swap_ring)); only a P that finds nothing goes on to the list of all
//! rings (`rings`). The kernel swaps rings where it swaps Ms.

use super::{About, OwnM, Promises, Rules, System};

/// See the head of this file.
pub struct Distributed;

/// See the head of this file.
pub static ABOUT: About = About {
    name: "distributed",
    answers: [
        "in the ring of an M, or the slot before it",
        "in its M's ring and the global queue; then in the rings of all Ms, blocked or not",
        "any M's; its own only during a call",
        "leaves with its M and the ring of that M, whose Gs wait for a thief",
    ],
    drawback: "a thief searches the ring of every M, and there are as many as calls were blocked",
    rules: Rules { one_p: false, m: OwnM::InCalls, keeps_p: false, rings_of_ms: true },
    promises: Promises { flat_search: false, ..Promises::ALL },
};

impl<K: Sync + 'static> System<K> for Distributed {
    fn about(&self) -> &'static About {
        &ABOUT
    }
}
