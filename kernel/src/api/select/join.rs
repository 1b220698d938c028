//! The case of a [`JoinHandle`]: the G that ends readies the one that selects. The result stays
//! where it is, so nothing is lost with an arm that is not chosen.

use super::Selection;
use super::cases::{Beside, ByHandle, Case};
use super::choose::Waiting;
use super::dynamic::Select;
use crate::api::go::JoinHandle;
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

impl<'a, R> Select<'a, R> {
    /// Adds the arm `join(handle) => then()`.
    pub fn join<T>(
        &mut self,
        handle: &'a mut JoinHandle<T>,
        then: impl FnOnce() -> R + 'a,
    ) -> &mut Self {
        self.add(join_case(handle), |()| then())
    }
}
