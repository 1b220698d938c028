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

use crate::g::{G, Handle, Status};
use crate::idle;
use crate::list::{Link, List};
use crate::p::{Marks, P, Slice};
use crate::runq::{RunQueue, Unrotated};
use crate::sync::{
    Acquire, AtomicUsize, Relaxed, Release, SeqCst, SpinLock, const_fn, fence, planted, spin_loop,
};
use crate::system::Why;
use crate::{
    Arrival, FREE_PILE, GLOBAL_BATCH_MAX, GLOBAL_CHECK_EVERY, ID_BATCH, NEXT_GRACE_SPINS, Next,
    Run, STEAL_PASSES, Sched, Wake,
};

/// A G, and the slice that it runs on.
pub(crate) type Found<K> = (&'static G<K>, Slice);

/// Searches one place for a G.
type Search<K> = fn(&Sched<K>, &mut P<K>) -> Option<Found<K>>;

/// A G starts, is readied, stops.
impl<K: Sync + 'static> Sched<K> {
    /// A dead G to recycle: one of this P's, else one of the common store. None:
    /// make a new one.
    #[inline(always)]
    pub fn take_dead(&self, p: &mut P<K>) -> Option<&'static G<K>> {
        p.free.pop()
    }

    /// Keeps a new G, which is dead, for [`take_dead`](Self::take_dead).
    pub fn keep_dead(&self, p: &mut P<K>, g: &'static G<K>) {
        p.free.push(g);
    }

    /// Starts a life of `g`, which is dead and set up by the caller: it runs next on this P, or on
    /// the CPU that it is pinned to (Go: newproc). Under Go's system and those that have its
    /// queues; else [`Sched::start_asking`].
    ///
    /// # Panics
    ///
    /// If `pin` is no P of this scheduler; in checked builds, if `g` is not dead.
    #[inline(always)]
    pub fn start(&self, p: &mut P<K>, g: &'static G<K>, pin: Option<usize>) -> Wake {
        assert!(pin.is_none_or(|cpu| cpu < self.slots.len()), "bad pin");
        debug_assert!(!p.marks.has(Marks::GUIDED), "the system must be asked");
        if p.ids.start == p.ids.end {
            core::hint::cold_path();
            let first = self.next_id.fetch_add(ID_BATCH, Relaxed);
            p.ids = first..first + ID_BATCH;
        }
        p.ids.start += 1; // so the first is 1
        g.id.store(p.ids.start, Relaxed);
        g.home.store(pin.map_or(0, |cpu| cpu as u32 + 1), Relaxed);
        // The queue orders it for the CPU that runs the G, the fence for a CPU that
        // only reads the word; no instruction on x86. Pairs with `handle_and_status`.
        fence(Release);
        g.start();
        self.submit(p, g, pin.is_some())
    }

    /// Readies that life of a G if it waits; it will run next on this P (Go:
    /// goready). A G that is still parking is put back by the CPU that parks it; a
    /// G that does not wait is left alone.
    ///
    /// Calls `note` if the G did wait, with its old state: [`Status::Parked`], and for
    /// that moment the caller alone holds it; or [`Status::Parking`], and its CPU holds it.
    pub fn ready(
        &self,
        p: &mut P<K>,
        handle: Handle<K>,
        note: impl FnOnce(&'static G<K>, Status),
    ) -> Wake {
        Wake::from_word(ready_slow(handle, note, |g| self.submit(p, g, g.has_home())))
    }

    /// As [`Sched::ready`] in the common case, a G that is parked. Returns None and does nothing if
    /// the G is not parked, is still parking, or a CPU halts for it.
    #[inline(always)]
    pub fn ready_parked(&self, p: &mut P<K>, handle: &Handle<K>) -> Option<Wake> {
        let g = handle.ready_parked()?;
        Some(self.submit(p, g, g.has_home()))
    }

    /// As [`Sched::ready`], without a P: puts the G into the inbox of `cpu`, or of its home. For
    /// interrupt handlers, with their own CPU; in any context. The wake-up may name the caller's
    /// own CPU: then it is enough to call [`Sched::arrive`] before the interrupt returns.
    pub fn ready_from_interrupt(
        &self,
        cpu: usize,
        handle: Handle<K>,
        note: impl FnOnce(&'static G<K>, Status),
    ) -> Wake {
        Wake::from_word(ready_slow(handle, note, |g| {
            self.send_to_inbox(self.home_of(g).unwrap_or(cpu), g)
        }))
    }

    /// Whether [`Sched::arrive`] would find nothing to do; then it need not be called.
    #[inline(always)]
    #[must_use]
    pub fn is_quiet(&self, p: &P<K>) -> bool {
        p.is_plain() && p.slot.inbox.is_empty() && p.index < self.limit()
    }

    /// Moves the Gs of the inbox to the P's queues, at the end of an interrupt (Go:
    /// injectglist). If no other P can take an arrival at once, the first that is not
    /// pinned goes to the run-next slot, and may displace the interrupted G (essay,
    /// "Displacing"). If the same G continues, it may need a slice timer now
    /// ([`Sched::needs_timer`]).
    pub fn arrive(&self, p: &mut P<K>) -> Arrival {
        let mut displace = false;
        p.marks.set_if(Marks::LIMITED, p.index >= self.limit()); // `set_limit` interrupts
        if p.marks.has(Marks::IDLE) {
            // Its M halts, or did, and will empty the inbox before it wakes other
            // CPUs.
            return Arrival { wake: Wake::Nobody, displace };
        }
        let mut arrived = p.slot.inbox.take_all();
        while let Some(g) = arrived.pop() {
            let is_placed = g.is_placed();
            if !is_placed || !self.admit_urgent(p, g, &mut displace) {
                self.admit(p, g, is_placed, &mut displace);
            }
        }
        Arrival { wake: self.pay_wake(p), displace }
    }

    /// As [`Sched::ready_from_interrupt`] and [`Sched::arrive`] in one step, in the common case:
    /// the G is parked, and belongs to no CPU, and the P runs Gs. If false, nothing was done. For
    /// the handler of the CPU of `p`, if it has come where this CPU cannot be in the middle of a
    /// queue operation. `displace` is set if the G may displace the interrupted one, and says
    /// whether one may already. [`Sched::arrive`] follows, unless [`Sched::is_quiet`].
    #[inline(always)]
    #[must_use = "if false, nothing was done"]
    pub fn ready_here(&self, p: &mut P<K>, handle: &Handle<K>, displace: &mut bool) -> bool {
        if p.marks.has(Marks::IDLE) || handle.parts().0.has_home() {
            return false;
        }
        let Some(g) = handle.ready_parked() else { return false };
        self.admit(p, g, false, displace);
        true
    }

    /// A G that was in no queue arrives at the P of an interrupted CPU. If no other P can take it
    /// at once, and it is the first, it goes to the run-next slot: the swap is the fence of a
    /// submit (`idle`). Else to the ring's tail, and the P owes a wake-up, as in `push_all`.
    #[inline(always)]
    fn admit(&self, p: &mut P<K>, g: &'static G<K>, is_placed: bool, displace: &mut bool) {
        let limit = self.limit();
        let all_busy = || p.index < limit && !self.idle.has_free_p(limit);
        let is_urgent = !*displace && !is_placed && all_busy();
        let pushed = if is_urgent { p.runq.swap_next(g) } else { Some(g) };
        *displace |= is_urgent;
        if pushed.is_some() || cfg!(loom) || !self.idle.needs_no_wake() {
            p.marks.set(Marks::OWES_WAKE);
        }
        if let Some(g) = pushed {
            self.push(p, g, Why::Readied);
        }
    }

    /// The G that ran yields: to the tail of its own P (Go: goschedImpl). No CPU is woken: the P
    /// takes another G from the ring, so the ring is not longer than before. If no other G is
    /// there, those of the global queue come first.
    ///
    /// Caller, here and below: the M that ran `g`, interrupts off, the context of `g` saved, off
    /// its stack.
    pub fn yielded(&self, p: &mut P<K>, g: &'static G<K>) {
        p.marks.set_if(Marks::ALONE, p.is_empty() && !self.global.is_empty());
        g.stop();
        self.push(p, g, Why::Yielded);
    }

    /// The G that ran was readied before it had parked ([`G::finish_park`]): it runs next here.
    #[cold]
    pub fn put_back(&self, p: &mut P<K>, g: &'static G<K>) -> Wake {
        g.unpark();
        self.submit(p, g, g.has_home())
    }

    /// The G that ran has ended (Go: gdestroy): keeps its record for [`Sched::take_dead`]. If
    /// false, nothing was done, as the P must give up other dead Gs first: [`G::exit`] and
    /// [`Sched::keep_dead`] follow.
    #[inline(always)]
    #[must_use = "if false, nothing was done"]
    pub fn exited(&self, p: &mut P<K>, g: &'static G<K>) -> bool {
        let has_room = p.free.try_push(g);
        if has_room {
            g.exit();
        }
        has_room
    }

    /// The G that ran makes room for a G that an interrupt readied, and resumes after it. If the
    /// P has a displaced G already, it ran on that G's loan, and goes to the ring's tail. No CPU
    /// is woken, as for a yield.
    #[inline(always)]
    pub fn displaced(&self, p: &mut P<K>, g: &'static G<K>) {
        g.stop();
        if p.has_displaced() {
            if !planted!(LoseBorrower) {
                self.push(p, g, Why::Yielded);
            }
        } else if g.pin().is_some() {
            p.displace_pinned(g);
        } else {
            p.runq.displace(g);
            p.marks.set(Marks::DISPLACED);
        }
    }

    /// The slice of the G that ran is over: to the tail of the global queue, where it is taken
    /// alone. The run-next G, which would inherit the slice that is over, goes to the ring's tail:
    /// a chain of run-next ends here. If a displaced G waits, the loan is over, not the slice: both
    /// Gs go to the ring's tail, and the displaced G resumes.
    #[cold]
    pub fn expired(&self, p: &mut P<K>, g: &'static G<K>) -> Wake {
        g.stop();
        p.marks.set(Marks::OWES_WAKE);
        if g.is_guided() {
            self.put(p, g, Why::Expired);
            return self.pay_wake(p);
        }
        if let Some(next) = p.runq.take_next() {
            self.push(p, next, Why::Readied);
        }
        let borrowed = p.has_displaced();
        g.set_expired(!borrowed);
        let has_lane = self.lane_for(g).is_some(); // first: it may forget one
        if borrowed || has_lane || g.is_placed() {
            self.push(p, g, Why::Expired);
        } else {
            self.global.push(g);
        }
        self.pay_wake(p)
    }
}

/// A G goes to a queue, and a CPU is woken for it.
impl<K: Sync + 'static> Sched<K> {
    /// Puts a runnable G into the run-next slot, and the G that was there to the ring's tail
    /// (Go: runqput with next); then wakes a CPU if one is idle and none spins (Go: wakep).
    /// `has_home`: it may have to go to another CPU.
    #[inline(always)]
    pub(crate) fn submit(&self, p: &mut P<K>, g: &'static G<K>, has_home: bool) -> Wake {
        if has_home {
            return Wake::from_word(self.submit_home(p, g));
        }
        if let Some(old) = p.runq.swap_next(g) {
            if !p.runq.try_push(old) {
                return Wake::from_word(self.submit_overflow(p, old));
            }
            idle::submit_fence();
        } else if cfg!(loom) {
            idle::submit_fence(); // elsewhere the swap is one: `idle`, "The fence of a submit"
        }
        if self.idle.needs_no_wake() {
            return Wake::Nobody;
        }
        self.idle.wake_one(self.limit(), p.row)
    }

    /// `submit` for a G that is pinned, ranked, guided, in a lane, or in a call. A [`Wake`], as a word.
    #[cold]
    #[inline(never)]
    fn submit_home(&self, p: &mut P<K>, g: &'static G<K>) -> usize {
        if g.is_guided() {
            self.put(p, g, Why::Readied);
            if planted!(PutAndForget) {
                return Wake::Nobody.to_word();
            }
            return self.wake_for_global(p).to_word();
        }
        if let Some(wake) = self.submit_ranked(p, g) {
            return wake.to_word();
        }
        if g.pin() == Some(p.index) {
            p.push_pinned(g);
            return Wake::Nobody.to_word();
        }
        if g.pin().is_none() && self.push_to_lane(g) {
            if planted!(LaneUnseen) {
                return Wake::Nobody.to_word();
            }
            return self.wake_for_global(p).to_word();
        }
        let wake = match self.home_of(g) {
            Some(to) => self.send_to_inbox(to, g),
            None => self.submit(p, g, false), // as any other
        };
        wake.to_word()
    }

    /// The CPU that a G is pinned to; or that it has left in a call, if the P there is idle, and no
    /// other G is on its way there. No idle bit is claimed: the inbox needs none, and if the P is
    /// not idle any more when it empties its inbox, it wakes another.
    fn home_of(&self, g: &G<K>) -> Option<usize> {
        let is_free = |&at: &usize| self.idle.is_idle(at) && self.slots[at].inbox.is_empty();
        g.pin().or_else(|| g.left_in_call().filter(is_free))
    }

    /// `submit` with a full ring, which has no room for `old`. A [`Wake`], as a word.
    #[cold]
    fn submit_overflow(&self, p: &mut P<K>, old: &'static G<K>) -> usize {
        if let Some(overflow) = p.runq.push(old) {
            self.global.push_list(overflow);
        }
        self.wake_for_global(p).to_word()
    }

    /// Gs are in the global queue now that were not: wakes an idle CPU, else one other than the
    /// caller's that runs without a timer.
    pub(crate) fn wake_for_global(&self, p: &P<K>) -> Wake {
        let mut untimed = core::iter::from_fn(|| self.take_untimed());
        match self.idle.wake_p(self.limit(), p.row) {
            Wake::Nobody => untimed.find(|&at| at != p.index).map_or(Wake::Nobody, Wake::Cpu),
            wake => wake,
        }
    }

    /// Puts a G into the inbox of that CPU (essay, "The inbox").
    pub(crate) fn send_to_inbox(&self, to: usize, g: &'static G<K>) -> Wake {
        if self.slots[to].inbox.push(g) { Wake::Cpu(to) } else { Wake::Nobody }
    }

    /// Wakes a CPU if this P owes that: it stops spinning here (Go: resetspinning), or has
    /// moved Gs into a queue that were in none, and some are left there.
    #[inline]
    pub(crate) fn pay_wake(&self, p: &mut P<K>) -> Wake {
        let moved = p.marks.take(Marks::OWES_WAKE);
        let stops_spinning = p.marks.take(Marks::SPINNING);
        if stops_spinning {
            self.idle.stop_spinning();
        }
        if stops_spinning || moved && !(p.runq.is_empty() && self.global.is_empty()) {
            return self.idle.wake_p(self.limit(), p.row);
        }
        Wake::Nobody
    }

    /// Pushes a G to the tail of this P; a pinned G must be pinned here.
    #[inline(always)]
    pub(crate) fn push(&self, p: &mut P<K>, g: &'static G<K>, why: Why) {
        if g.is_placed() || !p.runq.try_push(g) {
            self.push_special(p, g, why);
        }
    }

    /// Pushes a G that is pinned, ranked, guided or in a lane, or for which the ring has no room.
    #[cold]
    fn push_special(&self, p: &mut P<K>, g: &'static G<K>, why: Why) {
        if g.is_guided() {
            self.put(p, g, why);
        } else if self.push_ranked(p, g) {
            // It is in its lane.
        } else if let Some(cpu) = g.pin() {
            assert!(cpu == p.index, "wrong cpu");
            p.push_pinned(g);
        } else if self.push_to_lane(g) {
            p.marks.set(Marks::OWES_WAKE);
        } else if let Some(overflow) = p.runq.push(g) {
            self.global.push_list(overflow);
            p.marks.set(Marks::OWES_WAKE); // half a ring was in no queue
        }
    }

    /// Pushes all Gs of a list to the tail of this P. While they were on the list
    /// they were in no queue: a P that parked meanwhile has not seen them, and may
    /// have to be woken.
    pub(crate) fn push_all(&self, p: &mut P<K>, mut list: List<K>) {
        p.marks.set_if(Marks::OWES_WAKE, !list.is_empty());
        while let Some(g) = list.pop() {
            self.push(p, g, Why::Readied);
        }
    }
}

/// The next G is found.
impl<K: Sync + 'static> Sched<K> {
    /// The next G of this P's own queue; None if there is none, or another place comes first.
    /// Nearly all that is run is found here. Caller: as for [`Sched::find_runnable`].
    ///
    /// `is_lent`: a G was just displaced, and the G in the run-next slot, for which it was, runs on
    /// the slice that is lent. If false, only a plain P finds a G here.
    #[inline(always)]
    pub fn find_local(&self, p: &mut P<K>, is_lent: bool) -> Option<Found<K>> {
        let expected = if is_lent { Marks::DISPLACED } else { 0 };
        if p.marks.has_other(expected) || self.is_globals_turn(p) {
            return None;
        }
        let found = match p.runq.take_next() {
            Some(g) => (g, Slice::Inherited),
            None if is_lent => return None, // the displaced G comes before the ring
            None => (p.runq.pop()?, Slice::New),
        };
        Some(p.execute(found))
    }

    /// Whether the global queue is to be served before the ring: at every 61st tick, if it has a G.
    /// The queue is tested first. The tick stands still while Gs hand over by run-next; if it stood
    /// at a multiple of 61, each hand-over would take the slow path for an empty queue.
    #[inline(always)]
    fn is_globals_turn(&self, p: &P<K>) -> bool {
        !self.global.is_empty() && p.tick().is_multiple_of(GLOBAL_CHECK_EVERY)
    }

    /// The running G yields to the oldest G of the ring, which is returned: [`Sched::yielded`] and
    /// [`Sched::find_local`] in one step. Caller: as for [`Sched::yielded`].
    ///
    /// # Errors
    /// What is left to be done, by [`Sched::rotate_slow`].
    #[inline(always)]
    pub fn rotate(&self, p: &mut P<K>, g: &'static G<K>) -> Result<&'static G<K>, Unrotated> {
        if !p.is_plain() || self.is_globals_turn(p) || g.is_placed() {
            return Err(Unrotated::Kept);
        }
        p.runq.rotate(g).inspect(|next| next.execute()) // it has counted the slice
    }

    /// Whether no other G waits that this P could run. A G that yields then begins a new slice, and
    /// is in no queue in between: it is not stolen.
    #[must_use]
    #[inline(always)]
    pub fn is_alone(&self, p: &P<K>) -> bool {
        // A plain P has no pinned G, and none has left it.
        p.is_plain() && p.runq.is_empty() && self.global.is_empty() && p.slot.inbox.is_empty()
    }

    /// The rest of [`Sched::rotate`].
    #[cold]
    pub fn rotate_slow(&self, p: &mut P<K>, g: &'static G<K>, rest: Unrotated) -> Next<K> {
        if rest == Unrotated::Kept {
            if self.is_alone(p) {
                p.count_slice();
                return Next::Run(Run { g, slice: Slice::New, wake: Wake::Nobody });
            }
            self.yielded(p, g);
        }
        self.find_runnable(p)
    }

    /// The slice of the running G is over, and all Gs that this P could run next are such Gs:
    /// [`Sched::expired`] and [`Sched::find_runnable`] in one step. Returns the next, which begins
    /// a slice. None: nothing was done. Caller: as for [`Sched::expired`].
    ///
    /// No CPU is woken or told: the global queue is as long as before, and empty at no time. So a
    /// CPU that goes idle, or runs without a timer, sees a G there; and the CPU that put the oldest
    /// there wakes another for `g` as it would have for that one.
    #[inline(always)]
    pub fn expire(&self, p: &mut P<K>, g: &'static G<K>) -> Option<&'static G<K>> {
        let is_usual = p.is_plain() && p.runq.is_empty() && !g.is_placed();
        if !is_usual || self.order.load(Relaxed) != Order::Go as u32 {
            return None;
        }
        let (next, _) = p.execute((self.global.rotate(g)?, Slice::New));
        Some(next)
    }

    /// Finds the next step of this P: searches all places in order, then parks (Go: findRunnable).
    ///
    /// Caller: the M that holds `p`, on its own stack, interrupts off, no lock
    /// held. After [`Next::Park`] the M halts with interrupts on, in one step, and
    /// calls this again whatever interrupt ended the halt.
    #[inline(never)]
    pub fn find_runnable(&self, p: &mut P<K>) -> Next<K> {
        if p.marks.take(Marks::IDLE) {
            // Before any G is put into its queue (`idle`, "Only busy Ps are searched").
            let claimed = planted!(KeepIdleBit) || self.idle.claim(p.index);
            p.marks.set_if(Marks::SPINNING, !claimed);
            self.push_all(p, p.slot.inbox.take_all()); // its interrupt may have ended the halt
        }
        loop {
            p.marks.take(Marks::LIMITED);
            if p.index >= self.limit() {
                p.marks.set(Marks::LIMITED);
                return self.retire(p);
            }
            let is_special = p.searches_specially;
            let found = if is_special { self.search_special(p) } else { self.search(p, false) };
            if let Some(found) = found {
                return Next::Run(self.found(p, found));
            }
            let spinning = p.marks.take(Marks::SPINNING);
            p.marks.take(Marks::OWES_WAKE); // the P's own queues are empty
            if self.idle.park(p.index, self.limit(), spinning, || self.has_work()) {
                p.marks.set(Marks::IDLE);
                if self.untimed.has(p.index) {
                    self.untimed.claim(p.index); // it runs no G that could need a timer
                }
                return Next::Park(Wake::Nobody);
            }
            p.marks.set(Marks::SPINNING);
        }
    }

    /// Searches where the system says, or near to far.
    #[cold]
    #[inline(never)]
    fn search_special(&self, p: &mut P<K>) -> Option<Found<K>> {
        let is_guided = p.marks.has(Marks::GUIDED);
        if is_guided { self.find_guided(p) } else { self.search(p, true) }
    }

    /// Searches all places in Go's order, or in that of `set_order`. `is_near`: steals near to far.
    #[inline(always)]
    fn search(&self, p: &mut P<K>, is_near: bool) -> Option<Found<K>> {
        let first = if self.has_ranked(p) { self.find_first(p) } else { None };
        if first.is_some() {
            return first;
        }
        let steal_work = if is_near { Self::steal_near } else { Self::steal_work };
        let alone = p.marks.take(Marks::ALONE);
        let order = match self.order.load(Relaxed) {
            4 => p.random.next() % 4,
            order => order,
        };
        let elsewhere: [Search<K>; 3] = match order {
            1 => [steal_work, Self::get_global, Self::get_inbox],
            2 => [Self::get_inbox, Self::get_global, steal_work],
            3 => [Self::get_global, steal_work, Self::get_inbox],
            _ => [Self::get_global, Self::get_inbox, steal_work],
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
            true => {
                let shared = self.get_shared(p);
                shared.or_else(|| self.global.pop_batch(1).pop().map(|g| (g, Slice::New)))
            }
            false => None,
        };
        // As a pinned hog shares with the others, so do rings that have left with their Ms.
        let found = found.or_else(|| if shared { self.steal_left(p) } else { None });
        let found = found.or_else(|| if alone { self.get_global(p) } else { None });
        let found = found.or_else(|| p.pop());
        let found = found.or_else(|| {
            let raises = self.raises.now();
            let found = elsewhere.into_iter().find_map(|get| get(self, p));
            if self.raises.have_come_since(raises) {
                self.pull_late(p);
            }
            found
        });
        let found = found.or_else(|| self.steal_from_ms(p));
        found.or_else(|| if self.has_ranked(p) { self.find_last(p) } else { None })
    }

    /// A G that was taken from a queue is to be run, and what the P owes is paid first.
    fn found(&self, p: &mut P<K>, found: Found<K>) -> Run<K> {
        let wake = self.pay_wake(p);
        let (g, slice) = p.execute(found);
        if slice == Slice::New {
            p.marks.take(Marks::LENT);
        }
        Run { g, slice, wake }
    }

    /// A fair share of the global queue: the first G is run, the rest go to the
    /// ring (Go: globrunqget). Shared among the busy Ps, where Go counts all: on 255 CPUs of
    /// which two run, each would come back for every other G. A P that is woken for the rest
    /// takes its share of what is left, and steals.
    fn get_global(&self, p: &mut P<K>) -> Option<Found<K>> {
        let shared = self.get_shared(p);
        if shared.is_some() {
            return shared;
        }
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
        let arrived = p.slot.inbox.take_all();
        if arrived.is_empty() {
            return None; // the P's own queue was looked at before
        }
        self.push_all(p, arrived);
        p.pop()
    }

    /// Steals from other Ps (Go: stealWork): four passes over all that are not idle, from a
    /// random one on. The slots before the ring only in the last pass, because the
    /// victim is likely about to run their Gs.
    pub(crate) fn steal_work(&self, p: &mut P<K>) -> Option<Found<K>> {
        // lab 4 begin: steal_work
        if !p.marks.has(Marks::SPINNING) && !self.idle.try_spin(self.limit()) {
            return None;
        }
        p.marks.set(Marks::SPINNING);
        let slots = self.acquired();
        let mut victims = self.idle.busy_ps(slots.len());
        victims.remove(p.index);
        if victims.is_empty() {
            return None;
        }
        let start = p.random.next();
        for pass in 1..=STEAL_PASSES {
            for index in victims.iter_from(start) {
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
        // lab 4 end
    }

    /// Whether a P could take any G: the check after its idle bit is set. The
    /// global queue before the rings: a P that takes from the global queue has put
    /// the G that yielded into its ring before. Only the rings of busy Ps (`idle`,
    /// "Only busy Ps are searched"). Not the inbox, for which an interrupt is pending.
    fn has_work(&self) -> bool {
        let slots = self.acquired();
        let busy = || self.idle.busy_ps(slots.len());
        let rings = || busy().iter().any(|index| !slots[index].runq.is_empty());
        !self.global.is_empty() || rings() || self.ms_have_work()
    }

    /// A P beyond the limit moves its Gs to the global queue, except pinned Gs,
    /// which can run nowhere else, and halts without an idle bit: it is not woken
    /// for work, only for its inbox and for a new limit.
    fn retire(&self, p: &mut P<K>) -> Next<K> {
        self.push_all(p, p.slot.inbox.take_all());
        let mut given = List::new();
        while let Some((g, _)) = p.get() {
            given.push(g);
        }
        let given = self.push_ranked_of(p, given);
        // Under a system a G that has just yielded is in its queue already.
        let is_guided = p.marks.has(Marks::GUIDED);
        p.marks.set_if(Marks::OWES_WAKE, !given.is_empty() || is_guided);
        self.global.push_list(given);
        let urgent = p.pop_urgent().map(|g| (g, Slice::New));
        match urgent.or_else(|| p.pop_pinned()) {
            Some(found) => Next::Run(self.found(p, found)),
            None => {
                let wake = self.pay_wake(p);
                Next::Park(self.pass_on_urgent(wake))
            }
        }
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
    #[inline(always)]
    pub fn needs_timer(&self, p: &P<K>) -> bool {
        // A bit of this P that is still set costs it one useless interrupt;
        // clearing it would cost a locked operation each time.
        self.has_waiting_g(p) || self.note_untimed(p)
    }

    /// The rest of `needs_timer`: no G seemed to wait, so this P is recorded, and checks again.
    #[inline(never)]
    fn note_untimed(&self, p: &P<K>) -> bool {
        if self.untimed.has(p.index) {
            return false; // set, and the queues were checked after it
        }
        self.untimed.set(p.index);
        fence(SeqCst); // bit before queue; the partner is `idle::submit_fence`
        self.has_waiting_g(p)
    }

    /// Whether a G waits that a preemption would let run on this P: in its queues,
    /// its inbox or the global queue. Gs that wait on other Ps are not counted: a G
    /// preempted for their sake would itself be the next that this P finds. Their
    /// own P has a timer, and sends them on.
    #[inline(always)]
    pub(crate) fn has_waiting_g(&self, p: &P<K>) -> bool {
        !self.global.is_empty()
            || !p.is_empty()
            || !p.slot.inbox.is_empty()
            || p.marks.has(Marks::LEFT_GS | Marks::RANKED)
    }

    /// A CPU that must be interrupted so that it calls [`Sched::needs_timer`]
    /// again; call it until it gives None.
    ///
    /// Caller: the caller of any method that returns a [`Wake`], after that; after `start`
    /// and `ready` only if they return a CPU. Costs a load while the global queue is empty.
    #[inline]
    pub fn take_untimed(&self) -> Option<usize> {
        // The queue is read before the bits. A CPU that puts a G into the queue passes the fence of
        // `submit` after that, or has `Marks::OWES_WAKE` set and calls this again.
        if self.global.is_empty() || self.untimed.is_empty() {
            return None;
        }
        let mut untimed = self.untimed.members(self.slots.len());
        untimed.find(|&index| self.untimed.claim(index))
    }
}

/// The dead Gs of one P, to be recycled: two piles, linked by `next`.
///
/// A G that ends goes on top of the current pile, and the next G that is started here
/// is taken off it: the most recent, whose stack is warm. When the current pile is full
/// it becomes the spare, and the old spare goes to the common store; when it is empty
/// it is replaced by the spare, else from the store. Piles move as wholes, so a G costs
/// the same few instructions whether ten are started at a time or ten thousand, and
/// between two visits to the store there is at least a pile's worth of Gs.
pub(crate) struct Free<K: 'static> {
    /// Top of the current pile, and how many Gs it has.
    top: Option<&'static G<K>>,
    len: usize,
    /// Top of the spare pile, which is full, if there is one.
    spare: Option<&'static G<K>>,
    /// That of this P's node.
    store: &'static Store<K>,
}

impl<K: Sync + 'static> Free<K> {
    pub(crate) const fn new(store: &'static Store<K>) -> Self {
        Free { top: None, len: 0, spare: None, store }
    }

    /// What this P does not keep goes there from now on.
    pub(crate) fn use_store(&mut self, store: &'static Store<K>) {
        self.store = store;
    }

    /// How many Gs both piles hold.
    pub(crate) fn len(&self) -> usize {
        self.len + usize::from(self.spare.is_some()) * FREE_PILE
    }

    /// Pops the G that was pushed last, else one from the store (Go: gfget).
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<&'static G<K>> {
        if self.top.is_none() {
            self.refill();
        }
        let g = self.top?;
        self.top = g.next.load(Relaxed);
        self.len -= 1;
        Some(g)
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self) {
        if let Some(top) = self.spare.take().or_else(|| self.store.take()) {
            self.top = Some(top);
            self.len = FREE_PILE;
        }
    }

    /// Puts `g`, which no queue holds, on top (Go: gfput).
    #[inline(always)]
    pub(crate) fn push(&mut self, g: &'static G<K>) {
        while !self.try_push(g) {
            self.make_room();
        }
    }

    /// As `push`, if that leaves the store alone; else nothing is done.
    #[inline(always)]
    pub(crate) fn try_push(&mut self, g: &'static G<K>) -> bool {
        let has_room = self.len != FREE_PILE;
        if has_room {
            g.next.store(self.top, Relaxed);
            self.top = Some(g);
            self.len += 1;
        }
        has_room
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self) {
        self.len = 0;
        if let Some(top) = core::mem::replace(&mut self.spare, self.top.take()) {
            self.store.put(top);
        }
    }
}

/// Full piles of dead Gs, for all Ps of a node. Callers: any CPU, interrupts off.
pub(crate) struct Store<K: 'static> {
    lock: SpinLock,
    /// The top of the pile that was put here last; `pile` links it to the next
    /// pile. Written under the lock only.
    newest: Link<K>,
    /// How many piles. Written under the lock, read by any CPU.
    len: AtomicUsize,
}

impl<K: Sync + 'static> Store<K> {
    const_fn! {
        pub(crate) fn new() -> Self {
            Store { lock: SpinLock::new(), newest: Link::null(), len: AtomicUsize::new(0) }
        }
    }

    /// How many Gs there are.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Acquire) * FREE_PILE // pairs with `put` and `take`
    }

    fn put(&self, top: &'static G<K>) {
        self.lock.with(|| {
            top.pile.store(self.newest.load(Relaxed), Relaxed);
            self.newest.store(Some(top), Relaxed);
            self.len.store(self.len.load(Relaxed) + 1, Release); // pairs with `take`
        });
    }

    /// An empty store costs one load and no lock.
    fn take(&self) -> Option<&'static G<K>> {
        if self.len.load(Acquire) == 0 {
            return None;
        }
        self.lock.with(|| {
            let top = self.newest.load(Relaxed)?;
            self.newest.store(top.pile.load(Relaxed), Relaxed);
            self.len.store(self.len.load(Relaxed) - 1, Release);
            Some(top)
        })
    }
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
    handle.ready(note).map_or_else(|wake| wake, submit).to_word()
}

/// Steals from a ring, the `number`th of all, and if need be from before it.
pub(crate) fn steal_from<K: Sync + 'static>(
    p: &mut P<K>,
    number: usize,
    victim: &RunQueue<K>,
    takes_front: bool,
) -> Option<Found<K>> {
    let mut taken = p.runq.steal(victim);
    if taken.is_none() && takes_front {
        taken = steal_front(victim);
    }
    let (g, stolen) = taken?;
    p.count_steal(number, stolen);
    Some((g, Slice::New))
}

/// Takes a G from before a victim's ring, after a short delay: it was put there to
/// run at once, and runs best where its data is cached.
///
/// If both slots are empty at any check, the victim makes progress by itself, and a
/// G that is there a moment later is new. So two Gs that wake each other in turn,
/// one of which is in a slot half of the time, are not stolen.
pub(crate) fn steal_front<K: Sync + 'static>(victim: &RunQueue<K>) -> Option<(&'static G<K>, u32)> {
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
    use std::{boxed::Box, vec::Vec};

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
            SCHED.yielded(&mut p, runs);
            while !p.is_empty() {
                let Next::Run(run) = SCHED.find_runnable(&mut p) else { panic!("no G") };
                wakes.push(run.wake);
                run.g.exit();
                SCHED.keep_dead(&mut p, run.g);
            }
            sees_global || !SLOTS[0].runq.is_empty()
        });
        assert!(halts && SCHED.counts().global > 0, "not the case that is meant");
        assert!(wakes.contains(&Wake::Cpu(1)), "P 1 sleeps while Gs wait");
    }
    fn store() -> &'static Store<usize> {
        Box::leak(Box::new(Store::new()))
    }

    fn gs(n: usize) -> Vec<&'static G<usize>> {
        (0..n).map(|i| &*Box::leak(Box::new(G::new(i)))).collect()
    }

    #[test]
    fn the_last_to_end_is_the_first_to_be_used_again() {
        let mut free = Free::new(store());
        gs(5 * FREE_PILE + 7).into_iter().for_each(|g| free.push(g));
        let out: Vec<_> = core::iter::from_fn(|| free.pop()).map(|g| g.kernel).collect();
        assert_eq!(out, (0..5 * FREE_PILE + 7).rev().collect::<Vec<_>>());
    }

    #[test]
    fn what_ends_on_one_p_is_used_again_on_another() {
        let store = store();
        let (mut one, mut other) = (Free::new(store), Free::new(store));
        gs(4 * FREE_PILE).into_iter().for_each(|g| one.push(g));
        let mut out: Vec<_> = core::iter::from_fn(|| other.pop()).map(|g| g.kernel).collect();
        assert_eq!(out.len(), 2 * FREE_PILE, "all that one does not keep");
        out.extend(core::iter::from_fn(|| one.pop()).map(|g| g.kernel));
        out.sort_unstable();
        assert!(out.into_iter().eq(0..4 * FREE_PILE), "each of them once");
    }

    #[test]
    fn a_p_that_starts_and_ends_by_turns_leaves_the_store_alone() {
        let mut free = Free::new(store());
        let mut gs = gs(2 * FREE_PILE).into_iter();
        gs.by_ref().take(FREE_PILE + 1).for_each(|g| free.push(g));
        for _ in 0..10 {
            // Back and forth over the edge of a pile.
            let two = [free.pop(), free.pop()].map(|g| g.expect("there are some"));
            two.into_iter().for_each(|g| free.push(g));
            assert_eq!(free.store.len.load(Relaxed), 0);
        }
    }
}
