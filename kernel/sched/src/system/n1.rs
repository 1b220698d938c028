//! N:1: all Gs on one M. `system=n1`.
//!
//! # What it is
//!
//! The oldest way to have many tasks in one program: green threads, coroutines, an event loop with
//! stacks. The operating system sees one thread; which task runs on it is the program's own affair.
//! Go's Gs would be as cheap as they are, for a switch is the same handful of instructions, and
//! no two Gs ever run at once, so none of the queues needs a lock.
//!
//! # Its four answers
//!
//! - **Where does a ready G wait?** In the ring of the one P, and in the slot before it.
//! - **Where does a processor look?** There. Only one looks: all other CPUs halt (a G that is
//!   pinned to one of them still runs there, as pinning is this kernel's and not the system's).
//! - **Whose is the M?** The one M is under every G.
//! - **What does a call do that blocks?** It blocks the M, and that is all there is: no G runs
//!   until the call goes on, whatever is ready. (A call that only computes has a slice like any G.)
//!
//! # Its drawbacks
//!
//! - **No parallelism**: a machine with eight CPUs is used like one with one.
//! - **A call that blocks stops all Gs.** If the call waits for something that another G would do,
//!   it waits for ever. So every call must be one that does not block, and be followed by a wait in
//!   the scheduler: the netpoller is Go's answer to that for the network, and there is none for a
//!   disk or a C library.
//!
//! # Where it wins
//!
//! A switch, a spawn and a channel cost what they cost under M:P:N on one CPU, and nothing is ever
//! stolen, woken by an interrupt or moved away from its cache. A program that neither blocks nor
//! has more work than one CPU can do loses nothing.
//!
//! [`pool`](super::pool) gives each G a thread, so that a call blocks only its own;
//! [`shared`](super::shared) has several Ms run the Gs of one queue.

use super::{About, OwnM, Promises, Rules, System};

/// See the head of this file.
pub struct N1;

/// See the head of this file.
pub static ABOUT: About = About {
    name: "n1",
    answers: [
        "in the ring of the one P",
        "in that ring; all other CPUs halt",
        "the one M is under every G",
        "stops every G until it returns",
    ],
    drawback: "no parallelism, and one call that blocks stops all",
    rules: Rules { one_p: true, m: OwnM::InCalls, keeps_p: true, rings_of_ms: false },
    promises: Promises { parallel: false, calls_let_others_run: false, ..Promises::ALL },
};

impl<K: Sync + 'static> System<K> for N1 {
    fn about(&self) -> &'static About {
        &ABOUT
    }
}
