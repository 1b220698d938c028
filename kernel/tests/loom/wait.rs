//! The kernel's `wait`, its own files, on a `sys` that loom watches: see `run.rs`.

#[path = "../../src/wait/held.rs"]
pub(crate) mod held;
#[path = "../../src/wait/limit.rs"]
pub mod limit;
#[path = "../../src/wait/mutex.rs"]
pub(crate) mod mutex;
#[path = "../../src/wait/poison.rs"]
pub(crate) mod poison;
#[path = "../../src/wait/queue/mod.rs"]
pub mod queue;
#[path = "../../src/wait/ring.rs"]
pub mod ring;
#[path = "../../src/wait/rwlock.rs"]
pub(crate) mod rwlock;
#[path = "../../src/wait/semaphore.rs"]
pub mod semaphore;
#[path = "../../src/wait/upgrade.rs"]
pub(crate) mod upgrade;

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
