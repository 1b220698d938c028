//! `select!`: one G waits for several channels, and does what is possible first.
//!
//! The macro puts one case for each arm into the caller's frame and calls
//! [`choose`]; the arm's body runs after all of that is gone again, so it may
//! do anything with the channels, `break`, `?` or `return`.
//!
//! # How it waits
//!
//! 1. *Glance*: which cases look ready, without a lock? One of them by lot, under
//!    its lock; if somebody was faster, another.
//! 2. *Enlist* in every channel's line, with one ticket for all: see
//!    [`crate::cell::wait`]. Whoever wins the ticket, in whichever channel, has
//!    done our case for us.
//! 3. *Withdraw* from all other lines.
//!
//! Go holds the locks of all channels, in the order of their addresses, while it
//! does 1 and 2. Here each is held by itself. That leaves one thing to see to: in
//! 2, a case can turn out to be ready while other channels can already win our
//! ticket. To do it we would need two words at once, our ticket and that of
//! whoever waits there. So we *call off* instead: close the ticket, withdraw, begin
//! again with 1, where nobody can win us. Who skipped us meanwhile is in a line
//! now, so 1 or 2 finds it. Two that call off because of each other both start
//! anew, in an order by lot.
#![forbid(unsafe_code)]

use crate::cell::wait::{Selection, Waiter};
use crate::chan::{
    Chan, ChanWaiter, NoMemory, RECEIVERS, Receiver, RecvError, SENDERS, SendError, Sender,
    TryRecvError, TrySendError, deadline_after,
};
use crate::park;
use core::cell::Cell;
use core::pin::Pin;
use core::time::Duration;

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
/// - `recv(rx) -> pattern => body`: binds a `Result<T, RecvError>`; a closed and
///   empty channel is ready, with an error. `-> pattern` may be left out.
/// - `send(tx, value) -> pattern => body`: binds a `Result<(), SendError<T>>`; a
///   closed channel is ready, with an error that has the value. `-> pattern` may
///   be left out, and then the value of a failed send is dropped.
/// - `after(duration) => body`: when nothing was possible for so long.
/// - `default => body`: when nothing is possible now. Not together with `after`.
///
/// Arms end as those of `match` do: with a comma, or with a block. Up to 64
/// `recv` and `send`; the same channel may be in several of them.
///
/// # What is promised
///
/// - Exactly one body runs, and only its operation has happened.
/// - Of those that are possible at once, each has the same chance.
/// - All channels, values and durations are evaluated once, as written, before
///   anything else. The values of sends that did not happen are dropped before
///   the body runs; to keep one, send a clone.
///
/// # Panics
/// As [`Sender::send`](crate::chan::Sender::send): an unbounded channel without
/// memory.
#[macro_export]
macro_rules! select {
    ($($arms:tt)+) => {
        $crate::__select!(@arm selection [] [] $($arms)+)
    };
}

/// The inside of [`select!`]: takes arm after arm (`@arm`), finds where it ends
/// (`@body`), turns it into a case (`@case`), and puts all together (`@all`). The
/// names `waiter`, `case` and `result` are others in every step.
#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    (@arm $t:ident $cases:tt $other:tt recv($rx:expr $(,)?) -> $p:pat => $($rest:tt)+) => {
        $crate::__select!(@body $t $cases $other {recv ($rx) ($p)} $($rest)+)
    };
    (@arm $t:ident $cases:tt $other:tt recv($rx:expr $(,)?) => $($rest:tt)+) => {
        $crate::__select!(@body $t $cases $other {recv ($rx) (_)} $($rest)+)
    };
    (@arm $t:ident $cases:tt $other:tt
        send($tx:expr, $value:expr $(,)?) -> $p:pat => $($rest:tt)+) => {
        $crate::__select!(@body $t $cases $other {send ($tx) ($value) ($p)} $($rest)+)
    };
    (@arm $t:ident $cases:tt $other:tt send($tx:expr, $value:expr $(,)?) => $($rest:tt)+) => {
        $crate::__select!(@body $t $cases $other {send ($tx) ($value) (_)} $($rest)+)
    };
    (@arm $t:ident $cases:tt $other:tt after($timeout:expr $(,)?) => $($rest:tt)+) => {
        $crate::__select!(@body $t $cases $other {after ($timeout)} $($rest)+)
    };
    (@arm $t:ident $cases:tt $other:tt default => $($rest:tt)+) => {
        $crate::__select!(@body $t $cases $other {default} $($rest)+)
    };
    (@arm $t:ident $cases:tt $other:tt) => {
        $crate::__select!(@all $t $cases $other)
    };
    (@arm $t:ident $cases:tt $other:tt $($rest:tt)+) => {
        compile_error!(
            "an arm of select! is `recv(rx) -> v => …`, `send(tx, v) -> r => …`, \
             `after(duration) => …` or `default => …`"
        )
    };

    (@body $t:ident $cases:tt $other:tt $arm:tt $body:block, $($rest:tt)*) => {
        $crate::__select!(@case $t $cases $other $arm ($body) $($rest)*)
    };
    (@body $t:ident $cases:tt $other:tt $arm:tt $body:block $($rest:tt)*) => {
        $crate::__select!(@case $t $cases $other $arm ($body) $($rest)*)
    };
    (@body $t:ident $cases:tt $other:tt $arm:tt $body:expr, $($rest:tt)*) => {
        $crate::__select!(@case $t $cases $other $arm ($body) $($rest)*)
    };
    (@body $t:ident $cases:tt $other:tt $arm:tt $body:expr) => {
        $crate::__select!(@case $t $cases $other $arm ($body))
    };

    (@case $t:ident [$($cases:tt)*] $other:tt {recv ($rx:expr) ($p:pat)} $body:tt $($rest:tt)*) => {
        $crate::__select!(@arm $t [$($cases)* {
            {
                let rx: &$crate::chan::Receiver<_> = &$rx;
                let waiter = ::core::pin::pin!($crate::select::recv_waiter(rx, $t));
                let case = $crate::select::RecvCase::new(rx, waiter.into_ref());
            }
            case result ($p) $body
        }] $other $($rest)*)
    };
    (@case $t:ident [$($cases:tt)*] $other:tt
        {send ($tx:expr) ($value:expr) ($p:pat)} $body:tt $($rest:tt)*) => {
        $crate::__select!(@arm $t [$($cases)* {
            {
                let tx: &$crate::chan::Sender<_> = &$tx;
                let waiter = ::core::pin::pin!($crate::select::send_waiter(tx, $t, $value));
                let case = $crate::select::SendCase::new(tx, waiter.into_ref());
            }
            case result ($p) $body
        }] $other $($rest)*)
    };
    (@case $t:ident $cases:tt [] {after ($timeout:expr)} $body:tt $($rest:tt)*) => {
        $crate::__select!(@arm $t $cases
            [($crate::select::Otherwise::WaitFor($timeout)) $body] $($rest)*)
    };
    (@case $t:ident $cases:tt [] {default} $body:tt $($rest:tt)*) => {
        $crate::__select!(@arm $t $cases [($crate::select::Otherwise::Return) $body] $($rest)*)
    };
    (@case $t:ident $cases:tt $other:tt $arm:tt $body:tt $($rest:tt)*) => {
        compile_error!("select! has at most one `after` or `default`")
    };

    (@all $t:ident $cases:tt []) => {
        $crate::__select!(@all $t $cases [
            ($crate::select::Otherwise::Wait) (unreachable!("a select ended without a case"))
        ])
    };
    (@all $t:ident
        [$({ {$($bind:tt)*} $case:ident $result:ident ($p:pat) ($body:expr) })*]
        [($otherwise:expr) ($other:expr)]) => {{
        let (_, $($result,)*) = {
            let $t = ::core::pin::pin!($crate::cell::wait::Selection::new());
            let $t = $t.into_ref();
            $($($bind)*)*
            let ready = $crate::select::Ready::none()
                $(.and($crate::select::Case::looks_ready(&$case)))*;
            let is_any = $crate::select::choose($t, &[$(&$case),*], ready, $otherwise);
            (is_any, $($case.result(),)*)
        };
        $(if let ::core::option::Option::Some(value) = $result {
            let $p = value;
            $body
        } else)* {
            $other
        }
    }};
}

/// One operation of a `select!`, in the frame of the G that selects.
#[doc(hidden)]
pub trait Case {
    /// Whether it seems possible, at a glance.
    fn looks_ready(&self) -> bool;
    /// Does it, if it is possible at once.
    fn attempt(&self) -> bool;
    /// Goes to the end of the line, unless it is possible at once.
    fn enlist(&self) -> bool;
    /// Leaves the line, and notes whether it was done meanwhile.
    fn withdraw(&self);
}

/// What to do when no case is possible.
#[doc(hidden)]
pub enum Otherwise {
    /// Wait.
    Wait,
    /// Wait for so long.
    WaitFor(Duration),
    /// Nothing.
    Return,
}

/// The cases that look ready, as bits of a word.
#[doc(hidden)]
pub struct Ready {
    set: u64,
    seen: u32,
}

impl Ready {
    /// Before any case was looked at.
    #[inline(always)]
    pub fn none() -> Self {
        Ready { set: 0, seen: 0 }
    }

    /// And how the next case looks.
    #[inline(always)]
    #[must_use]
    pub fn and(self, looks_ready: bool) -> Self {
        Ready { set: self.set | u64::from(looks_ready) << self.seen, seen: self.seen + 1 }
    }

    fn of(cases: &[&dyn Case]) -> Self {
        cases.iter().fold(Ready::none(), |ready, case| ready.and(case.looks_ready()))
    }
}

/// Does one of the cases; false if none was possible, now or in time. `ready` is
/// the first glance at them.
#[doc(hidden)]
#[inline(always)]
pub fn choose<const N: usize>(
    selection: Pin<&Selection>,
    cases: &[&dyn Case; N],
    ready: Ready,
    otherwise: Otherwise,
) -> bool {
    const { assert!(N <= u64::BITS as usize, "select! with more than 64 channels") };
    attempt_any(cases, ready) || choose_later(selection, cases, otherwise)
}

#[inline(never)]
fn choose_later(selection: Pin<&Selection>, cases: &[&dyn Case], otherwise: Otherwise) -> bool {
    let deadline_ns = match otherwise {
        Otherwise::Wait => None,
        Otherwise::WaitFor(timeout) => Some(deadline_after(timeout)),
        // None looked ready: make sure, so that `default` means what it says.
        Otherwise::Return => return cases.iter().any(|case| case.attempt()),
    };
    let mut first = 0;
    loop {
        selection.begin();
        let (before, after) = cases.split_at(first);
        let all_enlisted = after.iter().chain(before).all(|case| case.enlist());
        let is_won = if all_enlisted { selection.wait(deadline_ns) } else { !selection.call_off() };
        cases.iter().for_each(|case| case.withdraw());
        if is_won {
            return true;
        }
        if all_enlisted {
            return false; // the time is up
        }
        if attempt_any(cases, Ready::of(cases)) {
            return true;
        }
        first = below(park::random(), cases.len());
    }
}

/// Does one of those that look ready, each with the same chance.
#[inline(never)]
fn attempt_any(cases: &[&dyn Case], Ready { mut set, .. }: Ready) -> bool {
    while set != 0 {
        let i = pick(set);
        if cases[i].attempt() {
            return true;
        }
        set &= !(1 << i);
    }
    false
}

/// The number of a bit of `set`, by lot. `set` is not empty.
#[inline]
fn pick(mut set: u64) -> usize {
    if !set.is_power_of_two() {
        for _ in 0..below(park::random(), set.count_ones() as usize) {
            set &= set - 1; // without its lowest bit
        }
    }
    set.trailing_zeros() as usize
}

/// A number below `n`, which is small, from a random word.
#[inline]
fn below(random: u64, n: usize) -> usize {
    (((random >> 32) * n as u64) >> 32) as usize
}

/// A place in the line of those who receive.
#[doc(hidden)]
#[inline(always)]
pub fn recv_waiter<'a, T>(rx: &'a Receiver<T>, selection: Pin<&'a Selection>) -> ChanWaiter<'a, T> {
    Waiter::new(rx.chan().wait_queue(), RECEIVERS, selection, None)
}

/// A place in the line of those who send `value`.
#[doc(hidden)]
#[inline(always)]
pub fn send_waiter<'a, T>(
    tx: &'a Sender<T>,
    selection: Pin<&'a Selection>,
    value: T,
) -> ChanWaiter<'a, T> {
    Waiter::new(tx.chan().wait_queue(), SENDERS, selection, Some(value))
}

/// `recv(rx)`.
#[doc(hidden)]
pub struct RecvCase<'a, T> {
    chan: &'a Chan<T>,
    waiter: Pin<&'a ChanWaiter<'a, T>>,
    is_done: Cell<bool>,
}

/// `send(tx, value)`.
#[doc(hidden)]
pub struct SendCase<'a, T> {
    chan: &'a Chan<T>,
    waiter: Pin<&'a ChanWaiter<'a, T>>,
    is_done: Cell<bool>,
}

impl<'a, T: Send> RecvCase<'a, T> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn new(rx: &'a Receiver<T>, waiter: Pin<&'a ChanWaiter<'a, T>>) -> Self {
        RecvCase { chan: rx.chan(), waiter, is_done: Cell::new(false) }
    }

    /// What came of it, if it was chosen.
    #[doc(hidden)]
    #[inline(always)]
    pub fn result(&self) -> Option<Result<T, RecvError>> {
        self.is_done.get().then(|| self.waiter.replace(None).ok_or(RecvError))
    }
}

impl<'a, T: Send> SendCase<'a, T> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn new(tx: &'a Sender<T>, waiter: Pin<&'a ChanWaiter<'a, T>>) -> Self {
        SendCase { chan: tx.chan(), waiter, is_done: Cell::new(false) }
    }

    /// What came of it, if it was chosen.
    #[doc(hidden)]
    #[inline(always)]
    pub fn result(&self) -> Option<Result<(), SendError<T>>> {
        self.is_done.get().then(|| match self.waiter.replace(None) {
            None => Ok(()),
            Some(value) => Err(SendError(value)),
        })
    }
}

impl<T: Send> Case for RecvCase<'_, T> {
    #[inline]
    fn looks_ready(&self) -> bool {
        self.chan.looks_receivable()
    }

    fn attempt(&self) -> bool {
        match self.chan.try_recv() {
            Ok(value) => drop(self.waiter.replace(Some(value))),
            Err(TryRecvError::Disconnected) => {}
            Err(TryRecvError::Empty) => return false,
        }
        self.is_done.set(true);
        true
    }

    fn enlist(&self) -> bool {
        let mut locked = self.chan.wait_queue().lock();
        let is_ready = locked.is_closed()
            || locked.len() != 0
            || locked.is_waited_for(SENDERS, self.waiter.selection());
        if !is_ready {
            self.waiter.enlist(&mut locked);
        }
        !is_ready
    }

    fn withdraw(&self) {
        self.waiter.withdraw();
        if self.waiter.is_won() {
            self.is_done.set(true);
        }
    }
}

impl<T: Send> Case for SendCase<'_, T> {
    #[inline]
    fn looks_ready(&self) -> bool {
        self.chan.looks_sendable()
    }

    fn attempt(&self) -> bool {
        let Some(value) = self.waiter.replace(None) else { return false };
        match self.chan.try_send(value) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) if self.chan.capacity().is_none() => panic!("{NoMemory}"),
            Err(TrySendError::Full(value)) => {
                drop(self.waiter.replace(Some(value)));
                return false;
            }
            Err(TrySendError::Disconnected(value)) => drop(self.waiter.replace(Some(value))),
        }
        self.is_done.set(true);
        true
    }

    fn enlist(&self) -> bool {
        let mut locked = self.chan.wait_queue().lock();
        let is_ready = locked.is_closed()
            || self.chan.capacity().is_none_or(|capacity| locked.len() < capacity)
            || locked.is_waited_for(RECEIVERS, self.waiter.selection());
        if !is_ready {
            self.waiter.enlist(&mut locked);
        }
        !is_ready
    }

    fn withdraw(&self) {
        self.waiter.withdraw();
        if self.waiter.is_won() {
            self.is_done.set(true);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
