//! find_runnable: a short list of named places to look for a G.
//!
//! Called by an M that holds a P and has nothing to run. Gives a G, or the
//! decision to halt (which `idle` makes). How Gs came to the places is
//! `submit`'s; here they are only found.

use crate::g::G;
use crate::idle::Parking;
use crate::list::List;
use crate::p::{P, Slice};
use crate::runq::Thief;
use crate::sync::{Relaxed, spin_loop};
use crate::{
    GLOBAL_BATCH_MAX, GLOBAL_CHECK_EVERY, NEXT_GRACE_SPINS, Next, Run, STEAL_PASSES, Sched, Wake,
};

/// The order in which a P without Gs of its own looks elsewhere.
///
/// In every order the P first takes one G of the global queue every
/// [`GLOBAL_CHECK_EVERY`]th slice, and looks at its own Gs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum Order {
    /// Go's: global queue, poller, other Ps.
    #[default]
    Go = 0,
    /// Other Ps, global queue, poller: as often taught. Old Gs of the global
    /// queue wait while any P has some.
    StealBeforeGlobal = 1,
    /// Poller, global queue, other Ps: devices first.
    GlobalBeforeSteal = 2,
    /// Global queue, other Ps, poller.
    PollerLast = 3,
}

/// A place to look at when the P's own queue is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The global queue: a batch.
    Global,
    /// What the kernel's `poll` finds.
    Poller,
    /// The other Ps: half of one's ring.
    Steal,
}

impl Order {
    /// The places, first to last.
    #[must_use]
    pub const fn places(self) -> [Place; 3] {
        use Place::{Global, Poller, Steal};
        match self {
            Order::Go => [Global, Poller, Steal],
            Order::StealBeforeGlobal => [Steal, Global, Poller],
            Order::GlobalBeforeSteal => [Poller, Global, Steal],
            Order::PollerLast => [Global, Steal, Poller],
        }
    }

    pub(crate) fn from_u32(order: u32) -> Self {
        match order {
            1 => Order::StealBeforeGlobal,
            2 => Order::GlobalBeforeSteal,
            3 => Order::PollerLast,
            _ => Order::Go,
        }
    }
}

/// A G, and on whose time it runs.
type Found<K> = (&'static G<K>, Slice);

impl<K: Sync + 'static> Sched<K> {
    /// What this P does next. `poll` gives the Gs that devices and timers have
    /// made ready, already out of `Parked` (see [`Sched::claim_ready`]).
    ///
    /// Caller: the M that holds `p`, on its own stack, interrupts off, no lock
    /// held. After [`Next::Park`] it halts with interrupts on, in one step, and
    /// calls this again whatever ended the halt.
    #[inline(always)]
    pub fn find_runnable(&self, p: &mut P<K>, poll: impl FnMut() -> List<K>) -> Next<K> {
        match self.find_local(p) {
            Some(run) => Next::Run(run),
            None => self.find_anywhere(p, poll),
        }
    }

    /// The short way, for a P that keeps itself busy: its own queue, unless
    /// anything else has a turn. Never finds what [`Sched::find_runnable`] would
    /// not, which tries it first; a kernel that tries it by itself saves the
    /// look at what it does not find. Nobody is to be woken for it.
    #[inline(always)]
    pub fn find_local(&self, p: &mut P<K>) -> Option<Run<K>> {
        let special = !p.is_plain()
            || p.tick().is_multiple_of(GLOBAL_CHECK_EVERY)
            || p.index >= self.limit()
            || !p.slot.inbox.is_empty();
        if special {
            return None;
        }
        let (g, slice) = p.pop_local()?;
        begin(p, g, slice);
        Some(Run { g, slice, wake: Wake::Nobody })
    }

    /// The long way: the inbox, all places, and then sleep.
    #[inline(never)]
    fn find_anywhere(&self, p: &mut P<K>, mut poll: impl FnMut() -> List<K>) -> Next<K> {
        if p.idle {
            p.idle = false;
            p.spinning = self.idle.unpark(p.index);
        }
        loop {
            self.drain_inbox(p);
            if p.index >= self.limit() {
                return self.retire(p);
            }
            if let Some(found) = self.look(p, &mut poll) {
                return Next::Run(self.take_up(p, found));
            }
            let parking = self.idle.park(p.index, self.limit(), p.spinning, || self.has_work(p));
            p.spinning = parking == Parking::LookAgain;
            p.idle = parking == Parking::Halt;
            p.owes_wake = false; // nothing left here
            if p.idle {
                self.forget_untimed(p);
                return Next::Park(Wake::Nobody);
            }
        }
    }

    /// The running G yields: who runs instead? None if nobody waits here; then
    /// it goes on. Does not steal: a yield is not worth it.
    ///
    /// Caller: the M that holds `p`, interrupts off; may still be on the stack
    /// of the G that yields. It switches to the new G, and *then*, off the old
    /// one's stack, calls [`Sched::switched`] with the old one.
    #[inline(always)]
    pub fn yield_to(&self, p: &mut P<K>) -> Option<Run<K>> {
        match self.find_local(p) {
            Some(run) => Some(run),
            None => self.find_near(p),
        }
    }

    #[inline(never)]
    fn find_near(&self, p: &mut P<K>) -> Option<Run<K>> {
        self.drain_inbox(p);
        let found = self.look_global_in_turn(p).or_else(|| p.pop());
        let found = found.or_else(|| self.look_global(p))?;
        Some(self.take_up(p, found))
    }

    /// All places, in order.
    fn look(&self, p: &mut P<K>, poll: &mut impl FnMut() -> List<K>) -> Option<Found<K>> {
        let found = self.look_global_in_turn(p).or_else(|| p.pop());
        if found.is_some() {
            return found;
        }
        for place in self.order().places() {
            let found = match place {
                Place::Global => self.look_global(p),
                Place::Poller => self.look_poller(p, poll),
                Place::Steal => self.look_steal(p),
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// One G of the global queue, every so many slices, so that a P that keeps
    /// itself busy does not starve it; and every other slice while a pinned
    /// hog is here, which never goes to the global queue to make room.
    /// Not while a G is displaced: it and who displaced it are one slice.
    fn look_global_in_turn(&self, p: &mut P<K>) -> Option<Found<K>> {
        if p.has_displaced() {
            return None;
        }
        let tick = p.tick();
        let hog = p.pinned.front().is_some_and(G::is_expired);
        if tick.is_multiple_of(GLOBAL_CHECK_EVERY) || (hog && tick.is_multiple_of(2)) {
            return self.global.pop().map(|g| (g, Slice::New));
        }
        None
    }

    /// A fair share of the global queue: the first is run, the rest are ours.
    fn look_global(&self, p: &mut P<K>) -> Option<Found<K>> {
        let len = self.global.len();
        if len == 0 {
            return None;
        }
        let share = GLOBAL_BATCH_MAX.min(len).min(len / self.limit().max(1) + 1);
        let mut batch = self.global.pop_batch(share);
        let first = batch.pop()?;
        self.push_all(p, batch);
        Some((first, Slice::New))
    }

    /// What devices made ready: the first is run, the rest are ours.
    fn look_poller(&self, p: &mut P<K>, poll: &mut impl FnMut() -> List<K>) -> Option<Found<K>> {
        self.push_all(p, poll());
        p.runq.pop().or_else(|| p.pinned.pop()).map(|g| (g, Slice::New))
    }

    /// Other Ps: four passes, each in a new random order, over all that are not
    /// idle. Who is before the ring only in the last, for its P is likely about
    /// to run it.
    fn look_steal(&self, p: &mut P<K>) -> Option<Found<K>> {
        if !p.spinning && !self.idle.try_spin(self.limit()) {
            return None;
        }
        p.spinning = true;
        for pass in 0..STEAL_PASSES {
            for victim in RandomOrder::new(self.slots.len(), p.random.next()) {
                if victim == p.index || self.idle.is_idle(victim) {
                    continue;
                }
                let thief = self.slots[victim].thief();
                let mut loot = p.runq.steal(thief);
                if loot.is_none() && pass + 1 == STEAL_PASSES {
                    loot = steal_front(thief);
                }
                if let Some((g, stolen)) = loot {
                    p.count_steal(stolen);
                    return Some((g, Slice::New));
                }
            }
        }
        None
    }

    /// Whether there is anything that this P could take. For the look after it
    /// has said that it is idle.
    fn has_work(&self, p: &P<K>) -> bool {
        !self.global.is_empty()
            || !p.slot.inbox.is_empty()
            || self.slots.iter().any(|slot| !slot.thief().is_empty())
    }

    /// The G is ours and will run.
    fn take_up(&self, p: &mut P<K>, (g, slice): Found<K>) -> Run<K> {
        begin(p, g, slice);
        let wake = if p.spinning | p.owes_wake { self.announce(p) } else { Wake::Nobody };
        Run { g, slice, wake }
    }

    /// Wakes another, if there is need: this P has stopped spinning, or has put
    /// Gs into its ring that were out of sight.
    fn announce(&self, p: &mut P<K>) -> Wake {
        if !p.spinning {
            return self.pay_wake(p);
        }
        p.spinning = false;
        p.owes_wake = false;
        self.idle.stop_spinning();
        self.wake_p()
    }

    /// A P beyond the limit gives away what it has, except Gs that can run
    /// nowhere else, and halts without an idle bit: nobody wakes it for work,
    /// only for its inbox and for a new limit.
    fn retire(&self, p: &mut P<K>) -> Next<K> {
        let mut given = List::new();
        while let Some((g, _)) = p.pop_local() {
            given.push(g);
        }
        let owes = p.spinning || !given.is_empty();
        self.global.push_list(given);
        if p.spinning {
            p.spinning = false;
            self.idle.stop_spinning();
        }
        p.owes_wake = false;
        let wake = if owes { self.wake_p() } else { Wake::Nobody };
        match p.pop_pinned() {
            Some((g, slice)) => {
                begin(p, g, slice);
                Next::Run(Run { g, slice, wake })
            }
            None => Next::Park(wake),
        }
    }

    fn order(&self) -> Order {
        Order::from_u32(self.order.load(Relaxed))
    }
}

/// `g` is running from here on.
#[inline(always)]
fn begin<K: Sync + 'static>(p: &mut P<K>, g: &'static G<K>, slice: Slice) {
    g.state().execute();
    g.set_expired(false);
    if slice == Slice::New {
        p.count_slice();
    }
}

/// Takes a G from before a victim's ring, after a moment's grace: it was put
/// there to run at once, and is best run where its data are.
fn steal_front<K: Sync + 'static>(victim: Thief<K>) -> Option<(&'static G<K>, u32)> {
    if !victim.has_front() {
        return None;
    }
    for _ in 0..NEXT_GRACE_SPINS {
        spin_loop();
    }
    victim.take_front().map(|g| (g, 1))
}

/// Every number below `n` once, from a random start by a random step that is
/// coprime to `n`. The step is searched for, not looked up: a table would have
/// to be rebuilt whenever `n` changes, and thieves have time.
pub(crate) struct RandomOrder {
    n: u32,
    left: u32,
    at: u32,
    step: u32,
}

impl RandomOrder {
    pub(crate) fn new(n: usize, random: u32) -> Self {
        let n = n as u32;
        if n == 0 {
            return RandomOrder { n, left: 0, at: 0, step: 0 };
        }
        let mut step = random / n % n + 1;
        while gcd(step, n) != 1 {
            step += 1;
        }
        RandomOrder { n, left: n, at: random % n, step }
    }
}

impl Iterator for RandomOrder {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        self.at = (self.at + self.step) % self.n;
        Some(at as usize)
    }
}

fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::RandomOrder;

    #[test]
    fn random_order_visits_every_victim_once() {
        for n in if cfg!(miri) { 250..=256 } else { 1..=256 } {
            for random in [0, 1, 12_345, 0xdead_beef, u32::MAX] {
                let mut seen = [false; 256];
                for victim in RandomOrder::new(n, random) {
                    assert!(!core::mem::replace(&mut seen[victim], true), "{victim} twice");
                }
                assert!(seen[..n].iter().all(|&s| s) && !seen[n..].contains(&true));
            }
        }
    }
}
