//! How long a wait may last: until a time, or until a [`Context`] is cancelled.
//!
//! Channels, `select!`, locks, joins and `park` have forms that take a [`Limit`] (`_until`), as
//! have the console and the disk; [`Context::sleep`] is a sleep with one. A time limits the wait
//! itself: `park_until` has a deadline. A context limits it from outside, whatever the G waits for,
//! so it must not depend on the queue that the G waits in:
//!
//! 1. Before the call, the G enters the wait queue of the context, and of each context that it is a
//!    child of, without parking ([`WaitQueue::enlisted_during`]). If one is cancelled by then, the
//!    limit is over already ([`set_limit_over`]).
//! 2. `cancel` sets the state, and takes each G out of the queue; under the queue's lock it ends
//!    the G's limit ([`end_limit`](crate::run::door::end_limit)), then it readies the G.
//! 3. A G that parks with a deadline reads, after it has begun to park, whether its limit is over,
//!    and again when it was readied; if so, its wait ends as at a deadline. So cancelling is one
//!    more way to be late: every queue, lock and channel handles it already, and nothing is lost.
//! 4. After the call, the G leaves the queues, each under its lock, and then its limit is not over
//!    any more: a later wait does not see this cancellation.
//!
//! Between 2 and 3 one of the two sees the other: the G parks, then reads; `cancel` stores, then
//! readies. Both are SeqCst. A wait without a limit reads nothing.
//!
//! Rejected: a context as one more case of every wait, as a Go program writes it (`select` with
//! `ctx.Done()`), because then each wait would be a selection; a timer for each context with a
//! deadline, because the earliest of a G's deadlines is enough; and lists of children, because a G
//! that waits under a child can wait in the queue of the parent as well: a context takes no memory
//! in another, and a cancellation walks no tree.

#![forbid(unsafe_code)]

use super::queue::{IfUnwound, WaitQueue};
use crate::run::door::{
    Reason, Wait, begin_park, check_kill, clock_uncertainty_ns, deadline_after, might_park,
    park_until, set_limit_over,
};
use crate::run::time::{Duration, Instant};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;
use core::error::Error;
use core::fmt;

/// How long a call may wait: for a [`Duration`], until an [`Instant`] or the end of a [`Context`].
///
/// ```
/// use runnext::prelude::*;
/// let (tx, rx) = chan::bounded::<u32>(1);
/// assert!(rx.recv_until(Duration::from_millis(1)).is_err());
/// assert!(rx.recv_until(Instant::now()).is_err());
/// let request = Context::new();
/// request.cancel();
/// assert!(rx.recv_until(&request).is_err());
/// tx.send(7).unwrap();
/// assert_eq!(rx.recv_until(&request), Ok(7)); // it need not wait
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Limit<'a> {
    /// For so long, from the beginning of the wait on.
    For(Duration),
    /// Until that moment.
    Until(Instant),
    /// Until that context is over.
    Context(&'a Context),
}

impl From<Duration> for Limit<'_> {
    fn from(timeout: Duration) -> Self {
        Limit::For(timeout)
    }
}

impl From<Instant> for Limit<'_> {
    fn from(at: Instant) -> Self {
        Limit::Until(at)
    }
}

impl<'a> From<&'a Context> for Limit<'a> {
    fn from(context: &'a Context) -> Self {
        Limit::Context(context)
    }
}

impl Limit<'_> {
    /// The same for several waits, one after the other.
    pub(crate) fn starting_now(self) -> Self {
        if let Limit::For(timeout) = self { (Instant::now() + timeout).into() } else { self }
    }

    /// When it is over at the latest, if it begins now.
    pub(crate) fn latest(self) -> Instant {
        match self {
            Limit::For(timeout) => Instant::now() + timeout,
            Limit::Until(at) => at,
            Limit::Context(context) => context.deadline(),
        }
    }

    /// Calls `wait` with the deadline of a wait that may last so long, and sees to it that the
    /// waits in it with that deadline end when the limit is over. `wait` calls no code of a
    /// program: a G is in one limited wait at a time.
    pub(crate) fn during<R>(self, wait: impl FnOnce(u64) -> R) -> R {
        match self {
            Limit::For(timeout) => wait(deadline_after(timeout)),
            Limit::Until(at) => wait(at.as_nanos()),
            Limit::Context(context) => context.during(wait),
        }
    }
}

/// A task that can be cancelled, with all the waits that are done for it (Go: context.Context).
///
/// Clones are the same context. A child is cancelled with its parent, and by itself; it has the
/// parent's deadline or an earlier one.
///
/// ```
/// use runnext::{prelude::*, context::Over};
/// let request = Context::new();
/// let step = request.child_until(Duration::from_secs(3600));
/// let (_tx, rx) = chan::bounded::<u32>(1);
/// let worker = go(move || (rx.recv_until(&step), step.over()));
/// request.cancel();
/// let (received, over) = worker.join().unwrap();
/// assert!(received.is_err());
/// assert_eq!(over, Some(Over::Cancelled));
/// ```
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    /// When it was cancelled, and the Gs that wait under it or under one of its children.
    queue: WaitQueue<Cancelled>,
    /// Not after the parent's.
    deadline: Instant,
    parent: Option<Context>,
    value: Option<Box<dyn Any + Send + Sync>>,
}

/// When, or never; and why, if that was said.
struct Cancelled {
    at: Instant,
    cause: Option<Cause>,
}

/// Why a [`Context`] was cancelled.
pub type Cause = Arc<dyn Error + Send + Sync>;

impl Drop for Inner {
    /// Of a chain of any length, the destructors are not nested.
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(Context(inner)) = parent {
            parent = Arc::into_inner(inner).and_then(|mut inner| inner.parent.take());
        }
    }
}

/// Why a [`Context`] is over: what came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// It, or the context that it is a child of, was cancelled.
    Cancelled,
    /// Its deadline has passed.
    TimedOut,
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Over::Cancelled => "cancelled",
            Over::TimedOut => "timed out",
        })
    }
}

impl Error for Over {}

impl Context {
    /// Without a parent and without a deadline (Go: `WithCancel(Background())`).
    ///
    /// # Panics
    /// When there is no memory, as all functions that make a context.
    #[must_use]
    pub fn new() -> Self {
        Self::of(None, Instant::NEVER, None)
    }

    /// A child without a deadline of its own (Go: WithCancel). A wait takes a little stack for each
    /// context in the chain.
    #[must_use]
    pub fn child(&self) -> Self {
        self.child_until(Instant::NEVER)
    }

    /// A child that is over when `limit` is, at the latest (Go: WithDeadline, WithTimeout). Of
    /// another context only the deadline counts.
    #[must_use]
    pub fn child_until<'a>(&self, limit: impl Into<Limit<'a>>) -> Self {
        Self::of(Some(self.clone()), limit.into().latest().min(self.deadline()), None)
    }

    /// A child that carries a value (Go: WithValue): see [`value`](Self::value).
    ///
    /// ```
    /// use runnext::prelude::*;
    /// struct User(&'static str);
    /// let request = Context::new().child_with(User("gopher"));
    /// let step = request.child_until(Duration::from_secs(1));
    /// assert_eq!(step.value().map(|user: &User| user.0), Some("gopher"));
    /// assert_eq!(step.value::<u32>(), None);
    /// ```
    #[must_use]
    pub fn child_with<T: Any + Send + Sync>(&self, value: T) -> Self {
        Self::of(Some(self.clone()), self.deadline(), Some(Box::new(value)))
    }

    /// The value of that type which it carries, or the nearest of those that it is a child of. The
    /// type is the key: give each a type of its own.
    #[must_use]
    pub fn value<T: Any>(&self) -> Option<&T> {
        self.chain().find_map(|context| context.0.value.as_ref()?.downcast_ref())
    }

    fn of(
        parent: Option<Context>,
        deadline: Instant,
        value: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        let queue = WaitQueue::new(Cancelled { at: Instant::NEVER, cause: None });
        Context(Arc::new(Inner { queue, deadline, parent, value }))
    }

    /// It, and those that it is a child of.
    fn chain(&self) -> impl Iterator<Item = &Context> {
        core::iter::successors(Some(self), |context| context.0.parent.as_ref())
    }

    /// Cancels it, and its children with it: waits under them end now, and later ones at once.
    pub fn cancel(&self) {
        self.cancel_for(None);
    }

    /// As [`cancel`](Self::cancel), and says why (Go: WithCancelCause), if it was not cancelled.
    ///
    /// ```
    /// use runnext::prelude::*;
    /// let request = Context::new();
    /// let step = request.child();
    /// request.cancel_with("the disk is full");
    /// request.cancel_with("too late");
    /// assert_eq!(step.cause().unwrap().to_string(), "the disk is full");
    /// ```
    pub fn cancel_with(&self, cause: impl Into<Box<dyn Error + Send + Sync>>) {
        self.cancel_for(Some(cause.into().into()));
    }

    fn cancel_for(&self, cause: Option<Cause>) {
        let now = Instant::now();
        let mut locked = self.0.queue.lock();
        if locked.at == Instant::NEVER {
            *locked = Cancelled { at: now, cause };
        }
        drop(locked);
        loop {
            let mut locked = self.0.queue.lock();
            let Some(wake) = locked.grant(0) else { return };
            wake.end_limit();
            locked.ready(wake);
        }
    }

    /// Waits for `d`, or until this is over: then the error says why. With [`Duration::MAX`] it
    /// waits for that alone (Go: `<-ctx.Done()`). In `select!` that is `done(context)`.
    ///
    /// ```
    /// use runnext::{context::Over, prelude::*};
    /// let request = Context::new();
    /// assert_eq!(request.sleep(Duration::from_millis(1)), Ok(()));
    /// request.cancel();
    /// assert_eq!(request.sleep(Duration::from_secs(3600)), Err(Over::Cancelled));
    /// ```
    pub fn sleep(&self, d: Duration) -> Result<(), Over> {
        might_park();
        let until = Instant::now() + d;
        // For ever, only another G ends it: the deadlock scan must see that.
        let reason = if until == Instant::NEVER { Reason::Park } else { Reason::Sleep };
        loop {
            if let Some(over) = self.over() {
                return Err(over);
            }
            if Instant::now() >= until {
                return Ok(());
            }
            self.during(|deadline_ns| {
                // As in `sleep_until`.
                let until_ns = until.as_nanos().saturating_add(clock_uncertainty_ns());
                let _ = begin_park(Wait::new(reason, 0));
                park_until(until_ns.min(deadline_ns));
                check_kill();
            });
        }
    }

    /// Whether it is over, and why.
    #[must_use]
    pub fn over(&self) -> Option<Over> {
        let cancelled = self.chain().map(|context| context.0.queue.lock().at).min();
        if cancelled.is_some_and(|at| at < self.deadline()) {
            return Some(Over::Cancelled);
        }
        (Instant::now() >= self.deadline()).then_some(Over::TimedOut)
    }

    /// What [`cancel_with`](Self::cancel_with) said when it was cancelled, or the context that it
    /// is a child of (Go: Cause).
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        let cancelled = self.chain().map(|context| {
            let cancelled = context.0.queue.lock();
            (cancelled.at, cancelled.cause.clone())
        });
        let (at, cause) = cancelled.min_by_key(|&(at, _)| at)?;
        cause.filter(|_| at < self.deadline())
    }

    /// When it is over at the latest; [`Instant::NEVER`] if it has no deadline.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.0.deadline
    }

    fn during<R>(&self, wait: impl FnOnce(u64) -> R) -> R {
        let (mut wait, mut waited) = (Some(wait), None);
        // At every way out, when it has left all queues.
        let _over = IfUnwound(|| set_limit_over(false));
        self.enlisted_during(&mut || {
            // As in `sleep_until`: on the CPU that the G wakes up on the deadline has passed, too.
            let deadline_ns = self.deadline().as_nanos().saturating_add(clock_uncertainty_ns());
            waited = wait.take().map(|wait| wait(deadline_ns));
        });
        waited.expect("`wait` was called once")
    }

    /// Calls `wait` with this G in the queues of this context and of all that it is a child of.
    fn enlisted_during(&self, wait: &mut dyn FnMut()) {
        let Inner { queue, parent, .. } = &*self.0;
        let is_open = |cancelled: &mut Cancelled| {
            let is_cancelled = cancelled.at != Instant::NEVER;
            if is_cancelled {
                set_limit_over(true);
            }
            !is_cancelled
        };
        queue.enlisted_during(0, is_open, || match parent {
            Some(parent) => parent.enlisted_during(wait),
            None => wait(),
        });
    }
}

impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Context");
        shown.field("over", &self.over()).field("deadline", &self.deadline()).finish()
    }
}

// By its path, because the models compile this file from elsewhere.
#[cfg(all(test, not(loom)))]
#[path = "limit/tests.rs"]
mod tests;
