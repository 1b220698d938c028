//! The case of a [`Semaphore`]: a place in its queue, which competes for the selection as those in
//! channels do.

use super::Selection;
use super::cases::Case;
use super::choose::Waiting;
use super::dynamic::Select;
use crate::wait::queue::Waiter;
use crate::wait::semaphore::{Permit, Semaphore, take_now};
use core::cell::Cell;
use core::pin::Pin;

/// `acquire(semaphore, n)`.
#[doc(hidden)]
pub struct AcquireCase<'a> {
    semaphore: &'a Semaphore,
    n: usize,
    permit: Cell<Option<Permit<'a>>>,
}

type InLine<'b, 'a> = Waiter<'b, usize, usize, 1, 0, &'b AcquireCase<'a>>;

#[doc(hidden)]
pub fn acquire_case(semaphore: &Semaphore, n: usize) -> AcquireCase<'_> {
    AcquireCase { semaphore, n, permit: Cell::new(None) }
}

impl AcquireCase<'_> {
    /// The permits are this G's.
    fn set_taken(&self) {
        self.permit.set(Some(self.semaphore.granted(self.n)));
    }
}

impl<'a> Case for AcquireCase<'a> {
    type Result = Permit<'a>;

    fn looks_ready(&self) -> bool {
        self.semaphore.available() >= self.n
    }

    fn attempt(&self) -> bool {
        let is_taken = take_now(&mut self.semaphore.free.lock(), self.n);
        if is_taken {
            self.set_taken();
        }
        is_taken
    }

    fn in_line<'b>(&'b self, selection: Pin<&'b Selection>) -> impl Waiting {
        InLine::new(&self.semaphore.free, selection, self)
    }

    fn result(&self, is_done: bool) -> Option<Permit<'a>> {
        if is_done { self.permit.take() } else { None }
    }
}

impl<'a, R> Select<'a, R> {
    /// Adds the arm `acquire(semaphore, n) -> permit => then(permit)`.
    pub fn acquire(
        &mut self,
        semaphore: &'a Semaphore,
        n: usize,
        then: impl FnOnce(Permit<'a>) -> R + 'a,
    ) -> &mut Self {
        self.add(acquire_case(semaphore, n), then)
    }
}

impl Waiting for InLine<'_, '_> {
    fn looks_ready(&self) -> bool {
        self.extra.looks_ready()
    }

    fn attempt(&self) -> bool {
        self.extra.attempt()
    }

    fn enlist(self: Pin<&Self>) -> bool {
        let n = self.extra.n;
        self.enlist_if(|free| !free.is_empty(0) || **free < n, n)
    }

    fn withdraw(self: Pin<&Self>) -> bool {
        let was_enlisted = self.is_enlisted();
        let is_won = Waiter::withdraw(&self);
        if is_won {
            self.extra.set_taken();
        } else if was_enlisted {
            // As after a timeout: it may have been first, and wanted more than the next does.
            self.extra.semaphore.serve();
        }
        is_won
    }
}
