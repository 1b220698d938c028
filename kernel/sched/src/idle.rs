//! Parking and waking: the idle Ps, the spinning Ps, and why no wake-up is lost.
//!
//! Holds the idle mask, the spinning count and the two sides of the protocol:
//! [`Idle::park`] with its second check, and [`Idle::wake_p`]. The caller (`proc`)
//! says which queues to check. The argument is in the essay, paragraphs
//! "Submitting", "Parking" and "Spinning".
//!
//! # Only busy Ps are searched
//!
//! A P that searches, and one that is about to halt, reads the queues of the Ps
//! without an idle bit ([`Idle::busy_ps`]) and no others: going idle costs the same
//! on 255 CPUs of which 254 halt as on one. That overlooks no G, by one rule:
//!
//! > The queue of a P whose idle bit is set is empty.
//!
//! A P sets its bit when its queue is empty, and has cleared it, or has read that a
//! waker did, before it puts the next G there: both are a read-modify-write by the P
//! itself (`claim`), before the push in its program. So of the two fences of the
//! essay, if the submitter's is first, the parker reads the mask after its own fence
//! and sees that clear or a later one, and then the G. If it sees the bit set again,
//! that P has parked since, and the G was taken from its queue.
//!
//! Where CPUs are near and far (`near`), a P that searches goes through this same set level by
//! level: the levels are a partition of the set, whatever is known of distances. The second look
//! before a halt does not know them.
//!
//! Rejected: a mask of the Ps that have Gs. Its owner would set a bit whenever its
//! queue gets its first G and clear it after its last: two locked operations for every
//! wake-up in a ping-pong, to spare a thief a load from each busy P.
//!
//! # The fence of a submit
//!
//! A submit whose last store into the queue was a swap needs none: the SeqCst swap and the SeqCst
//! loads of [`Idle::needs_no_wake`] take its place. In their one order the swap is before or after
//! the parker's fence; if it is before, the parker sees the G, else these loads, which are after
//! the swap, see what the parker did before its fence. This assumes x86, where it is free: any swap
//! is a full barrier there, and a SeqCst load a plain load. Loom treats SeqCst as AcqRel everywhere
//! but in a fence, and gets a fence here. So the models do not check this path as it is compiled;
//! the simulator does, whose memory is x86's.

use crate::MAX_P;
use crate::Wake;
use crate::near::{Cpus, Row};
use crate::p::Random;
use crate::sync::{
    AcqRel, Acquire, AtomicU32, AtomicU64, Relaxed, SeqCst, array_of, const_fn, fence, planted,
};

/// The idle Ps, and how many Ps spin.
pub(crate) struct Idle {
    /// Acquired Ps.
    online: PMask,
    /// Ps that are about to halt, or have halted. Set by the P itself; cleared, as
    /// a claim, by its waker or by itself.
    idle: PMask,
    /// At least the number of bits in `idle`: a P is counted before its bit is set,
    /// and until after it was cleared. So a submitter mostly need not read the
    /// words of the mask.
    pub(crate) counted: AtomicU32,
    /// Ps that search for work and have no G: woken for it, or searching.
    pub(crate) spinning: AtomicU32,
    /// State of the generator that picks the P to wake. 0: the lowest is woken; [`NEAR`]: one near
    /// the waker.
    draws: AtomicU64,
}

impl Idle {
    const_fn! {
        pub(crate) fn new() -> Self {
            Idle {
                online: PMask::new(),
                idle: PMask::new(),
                counted: AtomicU32::new(0),
                spinning: AtomicU32::new(0),
                draws: AtomicU64::new(0),
            }
        }
    }

    /// Marks a P as acquired, hence busy.
    pub(crate) fn bring_up(&self, index: usize) {
        self.online.set(index);
    }

    /// Whether the P of `index` has its idle bit set: its queue is empty.
    pub(crate) fn is_idle(&self, index: usize) -> bool {
        self.idle.has(index)
    }

    /// How many Ps below `limit` are up and not idle.
    pub(crate) fn busy(&self, limit: usize) -> usize {
        PSet::below(limit, |w| self.online.word(w) & !self.idle.word(w)).len()
    }

    /// The Ps below `acquired` without an idle bit, at this instant: only these can have
    /// a G in their queue. There is one at least.
    pub(crate) fn busy_ps(&self, acquired: usize) -> PSet {
        PSet::below(acquired, |w| !self.idle.word(w))
    }

    /// Whether a P below `limit` is idle, or any P spins.
    #[inline(always)]
    pub(crate) fn has_free_p(&self, limit: usize) -> bool {
        let is_counted = || self.counted.load(Relaxed) != 0;
        self.spinning.load(Relaxed) != 0 || is_counted() && self.idle_ps(limit).next().is_some()
    }

    /// The idle Ps below `limit`, lowest first.
    pub(crate) fn idle_ps(&self, limit: usize) -> impl Iterator<Item = usize> {
        self.idle.members(limit)
    }

    /// The same as a set.
    pub(crate) fn idle_set(&self, limit: usize) -> PSet {
        PSet::below(limit, |w| self.idle.word(w))
    }

    /// Starts spinning, if few enough Ps spin: at most half of the busy Ps, but
    /// always one. If it fails, another P spins. The Ps that are not counted as idle are
    /// taken for busy: no mask is read.
    pub(crate) fn try_spin(&self, limit: usize) -> bool {
        let mut spinning = self.spinning.load(Relaxed);
        loop {
            let busy = || limit.saturating_sub(self.counted.load(Relaxed) as usize);
            if spinning != 0 && 2 * spinning as usize >= busy() {
                return false;
            }
            match self.spinning.compare_exchange_weak(spinning, spinning + 1, AcqRel, Relaxed) {
                Ok(_) => return true,
                Err(now) => spinning = now,
            }
        }
    }

    /// A spinning P found work. It owes a [`Idle::wake_p`] after this: CPUs that
    /// submitted while it spun relied on it.
    pub(crate) fn stop_spinning(&self) {
        self.spinning.fetch_sub(1, AcqRel);
    }

    /// A P found nothing. `spinning`: it is counted as such. `has_work`: checks
    /// every queue that it may take from. True: it is idle, and halts. False: a CPU
    /// submitted meanwhile; the P spins now and searches once more. Essay,
    /// "Parking".
    pub(crate) fn park(
        &self,
        index: usize,
        limit: usize,
        spinning: bool,
        has_work: impl FnOnce() -> bool,
    ) -> bool {
        // lab 3 begin: park
        self.counted.fetch_add(1, AcqRel);
        self.idle.set(index);
        if spinning {
            self.spinning.fetch_sub(1, AcqRel);
        }
        // Orders the stores above before the loads of `has_work`; the partner is
        // `submit_fence`, or the swap in its place.
        fence(SeqCst);
        // If there is work and this P may not spin, another P spins, and will check
        // after it: it either finds this work, or finds other work and wakes this
        // P.
        if planted!(NoLookAgain) || !has_work() || !self.try_spin(limit) {
            return true;
        }
        if !self.claim(index) {
            // A waker was faster, and counted this P too. Once is enough; the
            // interrupt that it sends will find this P busy and do nothing.
            self.spinning.fetch_sub(1, AcqRel);
        }
        false
        // lab 3 end
    }

    /// Clears the bit of an idle P; true for one caller. If a P that runs again is not
    /// that caller, a waker claimed it: then it is counted as spinning, and must search
    /// as a spinner does.
    pub(crate) fn claim(&self, index: usize) -> bool {
        let claimed = self.idle.claim(index);
        if claimed {
            self.counted.fetch_sub(1, AcqRel);
        }
        claimed
    }

    /// Wakes one idle P below `limit`, unless a P spins (Go: wakep). Essay, "Submitting". `by`:
    /// what the waker's P knows of near and far.
    pub(crate) fn wake_p(&self, limit: usize, by: Option<&Row>) -> Wake {
        submit_fence();
        if self.needs_no_wake() { Wake::Nobody } else { self.wake_one(limit, by) }
    }

    /// Whether no P is idle, or a P spins, after the fence of a submit.
    ///
    /// Either load is enough by itself, so they may be done one after the other,
    /// first the one that decides where all Ps are busy. No P is idle: a P that
    /// parks later counts itself after this, hence after the fence, and checks
    /// again. A P spins: it checks again, or wakes another, when it stops.
    #[inline(always)]
    pub(crate) fn needs_no_wake(&self) -> bool {
        // lab 3 begin: needs_no_wake
        self.counted.load(SeqCst) == 0 || self.spinning.load(SeqCst) != 0
        // lab 3 end
    }

    /// The rest of [`Idle::wake_p`]: no P seemed to spin, one seemed to be idle.
    #[cold]
    pub(crate) fn wake_one(&self, limit: usize, by: Option<&Row>) -> Wake {
        // lab 3 begin: wake_one
        // One waker at a time: a waker that fails here sees a spinning P.
        while self.idle_ps(limit).next().is_some()
            && self.spinning.compare_exchange(0, 1, AcqRel, Relaxed).is_ok()
        {
            if let Some(index) = self.claim_one(limit, by) {
                return if planted!(NoInterrupt) { Wake::Nobody } else { Wake::Cpu(index) };
            }
            // No idle P is left to claim. While the count was 1, a submitter may
            // have relied on a spinner that did not exist: check again for it.
            self.spinning.fetch_sub(1, AcqRel);
            fence(SeqCst);
        }
        Wake::Nobody
        // lab 3 end
    }

    /// Claims an idle P: the lowest, so that low CPUs stay warm and high ones
    /// asleep; one near the waker where CPUs are not equally far from one another (`near`); a
    /// random one after [`Idle::be_random`].
    fn claim_one(&self, limit: usize, by: Option<&Row>) -> Option<usize> {
        // Not under loom, which would explore this load at every step.
        if cfg!(loom) || self.draws.load(Relaxed) == 0 {
            return self.idle_ps(limit).find(|&index| self.claim(index));
        }
        self.claim_special(limit, by)
    }

    #[cold]
    #[inline(never)]
    fn claim_special(&self, limit: usize, by: Option<&Row>) -> Option<usize> {
        if self.draws.load(Relaxed) == NEAR {
            return match by {
                Some(row) => self.claim_near(limit, row),
                None => self.idle_ps(limit).find(|&index| self.claim(index)),
            };
        }
        let draw = Random(self.draws.fetch_add(Random::STEP, Relaxed)).next();
        let first = draw as usize % self.idle_ps(limit).count().max(1);
        let mut from_there_on = self.idle_ps(limit).skip(first).chain(self.idle_ps(limit));
        from_there_on.find(|&index| self.claim(index))
    }

    /// From now on the P to wake is picked at random.
    pub(crate) fn be_random(&self, seed: u64) {
        self.draws.store(seed.max(NEAR + 1), Relaxed);
    }

    /// From now on it is one near the waker, unless it is picked at random.
    pub(crate) fn choose_near(&self) {
        let _ = self.draws.compare_exchange(0, NEAR, Relaxed, Relaxed);
    }
}

/// Orders a submit before the loads of [`Idle::needs_no_wake`]; the partner is the fence in
/// [`Idle::park`].
#[inline(always)]
pub(crate) fn submit_fence() {
    // lab 3 begin: submit_fence
    if !planted!(NoFence) {
        fence(SeqCst);
    }
    // lab 3 end
}

/// In [`Idle::draws`].
const NEAR: u64 = 1;

pub(crate) const WORDS: usize = MAX_P.div_ceil(64);

/// A set of Ps as it was at one instant, word by word.
#[derive(Clone, Copy)]
pub(crate) struct PSet {
    words: [u64; WORDS],
    /// All members are below this.
    end: usize,
}

impl PSet {
    /// The Ps below `end`, of which there is one, whose bits `word` has.
    pub(crate) fn below(end: usize, word: impl Fn(usize) -> u64) -> Self {
        let last = (end - 1) / 64;
        let mut words = [0; WORDS];
        for (w, bits) in words.iter_mut().enumerate().take(last + 1) {
            *bits = word(w);
        }
        words[last] &= u64::MAX >> (63 - (end - 1) % 64);
        PSet { words, end }
    }

    /// Takes a P out.
    pub(crate) fn remove(&mut self, index: usize) {
        self.words[index / 64] &= !bit(index);
    }

    /// Takes those of `cpus` out.
    pub(crate) fn take_out(&mut self, cpus: &Cpus) -> PSet {
        let mut out = *self;
        for w in 0..WORDS {
            out.words[w] &= cpus.word(w);
            self.words[w] &= !cpus.word(w);
        }
        out
    }

    pub(crate) fn word(&self, w: usize) -> u64 {
        self.words[w]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().fold(0, |all, word| all | word) == 0
    }

    /// How many members there are.
    fn len(&self) -> usize {
        let words = &self.words[..self.end.div_ceil(64)];
        words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Each member once, lowest first.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        self.iter_from(0)
    }

    /// Each member once, upwards from a random index and round. As in Go, a member is the first
    /// the more often, the more indices right before it are not in the set.
    pub(crate) fn iter_from(self, random: u32) -> impl Iterator<Item = usize> {
        let start = ((u64::from(random) * self.end as u64) >> 32) as usize;
        let last = (self.end - 1) / 64;
        let (mut w, mut left) = (start / 64, last + 1);
        // What is below `start` in its word comes at the end. The set stays as it is: a thief, which
        // goes through it four times, copies none.
        let from_start = u64::MAX << (start % 64);
        let mut bits = self.words[w] & from_start;
        core::iter::from_fn(move || {
            while bits == 0 {
                left = left.checked_sub(1)?;
                w = if w == last { 0 } else { w + 1 };
                bits = self.words[w % WORDS];
                if left == 0 {
                    bits &= !from_start;
                }
            }
            let lowest = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            Some(w * 64 + lowest)
        })
    }
}

/// A set of Ps, one bit each.
pub(crate) struct PMask {
    words: [AtomicU64; WORDS],
}

impl PMask {
    const_fn! {
        pub(crate) fn new() -> Self {
            PMask { words: array_of![AtomicU64::new(0); WORDS] }
        }
    }

    pub(crate) fn set(&self, index: usize) {
        self.words[index / 64].fetch_or(bit(index), AcqRel);
    }

    pub(crate) fn has(&self, index: usize) -> bool {
        self.words[index / 64].load(Relaxed) & bit(index) != 0
    }

    /// Clears a bit; true if it was set, that is, for one caller.
    pub(crate) fn claim(&self, index: usize) -> bool {
        self.words[index / 64].fetch_and(!bit(index), AcqRel) & bit(index) != 0
    }

    /// Reads all words, for the common case that the set is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().fold(0, |all, word| all | word.load(Relaxed)) == 0
    }

    /// Members below `limit`, lowest first.
    pub(crate) fn members(&self, limit: usize) -> impl Iterator<Item = usize> {
        PSet::below(limit, |w| self.word(w)).iter()
    }

    fn word(&self, w: usize) -> u64 {
        self.words[w].load(Acquire)
    }
}

pub(crate) fn bit(index: usize) -> u64 {
    1 << (index % 64)
}

#[cfg(all(test, not(any(loom, feature = "sim"))))]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    #[test]
    fn busy_ps_are_those_without_an_idle_bit_each_once_from_any_start() {
        for acquired in [1, 2, 63, 64, 65, 128, 255, 256] {
            let idle = Idle::new();
            let sleeps = |p: usize| p % 3 == 1;
            (0..acquired).for_each(|p| idle.bring_up(p));
            (0..acquired).filter(|&p| sleeps(p)).for_each(|p| idle.idle.set(p));
            let busy: Vec<usize> = (0..acquired).filter(|&p| !sleeps(p)).collect();
            let set = idle.busy_ps(acquired);
            assert!(set.iter().eq(busy.iter().copied()));
            assert_eq!(idle.busy(acquired), busy.len());
            for random in [0, 1, 12_345, 0xdead_beef, u32::MAX] {
                let mut seen: Vec<usize> = set.iter_from(random).collect();
                let from = ((u64::from(random) * acquired as u64) >> 32) as usize;
                let first = busy.iter().find(|&&p| p >= from).unwrap_or(&busy[0]);
                assert_eq!(seen[0], *first, "the first from there on");
                seen.sort_unstable();
                assert_eq!(seen, busy, "each of them once");
            }
        }
    }

    #[test]
    fn set_without_its_only_member_is_empty() {
        let idle = Idle::new();
        let mut busy = idle.busy_ps(65);
        (0..64).for_each(|p| busy.remove(p));
        assert!(!busy.is_empty() && busy.iter().eq([64]));
        busy.remove(64);
        assert!(busy.is_empty());
    }
}
