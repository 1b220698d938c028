//! How a G waits for several cases: see `mod.rs`.

use super::Selection;
use crate::run::door;
use crate::wait::limit::Limit;
use crate::wait::queue::IfUnwound;
use core::pin::Pin;

/// A case that may have to wait, in the frame of the G that selects. A program cannot name it:
/// between `begin` and `wait` of a selection no code of a program may run.
pub trait Waiting {
    /// Whether it seems possible, without a lock.
    fn looks_ready(&self) -> bool;
    /// Does it, if it is possible at once.
    fn attempt(&self) -> bool;
    /// Goes to the end of the line, unless the case is possible at once; or has a limit, and the
    /// selection is not a [limited](Selection::begin_limited) one.
    fn enlist(self: Pin<&Self>) -> bool;
    /// Leaves the line; whether the case was done meanwhile.
    fn withdraw(self: Pin<&Self>) -> bool;
    /// What may make it possible without a node in a line: the clock, the end of a context, or a
    /// G that readies this one by its handle (then the limit is the end of time).
    fn limit(&self) -> Option<Limit<'_>> {
        None
    }
}

/// A case in its place in the line, of whatever kind.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Line<'a>(pub(super) Pin<&'a dyn Waiting>);

/// The line of a case; if it is not `wanted`, one that is never ready.
#[doc(hidden)]
#[inline(always)]
pub fn line<'a>(wanted: bool, place: Pin<&'a (impl Waiting + 'a)>) -> Line<'a> {
    if !wanted {
        let unwanted: Pin<&Unwanted> = Pin::new(&Unwanted);
        return Line(unwanted);
    }
    Line(place)
}

/// An arm whose guard is false.
struct Unwanted;

impl Waiting for Unwanted {
    fn looks_ready(&self) -> bool {
        false
    }
    fn attempt(&self) -> bool {
        false
    }
    fn enlist(self: Pin<&Self>) -> bool {
        true
    }
    fn withdraw(self: Pin<&Self>) -> bool {
        false
    }
}

/// Which of several cases that are possible at once is done.
#[doc(hidden)]
pub trait Order {
    /// The first as written.
    const IN_ORDER: bool;
}

/// Any, each with the same chance.
#[doc(hidden)]
pub struct AnyOrder;

/// The first: `biased;`.
#[doc(hidden)]
pub struct InOrder;

impl Order for AnyOrder {
    const IN_ORDER: bool = false;
}

impl Order for InOrder {
    const IN_ORDER: bool = true;
}

/// What to do when no case is possible. A type for each, so that a wait for ever passes no time
/// along.
#[doc(hidden)]
pub trait Otherwise: Sized {
    /// Waits so for one of the cases and does it; its number, or 0 if none was possible in time.
    fn choose<O: Order>(self, order: O, on: Pin<&Selection>, lines: &[Line<'_>]) -> usize;
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
    fn choose<O: Order>(self, _: O, selection: Pin<&Selection>, lines: &[Line<'_>]) -> usize {
        if O::IN_ORDER {
            return choose_limited(selection, lines, None, true);
        }
        choose(selection, lines, None)
    }
}

impl Otherwise for Until<'_> {
    fn choose<O: Order>(self, _: O, selection: Pin<&Selection>, lines: &[Line<'_>]) -> usize {
        self.0.during(|deadline_ns| match O::IN_ORDER {
            true => choose_limited(selection, lines, Some(deadline_ns), true),
            false => choose(selection, lines, Some(deadline_ns)),
        })
    }
}

impl Otherwise for AtOnce {
    /// None looked ready: makes sure, so that `default` means what it says.
    fn choose<O: Order>(self, _: O, _: Pin<&Selection>, lines: &[Line<'_>]) -> usize {
        let done = lines.iter().position(|line| line.0.attempt());
        if done.is_none() {
            door::check_kill();
        }
        done.map_or(0, |i| i + 1)
    }
}

/// The cases that one word has a bit for.
const BITS: usize = u64::BITS as usize;

/// Does one of the cases that look ready, each with the same chance or the first, by `attempt`;
/// returns its number, beginning with 1, or 0 if none was ready, or other Gs were faster.
#[doc(hidden)]
#[inline(always)]
pub fn attempt<O: Order, const N: usize>(
    _: O,
    look_ready: [bool; N],
    attempt: impl Fn(usize) -> bool,
) -> usize {
    const { assert!(N <= BITS, "select! with more than 64 arms") };
    attempt_any::<O>(bits(look_ready.into_iter()), attempt)
}

#[inline(always)]
fn bits(look_ready: impl Iterator<Item = bool>) -> u64 {
    look_ready.enumerate().fold(0, |set, (i, is_ready)| set | u64::from(is_ready) << i)
}

#[inline(always)]
fn attempt_any<O: Order>(mut set: u64, attempt: impl Fn(usize) -> bool) -> usize {
    while set != 0 {
        let is_first = O::IN_ORDER || set.is_power_of_two();
        let i = if is_first { set.trailing_zeros() as usize } else { pick(set) };
        if attempt(i + 1) {
            return i + 1;
        }
        set &= !(1 << i);
    }
    0
}

/// As [`attempt`], for any number of cases: 64 at a time, beginning anywhere.
pub(super) fn attempt_lines(lines: &[Line<'_>], in_order: bool) -> usize {
    let chunks = lines.len().div_ceil(BITS);
    let first = if in_order || chunks < 2 { 0 } else { below(door::random(), chunks) };
    for chunk in (first..chunks).chain(0..first) {
        let lines = lines.chunks(BITS).nth(chunk).unwrap_or_default();
        let set = bits(lines.iter().map(|line| line.0.looks_ready()));
        let attempt = |case: usize| lines.get(case - 1).is_some_and(|line| line.0.attempt());
        let done = match in_order {
            true => attempt_any::<InOrder>(set, attempt),
            false => attempt_any::<AnyOrder>(set, attempt),
        };
        if done != 0 {
            return chunk * BITS + done;
        }
    }
    0
}

/// Waits for one of the cases and does it; its number, or 0 if none was possible in time.
#[inline(never)]
pub(super) fn choose(
    selection: Pin<&Selection>,
    lines: &[Line<'_>],
    deadline_ns: Option<u64>,
) -> usize {
    door::might_park();
    let mut first = 0;
    loop {
        // A G that is killed unwinds from `wait`; a hand-made call with a line of another
        // selection, from `enlist`; and one with a full stack from anywhere. No place may stay in
        // a line, not even a leaked one.
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
        let mut is_late = false;
        if all_enlisted {
            is_late = !selection.wait(deadline_ns);
        } else {
            selection.call_off();
        }
        let won = withdraw_all(lines);
        core::mem::forget(if_unwound);
        if won != 0 || is_late {
            return won; // 0: the time is up
        }
        // Refused, or a timer was set anew.
        if lines.iter().any(|line| line.0.limit().is_some()) {
            return choose_limited(selection, lines, deadline_ns, false);
        }
        let done = attempt_lines(lines, false);
        if done != 0 {
            return done;
        }
        first = below(door::random(), lines.len());
    }
}

/// As [`choose`], in the general case: some of the cases are limited, or they have an order, or
/// there are more than 64. Here every wake-up is a reason to look at all of them again.
#[cold]
#[inline(never)]
pub(super) fn choose_limited(
    selection: Pin<&Selection>,
    lines: &[Line<'_>],
    deadline_ns: Option<u64>,
    in_order: bool,
) -> usize {
    door::might_park();
    let mut done = 0;
    under_contexts(lines, &mut || {
        done = loop {
            // Before the attempts: the context that has ended the limit may be a case.
            let is_past = |ns| ns <= door::now_ns();
            let is_late = deadline_ns.is_some_and(is_past) || door::is_limit_over();
            let now_done = attempt_lines(lines, in_order);
            if now_done != 0 || is_late {
                break now_done;
            }
            let won = wait_once(selection, lines, deadline_ns);
            if won != 0 {
                break won;
            }
        }
    });
    done
}

/// Calls `wait` with this G in the queues of all contexts that are cases.
fn under_contexts(lines: &[Line<'_>], wait: &mut dyn FnMut()) {
    let context = |line: &Line<'_>| matches!(line.0.limit(), Some(Limit::Context(_)));
    let Some(i) = lines.iter().position(context) else { return wait() };
    if let Some(limit) = lines[i].0.limit() {
        limit.during(|_| under_contexts(&lines[i + 1..], wait));
    }
}

/// Waits until one of the cases was done, and returns its number; or until one may be possible, or
/// the deadline has come: then 0.
fn wait_once(selection: Pin<&Selection>, lines: &[Line<'_>], deadline_ns: Option<u64>) -> usize {
    // As in `choose`.
    let if_unwound = IfUnwound(|| _ = withdraw_all(lines));
    selection.begin_limited();
    let if_refused = IfUnwound(|| {
        selection.call_off();
    });
    let all_enlisted = lines.iter().all(|line| line.0.enlist());
    // After it was enlisted: a timer that is set anew from here on wakes this G.
    let latest = lines.iter().filter_map(|line| line.0.limit()).map(Limit::latest).min();
    // As in `sleep_until`: on the CPU that the G wakes up on the time has come, too.
    let latest_ns = latest.map(|at| at.as_nanos().saturating_add(door::clock_uncertainty_ns()));
    let deadline_ns = latest_ns.into_iter().chain(deadline_ns).min();
    core::mem::forget(if_refused);
    if all_enlisted {
        selection.wait_once(deadline_ns);
    } else {
        selection.call_off();
    }
    let won = withdraw_all(lines);
    core::mem::forget(if_unwound);
    won
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
