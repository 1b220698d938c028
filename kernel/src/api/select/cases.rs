//! The cases of a selection: what each kind of arm does.

use super::Selection;
use super::choose::Waiting;
use crate::api::chan::{
    Buffer, Chan, NoMemory, Now, RECEIVERS, Receiver, RecvError, SENDERS, SendError,
    SendTimeoutError, Sender,
};
use crate::wait::limit::{Context, Limit, Over};
use crate::wait::queue::Waiter;
use core::cell::Cell;
use core::pin::Pin;

/// One arm: what it may do, and what came of it.
#[doc(hidden)]
pub trait Case {
    /// What the arm binds.
    type Result;

    /// Whether it seems possible, without a lock.
    fn looks_ready(&self) -> bool;
    /// Does it, if it is possible at once.
    fn attempt(&self) -> bool;
    /// Its place in the line, to wait there.
    fn in_line<'b>(&'b self, selection: Pin<&'b Selection>) -> impl Waiting;
    /// What came of it; once, if it is done.
    fn result(&self, is_done: bool) -> Option<Self::Result>;
}

/// `recv(rx)` and `send(tx, value)`, by the list in which they may have to wait.
#[doc(hidden)]
pub struct ChanCase<'a, T, const LIST: usize> {
    chan: &'a Chan<T>,
    /// What was received, or is not sent.
    value: Cell<Option<T>>,
}

type InLine<'a, T, const LIST: usize> =
    Waiter<'a, Buffer<T>, T, 2, LIST, &'a ChanCase<'a, T, LIST>>;

#[doc(hidden)]
#[inline(always)]
pub fn recv_case<T: Send>(rx: &Receiver<T>) -> ChanCase<'_, T, RECEIVERS> {
    ChanCase { chan: rx.chan(), value: Cell::new(None) }
}

#[doc(hidden)]
#[inline(always)]
pub fn send_case<T: Send>(tx: &Sender<T>, value: T) -> ChanCase<'_, T, SENDERS> {
    ChanCase { chan: tx.chan(), value: Cell::new(Some(value)) }
}

impl<T: Send> Case for ChanCase<'_, T, RECEIVERS> {
    type Result = Result<T, RecvError>;

    #[inline(always)]
    fn looks_ready(&self) -> bool {
        self.chan.looks_ready(RECEIVERS)
    }

    #[inline(never)]
    fn attempt(&self) -> bool {
        let Some(value) = self.chan.recv(Now) else { return self.chan.is_over() };
        self.value.set(Some(value));
        true
    }

    #[inline(always)]
    fn in_line<'b>(&'b self, selection: Pin<&'b Selection>) -> impl Waiting {
        InLine::new(self.chan.wait_queue(), selection, self)
    }

    #[inline(always)]
    fn result(&self, is_done: bool) -> Option<Self::Result> {
        is_done.then(|| self.value.take().ok_or(RecvError))
    }
}

impl<T: Send> Case for ChanCase<'_, T, SENDERS> {
    type Result = Result<(), SendError<T>>;

    #[inline(always)]
    fn looks_ready(&self) -> bool {
        self.chan.looks_ready(SENDERS)
    }

    #[inline(never)]
    fn attempt(&self) -> bool {
        let Some(value) = self.value.take() else { return false };
        match self.chan.send(value, Now) {
            Ok(()) => {}
            Err(SendTimeoutError::Timeout(_)) if self.chan.capacity().is_none() => {
                panic!("{NoMemory}")
            }
            Err(SendTimeoutError::Timeout(value)) => {
                self.value.set(Some(value));
                return false;
            }
            Err(SendTimeoutError::Disconnected(value)) => self.value.set(Some(value)),
        }
        true
    }

    #[inline(always)]
    fn in_line<'b>(&'b self, selection: Pin<&'b Selection>) -> impl Waiting {
        InLine::new(self.chan.wait_queue(), selection, self)
    }

    #[inline(always)]
    fn result(&self, is_done: bool) -> Option<Self::Result> {
        is_done.then(|| self.value.take().map_or(Ok(()), |value| Err(SendError(value))))
    }
}

impl<'a, T: Send, const LIST: usize> Waiting for InLine<'a, T, LIST>
where
    ChanCase<'a, T, LIST>: Case,
{
    fn looks_ready(&self) -> bool {
        self.extra.looks_ready()
    }

    fn attempt(&self) -> bool {
        self.extra.attempt()
    }

    fn enlist(self: Pin<&Self>) -> bool {
        let case = self.extra;
        // A receiver has no value in its slot.
        let value = || if LIST == SENDERS { case.value.take() } else { None };
        let is_ready = |buffer: &mut Buffer<T>| {
            // A clock that is set makes a channel look ready; a limited wait knows when it is.
            case.chan.is_ready(LIST) && !(self.selection().is_limited() && buffer.is_set())
        };
        self.enlist_unless(1 - LIST, is_ready, value)
    }

    fn withdraw(self: Pin<&Self>) -> bool {
        let is_won = Waiter::withdraw(&self);
        let case = self.extra;
        // What was received; or what was not sent, or by a case that was closed.
        if LIST == SENDERS || is_won {
            match self.take() {
                Some(value) => case.value.set(Some(value)),
                // Without a value: it was closed; or its clock was set anew.
                None if LIST == RECEIVERS => return case.attempt(),
                None => {}
            }
        }
        is_won
    }

    fn limit(&self) -> Option<Limit<'_>> {
        if LIST == RECEIVERS { self.extra.chan.next_tick().map(Limit::Until) } else { None }
    }
}

/// `done(context)`.
#[doc(hidden)]
pub struct DoneCase<'a>(&'a Context);

#[doc(hidden)]
pub fn done_case(context: &Context) -> DoneCase<'_> {
    DoneCase(context)
}

impl Case for DoneCase<'_> {
    type Result = Over;

    fn looks_ready(&self) -> bool {
        self.0.over().is_some()
    }

    fn attempt(&self) -> bool {
        self.looks_ready()
    }

    fn in_line<'b>(&'b self, selection: Pin<&'b Selection>) -> impl Waiting {
        ByHandle { case: self, selection }
    }

    fn result(&self, is_done: bool) -> Option<Over> {
        if is_done { self.0.over() } else { None }
    }
}

impl Beside for DoneCase<'_> {
    /// `under_contexts` has entered its queue.
    fn enter(&self) -> bool {
        true
    }

    fn leave(&self) {}

    fn limit(&self) -> Limit<'_> {
        Limit::Context(self.0)
    }
}

/// A case that takes nothing when it becomes possible, and is in no line of the selection: the G is
/// readied by its handle.
pub(super) trait Beside: Case {
    /// Arranges that the running G is readied, unless the case is possible.
    fn enter(&self) -> bool;
    fn leave(&self);
    fn limit(&self) -> Limit<'_> {
        Limit::Until(crate::run::time::Instant::NEVER)
    }
}

/// Such a case while it waits.
pub(super) struct ByHandle<'a, C> {
    pub(super) case: &'a C,
    pub(super) selection: Pin<&'a Selection>,
}

impl<C: Beside> Waiting for ByHandle<'_, C> {
    fn looks_ready(&self) -> bool {
        self.case.looks_ready()
    }

    fn attempt(&self) -> bool {
        self.case.attempt()
    }

    fn enlist(self: Pin<&Self>) -> bool {
        self.selection.is_limited() && self.case.enter()
    }

    fn withdraw(self: Pin<&Self>) -> bool {
        self.case.leave();
        false // if it is possible, it is attempted
    }

    fn limit(&self) -> Option<Limit<'_>> {
        Some(self.case.limit())
    }
}
