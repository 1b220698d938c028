//! `ErrGroup`: several Gs for one task; the first error cancels the rest (Go: errgroup).
//!
//! Each G has the group's [`Context`]. One that gives an error, or panics, cancels it, and the
//! others end at their next wait under it. No G is killed.
#![forbid(unsafe_code)]

use super::{LockError, Mutex, Semaphore};
use crate::api::go::{Go, JoinError, JoinHandle};
use crate::wait::limit::Context;
use crate::wait::queue::IfUnwound;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// Gs that work on one task, and end together.
///
/// ```
/// use runnext::{prelude::*, sync::{ErrGroup, GroupError}};
/// let (_tx, rx) = chan::bounded::<u32>(1);
/// let mut group = ErrGroup::new(&Context::new());
/// group.go(move |context| rx.recv_until(context).map(drop).map_err(|_| "cancelled"));
/// group.go(|_| Err("the disk is full"));
/// assert_eq!(group.wait(), Err(GroupError::Failed("the disk is full")));
/// ```
pub struct ErrGroup<E> {
    context: Context,
    first: Arc<Mutex<Option<E>>>,
    places: Option<Arc<Semaphore>>,
    gs: Vec<JoinHandle<()>>,
}

/// Why a group has failed.
#[derive(Debug, PartialEq, Eq)]
pub enum GroupError<E> {
    /// The first error that one of its Gs gave.
    Failed(E),
    /// None of them gave one, but one panicked or was killed.
    Ended(JoinError),
}

impl<E: fmt::Display> fmt::Display for GroupError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupError::Failed(error) => error.fmt(f),
            GroupError::Ended(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> core::error::Error for GroupError<E> {}

impl<E: Send + 'static> ErrGroup<E> {
    /// Without Gs; its context is a child of `parent`.
    #[must_use]
    pub fn new(parent: &Context) -> Self {
        let (context, first) = (parent.child(), Arc::new(Mutex::new(None)));
        ErrGroup { context, first, places: None, gs: Vec::new() }
    }

    /// Lets so many of its Gs run at a time (Go: SetLimit): [`go`](Self::go) waits for a place.
    #[must_use]
    pub fn with_limit(mut self, gs: usize) -> Self {
        self.places = Some(Arc::new(Semaphore::new(gs.max(1))));
        self
    }

    /// The context of the group: over when one G has failed, or all were waited for.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Starts `f` on a new G of the group.
    ///
    /// # Panics
    /// When there is no memory for a G.
    #[track_caller]
    pub fn go(&mut self, f: impl FnOnce(&Context) -> Result<(), E> + Send + 'static) {
        let place = self.places.as_ref().map(|places| places.permit_owned(1));
        let (context, first) = (self.context.clone(), self.first.clone());
        let started = Go::new().spawn(move || {
            let _place = place;
            let cancels = IfUnwound(|| context.cancel()); // by a panic or a kill as well
            match f(&context) {
                Ok(()) => core::mem::forget(cancels),
                Err(error) => {
                    let mut first = first.lock().unwrap_or_else(LockError::into_inner);
                    if first.is_none() {
                        *first = Some(error); // later ones mostly follow from it
                    }
                }
            }
        });
        self.gs.push(started.unwrap_or_else(|error| panic!("go: {error}")));
    }

    /// Waits for all of its Gs.
    ///
    /// # Errors
    /// [`GroupError`], if one of them failed.
    pub fn wait(mut self) -> Result<(), GroupError<E>> {
        let mut ended = None;
        for g in core::mem::take(&mut self.gs) {
            // One that was abandoned has cancelled nothing.
            ended = ended.or(g.join().inspect_err(|_| self.context.cancel()).err());
        }
        let failed = self.first.lock().unwrap_or_else(LockError::into_inner).take();
        match (failed, ended) {
            (Some(error), _) => Err(GroupError::Failed(error)),
            (None, Some(error)) => Err(GroupError::Ended(error)),
            (None, None) => Ok(()),
        }
    }
}

impl<E> Drop for ErrGroup<E> {
    /// Gs that were not waited for are cancelled.
    fn drop(&mut self) {
        self.context.cancel();
    }
}

impl<E> fmt::Debug for ErrGroup<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ErrGroup");
        shown.field("gs", &self.gs.len()).field("context", &self.context).finish_non_exhaustive()
    }
}
