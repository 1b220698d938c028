//! The life of a G as the kernel drives it: started, readied, stopped, ended.
//!
//! Each method does one transition of the drawing in `g`, puts the G into its
//! queue, and returns the CPU to wake. The essay, "How the kernel calls", says
//! which method the kernel calls, when and in what state.

use crate::g::{G, Handle, Home, Ready, Status};
use crate::list::List;
use crate::p::{Marks, P};
use crate::sync::{Relaxed, planted};
use crate::{Arrival, ID_BATCH, Sched, Wake};

impl<K: Sync + 'static> Sched<K> {
    /// A dead G to recycle: one of this P's, else one of the common store. None:
    /// make a new one.
    #[inline(always)]
    pub fn take_dead(&self, p: &mut P<K>) -> Option<&'static G<K>> {
        p.free.pop(&self.free)
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
        g.init(self.new_id(p), pin);
        g.start();
        self.submit(p, g)
    }

    /// Readies that life of a G if it waits; it will run next on this P (Go:
    /// goready). A G that is still parking is put back by the CPU that parks it; a
    /// G that does not wait is left alone.
    pub fn ready(&self, p: &mut P<K>, handle: Handle<K>) -> Wake {
        self.ready_noting(p, handle, |_, _| ())
    }

    /// As [`Sched::ready`], and calls `note` if the G did wait, with its old state:
    /// [`Status::Parked`], and for that moment the caller alone holds it; or
    /// [`Status::Parking`], and its CPU holds it.
    #[inline(always)]
    pub fn ready_noting(
        &self,
        p: &mut P<K>,
        handle: Handle<K>,
        note: impl FnOnce(&'static G<K>, Status),
    ) -> Wake {
        match handle.ready_parked() {
            Some(g) => {
                note(g, Status::Parked);
                self.submit(p, g)
            }
            // Not parked, still parking, or a CPU halts for it.
            None => Wake::from_word(readied(handle, note, |g| self.submit(p, g))),
        }
    }

    /// Readies that life of a G without a P: puts it into the inbox of `cpu`, or
    /// where its [`Home`] says. For interrupt handlers, with their own CPU; in any
    /// context. The wake-up may name the caller's own CPU: then it is enough to
    /// call [`Sched::arrive`] before the interrupt returns.
    pub fn ready_from_interrupt(&self, cpu: usize, handle: Handle<K>) -> Wake {
        self.ready_from_interrupt_noting(cpu, handle, |_, _| ())
    }

    /// As [`Sched::ready_from_interrupt`], with `note` as in
    /// [`Sched::ready_noting`].
    pub fn ready_from_interrupt_noting(
        &self,
        cpu: usize,
        handle: Handle<K>,
        note: impl FnOnce(&'static G<K>, Status),
    ) -> Wake {
        Wake::from_word(readied(handle, note, |g| match g.home() {
            Home::Anywhere => self.post(cpu, g),
            Home::Pinned(cpu) => self.post(cpu, g),
            Home::InCall(home) => self.submit_call(home, cpu, g),
        }))
    }

    /// Moves the Gs of the inbox to the P's queues, at the end of an interrupt. If
    /// no other P can take an arrival at once, the first that is not pinned goes to
    /// the run-next slot, and may displace the interrupted G (essay, "Displacing").
    /// If the same G continues, it may need a slice timer now
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
            if !displace && g.pin().is_none() && all_busy() {
                displace = true;
                self.push_next(p, g);
            } else {
                self.push(p, g);
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
                if g.finish_park() == Ready::Push {
                    return self.put_back(p, g);
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

    /// [`Stop::Park`] of a G that was readied before it was off its stack: it runs
    /// next here; even if in a call, as its M is here.
    #[cold]
    fn put_back(&self, p: &mut P<K>, g: &'static G<K>) -> Wake {
        if g.pin().is_none() { self.run_next(p, g) } else { self.submit(p, g) }
    }

    /// As [`Sched::stopped`] with [`Stop::Exit`], for a G that the kernel itself
    /// keeps until it starts it again.
    pub fn exited_for_kernel(&self, g: &'static G<K>) {
        g.exit();
    }

    /// Wakes one idle P, unless a P spins. Essay, "Submitting".
    pub(crate) fn wake_p(&self) -> Wake {
        if self.idle.has_to_wake() { self.wake_one() } else { Wake::Nobody }
    }

    /// Slow path of `wake_p`.
    #[cold]
    fn wake_one(&self) -> Wake {
        let wake = self.idle.wake_one(self.limit());
        if planted!(NoInterrupt) { Wake::Nobody } else { wake }
    }

    /// Wakes a CPU for Gs that were moved into a queue, if any are left there.
    pub(crate) fn pay_wake(&self, p: &mut P<K>) -> Wake {
        let owes = p.marks.take(Marks::OWES_WAKE);
        let waits = || !p.runq.is_empty() || !self.global.is_empty();
        if owes && waits() { self.wake_p() } else { Wake::Nobody }
    }

    /// Pushes all Gs of a list to the tail of this P. While they were on the list
    /// they were in no queue: a P that parked meanwhile has not seen them, and may
    /// have to be woken.
    pub(crate) fn push_all(&self, p: &mut P<K>, mut list: List<K>) {
        p.marks.set_if(Marks::OWES_WAKE, !list.is_empty());
        while let Some(g) = list.pop() {
            self.push(p, g);
        }
    }

    /// Puts a runnable G into the run-next slot, or sends it to its CPU.
    #[inline(always)]
    fn submit(&self, p: &mut P<K>, g: &'static G<K>) -> Wake {
        match g.home() {
            Home::Anywhere => self.run_next(p, g),
            home => Wake::from_word(self.submit_to(p, g, home)),
        }
    }

    /// Sends a G that is pinned or in a call to its CPU. A [`Wake`], as a word.
    #[cold]
    fn submit_to(&self, p: &mut P<K>, g: &'static G<K>, home: Home) -> usize {
        let wake = match home {
            Home::Pinned(cpu) if cpu == p.index => {
                p.push_pinned(g);
                Wake::Nobody
            }
            Home::Pinned(cpu) => self.post(cpu, g),
            Home::InCall(home) => self.or_untimed(p, self.submit_call(home, p.index, g)),
            Home::Anywhere => unreachable!("no CPU"),
        };
        wake.to_word()
    }

    /// A G may have gone to the global queue: if no CPU is woken for it, another CPU that
    /// runs without a timer is to be told ([`Sched::take_untimed`]).
    fn or_untimed(&self, p: &P<K>, wake: Wake) -> Wake {
        let mut untimed = core::iter::from_fn(|| self.take_untimed());
        match wake {
            Wake::Nobody => untimed.find(|&cpu| cpu != p.index).map_or(wake, Wake::Cpu),
            Wake::Cpu(_) => wake,
        }
    }

    /// Submits a G in a call: to its old P if that is idle, else to the caller's or
    /// any other idle P, else to the global queue.
    ///
    /// No idle bit is claimed: the inbox needs none (essay, "The inbox"), and if
    /// the P is not idle any more when it empties its inbox, it wakes another. A P
    /// whose inbox holds a G is skipped, so that two Gs go to two Ps. In an
    /// interrupt handler, the lock of the global queue is free or its holder is on
    /// another CPU: it is taken with interrupts off only.
    fn submit_call(&self, home: usize, cpu: usize, g: &'static G<K>) -> Wake {
        let near = [home, cpu].into_iter().filter(|&at| self.idle.is_idle(at));
        let mut idle = near.chain(self.idle.idle_ps(self.limit()));
        if let Some(at) = idle.find(|&at| self.slots[at].inbox.is_empty()) {
            return self.post(at, g);
        }
        self.global.push(g);
        self.wake_p()
    }

    /// Puts a G into the run-next slot and kicks the old G to the ring's tail (Go:
    /// `runqput` with `next`).
    #[inline(always)]
    fn run_next(&self, p: &mut P<K>, g: &'static G<K>) -> Wake {
        let has_to_wake = match p.runq.swap_next(g) {
            None => self.idle.has_to_wake_after_swap(),
            Some(old) if p.runq.try_push(old) => self.idle.has_to_wake(),
            Some(old) => return self.push_to_full_ring(p, old),
        };
        if has_to_wake { self.wake_one() } else { Wake::Nobody }
    }

    #[cold]
    fn push_to_full_ring(&self, p: &mut P<K>, old: &'static G<K>) -> Wake {
        if let Some(overflow) = p.runq.push(old) {
            self.global.push_list(overflow);
        }
        self.or_untimed(p, self.wake_p()) // also for Gs that overflowed
    }

    fn push_next(&self, p: &mut P<K>, g: &'static G<K>) {
        if let Some(overflow) = p.runq.push_next(g) {
            self.global.push_list(overflow);
        }
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

    /// Puts a G into the inbox of `cpu`. Essay, "The inbox".
    fn post(&self, cpu: usize, g: &'static G<K>) -> Wake {
        if self.slots[cpu].inbox.push(g) { Wake::Cpu(cpu) } else { Wake::Nobody }
    }

    #[inline(always)]
    fn new_id(&self, p: &mut P<K>) -> u64 {
        if p.ids.start == p.ids.end {
            p.ids = self.more_ids();
        }
        p.ids.start += 1; // so the first is 1
        p.ids.start
    }

    #[cold]
    fn more_ids(&self) -> core::ops::Range<u64> {
        let first = self.next_id.fetch_add(ID_BATCH, Relaxed);
        first..first + ID_BATCH
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

/// Readies a G, and submits it or returns the CPU to interrupt: a [`Wake`], as a word.
#[inline(never)]
fn readied<K>(
    handle: Handle<K>,
    note: impl FnOnce(&'static G<K>, Status),
    submit: impl FnOnce(&'static G<K>) -> Wake,
) -> usize {
    let (g, generation) = handle.parts();
    let wake = match g.ready(generation) {
        Ready::Push => {
            note(g, Status::Parked);
            submit(g)
        }
        Ready::Nothing => Wake::Nobody,
        told => {
            note(g, Status::Parking);
            match told {
                Ready::Interrupt(cpu) if !planted!(ForgetHalted) => Wake::Cpu(cpu),
                _ => Wake::Nobody,
            }
        }
    };
    wake.to_word()
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
