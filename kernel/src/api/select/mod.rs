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
//!
//! # Cases with a limit
//!
//! A timer's channel becomes ready by the clock, a context by its end, a join when the G ends,
//! which readies this one by its handle: no node in a line wins the selection for them. They refuse
//! to be enlisted, and the G goes a more general way, which the others need not pay for
//! ([`choose_limited`](choose::choose_limited)). There it waits until the earliest of all limits,
//! and every wake-up is a reason to look at all cases again. A value or a permit still comes by
//! winning the selection, so one case at most has taken something.
#![forbid(unsafe_code)]

mod acquire;
mod cases;
mod choose;
mod dynamic;
#[cfg(not(loom))] // `go` is not in the models
mod join;

#[doc(hidden)]
pub use acquire::acquire_case;
#[doc(hidden)]
pub use cases::{Case, done_case, recv_case, send_case};
#[doc(hidden)]
pub use choose::{AnyOrder, AtOnce, Ever, InOrder, Otherwise, Until, attempt, line};
pub use dynamic::Select;
#[cfg(not(loom))]
#[doc(hidden)]
pub use join::{join_case, join_next_case};

#[doc(hidden)]
pub use crate::wait::queue::Selection;

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
///   ready, with an error. `-> pattern` may be left out. A timer, a ticker and [`chan::after`] are
///   receivers.
/// - `send(tx, value) -> pattern => body`: binds a `Result<(), SendError<T>>`; a closed channel is
///   ready, with an error that has the value. Without `-> pattern` that value is dropped.
/// - `done(context) -> pattern => body`: when a [`Context`] is over; binds an [`Over`].
/// - `join(handle) => body`: when a G has ended; then `handle.join()` does not wait. The handle is
///   borrowed mutably.
/// - `join_next(set) -> pattern => body`: when a G of a [`JoinSet`] has ended; binds what
///   [`JoinSet::join_next`] returns. The set is borrowed mutably.
/// - `acquire(semaphore, n) -> pattern => body`: takes `n` permits of a [`Semaphore`]; binds a
///   [`Permit`], which gives them back when it is dropped.
/// - `after(limit) => body`: when nothing was possible for a `Duration`, until an `Instant`, or
///   until a `&Context` was over.
/// - `default => body`: when nothing is possible now. Not together with `after`.
///
/// Arms end as those of `match` do: with a comma, or with a block. Before the `=>` there may be a
/// guard, `if condition`: if it is false, the arm is as if it were not there. Not with `after` and
/// `default`. Up to 64 arms beside these; the same channel may be in several of them.
///
/// ```
/// use runnext::{prelude::*, time::Ticker};
/// let (tx, rx) = chan::bounded(1);
/// let mut worker = go(move || tx.send(7).unwrap());
/// let (ticker, request) = (Ticker::new(Duration::from_secs(1)), Context::new());
/// let (mut got, mut ended) = (None, false);
/// while got.is_none() || !ended {
///     select! {
///         recv(rx) -> n if got.is_none() => got = n.ok(),
///         join(worker) if !ended => ended = true,
///         recv(ticker) => runnext::println!("still at work"),
///         done(request) -> why => unreachable!("{why:?}"),
///     }
/// }
/// assert_eq!((got, worker.join()), (Some(7), Ok(())));
/// ```
///
/// # What is promised
///
/// - Exactly one body runs, and only its operation has happened.
/// - Of those that are possible at once, each has the same chance. Or, if the arms begin with
///   `biased;`, the first as written is done.
/// - All channels and values are evaluated once, as written, then the guards, then the limit of
///   `after`, all before anything else. The values of other sends are dropped before the body runs;
///   to keep one, send a clone.
///
/// # Panics
/// As [`Sender::send`](crate::api::chan::Sender::send): an unbounded channel without memory.
///
/// [`chan::after`]: crate::chan::after
/// [`Context`]: crate::context::Context
/// [`JoinSet`]: crate::sync::JoinSet
/// [`JoinSet::join_next`]: crate::sync::JoinSet::join_next
/// [`Over`]: crate::context::Over
/// [`Semaphore`]: crate::sync::Semaphore
/// [`Permit`]: crate::sync::Permit
#[macro_export]
macro_rules! select {
    (biased; $($arms:tt)+) => {
        $crate::__select!(@arm (selection $crate::__private::InOrder) [] [] $($arms)+)
    };
    ($($arms:tt)+) => {
        $crate::__select!(@arm (selection $crate::__private::AnyOrder) [] [] $($arms)+)
    };
}

/// The inside of [`select!`]: takes arm after arm (`@arm`, `@other`), one step of expansion each,
/// because a compiler stops at 128; then puts all together (`@all`), where each arm becomes a case
/// (`@case`) and binds its result (`@bind`). Each step has its own `case`, `wanted`, `in_line` and
/// `result`.
#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    (@arm $t:tt $cases:tt $other:tt after($limit:expr $(,)?) => $($rest:tt)+) => {
        $crate::__select!(@other $t $cases $other
            ($crate::__private::Until(::core::convert::Into::into($limit))) $($rest)+)
    };
    (@arm $t:tt $cases:tt $other:tt default => $($rest:tt)+) => {
        $crate::__select!(@other $t $cases $other ($crate::__private::AtOnce) $($rest)+)
    };
    (@arm $t:tt [$($cases:tt)*] $other:tt
        $kind:ident($($ends:tt)*) $(-> $p:pat)? $(if $guard:expr)?
        => $body:expr $(, $($rest:tt)*)?) => {
        $crate::__select!(@arm $t
            [$($cases)* {
                $kind ($($ends)*) case wanted in_line result ($($p)?) ($($guard)?) ($body)
            }]
            $other $($($rest)*)?)
    };
    (@arm $t:tt [$($cases:tt)*] $other:tt
        $kind:ident($($ends:tt)*) $(-> $p:pat)? $(if $guard:expr)?
        => $body:block $($rest:tt)*) => {
        $crate::__select!(@arm $t
            [$($cases)* {
                $kind ($($ends)*) case wanted in_line result ($($p)?) ($($guard)?) ($body)
            }]
            $other $($rest)*)
    };
    (@arm $t:tt $cases:tt $other:tt) => {
        $crate::__select!(@all $t $cases $other)
    };
    (@arm $t:tt $cases:tt $other:tt $($rest:tt)+) => {
        $crate::__select!(@bad)
    };

    (@other $t:tt $cases:tt [] $otherwise:tt $body:expr $(, $($rest:tt)*)?) => {
        $crate::__select!(@arm $t $cases [$otherwise ($body)] $($($rest)*)?)
    };
    (@other $t:tt $cases:tt [] $otherwise:tt $body:block $($rest:tt)*) => {
        $crate::__select!(@arm $t $cases [$otherwise ($body)] $($rest)*)
    };
    (@other $t:tt $cases:tt $other:tt $otherwise:tt $($rest:tt)*) => {
        compile_error!("select! has at most one `after` or `default`")
    };

    (@all $t:tt $cases:tt []) => {
        $crate::__select!(@all $t $cases [
            ($crate::__private::Ever) (unreachable!("a select ended without a case"))
        ])
    };
    (@all ($t:ident $order:expr)
        [$({
            $kind:ident $ends:tt $case:ident $wanted:ident $in_line:ident $result:ident
            $p:tt ($($guard:expr)?) ($body:expr)
        })*]
        [($otherwise:expr) ($other:expr)]) => {{
        let (_, $($result,)*) = {
            $($crate::__select!(@case $case $kind $ends);)*
            $(let $wanted = true $(&& $guard)?;)*
            let otherwise = $otherwise;
            // Which case is done: 1 for the first, 0 for none.
            let look_ready = [$($wanted && $crate::__private::Case::looks_ready(&$case)),*];
            let mut done = $crate::__private::attempt(
                $order,
                look_ready,
                |_chosen| {
                    let mut _case = 0_usize;
                    $(
                        _case += 1;
                        if _case == _chosen {
                            return $crate::__private::Case::attempt(&$case);
                        }
                    )*
                    false
                },
            );
            if done == 0 {
                let $t = ::core::pin::pin!($crate::__private::Selection::new());
                let $t = $t.into_ref();
                $(let $in_line = ::core::pin::pin!(
                    $crate::__private::Case::in_line(&$case, $t)
                );)*
                let lines = &[$($crate::__private::line($wanted, $in_line.into_ref())),*];
                done = $crate::__private::Otherwise::choose(otherwise, $order, $t, lines);
            }
            let mut _case = 0_usize;
            (done, $({
                _case += 1;
                $crate::__private::Case::result(&$case, _case == done)
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
    (@case $case:ident done ($context:expr $(,)?)) => {
        let context: &$crate::context::Context = &$context;
        let $case = $crate::__private::done_case(context);
    };
    (@case $case:ident join ($handle:expr $(,)?)) => {
        let handle: &mut $crate::go::JoinHandle<_> = &mut $handle;
        let $case = $crate::__private::join_case(handle);
    };
    (@case $case:ident join_next ($set:expr $(,)?)) => {
        let set: &mut $crate::sync::JoinSet<_> = &mut $set;
        let $case = $crate::__private::join_next_case(set);
    };
    (@case $case:ident acquire ($semaphore:expr, $n:expr $(,)?)) => {
        let semaphore: &$crate::sync::Semaphore = &$semaphore;
        let $case = $crate::__private::acquire_case(semaphore, $n);
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
             `done(context) -> over => …`, `join(handle) => …`, \
             `join_next(set) -> ended => …`, `acquire(semaphore, n) -> permit => …`, \
             `after(limit) => …` or `default => …`, all but the last two perhaps with `if condition` before the `=>`"
        )
    };
}

#[cfg(all(test, not(loom)))]
mod tests;
