//! What `broadcast` and `watch` share: a state that many receivers look at, and how they wait.
//!
//! Each receiver has a *bell*, a channel with room for one `()`. A sender changes the state, then it
//! rings all bells; a receiver looks at the state, then it waits for its bell. A bell that rings
//! already means "look again", so a receiver that sleeps through ten changes wakes once; one that
//! looks at one value of several rings its own bell for the rest. So all waiting is that of
//! channels: with limits, in `select!`, and under kills.
//!
//! Rejected: one wait queue for all receivers, which would need no list of bells, but a second way
//! for `select!` to wait.
#![forbid(unsafe_code)]

use super::{LockError, Mutex, MutexGuard};
use crate::api::chan::{self, Receiver, Sender};
use crate::wait::queue::IfUnwound;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ptr;

pub(super) struct Hub<S>(Mutex<Inner<S>>);

struct Inner<S> {
    state: S,
    senders: usize,
    bells: Vec<Sender<()>>,
}

/// One of the ends that change the state; when the last is gone, the bells are closed.
pub(super) struct Teller<S>(Arc<Hub<S>>);

/// A receiver's end.
pub(super) struct Listener<S> {
    hub: Arc<Hub<S>>,
    pub(super) bell: Receiver<()>,
}

impl<S> Hub<S> {
    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        // A G that panicked while it rang has changed the state before, and rang on.
        self.0.lock().unwrap_or_else(LockError::into_inner)
    }
}

impl<S> Teller<S> {
    pub(super) fn new(state: S) -> Self {
        Teller(Arc::new(Hub(Mutex::new(Inner { state, senders: 1, bells: Vec::new() }))))
    }

    /// Changes the state and rings; what `change` gives, and how many receivers there are. `change`
    /// calls no code of the program.
    pub(super) fn tell<R>(&self, change: impl FnOnce(&mut S) -> R) -> (R, usize) {
        let mut inner = self.0.lock();
        let given = change(&mut inner.state);
        inner.bells.retain(|bell| !bell.is_closed());
        ring(&inner.bells);
        (given, inner.bells.len())
    }

    /// A new receiver, and what `look` finds at that moment.
    pub(super) fn listen<R>(&self, look: impl FnOnce(&S) -> R) -> (Listener<S>, R) {
        listen(&self.0, look)
    }
}

impl<S> Clone for Teller<S> {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Teller(self.0.clone())
    }
}

impl<S> Drop for Teller<S> {
    fn drop(&mut self) {
        // What cannot be locked was abandoned, and no receiver gets anything any more.
        let inner = self.0.0.lock().or_else(|error| error.guard().ok_or(()));
        let Ok(mut inner) = inner else { return };
        inner.senders -= 1;
        if inner.senders == 0 {
            inner.bells.clear();
        }
    }
}

impl<S> Listener<S> {
    pub(super) fn read<R>(&self, read: impl FnOnce(&S) -> R) -> R {
        read(&self.hub.lock().state)
    }

    /// Rings for this receiver, which leaves something that it has not looked at: so its bell rings
    /// as long as there is any.
    pub(super) fn ring_again(&self) {
        if self.bell.is_empty() {
            let inner = self.hub.lock();
            let own = inner.bells.iter().find(|bell| ptr::eq(bell.chan(), self.bell.chan()));
            own.into_iter().for_each(|bell| _ = bell.try_send(()));
        }
    }

    /// Another receiver.
    pub(super) fn listen<R>(&self, look: impl FnOnce(&S) -> R) -> (Self, R) {
        listen(&self.hub, look)
    }
}

fn listen<S, R>(hub: &Arc<Hub<S>>, look: impl FnOnce(&S) -> R) -> (Listener<S>, R) {
    let (rings, bell) = chan::bounded(1);
    let mut inner = hub.lock();
    let found = look(&inner.state);
    inner.bells.retain(|bell| !bell.is_closed());
    if inner.senders > 0 {
        inner.bells.push(rings);
    }
    drop(inner);
    (Listener { hub: hub.clone(), bell }, found)
}

/// Rings all bells. A G that was killed ends where it finds one that rings already: the others ring
/// nevertheless.
fn ring(bells: &[Sender<()>]) {
    let left = Cell::new(bells);
    let ring_next = || {
        let Some((first, rest)) = left.get().split_first() else { return false };
        left.set(rest);
        let _rings_already = first.try_send(());
        true
    };
    let rest = IfUnwound(|| while ring_next() {});
    while ring_next() {}
    core::mem::forget(rest);
}
