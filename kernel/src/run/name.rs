//! The names of Gs in lock words, and the G behind such a name.
//!
//! What a name is made of, and why it has an epoch, is in `wait::held`.

use super::running_or_none;
use super::task::Task;
use core::sync::atomic::Ordering::Relaxed;
use sched::G;

/// The name for every lock holder that is not a G.
pub(crate) const NOBODY: u64 = 1 << 5;
/// The distance between two epochs.
pub(crate) const EPOCH: u64 = 1 << 48;
/// The record's bits of a name; all higher bits of its address are set.
const RECORD: u64 = EPOCH - 64;

/// Whether no name is, or will be, that word.
pub(crate) const fn is_no_name(word: u64) -> bool {
    word & RECORD == 0 && word != NOBODY
}

/// The first name of a new G.
pub(crate) fn name_of(g: &'static G<Task>) -> u64 {
    core::ptr::from_ref(g).expose_provenance() as u64 & RECORD
}

/// The name of the running G, for lock words; [`NOBODY`] if no G runs.
#[inline(always)]
pub fn me() -> u64 {
    running_or_none().kernel.name.load(Relaxed)
}

/// Whether the G of that name has ended without unwinding.
///
/// # Safety
/// It is 0, or a name that [`me`] gave.
#[inline]
pub unsafe fn is_gone(name: u64) -> bool {
    // SAFETY: the caller's promise.
    let now = unsafe { record(name) }.map_or(name, |g| g.kernel.name.load(Relaxed));
    now / EPOCH != name / EPOCH
}

/// The G of that name.
///
/// # Safety
/// As for [`is_gone`].
pub(crate) unsafe fn record(name: u64) -> Option<&'static G<Task>> {
    let address = (name & RECORD != 0).then_some(name | !(EPOCH - 1))? & !63;
    // SAFETY: the address of a G, which was exposed when it got its name, and Gs
    // live for ever.
    Some(unsafe { &*core::ptr::with_exposed_provenance(address as usize) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_no_g_is_never_gone() {
        for name in [0, NOBODY] {
            // SAFETY: these names belong to no G.
            assert!(!unsafe { is_gone(name) });
        }
    }
}
