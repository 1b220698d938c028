//! The kernel's `cell`, its own files, on a [`sys`] that loom watches.
//!
//! The kernel itself cannot be built under loom (its statics want constant
//! atomics). So each model takes the sources that it is about as they are, and
//! finds the rest of the kernel here and in `park`, by the same names.

#[path = "../../src/cell/held.rs"]
pub(crate) mod held;
#[path = "../../src/cell/job.rs"]
pub mod job;
#[path = "../../src/cell/label.rs"]
pub mod label;
#[path = "../../src/cell/link.rs"]
mod link;
#[path = "../../src/cell/mutex.rs"]
pub(crate) mod mutex;
#[path = "../../src/cell/permit.rs"]
pub(crate) mod permit;
#[path = "../../src/cell/registry.rs"]
pub mod registry;
#[path = "../../src/cell/ring.rs"]
pub mod ring;
#[path = "../../src/cell/rwlock.rs"]
pub(crate) mod rwlock;
pub(crate) mod sys;
#[path = "../../src/cell/wait/mod.rs"]
pub mod wait;

pub use link::Link;

/// Ownership is not what is modelled here.
pub struct Shared<T>(std::sync::Arc<T>);

impl<T> Shared<T> {
    pub fn try_new(value: T) -> Result<Self, T> {
        Ok(Shared(std::sync::Arc::new(value)))
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<T> core::ops::Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
