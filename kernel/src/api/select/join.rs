//! The cases of a [`JoinHandle`] and of a [`JoinSet`]: the G that ends readies the one that selects.
//! The result stays where it is, so nothing is lost with an arm that is not chosen.

use super::Selection;
use super::cases::{Beside, ByHandle, Case};
use super::choose::Waiting;
use super::dynamic::Select;
use crate::api::go::{JoinError, JoinHandle};
use crate::api::sync::JoinSet;
use crate::run::door;
use core::cell::RefCell;
use core::pin::Pin;

/// `join(handle)`.
#[doc(hidden)]
pub struct JoinCase<'a, T>(RefCell<&'a mut JoinHandle<T>>);

#[doc(hidden)]
pub fn join_case<T>(handle: &mut JoinHandle<T>) -> JoinCase<'_, T> {
    JoinCase(RefCell::new(handle))
}

impl<T> Case for JoinCase<'_, T> {
    type Result = ();

    fn looks_ready(&self) -> bool {
        self.0.borrow().is_finished()
    }

    fn attempt(&self) -> bool {
        self.looks_ready()
    }

    fn in_line<'b>(&'b self, selection: Pin<&'b Selection>) -> impl Waiting {
        ByHandle { case: self, selection }
    }

    fn result(&self, is_done: bool) -> Option<()> {
        is_done.then_some(())
    }
}

impl<T> Beside for JoinCase<'_, T> {
    fn enter(&self) -> bool {
        self.0.borrow_mut().joiner().enlist(door::this())
    }

    fn leave(&self) {
        self.0.borrow_mut().joiner().withdraw();
    }
}

/// `join_next(set)`.
#[doc(hidden)]
pub struct JoinNextCase<'a, T>(RefCell<&'a mut JoinSet<T>>);

#[doc(hidden)]
pub fn join_next_case<T>(set: &mut JoinSet<T>) -> JoinNextCase<'_, T> {
    JoinNextCase(RefCell::new(set))
}

impl<T: Send + 'static> Case for JoinNextCase<'_, T> {
    type Result = Option<Result<T, JoinError>>;

    fn looks_ready(&self) -> bool {
        self.0.borrow().is_ready()
    }

    fn attempt(&self) -> bool {
        self.looks_ready()
    }

    fn in_line<'b>(&'b self, selection: Pin<&'b Selection>) -> impl Waiting {
        ByHandle { case: self, selection }
    }

    fn result(&self, is_done: bool) -> Option<Option<Result<T, JoinError>>> {
        is_done.then(|| self.0.borrow_mut().try_join_next())
    }
}

impl<T: Send + 'static> Beside for JoinNextCase<'_, T> {
    fn enter(&self) -> bool {
        self.0.borrow().ended().enlist(door::this())
    }

    fn leave(&self) {
        self.0.borrow().ended().withdraw();
    }
}

impl<'a, R> Select<'a, R> {
    /// Adds the arm `join_next(set) -> ended => then(ended)`.
    pub fn join_next<T: Send + 'static>(
        &mut self,
        set: &'a mut JoinSet<T>,
        then: impl FnOnce(Option<Result<T, JoinError>>) -> R + 'a,
    ) -> &mut Self {
        self.add(join_next_case(set), then)
    }

    /// Adds the arm `join(handle) => then()`.
    pub fn join<T>(
        &mut self,
        handle: &'a mut JoinHandle<T>,
        then: impl FnOnce() -> R + 'a,
    ) -> &mut Self {
        self.add(join_case(handle), |()| then())
    }
}
