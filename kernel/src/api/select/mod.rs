//! `select!`: one G waits for several channels, and does what is possible first.
//!
//! The macro puts one case for each arm into the caller's frame and calls [`attempt`], which has
//! one done that is possible at once; else it adds to each case a place in a line and calls
//! [`choose`]. Both return the number of the case that is done. The body runs after all of that is
//! gone, so it may do anything with the channels, `break`, `?` or `return`.
//!
//! # How it waits
//!
//! 1. *Check* without a lock which cases look ready. Do one of them at random, under its lock; if
//!    another G was faster, another case.
//! 2. *Enlist* in every channel's line, with one [`Selection`] for all: see
//!    [`crate::wait::queue`]. A G that wins it, in whichever channel, has done the case.
//! 3. *Withdraw* from all other lines.
//!
//! Go holds the locks of all channels, in the order of their addresses, while it does 1 and 2. Here
//! each is held by itself. That leaves one thing to see to: in 2, a case can turn out to be ready
//! while other channels can already win our selection. To do it would need two words at once, ours
//! and that of the G that waits there. So we *call off* instead: close the selection, withdraw,
//! begin again with 1, where none is open. A G that skipped us meanwhile is in a line now, so 1 or
//! 2 finds it. Two that call off because of each other both start anew, in a random order.
#![forbid(unsafe_code)]

use super::chan::{
    Buffer, Chan, NoMemory, Now, RECEIVERS, Receiver, RecvError, SENDERS, SendError,
    SendTimeoutError, Sender,
};
use crate::run::door;
use crate::wait::limit::Limit;
pub use crate::wait::queue::Selection;
use crate::wait::queue::{IfUnwound, Waiter};
use core::cell::Cell;
use core::pin::Pin;

/// Waits for the first of several channel operations that is possible.
///
/// ```
/// use runnext::prelude::*;
/// use core::time::Duration;
/// let (numbers, rx_numbers) = chan::bounded(1);
/// let (tx_words, words) = chan::bounded(1);
/// numbers.send(7)?;
///
/// let got = select! {
///     recv(rx_numbers) -> number => number.map_or(0, |n| n * 6),
///     recv(words) -> word => { let word: String = word.expect("open"); word.len() }
///     after(Duration::from_secs(1)) => panic!("nothing for a second"),
/// };
/// assert_eq!(got, 42);
///
/// select! {
///     send(tx_words, "hello".into()) -> sent => assert!(sent.is_ok()),
///     default => unreachable!("there is room"),
/// }
/// # Ok::<(), chan::SendError<usize>>(())
/// ```
///
/// # The arms
///
/// - `recv(rx) -> pattern => body`: binds a `Result<T, RecvError>`; a closed and empty channel is
///   ready, with an error. `-> pattern` may be left out.
/// - `send(tx, value) -> pattern => body`: binds a `Result<(), SendError<T>>`; a closed channel is
///   ready, with an error that has the value. Without `-> pattern` that value is dropped.
/// - `after(limit) => body`: when nothing was possible for a `Duration`, until an `Instant`, or until a
///   `&Context` was over.
/// - `default => body`: when nothing is possible now. Not together with `after`.
///
/// Arms end as those of `match` do: with a comma, or with a block. Up to 64 `recv` and `send`; the
/// same channel may be in several of them.
///
/// # What is promised
///
/// - Exactly one body runs, and only its operation has happened.
/// - Of those that are possible at once, each has the same chance.
/// - All channels and values are evaluated once, as written, then the limit of `after`, all before
///   anything else. The values of other sends are dropped before the body runs; to keep one, send a
///   clone.
///
/// # Panics
/// As [`Sender::send`](crate::api::chan::Sender::send): an unbounded channel without memory.
#[macro_export]
macro_rules! select {
    ($($arms:tt)+) => {
        $crate::__select!(@arm selection [] [] $($arms)+)
    };
}

/// The inside of [`select!`]: takes arm after arm (`@arm`, `@other`), one step of expansion each,
/// because a compiler stops at 128; then puts all together (`@all`), where each arm becomes a case
/// (`@case`) and binds its result (`@bind`). Each step has its own `case`, `in_line` and `result`.
#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    (@arm $t:ident $cases:tt $other:tt after($limit:expr $(,)?) => $($rest:tt)+) => {
        $crate::__select!(@other $t $cases $other
            ($crate::__private::Until(::core::convert::Into::into($limit))) $($rest)+)
    };
    (@arm $t:ident $cases:tt $other:tt default => $($rest:tt)+) => {
        $crate::__select!(@other $t $cases $other ($crate::__private::AtOnce) $($rest)+)
    };
    (@arm $t:ident [$($cases:tt)*] $other:tt
        $kind:ident($($ends:tt)*) $(-> $p:pat)? => $body:expr $(, $($rest:tt)*)?) => {
        $crate::__select!(@arm $t
            [$($cases)* {$kind ($($ends)*) case in_line result ($($p)?) ($body)}]
            $other $($($rest)*)?)
    };
    (@arm $t:ident [$($cases:tt)*] $other:tt
        $kind:ident($($ends:tt)*) $(-> $p:pat)? => $body:block $($rest:tt)*) => {
        $crate::__select!(@arm $t
            [$($cases)* {$kind ($($ends)*) case in_line result ($($p)?) ($body)}]
            $other $($rest)*)
    };
    (@arm $t:ident $cases:tt $other:tt) => {
        $crate::__select!(@all $t $cases $other)
    };
    (@arm $t:ident $cases:tt $other:tt $($rest:tt)+) => {
        $crate::__select!(@bad)
    };

    (@other $t:ident $cases:tt [] $otherwise:tt $body:expr $(, $($rest:tt)*)?) => {
        $crate::__select!(@arm $t $cases [$otherwise ($body)] $($($rest)*)?)
    };
    (@other $t:ident $cases:tt [] $otherwise:tt $body:block $($rest:tt)*) => {
        $crate::__select!(@arm $t $cases [$otherwise ($body)] $($rest)*)
    };
    (@other $t:ident $cases:tt $other:tt $otherwise:tt $($rest:tt)*) => {
        compile_error!("select! has at most one `after` or `default`")
    };

    (@all $t:ident $cases:tt []) => {
        $crate::__select!(@all $t $cases [
            ($crate::__private::Ever) (unreachable!("a select ended without a case"))
        ])
    };
    (@all $t:ident
        [$({
            $kind:ident $ends:tt $case:ident $in_line:ident $result:ident $p:tt ($body:expr)
        })*]
        [($otherwise:expr) ($other:expr)]) => {{
        let (_, $($result,)*) = {
            $($crate::__select!(@case $case $kind $ends);)*
            let otherwise = $otherwise;
            // Which case is done: 1 for the first, 0 for none.
            let mut done = $crate::__private::attempt([$($case.looks_ready()),*], |_chosen| {
                let mut _case = 0_usize;
                $(
                    _case += 1;
                    if _case == _chosen {
                        return $case.attempt();
                    }
                )*
                false
            });
            if done == 0 {
                let $t = ::core::pin::pin!($crate::__private::Selection::new());
                let $t = $t.into_ref();
                $(let $in_line = ::core::pin::pin!($case.in_line($t));)*
                let lines = &[$($crate::__private::line($in_line.into_ref())),*];
                done = $crate::__private::Otherwise::choose(otherwise, $t, lines);
            }
            let mut _case = 0_usize;
            (done, $({
                _case += 1;
                $case.result(_case == done)
            },)*)
        };
        $(if let ::core::option::Option::Some(value) = $result {
            $crate::__select!(@bind $p value);
            $body
        } else)* {
            $other
        }
    }};

    (@case $case:ident recv ($rx:expr $(,)?)) => {
        let rx: &$crate::chan::Receiver<_> = &$rx;
        let $case = $crate::__private::recv_case(rx);
    };
    (@case $case:ident send ($tx:expr, $value:expr $(,)?)) => {
        let tx: &$crate::chan::Sender<_> = &$tx;
        let $case = $crate::__private::send_case(tx, $value);
    };
    (@case $case:ident $kind:ident $ends:tt) => {
        $crate::__select!(@bad);
    };
    (@bind () $value:ident) => {
        let _ = $value;
    };
    (@bind ($p:pat) $value:ident) => {
        let $p = $value;
    };
    (@bad) => {
        compile_error!(
            "an arm of select! is `recv(rx) -> v => …`, `send(tx, v) -> r => …`, \
             `after(duration) => …` or `default => …`"
        )
    };
}

/// A case that may have to wait, in the frame of the G that selects. Private: between `begin` and
/// `wait` of a selection no code of a program may run.
trait Waiting {
    /// Whether it seems possible, without a lock.
    fn looks_ready(&self) -> bool;
    /// Does it, if it is possible at once.
    fn attempt(&self) -> bool;
    /// Goes to the end of the line, unless the case is possible at once.
    fn enlist(self: Pin<&Self>) -> bool;
    /// Leaves the line; whether the case was done meanwhile.
    fn withdraw(self: Pin<&Self>) -> bool;
}

/// A case in its place in the line, whatever its channel.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Line<'a>(Pin<&'a dyn Waiting>);

#[doc(hidden)]
#[inline(always)]
pub fn line<'a, T: Send, const LIST: usize>(place: Pin<&'a InLine<'_, T, LIST>>) -> Line<'a> {
    Line(place)
}

/// What to do when no case is possible. A type for each, so that a wait for ever passes no time along.
#[doc(hidden)]
pub trait Otherwise {
    /// Waits so for one of the cases and does it; its number, or 0 if none was possible in time.
    fn choose(self, selection: Pin<&Selection>, lines: &[Line<'_>]) -> usize;
}

/// Waits until one is.
#[doc(hidden)]
pub struct Ever;

/// Waits so long.
#[doc(hidden)]
pub struct Until<'a>(pub Limit<'a>);

/// Does not wait.
#[doc(hidden)]
pub struct AtOnce;

impl Otherwise for Ever {
    #[inline(always)]
    fn choose(self, selection: Pin<&Selection>, lines: &[Line<'_>]) -> usize {
        choose(selection, lines, None)
    }
}

impl Otherwise for Until<'_> {
    fn choose(self, selection: Pin<&Selection>, lines: &[Line<'_>]) -> usize {
        self.0.during(|deadline_ns| choose(selection, lines, Some(deadline_ns)))
    }
}

impl Otherwise for AtOnce {
    /// None looked ready: makes sure, so that `default` means what it says.
    fn choose(self, _: Pin<&Selection>, lines: &[Line<'_>]) -> usize {
        let done = lines.iter().position(|line| line.0.attempt());
        if done.is_none() {
            door::check_kill();
        }
        done.map_or(0, |i| i + 1)
    }
}

/// Does one of the cases that look ready, each with the same chance, by `attempt`; returns its
/// number, beginning with 1, or 0 if none was ready, or other Gs were faster.
#[doc(hidden)]
#[inline(always)]
pub fn attempt<const N: usize>(look_ready: [bool; N], attempt: impl Fn(usize) -> bool) -> usize {
    const { assert!(N <= u64::BITS as usize, "select! with more than 64 channels") };
    attempt_any(bits(look_ready.into_iter()), attempt)
}

#[inline(always)]
fn bits(look_ready: impl Iterator<Item = bool>) -> u64 {
    look_ready.enumerate().fold(0, |set, (i, is_ready)| set | u64::from(is_ready) << i)
}

#[inline(always)]
fn attempt_any(mut set: u64, attempt: impl Fn(usize) -> bool) -> usize {
    while set != 0 {
        let i = if set.is_power_of_two() { set.trailing_zeros() as usize } else { pick(set) };
        if attempt(i + 1) {
            return i + 1;
        }
        set &= !(1 << i);
    }
    0
}

/// Waits for one of the cases and does it; its number, or 0 if none was possible in time.
#[inline(never)]
fn choose(selection: Pin<&Selection>, lines: &[Line<'_>], deadline_ns: Option<u64>) -> usize {
    let attempt = |case: usize| lines.get(case - 1).is_some_and(|line| line.0.attempt());
    door::might_park();
    let mut first = 0;
    loop {
        // A G that is killed unwinds from `wait`; a hand-made call with a line of another selection,
        // from `enlist`; and one with a full stack from anywhere. No place may stay in a line, not
        // even a leaked one.
        let if_unwound = IfUnwound(
            #[cold]
            || _ = withdraw_all(lines),
        );
        selection.begin();
        let if_refused = IfUnwound(|| {
            selection.call_off();
        });
        let (before, after) = lines.split_at(first);
        let all_enlisted = after.iter().chain(before).all(|line| line.0.enlist());
        core::mem::forget(if_refused);
        if all_enlisted {
            selection.wait(deadline_ns);
        } else {
            selection.call_off();
        }
        let won = withdraw_all(lines);
        core::mem::forget(if_unwound);
        if won != 0 || all_enlisted {
            return won; // 0: the time is up
        }
        let done = attempt_any(bits(lines.iter().map(|line| line.0.looks_ready())), attempt);
        if done != 0 {
            return done;
        }
        first = below(door::random(), lines.len());
    }
}

/// Leaves all lines; the number of the case that was done meanwhile, or 0.
#[inline(always)]
fn withdraw_all(lines: &[Line<'_>]) -> usize {
    let mut won = 0;
    for (i, line) in lines.iter().enumerate() {
        if line.0.withdraw() {
            won = i + 1;
        }
    }
    won
}

/// The number of a random bit of `set`, which is not empty.
#[inline(never)]
fn pick(mut set: u64) -> usize {
    for _ in 0..below(door::random(), set.count_ones() as usize) {
        set &= set - 1; // without its lowest bit
    }
    set.trailing_zeros() as usize
}

/// A number below `n`, which is small, from a random word.
#[inline]
fn below(random: u64, n: usize) -> usize {
    (((random >> 32) * n as u64) >> 32) as usize
}

/// `recv(rx)` and `send(tx, value)`, by the list in which they may have to wait.
#[doc(hidden)]
pub struct ChanCase<'a, T, const LIST: usize> {
    chan: &'a Chan<T>,
    /// What was received, or is not sent.
    value: Cell<Option<T>>,
}

#[doc(hidden)]
pub type InLine<'a, T, const LIST: usize> =
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

impl<'a, T: Send, const LIST: usize> ChanCase<'a, T, LIST> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn in_line<'b>(&'b self, selection: Pin<&'b Selection>) -> InLine<'b, T, LIST>
    where
        'a: 'b,
    {
        Waiter::new(self.chan.wait_queue(), selection, self)
    }

    /// Whether it seems possible, without a lock.
    #[doc(hidden)]
    #[inline(always)]
    pub fn looks_ready(&self) -> bool {
        self.chan.looks_ready(LIST)
    }

    /// Does it, if it is possible at once.
    #[doc(hidden)]
    #[inline(never)]
    pub fn attempt(&self) -> bool {
        match LIST {
            RECEIVERS => self.try_recv(),
            _ => self.try_send(),
        }
    }
}

impl<T: Send> ChanCase<'_, T, RECEIVERS> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn result(&self, is_done: bool) -> Option<Result<T, RecvError>> {
        is_done.then(|| self.value.take().ok_or(RecvError))
    }
}

impl<T: Send> ChanCase<'_, T, SENDERS> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn result(&self, is_done: bool) -> Option<Result<(), SendError<T>>> {
        is_done.then(|| self.value.take().map_or(Ok(()), |value| Err(SendError(value))))
    }
}

impl<T: Send, const LIST: usize> ChanCase<'_, T, LIST> {
    fn try_recv(&self) -> bool {
        let Some(value) = self.chan.recv(Now) else { return self.chan.is_over() };
        self.value.set(Some(value));
        true
    }

    fn try_send(&self) -> bool {
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
}

impl<T: Send, const LIST: usize> Waiting for InLine<'_, T, LIST> {
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
        self.enlist_unless(1 - LIST, || case.chan.is_ready(LIST), value)
    }

    fn withdraw(self: Pin<&Self>) -> bool {
        let is_won = Waiter::withdraw(&self);
        let case = self.extra;
        // What was received; or what was not sent, or by a case that was closed.
        if (LIST == SENDERS || is_won)
            && let Some(value) = self.take()
        {
            case.value.set(Some(value));
        }
        is_won
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
