//! find_runnable: a short list of named places to search for a G.
//!
//! Called by an M that holds a P and has no G to run. Returns a G, or the decision
//! to halt (which `idle` makes). `submit` puts Gs into these places; this file only
//! takes them.

use crate::g::G;
use crate::list::List;
use crate::p::{Marks, P, Slice};
use crate::runq::RunQueue;
use crate::sync::{Relaxed, spin_loop};
use crate::{
    GLOBAL_BATCH_MAX, GLOBAL_CHECK_EVERY, NEXT_GRACE_SPINS, Next, Run, STEAL_PASSES, Sched, Wake,
};

/// The order in which a P with an empty queue searches elsewhere: the global queue
/// (for a batch), its inbox (filled by the poller and other interrupts), other Ps
/// (for half of one ring).
///
/// In every order the P first takes one G of the global queue every
/// [`GLOBAL_CHECK_EVERY`]th slice, and then checks its own queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum Order {
    /// Go's: global queue, poller, other Ps.
    #[default]
    Go = 0,
    /// Other Ps, global queue, poller: as often taught. Old Gs of the global queue
    /// wait while any P has Gs.
    StealBeforeGlobal = 1,
    /// Poller, global queue, other Ps: devices first.
    PollerFirst = 2,
    /// Global queue, other Ps, poller.
    PollerLast = 3,
    /// Random at each search: to test that no code relies on an order.
    Random = 4,
}

/// A G, and the slice that it runs on.
type Found<K> = (&'static G<K>, Slice);

/// A place to search.
type Place<K> = fn(&Sched<K>, &mut P<K>) -> Option<Found<K>>;

impl<K: Sync + 'static> Sched<K> {
    /// Finds the next step of this P.
    ///
    /// Caller: the M that holds `p`, on its own stack, interrupts off, no lock
    /// held. After [`Next::Park`] the M halts with interrupts on, in one step, and
    /// calls this again whatever interrupt ended the halt.
    #[inline(always)]
    pub fn find_runnable(&self, p: &mut P<K>) -> Next<K> {
        // The queue before the tick: the queue is mostly empty, and the tick does
        // not advance while Gs hand over by run-next, which would all take the slow
        // path at 61.
        let is_globals_turn =
            !self.global.is_empty() && p.tick().is_multiple_of(GLOBAL_CHECK_EVERY);
        // Nearly always: the next G of the P's own queue.
        if p.is_plain()
            && !is_globals_turn
            && p.index < self.limit()
            && let Some((g, slice)) = p.pop_local()
        {
            begin(p, g, slice);
            return Next::Run(Run { g, slice, wake: Wake::Nobody, searched: false });
        }
        let found = self.search(p);
        let wake = core::mem::replace(&mut p.wake, Wake::Nobody);
        match found {
            Some((g, slice)) => Next::Run(Run { g, slice, wake, searched: true }),
            None => Next::Park(wake),
        }
    }

    /// Searches all places, then parks. The CPU to wake is left in `p.wake`: as a part
    /// of the result it would keep that of `find_runnable` out of registers.
    #[inline(never)]
    fn search(&self, p: &mut P<K>) -> Option<Found<K>> {
        if p.marks.take(Marks::IDLE) {
            p.marks.set_if(Marks::SPINNING, self.idle.unpark(p.index));
            self.push_all(p, p.slot.inbox.take_all()); // its interrupt may have ended the halt
        }
        loop {
            if p.index >= self.limit() {
                return self.retire(p);
            }
            if let Some((g, slice)) = self.look(p) {
                begin(p, g, slice);
                p.wake = self.stop_spinning(p);
                return Some((g, slice));
            }
            let work = || self.has_work();
            let spinning = p.marks.take(Marks::SPINNING);
            p.marks.take(Marks::OWES_WAKE); // the P's own queues are empty
            if self.idle.park(p.index, self.limit(), spinning, work) {
                p.marks.set(Marks::IDLE);
                self.forget_untimed(p);
                return None;
            }
            p.marks.set(Marks::SPINNING);
        }
    }

    /// All places, in order.
    fn look(&self, p: &mut P<K>) -> Option<Found<K>> {
        let places: [Place<K>; 3] = match self.drawn_order(p) {
            1 => [Self::look_steal, Self::look_global, Self::look_inbox],
            2 => [Self::look_inbox, Self::look_global, Self::look_steal],
            3 => [Self::look_global, Self::look_steal, Self::look_inbox],
            _ => [Self::look_global, Self::look_inbox, Self::look_steal],
        };
        let own = self.look_global_in_turn(p).or_else(|| p.pop());
        own.or_else(|| places.into_iter().find_map(|place| place(self, p)))
    }

    /// The order of this search, as a number.
    fn drawn_order(&self, p: &mut P<K>) -> u32 {
        match self.order.load(Relaxed) {
            4 => p.random.next() % 4,
            order => order,
        }
    }

    /// Pops one G of the global queue every 61st slice, so that a P whose own queue
    /// never empties does not starve it. A pinned hog never goes to the global
    /// queue to make room: while one is here, it has every other slice (`P::pop`),
    /// and global queue and ring share the rest. Not while a G is displaced: that G
    /// and its borrower share one slice.
    fn look_global_in_turn(&self, p: &mut P<K>) -> Option<Found<K>> {
        let tick = p.tick();
        let hog = p.has_pinned_hog();
        let shared = tick.is_multiple_of(4) || tick.is_multiple_of(2) && p.runq.is_empty();
        if !tick.is_multiple_of(GLOBAL_CHECK_EVERY) && !(hog && shared) || p.has_displaced() {
            return None;
        }
        self.global.pop().map(|g| (g, Slice::New))
    }

    /// A fair share of the global queue: the first G is run, the rest go to the
    /// ring.
    fn look_global(&self, p: &mut P<K>) -> Option<Found<K>> {
        let len = self.global.len();
        let share = GLOBAL_BATCH_MAX.min(len / self.limit() + 1);
        let mut batch = self.global.pop_batch(share);
        let first = batch.pop()?;
        p.marks.set_if(Marks::OWES_WAKE, !batch.is_empty()); // as in `push_all`
        p.runq.push_some(&mut batch); // Gs there are never pinned
        self.push_all(p, batch);
        Some((first, Slice::New))
    }

    /// Empties the inbox, which interrupts and other CPUs fill.
    fn look_inbox(&self, p: &mut P<K>) -> Option<Found<K>> {
        self.push_all(p, p.slot.inbox.take_all());
        p.pop()
    }

    /// Steals from other Ps: four passes, each in a new random order, over all that
    /// are not idle. The slots before the ring only in the last pass, because the
    /// victim is likely about to run their Gs.
    fn look_steal(&self, p: &mut P<K>) -> Option<Found<K>> {
        if !p.marks.has(Marks::SPINNING) && !self.idle.try_spin(self.limit()) {
            return None;
        }
        p.marks.set(Marks::SPINNING);
        let slots = self.acquired();
        for pass in 1..=STEAL_PASSES {
            for index in random_order(slots.len() as u32, p.random.next()) {
                if index == p.index || self.idle.is_idle(index) {
                    continue;
                }
                let victim = &slots[index].runq;
                let mut taken = p.runq.steal(victim);
                if taken.is_none() && pass == STEAL_PASSES {
                    taken = steal_front(victim);
                }
                if let Some((g, stolen)) = taken {
                    p.count_steal(index, stolen);
                    return Some((g, Slice::New));
                }
            }
        }
        None
    }

    /// Whether a P could take any G: the check after its idle bit is set. The
    /// global queue before the rings: a P that takes from the global queue has put
    /// the G that yielded into its ring before. Not the inbox, for which an
    /// interrupt is pending.
    fn has_work(&self) -> bool {
        !self.global.is_empty() || self.acquired().iter().any(|slot| !slot.runq.is_empty())
    }

    /// Wakes another P if needed: this P stops spinning, or has moved Gs into a
    /// queue that were in none.
    fn stop_spinning(&self, p: &mut P<K>) -> Wake {
        if !p.marks.take(Marks::SPINNING) {
            return self.pay_wake(p);
        }
        p.marks.take(Marks::OWES_WAKE);
        self.idle.stop_spinning();
        self.wake_p()
    }

    /// A P beyond the limit moves its Gs to the global queue, except pinned Gs,
    /// which can run nowhere else, and halts without an idle bit: it is not woken
    /// for work, only for its inbox and for a new limit.
    fn retire(&self, p: &mut P<K>) -> Option<Found<K>> {
        self.push_all(p, p.slot.inbox.take_all());
        let mut given = List::new();
        while let Some((g, _)) = p.pop_local() {
            given.push(g);
        }
        p.marks.set_if(Marks::OWES_WAKE, !given.is_empty());
        self.global.push_list(given);
        p.wake = self.stop_spinning(p);
        let (g, slice) = p.pop_pinned()?;
        begin(p, g, slice);
        Some((g, slice))
    }
}

/// Marks `g` as running.
#[inline(always)]
fn begin<K: Sync + 'static>(p: &mut P<K>, g: &'static G<K>, slice: Slice) {
    g.execute();
    g.set_expired(false);
    if slice == Slice::New {
        p.count_slice();
    }
}

/// Takes a G from before a victim's ring, after a short delay: it was put there to
/// run at once, and runs best where its data is cached.
///
/// If both slots are empty at any check, the victim makes progress by itself, and a
/// G that is there a moment later is new. So two Gs that wake each other in turn,
/// one of which is in a slot half of the time, are not stolen.
fn steal_front<K: Sync + 'static>(victim: &RunQueue<K>) -> Option<(&'static G<K>, u32)> {
    if victim.front_len() == 0 {
        return None;
    }
    for left in (0..NEXT_GRACE_SPINS).rev() {
        spin_loop();
        if left != 0 && victim.front_len() == 0 {
            return None;
        }
    }
    victim.take_front().map(|g| (g, 1))
}

/// Every number below `n` once, from a random start by a random step that is
/// coprime to `n`. The step is computed, not read from a table: a table would have
/// to be rebuilt whenever `n` changes, and a thief has time.
fn random_order(n: u32, random: u32) -> impl Iterator<Item = usize> {
    let mut step = random / n % n + 1;
    while gcd(step, n) != 1 {
        step += 1;
    }
    (0..n).map(move |i| ((random % n + i * step) % n) as usize)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::random_order;

    #[test]
    fn random_order_visits_every_victim_once() {
        for n in if cfg!(miri) { 256..=256 } else { 1..=256 } {
            for random in [0, 1, 12_345, 0xdead_beef, u32::MAX] {
                let mut seen = [false; 256];
                for victim in random_order(n, random) {
                    assert!(!core::mem::replace(&mut seen[victim], true), "{victim} twice");
                }
                let n = n as usize;
                assert!(seen[..n].iter().all(|&s| s) && !seen[n..].contains(&true));
            }
        }
    }
}
