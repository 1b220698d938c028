//! Wait queues: nodes on the stacks of the waiting Gs, under one lock.
//!
//! A [`WaitQueue`] is a lock around a state of its owner, with one or more FIFO lists of Gs that
//! wait for that state to change (Go: sudog). To wait allocates nothing: the node is in the frame
//! of the G that waits. Everything that a program can wait for, waits here: channels, `select!`,
//! and all of `sync`; what a wake-up means is said there.
//!
//! A node has a slot for a value. In a channel it is what is handed over; for a lock it is what the
//! other side must know of the first in the list (how many permits, waiting since when).
//!
//! # How a wait ends
//!
//! The other side, with the lock held, may
//!
//! - *give* a value to the first of a list, or *take* its value: channels;
//! - *grant*: end the wait of the first, which has then what it waited for, or never will;
//! - *nudge*: let the first check for itself, keeping its place.
//!
//! Or the waiter's time is up. A G that waits in one queue only ([`Locked::wait`]) is *alone* in
//! its node, and gives up under the lock: the lock holder that takes the node out ends the wait, by
//! one store. A G that waits in several queues (`select!`) has one word for all of its nodes, in
//! its [`Selection`]: one compare-exchange from "open" to the address of the node wins it. A
//! selecting G gives up without any lock, and a lock holder passes its node over then.
//!
//! # Ownership
//!
//! > A node in a list is alive, and so is its selection. Its links belong to the holder of the
//! > lock. Its slot belongs to the holder of the lock from the time it is enlisted until its wait
//! > was ended, the selection is won for it or its owner has taken it out; else to its owner.
//!
//! The other side, with the lock held: takes the node out of the list, copies the handle, moves the
//! value in or out, and then *ends the wait*, or *wins the selection*. That is its last touch: from
//! there on the owner may return and its frame is gone. A side that loses undoes what it did to the
//! slot, still with the lock held, which a losing node's owner must take before its frame goes.
//!
//! # Why a forgotten waiter does no harm
//!
//! [`Locked::wait`] neither returns nor unwinds before its node is out. In a [`Selection`], node
//! and selection are pinned, so neither's memory is used again before its destructor has run; a
//! waiter's leaves the list, and the selection's stops the machine if a waiter was leaked.

mod locked;
mod selection;
#[cfg(all(test, not(loom)))]
mod tests;

pub use locked::Locked;
pub use selection::{Selection, Waiter};

use super::poison::describe;
use crate::run::sys::irq::{self, IrqState};
use crate::run::sys::{IrqLock, Reason, const_fn, park, park_until, probe_stack, this};
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;
use locked::{Node, Who};

/// How many are granted under one hold of the lock: a few hundred instructions.
const BATCH: usize = 8;

/// A lock around a state `S`, and `LISTS` lists of Gs that wait for it, each with a slot for a `T`.
/// The lock word is first, at the address of the queue and of what begins with one.
#[repr(C)]
pub struct WaitQueue<S = (), T = (), const LISTS: usize = 1> {
    inner: IrqLock<Inner<S>>,
    /// The first node of each list. Of the lock holder; atomic, so that it can be read without it.
    heads: [AtomicPtr<Node<T>>; LISTS],
    /// Values go from CPU to CPU through the nodes.
    _values: PhantomData<IrqLock<T>>,
}

struct Inner<S> {
    state: S,
    /// The number of the nodes that are enlisted now; never 0.
    number: u64,
    /// How many Gs have ever waited.
    #[cfg(test)]
    queued: u64,
}

/// Where and how a G waits.
#[derive(Clone, Copy)]
pub struct Place<T> {
    pub reason: Reason,
    pub list: usize,
    /// What is in the slot.
    pub value: Option<T>,
    pub deadline_ns: Option<u64>,
}

/// How waiting ended.
#[must_use]
pub enum Waited<'a, S, T, const LISTS: usize> {
    /// The other side ended it; this is in the slot now.
    Granted(Option<T>),
    /// The waiter took what it waited for when it checked. It has left the list; the lock is held.
    Took(Locked<'a, S, T, LISTS>),
    /// The deadline came first. It has left the list; the lock is held, and this was in the slot.
    TimedOut(Locked<'a, S, T, LISTS>, Option<T>),
}

impl<S, T, const LISTS: usize> Waited<'_, S, T, LISTS> {
    /// Whether it ended before the deadline; the lock is free.
    pub fn in_time(self) -> Result<(), TimedOut> {
        if matches!(self, Waited::TimedOut(..)) { Err(TimedOut) } else { Ok(()) }
    }
}

/// The timeout passed before the awaited event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

describe!(TimedOut { TimedOut => "timed out"; });

impl<S: Default, T, const LISTS: usize> Default for WaitQueue<S, T, LISTS> {
    fn default() -> Self {
        Self::new(S::default())
    }
}

impl<S, T, const LISTS: usize> WaitQueue<S, T, LISTS> {
    const_fn! {
        /// A free lock with empty lists.
        pub fn new(state: S) -> Self {
            let inner = Inner {
                state,
                number: 1,
                #[cfg(test)]
                queued: 0,
            };
            let heads = [const { AtomicPtr::new(ptr::null_mut()) }; LISTS];
            WaitQueue { inner: IrqLock::new(inner), heads, _values: PhantomData }
        }
    }

    #[inline(always)]
    pub fn lock(&self) -> Locked<'_, S, T, LISTS> {
        Locked::new(self, self.inner.hold(off))
    }

    /// As [`lock`](Self::lock), for a caller that knows that interrupts are on: a G. Where this is
    /// inlined, their state is neither kept nor tested: 4 instructions less.
    #[inline(always)]
    pub fn lock_in_g(&self) -> Locked<'_, S, T, LISTS> {
        debug_assert!(irq::enabled(), "irqs off");
        self.inner.hold(off);
        Locked::new(self, IrqState::ON)
    }

    /// Whether a G seems to wait in that list: a hint, for callers without the lock.
    #[inline(always)]
    pub fn looks_waited_for(&self, list: usize) -> bool {
        self.first_address(list) != 0
    }

    /// As [`looks_waited_for`](Self::looks_waited_for), as a word to combine with others: 0 if not.
    #[inline(always)]
    pub fn first_address(&self, list: usize) -> usize {
        self.heads[list].load(Relaxed).addr()
    }

    /// Calls `f` with the running G in `list`, unless `enters`, under the lock, says no. The G does
    /// not park for that: a grant takes it out, and readies it in whichever wait it is then.
    pub fn enlisted_during<R>(
        &self,
        list: usize,
        enters: impl FnOnce(&mut S) -> bool,
        f: impl FnOnce() -> R,
    ) -> R {
        let node = Node::new(Who::Alone(this()), None);
        let mut locked = self.lock();
        if enters(&mut locked) {
            // SAFETY: the node is new. It is taken out before this returns or unwinds.
            unsafe { locked.push(list, &node) };
        }
        drop(locked);
        let _leaves = self.leaves_if_unwound(list, &node); // and if not: it is not forgotten
        f()
    }

    /// Grants to all Gs that wait in `list` now, and to none that is enlisted meanwhile; how many.
    pub fn grant_all(&self, list: usize) -> usize {
        let mut locked = self.lock();
        let Some(first) = locked.grant(list) else { return 0 };
        if locked.is_empty(list) {
            locked.ready(first); // as most often: one hold of the lock, one wake-up
            return 1;
        }
        let limit = locked.new_number();
        drop(locked);
        first.ready();
        1 + self.grant_while(|locked| {
            locked.front_number(list).filter(|&number| number < limit).map(|_| list)
        })
    }

    /// Grants to the first of the list that `choose` names, until it names none. Returns how often.
    /// `choose` runs under the lock, and is not under the same hold of it each time.
    #[inline(never)]
    pub fn grant_while(
        &self,
        mut choose: impl FnMut(&mut Locked<'_, S, T, LISTS>) -> Option<usize>,
    ) -> usize {
        let mut granted = 0;
        loop {
            let mut batch = [const { None }; BATCH];
            let mut locked = self.lock();
            for slot in &mut batch {
                *slot = choose(&mut locked).and_then(|list| locked.grant(list));
                if slot.is_none() {
                    break;
                }
            }
            drop(locked);
            let before = granted;
            for wake in batch.into_iter().flatten() {
                granted += 1;
                wake.ready();
            }
            if granted < before + BATCH {
                return granted;
            }
        }
    }

    /// Takes the node, which was pushed to `list`, out of it if the wait is unwound.
    fn leaves_if_unwound(&self, list: usize, node: &Node<T>) -> IfUnwound<impl FnMut()> {
        // SAFETY: it was pushed to this list, and to no other.
        IfUnwound(move || unsafe { self.lock().remove(list, node) })
    }
}

/// Turns interrupts off for the lock of a queue, which is the outermost, or is taken on the stack
/// of an M, whose pages are all committed: so the stack is probed unconditionally.
#[inline(always)]
fn off() -> IrqState {
    probe_stack();
    irq::disable()
}

/// Parks, until `deadline_ns` at most; false if that came first.
#[inline(always)]
pub(crate) fn park_by(deadline_ns: Option<u64>) -> bool {
    match deadline_ns {
        Some(deadline_ns) => park_until(deadline_ns),
        None => {
            park();
            true
        }
    }
}

/// Calls `F` if it is unwound; forgotten where all is well.
pub(crate) struct IfUnwound<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for IfUnwound<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
