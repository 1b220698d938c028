//! All Gs that there ever were: a list that only grows, as records are never freed.

use super::G_SLOT;
use super::Registry;
use super::name;
use super::task::Task;
use crate::arch;
use core::sync::atomic::Ordering::Relaxed;
use sched::G;

pub(crate) static ALL: Registry<G<Task>> = Registry::new();

/// Registers a new G, which has not run yet.
pub(crate) fn add(g: &'static G<Task>) {
    g.kernel.name.store(name::name_of(g), Relaxed);
    ALL.add(g);
}

/// The CPU that runs `g`.
pub(crate) fn cpu_of(g: &'static G<Task>) -> Option<usize> {
    let address = core::ptr::from_ref(g).addr();
    (0..arch::num_cpus()).find(|&cpu| arch::slot_of::<G_SLOT>(cpu) == address)
}
