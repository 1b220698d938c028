//! The canary: words between the first frame of a stack and its record.
//!
//! Below a stack is a guard, and a write there is a fault at that instant. Above it is
//! the record of its G, or the header of the slot, and a write that runs over the top,
//! or a stray one, changes these and is felt much later, elsewhere. So the highest words
//! of a stack are nobody's: written when its top page gets memory, which that keeps for
//! ever, and never again. Whoever finds them changed knows that somebody was there.
//!
//! In builds with `debug_assertions` only: in others they take no room
//! ([`CANARY_BYTES`]), and nothing is written or read.

use super::slot::{CANARY_BYTES, Slot};

/// What the words are, but for their address: so that one is not taken for another.
const SONG: u64 = 0xca7a_71e5_b1bd_5a1e;

/// Writes the canary of the slot that this page, which has just got memory, is the top
/// page of.
///
/// # Safety
/// The page is the caller's, and can be written.
pub(super) unsafe fn place(slot: Slot, page: u64) {
    if CANARY_BYTES == 0 || page != slot.page_from_top(0) {
        return;
    }
    for at in words(slot) {
        let word = core::ptr::with_exposed_provenance_mut::<u64>(at as usize);
        // SAFETY: aligned, in that page, and below the record, which nobody has seen.
        unsafe { word.write(SONG ^ at) };
    }
}

/// Whether the canary of a slot that was made is as it was placed.
pub fn is_whole(slot: Slot) -> bool {
    words(slot).all(|at| {
        let word = core::ptr::with_exposed_provenance::<u64>(at as usize);
        // SAFETY: aligned, in the top page of the slot, which is there for ever. Nobody
        // writes it; who does is what we look for, and a word is read in one piece.
        unsafe { word.read_volatile() == SONG ^ at }
    })
}

fn words(slot: Slot) -> impl Iterator<Item = u64> {
    (slot.start()..slot.top()).step_by(size_of::<u64>())
}
