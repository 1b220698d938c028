//! The decisions: a G is started, readied and stopped, and the next one is found (Go:
//! proc.go).
//!
//! The essay, "How the kernel calls", says which method the kernel calls, when and in
//! what state. Each does one transition of the drawing in `g`, moves the G between the
//! queues, and returns the CPU to wake.
//!
//! # The slice timer
//!
//! It runs only where a G waits for the slice to end. A G is not preempted while no other
//! G waits, and its CPU takes no tick. The price is that a P without a timer must be told
//! when a G begins to wait:
//!
//! - in its own queues: then the P itself put the G there, or was sent an interrupt for
//!   its inbox, and calls [`Sched::needs_timer`] again;
//! - in the global queue: then the CPU that put it there interrupts every P that has no
//!   timer ([`Sched::take_untimed`]). All of them, not one: five hogs on four CPUs are
//!   fair only if each of the four is preempted in its turn.
//!
//! It is the argument of parking once more (essay, "Parking"): one CPU sets its bit, then
//! checks the queue; the other fills the queue, then checks the bits; with a fence between
//! on both sides, one of them sees the other's store.

use crate::g::{G, Handle, Home, Ready, Status};
use crate::list::List;
use crate::p::{Marks, P, Slice};
use crate::runq::RunQueue;
use crate::sync::{Relaxed, SeqCst, fence, planted, spin_loop};
use crate::{
    Arrival, GLOBAL_BATCH_MAX, GLOBAL_CHECK_EVERY, ID_BATCH, NEXT_GRACE_SPINS, Next, Run,
    STEAL_PASSES, Sched, Wake,
};

/// A G, and the slice that it runs on.
type Found<K> = (&'static G<K>, Slice);

/// A place to search.
type Place<K> = fn(&Sched<K>, &mut P<K>) -> Option<Found<K>>;

/// A G starts, is readied, stops.
impl<K: Sync + 'static> Sched<K> {
    /// A dead G to recycle: one of this P's, else one of the common store. None:
    /// make a new one.
    #[inline(always)]
    pub fn take_dead(&self, p: &mut P<K>) -> Option<&'static G<K>> {
        p.free.pop(&self.free)
    }

    /// Keeps a new G, which is dead, for [`take_dead`](Self::take_dead).
    pub fn keep_dead(&self, p: &mut P<K>, g: &'static G<K>) {
        p.free.push(&self.free, g);
    }

    /// Starts a life of `g`, which is dead and set up by the caller: it runs next
    /// on this P, or on the CPU that it is pinned to (Go: newproc).
    ///
    /// # Panics
    ///
    /// If `g` is not dead, or `pin` is no P of this scheduler.
    #[inline(always)]
    pub fn start(&self, p: &mut P<K>, g: &'static G<K>, pin: Option<usize>) -> Wake {
        assert!(pin.is_none_or(|cpu| cpu < self.slots.len()), "bad pin");
        if p.ids.start == p.ids.end {
            core::hint::cold_path();
            let first = self.next_id.fetch_add(ID_BATCH, Relaxed);
            p.ids = first..first + ID_BATCH;
        }
        p.ids.start += 1; // so the first is 1
        g.start(p.ids.start, pin);
        self.submit(p, g, pin.map_or(Home::Anywhere, Home::Pinned))
    }

    /// Readies that life of a G if it waits; it will run next on this P (Go:
    /// goready). A G that is still parking is put back by the CPU that parks it; a
    /// G that does not wait is left alone.
    ///
    /// Calls `note` if the G did wait, with its old state: [`Status::Parked`], and for
    /// that moment the caller alone holds it; or [`Status::Parking`], and its CPU holds it.
    #[inline(always)]
    pub fn ready(
        &self,
        p: &mut P<K>,
        handle: Handle<K>,
        note: impl FnOnce(&'static G<K>, Status),
    ) -> Wake {
        if let Some(g) = handle.ready_parked() {
            note(g, Status::Parked);
            return self.submit(p, g, g.home());
        }
        // Not parked, still parking, or a CPU halts for it.
        Wake::from_word(ready_slow(handle, note, |g| self.submit(p, g, g.home())))
    }

    /// As [`Sched::ready`], without a P: puts the G into the inbox of `cpu`, or where its
    /// [`Home`] says. For interrupt handlers, with their own CPU; in any context. The
    /// wake-up may name the caller's own CPU: then it is enough to call
    /// [`Sched::arrive`] before the interrupt returns.
    pub fn ready_from_interrupt(
        &self,
        cpu: usize,
        handle: Handle<K>,
        note: impl FnOnce(&'static G<K>, Status),
    ) -> Wake {
        Wake::from_word(ready_slow(handle, note, |g| self.send_home(cpu, g)))
    }

    /// Moves the Gs of the inbox to the P's queues, at the end of an interrupt (Go:
    /// injectglist). If no other P can take an arrival at once, the first that is not
    /// pinned goes to the run-next slot, and may displace the interrupted G (essay,
    /// "Displacing"). If the same G continues, it may need a slice timer now
    /// ([`Sched::needs_timer`]).
    pub fn arrive(&self, p: &mut P<K>) -> Arrival {
        let mut displace = false;
        if p.marks.has(Marks::IDLE) {
            // Its M halts, or did, and will empty the inbox before it wakes other
            // CPUs.
            return Arrival { wake: Wake::Nobody, displace };
        }
        let mut arrived = p.slot.inbox.take_all();
        p.marks.set_if(Marks::OWES_WAKE, !arrived.is_empty()); // as in `push_all`
        while let Some(g) = arrived.pop() {
            let all_busy = || p.index < self.limit() && !self.somebody_free();
            if displace || g.pin().is_some() || !all_busy() {
                self.push(p, g);
                continue;
            }
            displace = true;
            if let Some(overflow) = p.runq.push_next(g) {
                self.global.push_list(overflow);
            }
        }
        Arrival { wake: self.pay_wake(p), displace }
    }

    /// The G that ran has left its CPU: puts it where it now belongs.
    ///
    /// Caller: the M that ran `g`, interrupts off, the context of `g` saved, off its
    /// stack.
    #[inline(always)]
    pub fn stopped(&self, p: &mut P<K>, g: &'static G<K>, why: Stop) -> Wake {
        match why {
            Stop::Yield => {
                g.stop();
                self.push(p, g);
            }
            Stop::Park => {
                if !g.finish_park() {
                    return Wake::from_word(self.put_back(p, g));
                }
            }
            Stop::Exit => {
                g.exit();
                p.free.push(&self.free, g);
            }
            Stop::Expire => return self.expired(p, g),
            Stop::Displace => self.displaced(p, g),
        }
        Wake::Nobody
    }

    /// [`Stop::Park`] of a G that was readied before it was off its stack: it runs next
    /// here; even if in a call, as its M is here. A [`Wake`], as a word.
    #[cold]
    fn put_back(&self, p: &mut P<K>, g: &'static G<K>) -> usize {
        self.submit(p, g, g.pin().map_or(Home::Anywhere, Home::Pinned)).to_word()
    }

    /// [`Stop::Displace`].
    #[cold]
    fn displaced(&self, p: &mut P<K>, g: &'static G<K>) {
        g.stop();
        if p.has_displaced() {
            if !planted!(LoseBorrower) {
                self.push(p, g);
            }
        } else if g.pin().is_some() {
            p.displace_pinned(g);
        } else {
            p.runq.displace(g);
        }
    }

    /// [`Stop::Expire`].
    #[cold]
    fn expired(&self, p: &mut P<K>, g: &'static G<K>) -> Wake {
        g.stop();
        p.marks.set(Marks::OWES_WAKE);
        if let Some(next) = p.runq.take_next() {
            self.push(p, next);
        }
        let borrowed = p.has_displaced();
        g.set_expired(!borrowed);
        if borrowed || g.pin().is_some() {
            self.push(p, g);
        } else {
            self.global.push(g);
        }
        self.pay_wake(p)
    }

    /// As [`Sched::stopped`] with [`Stop::Exit`], for a G that the kernel itself
    /// keeps until it starts it again.
    pub fn exited_for_kernel(&self, g: &'static G<K>) {
        g.exit();
    }
}

/// A G goes to a queue, and a CPU is woken for it.
impl<K: Sync + 'static> Sched<K> {
    /// Puts a runnable G into the run-next slot, and the G that was there to the ring's tail
    /// (Go: runqput with next, wakep); or sends it to the CPU of its home.
    #[inline(always)]
    fn submit(&self, p: &mut P<K>, g: &'static G<K>, home: Home) -> Wake {
        if home != Home::Anywhere {
            return Wake::from_word(self.submit_home(p, g, home));
        }
        match p.runq.swap_next(g) {
            None => self.idle.wake_p(|| self.limit(), true),
            Some(old) if p.runq.try_push(old) => self.idle.wake_p(|| self.limit(), false),
            Some(old) => Wake::from_word(self.submit_overflow(p, old)),
        }
    }

    /// `submit` for a G that is pinned or in a call. A [`Wake`], as a word.
    #[cold]
    fn submit_home(&self, p: &mut P<K>, g: &'static G<K>, home: Home) -> usize {
        if home == Home::Pinned(p.index) {
            p.push_pinned(g);
            return Wake::Nobody.to_word();
        }
        self.send_home(p.index, g).to_word()
    }

    /// `submit` with a full ring, which has no room for `old`. A [`Wake`], as a word.
    #[cold]
    fn submit_overflow(&self, p: &mut P<K>, old: &'static G<K>) -> usize {
        if let Some(overflow) = p.runq.push(old) {
            self.global.push_list(overflow);
        }
        self.wake_for_global(p.index).to_word()
    }

    /// Puts a G into the inbox of its home (essay, "The inbox"): of the CPU that it is
    /// pinned to, or of `cpu`, the caller's, if it may run anywhere. A G in a call goes to
    /// its old P if that is idle, else to the caller's or any other idle P, else to the
    /// global queue.
    ///
    /// No idle bit is claimed: the inbox needs none, and if the P is not idle any more when
    /// it empties its inbox, it wakes another. A P whose inbox holds a G is skipped, so that
    /// two Gs go to two Ps. In an interrupt handler, the lock of the global queue is free or
    /// its holder is on another CPU: it is taken with interrupts off only.
    fn send_home(&self, cpu: usize, g: &'static G<K>) -> Wake {
        let to = match g.home() {
            Home::Anywhere => Some(cpu),
            Home::Pinned(pin) => Some(pin),
            Home::InCall(home) => {
                let near = [home, cpu].into_iter().filter(|&at| self.idle.is_idle(at));
                let mut idle = near.chain(self.idle.idle_ps(self.limit()));
                idle.find(|&at| self.slots[at].inbox.is_empty())
            }
        };
        match to {
            Some(to) if self.slots[to].inbox.push(g) => Wake::Cpu(to),
            Some(_) => Wake::Nobody,
            None => {
                self.global.push(g);
                self.wake_for_global(cpu)
            }
        }
    }

    /// As `Idle::wake_p`, for Gs that may have gone to the global queue: if no idle CPU is woken for
    /// them, a CPU other than `cpu`, the caller's, that runs without a timer is.
    fn wake_for_global(&self, cpu: usize) -> Wake {
        let mut untimed = core::iter::from_fn(|| self.take_untimed());
        match self.idle.wake_p(|| self.limit(), false) {
            Wake::Nobody => untimed.find(|&at| at != cpu).map_or(Wake::Nobody, Wake::Cpu),
            wake => wake,
        }
    }

    /// Wakes a CPU if this P owes that: it stops spinning here (Go: resetspinning), or has
    /// moved Gs into a queue that were in none, and some are left there.
    fn pay_wake(&self, p: &mut P<K>) -> Wake {
        let moved = p.marks.take(Marks::OWES_WAKE);
        let stops_spinning = p.marks.take(Marks::SPINNING);
        if stops_spinning {
            self.idle.stop_spinning();
        }
        if stops_spinning || moved && !(p.runq.is_empty() && self.global.is_empty()) {
            return self.idle.wake_p(|| self.limit(), false);
        }
        Wake::Nobody
    }

    /// Pushes a G to the tail of this P; a pinned G must be pinned here.
    #[inline(always)]
    fn push(&self, p: &mut P<K>, g: &'static G<K>) {
        if g.home() != Home::Anywhere || !p.runq.try_push(g) {
            self.push_special(p, g);
        }
    }

    /// Pushes a G that is pinned or in a call, or for which the ring has no room.
    #[cold]
    fn push_special(&self, p: &mut P<K>, g: &'static G<K>) {
        if let Some(cpu) = g.pin() {
            assert!(cpu == p.index, "wrong cpu");
            p.push_pinned(g);
        } else if let Some(overflow) = p.runq.push(g) {
            self.global.push_list(overflow);
            p.marks.set(Marks::OWES_WAKE); // half a ring was in no queue
        }
    }

    /// Pushes all Gs of a list to the tail of this P. While they were on the list
    /// they were in no queue: a P that parked meanwhile has not seen them, and may
    /// have to be woken.
    fn push_all(&self, p: &mut P<K>, mut list: List<K>) {
        p.marks.set_if(Marks::OWES_WAKE, !list.is_empty());
        while let Some(g) = list.pop() {
            self.push(p, g);
        }
    }
}

/// The next G is found.
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
            && let Some((g, slice)) = p.runq.get()
        {
            g.execute();
            if slice == Slice::New {
                p.count_slice();
            }
            return Next::Run(Run { g, slice, wake: Wake::Nobody, searched: false });
        }
        let found = self.search(p);
        let wake = core::mem::replace(&mut p.wake, Wake::Nobody);
        match found {
            Some((g, slice)) => Next::Run(Run { g, slice, wake, searched: true }),
            None => Next::Park(wake),
        }
    }

    /// The rest of `find_runnable`: searches all places in order, then parks. The CPU to
    /// wake is left in `p.wake`: as a part of the result it would keep that of
    /// `find_runnable` out of registers.
    #[inline(never)]
    fn search(&self, p: &mut P<K>) -> Option<Found<K>> {
        if p.marks.take(Marks::IDLE) {
            // Before any G is put into its queue (`idle`, "Only busy Ps are searched").
            let claimed = planted!(KeepIdleBit) || self.idle.claim(p.index);
            p.marks.set_if(Marks::SPINNING, !claimed);
            self.push_all(p, p.slot.inbox.take_all()); // its interrupt may have ended the halt
        }
        loop {
            if p.index >= self.limit() {
                return self.retire(p);
            }
            let order = match self.order.load(Relaxed) {
                4 => p.random.next() % 4,
                order => order,
            };
            let elsewhere: [Place<K>; 3] = match order {
                1 => [Self::steal_work, Self::get_global, Self::get_inbox],
                2 => [Self::get_inbox, Self::get_global, Self::steal_work],
                3 => [Self::get_global, Self::steal_work, Self::get_inbox],
                _ => [Self::get_global, Self::get_inbox, Self::steal_work],
            };
            // One G of the global queue every 61st slice, so that a P whose own queue never
            // empties does not starve it. A pinned hog never goes to the global queue to make
            // room: while one is here, it has every other slice (`P::pop`), and global queue
            // and ring share the rest. Not while a G is displaced: that G and its borrower
            // share one slice.
            let tick = p.tick();
            let shared = tick.is_multiple_of(4) || tick.is_multiple_of(2) && p.runq.is_empty();
            let in_turn = tick.is_multiple_of(GLOBAL_CHECK_EVERY) || shared && p.has_pinned_hog();
            let found = match in_turn && !p.has_displaced() {
                true => self.global.pop_batch(1).pop().map(|g| (g, Slice::New)),
                false => None,
            };
            let found = found.or_else(|| p.pop());
            let found = found.or_else(|| elsewhere.into_iter().find_map(|get| get(self, p)));
            if let Some((g, slice)) = found {
                g.execute();
                if slice == Slice::New {
                    p.count_slice();
                }
                p.wake = self.pay_wake(p);
                return found;
            }
            let spinning = p.marks.take(Marks::SPINNING);
            p.marks.take(Marks::OWES_WAKE); // the P's own queues are empty
            if self.idle.park(p.index, self.limit(), spinning, || self.has_work()) {
                p.marks.set(Marks::IDLE);
                if self.untimed.has(p.index) {
                    self.untimed.claim(p.index); // it runs no G that could need a timer
                }
                return None;
            }
            p.marks.set(Marks::SPINNING);
        }
    }

    /// A fair share of the global queue: the first G is run, the rest go to the
    /// ring (Go: globrunqget). Shared among the busy Ps, where Go counts all: on 255 CPUs of
    /// which two run, each would come back for every other G. A P that is woken for the rest
    /// takes its share of what is left, and steals.
    fn get_global(&self, p: &mut P<K>) -> Option<Found<K>> {
        let len = self.global.len();
        if len == 0 {
            return None;
        }
        let share = GLOBAL_BATCH_MAX.min(len / self.idle.busy(self.limit()).max(1) + 1);
        let mut batch = self.global.pop_batch(share);
        let first = batch.pop()?;
        p.marks.set_if(Marks::OWES_WAKE, !batch.is_empty()); // as in `push_all`
        p.runq.push_some(&mut batch); // Gs there are never pinned
        self.push_all(p, batch);
        Some((first, Slice::New))
    }

    /// Empties the inbox, which interrupts and other CPUs fill.
    fn get_inbox(&self, p: &mut P<K>) -> Option<Found<K>> {
        self.push_all(p, p.slot.inbox.take_all());
        p.pop()
    }

    /// Steals from other Ps (Go: stealWork): four passes over all that are not idle, each
    /// from a random one on. The slots before the ring only in the last pass, because the
    /// victim is likely about to run their Gs.
    fn steal_work(&self, p: &mut P<K>) -> Option<Found<K>> {
        if !p.marks.has(Marks::SPINNING) && !self.idle.try_spin(self.limit()) {
            return None;
        }
        p.marks.set(Marks::SPINNING);
        let slots = self.acquired();
        for pass in 1..=STEAL_PASSES {
            let mut victims = self.idle.busy_ps(slots.len());
            victims.remove(p.index);
            if victims.is_empty() {
                return None;
            }
            for index in victims.iter_from(p.random.next()) {
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
    /// the G that yielded into its ring before. Only the rings of busy Ps (`idle`,
    /// "Only busy Ps are searched"). Not the inbox, for which an interrupt is pending.
    fn has_work(&self) -> bool {
        let slots = self.acquired();
        let busy = || self.idle.busy_ps(slots.len());
        !self.global.is_empty() || busy().iter().any(|index| !slots[index].runq.is_empty())
    }

    /// A P beyond the limit moves its Gs to the global queue, except pinned Gs,
    /// which can run nowhere else, and halts without an idle bit: it is not woken
    /// for work, only for its inbox and for a new limit.
    fn retire(&self, p: &mut P<K>) -> Option<Found<K>> {
        self.push_all(p, p.slot.inbox.take_all());
        let mut given = List::new();
        while let Some((g, _)) = p.runq.get() {
            given.push(g);
        }
        p.marks.set_if(Marks::OWES_WAKE, !given.is_empty());
        self.global.push_list(given);
        p.wake = self.pay_wake(p);
        let found = p.pop_pinned();
        if let Some((g, slice)) = found {
            g.execute();
            if slice == Slice::New {
                p.count_slice();
            }
        }
        found
    }
}

/// The slice timer.
impl<K: Sync + 'static> Sched<K> {
    /// Whether the G that this P runs, or is about to run, needs a timer for its
    /// slice. If not, this P is recorded as one without.
    ///
    /// Caller: the M that holds `p`, interrupts off: before it switches to a G,
    /// after it made one ready, after an interrupt, and when a slice is over (if no
    /// G waits: no preemption, and no timer until one does). A timer that is
    /// started late runs for the rest of the slice.
    #[must_use = "start the timer or stop it"]
    pub fn needs_timer(&self, p: &P<K>) -> bool {
        if self.somebody_waits(p) {
            // A bit of this P that is still set costs it one useless interrupt;
            // clearing it would cost a locked operation each time.
            return true;
        }
        if self.untimed.has(p.index) {
            return false; // set, and the queues were checked after it
        }
        self.untimed.set(p.index);
        fence(SeqCst); // bit before queue; the partner is in `Idle::wake_p`
        self.somebody_waits(p)
    }

    /// Whether a G waits that a preemption would let run on this P: in its queues,
    /// its inbox or the global queue. Gs that wait on other Ps are not counted: a G
    /// preempted for their sake would itself be the next that this P finds. Their
    /// own P has a timer, and sends them on.
    #[must_use]
    #[inline]
    pub fn somebody_waits(&self, p: &P<K>) -> bool {
        !p.is_empty() || !p.slot.inbox.is_empty() || !self.global.is_empty()
    }

    /// A CPU that must be interrupted so that it calls [`Sched::needs_timer`]
    /// again; call it until it gives None.
    ///
    /// Caller: the caller of any method that returns a [`Wake`], after that; after `start`
    /// and `ready` only if they return a CPU. Costs a load while the global queue is empty.
    #[inline]
    pub fn take_untimed(&self) -> Option<usize> {
        // Queue before bits: a CPU that puts a G there has been through the fence
        // of `Idle::wake_p` since, or owes it (`Marks::OWES_WAKE`) and calls again.
        if self.global.is_empty() || self.untimed.is_empty() {
            return None;
        }
        self.untimed.claim_any(self.slots.len())
    }
}

/// Why the G that ran has left its CPU; see [`Sched::stopped`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It yields: to the tail of its own P (Go: goschedImpl). No CPU is woken: the P
    /// takes another G from the ring, so the ring is not longer than before.
    Yield,
    /// It has parked, after [`G::begin_park`] (Go: park_m). If it was readied since,
    /// it runs next here.
    Park,
    /// It has ended (Go: gdestroy). Its record is kept for [`Sched::take_dead`].
    Exit,
    /// Its slice is over: to the tail of the global queue, where it is taken alone.
    /// The run-next G, which would inherit the slice that is over, goes to the ring's
    /// tail: a chain of run-next ends here. If a displaced G waits, the loan is over,
    /// not the slice: both Gs go to the ring's tail, and the displaced G resumes.
    Expire,
    /// It makes room for a G that an interrupt readied, and resumes after it. If the
    /// P has a displaced G already, it ran on that G's loan, and goes to the ring's
    /// tail. No CPU is woken, as for a yield.
    Displace,
}

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

/// Readies a G, and submits it or returns the CPU to interrupt: a [`Wake`], as a word.
#[inline(never)]
fn ready_slow<K>(
    handle: Handle<K>,
    note: impl FnOnce(&'static G<K>, Status),
    submit: impl FnOnce(&'static G<K>) -> Wake,
) -> usize {
    let wake = match handle.ready(note) {
        Ready::Push(g) => submit(g),
        Ready::Interrupt(cpu) => Wake::Cpu(cpu),
        Ready::Nothing => Wake::Nobody,
    };
    wake.to_word()
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

#[cfg(all(test, not(any(loom, feature = "sim"))))]
mod tests {
    extern crate std;

    use super::*;
    use crate::{Next, PSlot, RUNQ_CAPACITY};
    use std::vec::Vec;

    /// A parking P has checked the global queue; then the ring of another P
    /// overflows into it, and that P runs the rest of its ring; then the parking P
    /// checks the ring. It has seen no G in either place, and only the wake-up that
    /// is owed for the overflow brings it back.
    #[test]
    fn overflow_between_the_two_looks_of_a_parking_p_wakes_it() {
        static SLOTS: [PSlot<()>; 2] = [const { PSlot::new() }; 2];
        static SCHED: Sched<()> = Sched::new(&SLOTS);
        static GS: [G<()>; RUNQ_CAPACITY + 2] = [const { G::new(()) }; RUNQ_CAPACITY + 2];
        let mut p = SCHED.acquire(0, 7).expect("new");
        let _parking = SCHED.acquire(1, 7).expect("new");
        let [runs, waits @ ..] = &GS;
        let _ = SCHED.start(&mut p, runs, None);
        assert!(matches!(SCHED.find_runnable(&mut p), Next::Run(_)));
        for g in waits {
            let _ = SCHED.start(&mut p, g, None);
        }
        assert_eq!((p.len(), SCHED.counts().global), (RUNQ_CAPACITY + 1, 0), "the ring is full");

        let mut wakes = Vec::new();
        // The two checks of `has_work`.
        let halts = SCHED.idle.park(1, 2, false, || {
            let sees_global = !SCHED.global.is_empty();
            let _ = SCHED.stopped(&mut p, runs, Stop::Yield);
            while !p.is_empty() {
                let Next::Run(run) = SCHED.find_runnable(&mut p) else { panic!("no G") };
                wakes.push(run.wake);
                let _ = SCHED.stopped(&mut p, run.g, Stop::Exit);
            }
            sees_global || !SLOTS[0].runq.is_empty()
        });
        assert!(halts && SCHED.counts().global > 0, "not the case that is meant");
        assert!(wakes.contains(&Wake::Cpu(1)), "P 1 sleeps while Gs wait");
    }
}
