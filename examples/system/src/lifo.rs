//! Last in, first out: a seventh scheduling system.
//!
//! # What it is
//!
//! One queue for all Ps, as under `system=shared`, but a G that is readied goes to its head: what was
//! touched last is still in the cache. A G that yields, or whose slice is over, goes to the tail, so
//! that Gs that never wait take turns.
//!
//! # Its four answers
//!
//! - **Where does a ready G wait?** At the head of the one queue; at its tail after a yield or a slice.
//! - **Where does a processor look?** At the head of that queue.
//! - **Whose is the M?** Anybody's, as in Go.
//! - **What does a call do that blocks?** It hands its P to a spare M, as in Go.
//!
//! # Its drawback
//!
//! It starves: two Gs that ready each other keep the head, and a G behind them waits until they rest.
//! And it has the lock of `shared`.

use runnext::system::{About, Here, Places, Promises, Queued, Ready, Rules, System, Why};

pub struct Lifo;

static ABOUT: About = About {
    name: "lifo",
    answers: [
        "at the head of one queue; at its tail after a yield or a slice",
        "at the head of that queue, under its lock",
        "any M's; its own only during a call",
        "hands its P to a spare M",
    ],
    drawback: "a G at the tail waits for as long as others ready each other",
    rules: Rules::GO,
    promises: Promises {
        run_next: false,
        displaces: false,
        priorities: false,
        shares: false,
        no_shared_lock: false,
        ..Promises::ALL
    },
};

impl<K: Sync + 'static> System<K> for Lifo {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn places(&self) -> Option<&'static dyn Places<K>> {
        Some(&Lifo)
    }
}

// SAFETY: both call nothing but the methods of `Here`, and `put` queues its G. (Code in the middle of
// a switch may start, ready or wait for no G: that is the promise of `Places`.)
unsafe impl<K: Sync + 'static> Places<K> for Lifo {
    fn put(&self, at: &mut Here<'_, K>, g: Ready<K>, why: Why) -> Queued {
        match why {
            Why::Readied => at.push_front(g),
            Why::Yielded | Why::Expired => at.push_back(g),
        }
    }

    fn find(&self, at: &mut Here<'_, K>) -> Option<Ready<K>> {
        at.take()
    }
}
