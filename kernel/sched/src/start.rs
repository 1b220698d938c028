//! Where a new G waits for its first turn: three answers, to be compared.
//!
//! A thread that starts another has three places for it: its own CPU, next; behind all others; or
//! another CPU, at once. Go takes the first for every `go`, the run-next slot of the P: the data
//! that the new G is about to read is in the caches of that CPU, and if another P is idle it steals
//! the G. `place=queue` sends every new G to the tail of the global queue, as is often taught, and
//! the lock of that queue is taken for each. `place=other` sends it to the inbox of another P,
//! which begins with it at once: no G waits behind its parent, and its data move to that CPU first.
//!
//! This choice is for normal Gs that are not pinned, under systems with Go's queues. A pinned G waits
//! where it is pinned, an urgent or background G where its rank says, and under a system with queues
//! of its own ([`crate::system`]) that system decides. It is for the first turn only: a G that yields
//! or is readied goes where Go puts it.
//!
//! Costs [`Sched::start`] nothing: the kernel calls [`Sched::start_asking`] where a bit of its
//! attention word is set, and only that reads the choice. (Rejected: a test in `start`, which has
//! no instruction to spare.)

use crate::g::{G, GUIDED};
use crate::p::P;
use crate::priority::{self, Priority};
use crate::share::{ShareLane, lane_bits};
use crate::sync::{Relaxed, Release, fence};
use crate::{Sched, Wake};

/// Where a new G waits that is not pinned: a boot option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum StartPlace {
    /// Go's: the run-next slot of the P that starts it.
    #[default]
    Here = 0,
    /// The tail of the global queue.
    Queue = 1,
    /// The inbox of another P, a random one. With one P as `Here`.
    Other = 2,
}

impl<K: Sync + 'static> Sched<K> {
    /// Sets where new Gs wait; before the first is started by [`Sched::start_asking`].
    pub fn set_start_place(&self, place: StartPlace) {
        self.start_place.store(place as u32, Relaxed);
    }

    /// Where new Gs wait.
    #[must_use]
    pub fn start_place(&self) -> StartPlace {
        match self.start_place.load(Relaxed) {
            0 => StartPlace::Here,
            1 => StartPlace::Queue,
            _ => StartPlace::Other,
        }
    }

    /// As [`Sched::start`], under any system, with any [`StartPlace`] and any priority.
    ///
    /// # Panics
    /// As there.
    #[cold]
    pub fn start_asking(
        &self,
        p: &mut P<K>,
        g: &'static G<K>,
        pin: Option<usize>,
        priority: Priority,
    ) -> Wake {
        self.start_in_lane(p, g, pin, priority, None)
    }

    /// As [`Sched::start_asking`], for a G of a program with that lane while shares are in force.
    ///
    /// # Panics
    /// As there.
    #[cold]
    pub fn start_in_lane(
        &self,
        p: &mut P<K>,
        g: &'static G<K>,
        pin: Option<usize>,
        priority: Priority,
        lane: Option<ShareLane>,
    ) -> Wake {
        let (is_guided, place) = (p.places.is_some(), self.start_place());
        let lane = lane.filter(|_| !is_guided);
        let is_usual = priority == Priority::Normal && !is_guided && lane.is_none();
        let has_place = !is_usual || pin.is_some();
        if is_usual && (has_place || place == StartPlace::Here) {
            return self.start(p, g, pin);
        }
        assert!(pin.is_none_or(|cpu| cpu < self.slots.len()), "bad pin");
        // A system that says where Gs wait knows no ranks.
        let rank = if is_guided { Priority::Normal } else { priority };
        let unpinned = if is_guided { GUIDED } else { 0 };
        let kept = pin.map_or(unpinned, |cpu| cpu as u32 + 1);
        let home = kept | priority::at_start(priority, rank) | lane_bits(lane);
        g.id.store(self.next_id.fetch_add(1, Relaxed) + 1, Relaxed);
        g.home.store(home, Relaxed);
        fence(Release); // as in `start`
        g.start();
        let limit = self.limit();
        match place {
            _ if has_place => self.submit(p, g, true),
            StartPlace::Other if limit > 1 => {
                let step = 1 + p.random.next() as usize % (limit - 1);
                self.send_to_inbox((p.index + step) % limit, g)
            }
            StartPlace::Queue => {
                self.global.push(g);
                self.wake_for_global(p)
            }
            _ => self.submit(p, g, false),
        }
    }
}
