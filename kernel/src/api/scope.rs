//! Gs that borrow: scopes, fork and join, loops over slices in parallel.
//!
//! Gs that are started in a [`scope`] have ended when it returns, so they may borrow what is older
//! than it (std: `thread::scope`). [`join`] runs two closures at once and returns both results;
//! [`par_for_each`] and [`par_chunks`] divide a slice that way.
//!
//! What makes it sound, however a G ends, is in `run::scope`.
//!
//! # Why `join` starts a G
//!
//! In rayon, which has a fixed number of threads, `join` puts a closure where another thread may
//! steal it, and runs it itself if none did. Here it is a G of a scope, which may be stolen like
//! any other, and the caller waits for it: it is this P's run-next G, so the caller's CPU goes to
//! it in one switch. To run it in place, the caller would have to take the G back out of a queue
//! that other Ps steal from, or claim its job by a second word that each start of a G would have to
//! check; and the G with its stack was made by then, which is the larger part of what a `join`
//! costs (`forkjoin_join`, docs/benchmarks.md). So it is worth it for closures that take longer
//! than a start of a G; the loops over slices divide only so far.
#![forbid(unsafe_code)]

pub use crate::run::scope::Scope;

use super::go::{Go, JoinError, SpawnError, seen};
use crate::run::scope::{self as run_scope, Ended};
use crate::run::{Joiner, door};
use crate::wait::limit::Limit;
use core::marker::PhantomData;

/// Runs `f`, which may start Gs that borrow, and returns when all of them have ended (std:
/// `thread::scope`).
///
/// # Panics
/// With the panic of `f`; or with that of a G whose handle was not joined.
///
/// ```
/// use runnext::prelude::*;
/// let mut numbers = vec![1, 2, 3, 4];
/// let (low, high) = numbers.split_at_mut(2);
/// let sum = scope(|s| {
///     let doubled = s.go(|| low.iter_mut().map(|n| { *n *= 2; *n }).sum::<u32>());
///     high.iter().sum::<u32>() + doubled.join().unwrap()
/// });
/// assert_eq!(sum, 2 + 4 + 3 + 4);
/// numbers.push(5); // the borrows are over
/// ```
pub fn scope<'env, T, F>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    run_scope::scope(f)
}

impl<'scope> Scope<'scope, '_> {
    /// Starts `f` on a new G, which may borrow what is older than the scope. A G of the scope can
    /// start others, too.
    ///
    /// # Panics
    /// When there is no memory for a G; [`spawn`](Self::spawn) gives an error instead.
    ///
    /// ```
    /// use runnext::prelude::*;
    /// use runnext::sync::Mutex;
    /// let total = Mutex::new(0);
    /// scope(|s| {
    ///     s.go(|| {
    ///         *total.lock().unwrap() += 1;
    ///         s.go(|| *total.lock().unwrap() += 1);
    ///     });
    /// });
    /// assert_eq!(total.into_inner().unwrap(), 2);
    /// ```
    #[track_caller]
    pub fn go<T, F>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        T: Send + 'scope,
        F: FnOnce() -> T + Send + 'scope,
    {
        self.spawn(Go::new(), f).unwrap_or_else(|error| panic!("go: {error}"))
    }

    /// As [`go`](Self::go), with options. After an error nothing has been started, and `f` was
    /// dropped.
    ///
    /// ```
    /// use runnext::prelude::*;
    /// let word = String::from("borrowed");
    /// let length = scope(|s| s.spawn(Go::new().name("worker"), || word.len())?.join().ok().ok_or(
    ///     runnext::go::SpawnError::NoMemory,
    /// ));
    /// assert_eq!(length, Ok(8));
    /// ```
    #[track_caller]
    pub fn spawn<T, F>(
        &'scope self,
        options: Go,
        f: F,
    ) -> Result<ScopedJoinHandle<'scope, T>, SpawnError>
    where
        T: Send + 'scope,
        F: FnOnce() -> T + Send + 'scope,
    {
        let joiner = self.start(options.here(), f)?;
        Ok(ScopedJoinHandle { joiner, scope: PhantomData })
    }
}

/// Waits for the result of a G of a scope. Dropped, the result is dropped, and if the G panics, so
/// does the scope.
pub struct ScopedJoinHandle<'scope, T> {
    joiner: Joiner<Ended<T>>,
    scope: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits until the G has ended; an error if it did not return. Blocks this G only, no CPU.
    pub fn join(self) -> Result<T, JoinError> {
        door::might_park();
        seen(self.joiner.join().into_result())
    }

    /// As [`join`](Self::join), until `limit` at most: then it gives the handle back.
    ///
    /// ```
    /// use runnext::prelude::*;
    /// let (tx, rx) = chan::rendezvous::<u32>();
    /// scope(|s| {
    ///     let worker = s.go(|| rx.recv());
    ///     let worker = worker.join_until(Duration::from_millis(1)).err().expect("it waits");
    ///     assert!(!worker.is_finished());
    ///     tx.send(7).unwrap();
    ///     assert_eq!(worker.join(), Ok(Ok(7)));
    /// });
    /// ```
    pub fn join_until<'l>(self, limit: impl Into<Limit<'l>>) -> Result<Result<T, JoinError>, Self> {
        door::might_park();
        let joined = limit.into().during(|deadline_ns| self.joiner.join_by(deadline_ns));
        joined
            .map(|ended| seen(ended.into_result()))
            .map_err(|joiner| ScopedJoinHandle { joiner, scope: PhantomData })
    }

    /// Whether the G has its result: `join` does not wait.
    pub fn is_finished(&self) -> bool {
        self.joiner.is_done()
    }
}

/// Runs `a` and, on a G of its own, `b`; returns both results when both have ended (rayon: `join`).
///
/// # Panics
/// With the panic of `a`, or else of `b`, when both have ended.
///
/// ```
/// use runnext::prelude::*;
/// fn sum(numbers: &[u64]) -> u64 {
///     if numbers.len() <= 1_000 {
///         return numbers.iter().sum();
///     }
///     let (low, high) = numbers.split_at(numbers.len() / 2);
///     let (low, high) = runnext::scope::join(|| sum(low), || sum(high));
///     low + high
/// }
/// let numbers: Vec<u64> = (0..10_000).collect();
/// assert_eq!(sum(&numbers), 49_995_000);
/// ```
#[track_caller]
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB + Send,
    RB: Send,
{
    scope(|s| {
        let b = s.go(b);
        let a = a();
        match b.join() {
            Ok(b) => (a, b),
            Err(why) => run_scope::fail(why),
        }
    })
}

/// Parts of a slice for each P, so that one that is done early takes from another.
const PARTS: usize = 4;

/// Calls `f` once for each element, on as many Gs as it takes to keep all Ps busy.
///
/// ```
/// use runnext::prelude::*;
/// let mut numbers: Vec<u64> = (0..10_000).collect();
/// runnext::scope::par_for_each(&mut numbers, |n| *n *= *n);
/// assert_eq!(numbers[99], 9_801);
/// ```
#[track_caller]
pub fn par_for_each<T, F>(slice: &mut [T], f: F)
where
    T: Send,
    F: Fn(&mut T) + Sync,
{
    let size = slice.len().div_ceil(crate::gomaxprocs() * PARTS).max(1);
    par_chunks(slice, size, |_, chunk| chunk.iter_mut().for_each(&f));
}

/// Calls `f` once for each chunk of `size` elements, of which the last may have fewer, with the
/// index of its first element: each chunk on a G of its own, by [`join`].
///
/// # Panics
/// If `size` is 0; and with the panic of a call, when all others have ended.
///
/// ```
/// use runnext::prelude::*;
/// let mut squares = [0; 100];
/// runnext::scope::par_chunks(&mut squares, 7, |first, chunk| {
///     chunk.iter_mut().enumerate().for_each(|(i, square)| *square = (first + i) * (first + i));
/// });
/// assert_eq!(squares[99], 9_801);
/// ```
#[track_caller]
pub fn par_chunks<T, F>(slice: &mut [T], size: usize, f: F)
where
    T: Send,
    F: Fn(usize, &mut [T]) + Sync,
{
    assert!(size > 0, "chunks of no element");
    divide(0, slice, size, &f);
}

#[track_caller]
fn divide<T, F>(first: usize, slice: &mut [T], size: usize, f: &F)
where
    T: Send,
    F: Fn(usize, &mut [T]) + Sync,
{
    let chunks = slice.len().div_ceil(size);
    if chunks <= 1 {
        if chunks == 1 {
            f(first, slice);
        }
        return;
    }
    let middle = chunks / 2 * size;
    let (low, high) = slice.split_at_mut(middle);
    join(|| divide(first, low, size, f), || divide(first + middle, high, size, f));
}

#[cfg(test)]
mod tests;
