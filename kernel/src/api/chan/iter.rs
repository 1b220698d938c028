//! Receiving in a loop: `for value in rx`.

use super::Receiver;
use core::iter::FusedIterator;

/// Receives until the channel is closed and empty: see [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T> {
    pub(super) receiver: &'a Receiver<T>,
}

/// Receives what is there: see [`Receiver::try_iter`].
#[derive(Debug)]
pub struct TryIter<'a, T> {
    pub(super) receiver: &'a Receiver<T>,
}

/// Receives until the channel is closed and empty; owns its receiver.
#[derive(Debug)]
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

macro_rules! iterate_by {
    ($recv:ident: $iter:ty) => {
        impl<T: Send> Iterator for $iter {
            type Item = T;
            #[inline(always)]
            fn next(&mut self) -> Option<T> {
                self.receiver.$recv().ok()
            }
        }
    };
}

iterate_by!(recv: Iter<'_, T>);
iterate_by!(try_recv: TryIter<'_, T>);
iterate_by!(recv: IntoIter<T>);
impl<T: Send> FusedIterator for Iter<'_, T> {}
impl<T: Send> FusedIterator for IntoIter<T> {}

impl<'a, T: Send> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T: Send> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;
    fn into_iter(self) -> IntoIter<T> {
        IntoIter { receiver: self }
    }
}
