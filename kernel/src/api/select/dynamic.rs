//! A selection whose arms are counted at run time.

use super::Selection;
use super::cases::{Case, done_case, recv_case, send_case};
use super::choose::{Line, Waiting, attempt_lines, choose_limited};
use crate::api::chan::{Receiver, RecvError, SendError, Sender};
use crate::run::door;
use crate::wait::limit::{Context, Limit, Over};
use crate::wait::queue::TimedOut;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::pin::{Pin, pin};

/// A `select!` whose arms are added at run time, any number of them (Go: reflect.Select). Each arm
/// has a function for its body; exactly one of them is called, with what the arm of the macro
/// binds, and its result is that of the wait.
///
/// What [`select!`](crate::select!) promises holds here, too; with more than 64 arms, the chances
/// are equal among each 64 of them. Each arm is a box on the heap, and one more while the G waits.
///
/// ```
/// use runnext::{prelude::*, select::Select};
/// let (txs, rxs): (Vec<_>, Vec<_>) = (0..100).map(|_| chan::bounded(1)).unzip();
/// txs[42].send("hello").unwrap();
/// let mut any = Select::new();
/// for (i, rx) in rxs.iter().enumerate() {
///     any.recv(rx, move |word| (i, word));
/// }
/// assert_eq!(any.wait(), (42, Ok("hello")));
/// ```
#[must_use = "nothing is done before wait"]
pub struct Select<'a, R> {
    arms: Vec<Box<dyn Arm<R> + 'a>>,
    in_order: bool,
}

/// A case and the function that is its body.
trait Arm<R> {
    fn line<'b>(&'b self, selection: Pin<&'b Selection>) -> Pin<Box<dyn Waiting + 'b>>;
    fn finish(self: Box<Self>) -> Option<R>;
}

impl<R, C: Case, F: FnOnce(C::Result) -> R> Arm<R> for (C, F) {
    fn line<'b>(&'b self, selection: Pin<&'b Selection>) -> Pin<Box<dyn Waiting + 'b>> {
        Box::pin(self.0.in_line(selection))
    }

    fn finish(self: Box<Self>) -> Option<R> {
        let (case, then) = *self;
        let result = case.result(true);
        drop(case);
        result.map(then)
    }
}

impl<'a, R> Select<'a, R> {
    /// Without an arm: a wait for it does not end.
    pub const fn new() -> Self {
        Select { arms: Vec::new(), in_order: false }
    }

    /// Of several arms that are possible at once, the first is done, not any of them.
    pub fn biased(mut self) -> Self {
        self.in_order = true;
        self
    }

    /// Adds the arm `recv(rx) -> v => then(v)`.
    pub fn recv<T: Send>(
        &mut self,
        rx: &'a Receiver<T>,
        then: impl FnOnce(Result<T, RecvError>) -> R + 'a,
    ) -> &mut Self {
        self.add(recv_case(rx), then)
    }

    /// Adds the arm `send(tx, value) -> sent => then(sent)`.
    pub fn send<T: Send>(
        &mut self,
        tx: &'a Sender<T>,
        value: T,
        then: impl FnOnce(Result<(), SendError<T>>) -> R + 'a,
    ) -> &mut Self {
        self.add(send_case(tx, value), then)
    }

    /// Adds the arm `done(context) -> over => then(over)`.
    pub fn done(&mut self, context: &'a Context, then: impl FnOnce(Over) -> R + 'a) -> &mut Self {
        self.add(done_case(context), then)
    }

    pub(super) fn add<C: Case + 'a>(
        &mut self,
        case: C,
        then: impl FnOnce(C::Result) -> R + 'a,
    ) -> &mut Self {
        self.arms.push(Box::new((case, then)));
        self
    }

    /// Waits for the first arm that is possible, and returns the result of its function.
    pub fn wait(self) -> R {
        self.wait_by(None).unwrap_or_else(|| unreachable!("a select ended without a case"))
    }

    /// As [`wait`](Self::wait), until `limit` at most.
    ///
    /// # Errors
    /// [`TimedOut`] if no arm was possible in time; no function was called.
    ///
    /// ```
    /// use runnext::{prelude::*, select::Select};
    /// let (_tx, rx) = chan::bounded::<u32>(1);
    /// let mut any = Select::new();
    /// any.recv(&rx, |n| n);
    /// assert!(any.wait_until(Duration::from_millis(1)).is_err());
    /// ```
    pub fn wait_until<'l>(self, limit: impl Into<Limit<'l>>) -> Result<R, TimedOut> {
        limit.into().during(|deadline_ns| self.wait_by(Some(deadline_ns))).ok_or(TimedOut)
    }

    /// Does an arm that is possible now, if there is one (Go: `default`).
    pub fn try_wait(self) -> Option<R> {
        self.choose(|_, lines| attempt_lines(lines, true)).or_else(|| {
            door::check_kill();
            None
        })
    }

    fn wait_by(self, deadline_ns: Option<u64>) -> Option<R> {
        let in_order = self.in_order;
        self.choose(|selection, lines| choose_limited(selection, lines, deadline_ns, in_order))
    }

    /// Calls `choose` with the lines of all arms, and finishes the arm whose number it returns.
    fn choose(mut self, choose: impl Fn(Pin<&Selection>, &[Line<'_>]) -> usize) -> Option<R> {
        let done = {
            let selection = pin!(Selection::new());
            let selection = selection.into_ref();
            let places: Vec<_> = self.arms.iter().map(|arm| arm.line(selection)).collect();
            let lines: Vec<_> = places.iter().map(|place| Line(place.as_ref())).collect();
            choose(selection, &lines)
        };
        let arm = (done != 0).then(|| self.arms.swap_remove(done - 1));
        drop(self); // the values of other sends, before the body
        arm?.finish()
    }
}

impl<R> Default for Select<'_, R> {
    fn default() -> Self {
        Self::new()
    }
}
