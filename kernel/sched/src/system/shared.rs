//! M:N with one shared queue: Go's scheduler before 1.1. `system=shared`.
//!
//! # What it is
//!
//! Many Gs on few Ms, at last: a G is cheap as under [`n1`](super::n1), and as many run at once as
//! there are CPUs. All ready Gs wait in one queue, from which every M takes the next.
//!
//! # Its four answers
//!
//! - **Where does a ready G wait?** At the tail of the one queue, whether it is new, was readied,
//!   has yielded or was preempted. (One of the texts that this project started from says that new
//!   goroutines go to the end of the global queue: here they do.)
//! - **Where does a processor look?** At the head of that queue, under its lock.
//! - **Whose is the M?** Any G's; a G in a call has one of its own until it returns.
//! - **What does a call do that blocks?** It hands its P to a spare M, as under M:P:N. (With
//!   `handoff=never` it keeps it: a fixed number of threads, of which one less runs Gs.)
//!
//! # Its drawback
//!
//! Every switch takes the one lock twice: once to put a G, once to take one. With one CPU that is a
//! few instructions. With eight the lock's cache line, the queue's head and tail, and the links in
//! the Gs go from CPU to CPU at every switch, and CPUs wait for each other: the more there are, the
//! longer each of them waits. And a G that is readied runs on whichever CPU comes next, not where
//! its data is.
//!
//! # Where it wins
//!
//! It is strictly first come, first served, over the whole machine: no G overtakes another, which
//! M:P:N does not promise. It needs no stealing, no run-next slot, no check of 61, no spinning:
//! sixty lines here against a thousand. On one or two CPUs it is as good as anything.
//!
//! [`distributed`](super::distributed) gives each M a queue of its own.

use super::{About, Here, Places, Promises, Queued, Ready, Rules, System, Why};

/// See the head of this file.
pub struct Shared;

/// See the head of this file.
pub static ABOUT: About = About {
    name: "shared",
    answers: [
        "at the tail of one queue, under its lock",
        "at the head of that queue, under its lock",
        "any M's; its own only during a call",
        "hands its P to a spare M",
    ],
    drawback: "every switch takes the lock of the one queue twice, and all CPUs wait for it",
    rules: Rules::GO,
    promises: PROMISES,
};

/// Also those of the systems that have its queue.
pub(super) const PROMISES: Promises = Promises {
    run_next: false,
    displaces: false,
    priorities: false,
    shares: false,
    no_shared_lock: false,
    ..Promises::ALL
};

impl<K: Sync + 'static> System<K> for Shared {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn places(&self) -> Option<&'static dyn Places<K>> {
        Some(&Shared)
    }
}

// SAFETY: both call nothing but the methods of `Here`, and `put` queues its G.
unsafe impl<K: Sync + 'static> Places<K> for Shared {
    fn put(&self, at: &mut Here<'_, K>, g: Ready<K>, why: Why) -> Queued {
        // lab 8 begin: put
        let _ = why; // all come last
        at.push_back(g)
        // lab 8 end
    }

    fn find(&self, at: &mut Here<'_, K>) -> Option<Ready<K>> {
        // lab 8 begin: find
        at.take()
        // lab 8 end
    }
}
