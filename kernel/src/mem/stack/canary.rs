//! The canary: words between the first frame of a stack and its record.
//!
//! Below a stack is a guard, and a write there faults at once. Above it is the record of
//! its G, or the header of the slot; a write that runs over the top, or a stray one,
//! corrupts these and is noticed much later, elsewhere. So the highest words of a stack
//! have no user: they are written when its top page is committed, for ever, and never
//! again. If they have changed, there was a stray write.
//!
//! In builds with `debug_assertions` only: in others they take no room ([`CANARY_BYTES`]),
//! and are neither written nor read.

use super::slot::{CANARY_BYTES, Slot};

/// The value of the words before the XOR with their address, so that no two words are
/// equal.
const SONG: u64 = 0xca7a_71e5_b1bd_5a1e;

/// Writes the canary of the slot if this page, which was just committed, is its top page.
///
/// # Safety
/// The caller owns the page, and it can be written.
pub(super) unsafe fn place(slot: Slot, page: u64) {
    if CANARY_BYTES == 0 || page != slot.page_from_top(0) {
        return;
    }
    for at in words(slot) {
        let word = core::ptr::with_exposed_provenance_mut::<u64>(at as usize);
        // SAFETY: aligned, in that page, and below the record, which is not used yet.
        unsafe { word.write(SONG ^ at) };
    }
}

/// Whether the canary of a slot that was made is unchanged.
pub fn is_whole(slot: Slot) -> bool {
    words(slot).all(|at| {
        let word = core::ptr::with_exposed_provenance::<u64>(at as usize);
        // SAFETY: aligned, in the top page of the slot, which is never unmapped. No correct
        // code writes it; a stray write is what this detects, and a word is read in one
        // access.
        unsafe { word.read_volatile() == SONG ^ at }
    })
}

fn words(slot: Slot) -> impl Iterator<Item = u64> {
    (slot.start()..slot.top()).step_by(size_of::<u64>())
}
