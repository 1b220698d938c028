//! find_runnable: a short list of named places to look for a G.
//!
//! Called by an M that holds a P and has nothing to run. Gives a G, or the
//! decision to halt (which `idle` makes). How Gs came to the places is
//! `submit`'s; here they are only found.

use crate::g::G;
use crate::list::List;
use crate::p::{Marks, P, Slice};
use crate::runq::RunQueue;
use crate::sync::{Relaxed, spin_loop};
use crate::{
    GLOBAL_BATCH_MAX, GLOBAL_CHECK_EVERY, NEXT_GRACE_SPINS, Next, Run, STEAL_PASSES, Sched, Wake,
};

/// The order in which a P without Gs of its own looks elsewhere: in the global
/// queue (for a batch), in its inbox (what the poller and other interrupts have
/// left there), on other Ps (for half of one's ring).
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
    PollerFirst = 2,
    /// Global queue, other Ps, poller.
    PollerLast = 3,
    /// Drawn anew for each look: for those who test what relies on an order.
    Random = 4,
}

/// A G, and on whose time it runs.
type Found<K> = (&'static G<K>, Slice);

/// Somewhere to look.
type Place<K> = fn(&Sched<K>, &mut P<K>) -> Option<Found<K>>;

impl<K: Sync + 'static> Sched<K> {
    /// What this P does next.
    ///
    /// Caller: the M that holds `p`, on its own stack, interrupts off, no lock
    /// held. After [`Next::Park`] it halts with interrupts on, in one step, and
    /// calls this again whatever ended the halt.
    #[inline(always)]
    pub fn find_runnable(&self, p: &mut P<K>) -> Next<K> {
        match self.find_local(p) {
            Some(run) => Next::Run(run),
            None => self.find_anywhere(p),
        }
    }

    /// The short way, for a P that keeps itself busy: its own queue, unless
    /// anything else has a turn. Never finds what [`Sched::find_runnable`] would
    /// not, which tries it first; a kernel that tries it by itself saves the
    /// look at what it does not find. Nobody is to be woken for it.
    #[inline(always)]
    pub fn find_local(&self, p: &mut P<K>) -> Option<Run<K>> {
        // The queue before the tick: it is mostly empty, and the tick stands still
        // while Gs hand over by run-next, who would all go the long way at 61.
        let is_globals_turn =
            !self.global.is_empty() && p.tick().is_multiple_of(GLOBAL_CHECK_EVERY);
        if !p.is_plain() || is_globals_turn || p.index >= self.limit() {
            return None;
        }
        let (g, slice) = p.pop_local()?;
        begin(p, g, slice);
        Some(Run { g, slice, wake: Wake::Nobody })
    }

    /// The long way: all places, and then sleep.
    #[inline(never)]
    fn find_anywhere(&self, p: &mut P<K>) -> Next<K> {
        if p.marks.take(Marks::IDLE) {
            p.marks.set_if(Marks::SPINNING, self.idle.unpark(p.index));
            self.push_all(p, p.slot.inbox.take_all()); // what ended the halt
        }
        loop {
            if p.index >= self.limit() {
                return self.retire(p);
            }
            if let Some((g, slice)) = self.look(p) {
                begin(p, g, slice);
                let wake = self.stop_spinning(p);
                return Next::Run(Run { g, slice, wake });
            }
            let work = || self.has_work();
            let spinning = p.marks.take(Marks::SPINNING);
            p.marks.take(Marks::OWES_WAKE); // nothing left here
            if self.idle.park(p.index, self.limit(), spinning, work) {
                p.marks.set(Marks::IDLE);
                self.forget_untimed(p);
                return Next::Park(Wake::Nobody);
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

    /// The order of this look, as a number.
    fn drawn_order(&self, p: &mut P<K>) -> u32 {
        match self.order.load(Relaxed) {
            4 => p.random.next() % 4,
            order => order,
        }
    }

    /// One G of the global queue, every so many slices, so that a P that keeps
    /// itself busy does not starve it. While a pinned hog is here, which never
    /// goes to the global queue to make room, it has every other slice
    /// (`P::pop`), and global queue and ring share the rest. Not while a G is
    /// displaced: it and who displaced it are one slice.
    fn look_global_in_turn(&self, p: &mut P<K>) -> Option<Found<K>> {
        let tick = p.tick();
        let hog = p.has_pinned_hog();
        let shared = tick.is_multiple_of(4) || tick.is_multiple_of(2) && p.runq.is_empty();
        if !tick.is_multiple_of(GLOBAL_CHECK_EVERY) && !(hog && shared) || p.has_displaced() {
            return None;
        }
        self.global.pop().map(|g| (g, Slice::New))
    }

    /// A fair share of the global queue: the first is run, the rest are ours.
    fn look_global(&self, p: &mut P<K>) -> Option<Found<K>> {
        let len = self.global.len();
        let share = GLOBAL_BATCH_MAX.min(len / self.limit() + 1);
        let mut batch = self.global.pop_batch(share);
        let first = batch.pop()?;
        p.marks.set_if(Marks::OWES_WAKE, !batch.is_empty()); // as in `push_all`
        p.runq.push_some(&mut batch); // nobody there is pinned
        self.push_all(p, batch);
        Some((first, Slice::New))
    }

    /// What interrupts and other CPUs have left here.
    fn look_inbox(&self, p: &mut P<K>) -> Option<Found<K>> {
        self.push_all(p, p.slot.inbox.take_all());
        p.pop()
    }

    /// Other Ps: four passes, each in a new random order, over all that are not
    /// idle. Who is before the ring only in the last, for its P is likely about
    /// to run it.
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
                let mut loot = p.runq.steal(victim);
                if loot.is_none() && pass == STEAL_PASSES {
                    loot = steal_front(victim);
                }
                if let Some((g, stolen)) = loot {
                    p.count_steal(index, stolen);
                    return Some((g, Slice::New));
                }
            }
        }
        None
    }

    /// Whether there is anything that a P could take. For the look after it has
    /// said that it is idle. The global queue before the rings: a P that takes
    /// from there has put the G that yielded into its ring before. Not its
    /// inbox, for which an interrupt is pending.
    fn has_work(&self) -> bool {
        !self.global.is_empty() || self.acquired().iter().any(|slot| !slot.runq.is_empty())
    }

    /// Wakes another, if there is need: this P does not spin any more, or has
    /// put Gs into a queue that were out of sight.
    fn stop_spinning(&self, p: &mut P<K>) -> Wake {
        if !p.marks.take(Marks::SPINNING) {
            return self.pay_wake(p);
        }
        p.marks.take(Marks::OWES_WAKE);
        self.idle.stop_spinning();
        self.wake_p()
    }

    /// A P beyond the limit gives away what it has, except Gs that can run
    /// nowhere else, and halts without an idle bit: nobody wakes it for work,
    /// only for its inbox and for a new limit.
    fn retire(&self, p: &mut P<K>) -> Next<K> {
        self.push_all(p, p.slot.inbox.take_all());
        let mut given = List::new();
        while let Some((g, _)) = p.pop_local() {
            given.push(g);
        }
        p.marks.set_if(Marks::OWES_WAKE, !given.is_empty());
        self.global.push_list(given);
        let wake = self.stop_spinning(p);
        match p.pop_pinned() {
            Some((g, slice)) => {
                begin(p, g, slice);
                Next::Run(Run { g, slice, wake })
            }
            None => Next::Park(wake),
        }
    }
}

/// `g` is running from here on.
#[inline(always)]
fn begin<K: Sync + 'static>(p: &mut P<K>, g: &'static G<K>, slice: Slice) {
    g.execute();
    g.set_expired(false);
    if slice == Slice::New {
        p.count_slice();
    }
}

/// Takes a G from before a victim's ring, after a moment's grace: it was put
/// there to run at once, and is best run where its data are.
///
/// If nobody is there any more at any look, the victim is getting on by itself, and
/// whoever is there a moment later has just come. So two Gs that wake each other in
/// turn, of whom one is in that place half of the time, are left where they are.
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
/// coprime to `n`. The step is searched for, not looked up: a table would have
/// to be rebuilt whenever `n` changes, and thieves have time.
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
        for n in if cfg!(miri) { 250..=256 } else { 1..=256 } {
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
