//! The page-table entry of a stack's page, while it is packed and when it is: the states at the
//! head of `pack`. The model `loom_pack` compiles this very file.

use super::blocks::Block;
use super::sys::{AtomicU64, present_entry};
use core::sync::atomic::Ordering::{AcqRel, Acquire};

const PRESENT: u64 = 1;
/// Of an entry that is not present, which the CPU ignores otherwise.
const MOVING: u64 = 1 << 1;
const PACKED: u64 = 1 << 2;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// A block is aligned to 16 bytes, and so is its length, which is in the bits above its address.
const BLOCK: u64 = 0x000f_ffff_ffff_fff0;
const LENGTH_SHIFT: u32 = 52;

pub struct Entry<'a>(&'a AtomicU64);

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Moving,
    Packed(Block),
    /// With this frame.
    Present(u64),
    Nothing,
}

impl<'a> Entry<'a> {
    pub fn new(word: &'a AtomicU64) -> Self {
        Entry(word)
    }

    pub fn found(&self) -> Found {
        let now = self.0.load(Acquire); // pairs with `pack`
        match now & (PRESENT | MOVING | PACKED) {
            MOVING => Found::Moving,
            PACKED => {
                Found::Packed(Block { at: now & BLOCK, bytes: (now >> LENGTH_SHIFT) as usize * 16 })
            }
            0 => Found::Nothing,
            _ => Found::Present(now & ADDRESS),
        }
    }

    /// Step 1: PRESENT → MOVING. The packer only. Its frame.
    pub fn unmap(&self) -> Option<u64> {
        let mut now = self.0.load(Acquire);
        while now & PRESENT != 0 {
            // The CPU itself may write to a present entry: accessed, dirty.
            match self.0.compare_exchange(now, now & ADDRESS | MOVING, AcqRel, Acquire) {
                Ok(_) => return Some(now & ADDRESS),
                Err(other) => now = other,
            }
        }
        None
    }

    /// A touch: MOVING → PRESENT.
    pub fn take_back(&self) -> bool {
        let now = self.0.load(Acquire);
        now & (PRESENT | MOVING) == MOVING && self.change(now, present_entry(now & ADDRESS))
    }

    /// Step 4: MOVING → PACKED. The packer only; the frame was copied to the block.
    pub fn pack(&self, frame: u64, block: Block) -> bool {
        let length = (block.bytes / 16) as u64;
        self.change(frame | MOVING, block.at | length << LENGTH_SHIFT | PACKED)
    }

    /// Step 4 of a page that holds nothing: MOVING → 0. The packer only.
    pub fn drop_frame(&self, frame: u64) -> bool {
        self.change(frame | MOVING, 0)
    }

    /// A touch: PACKED → PRESENT; the block was copied to the frame.
    pub fn unpack(&self, block: Block, frame: u64) -> bool {
        let length = (block.bytes / 16) as u64;
        self.change(block.at | length << LENGTH_SHIFT | PACKED, present_entry(frame))
    }

    /// Whether it is still PACKED with that block, so that what was read of the block was its own.
    pub fn is_still(&self, block: Block) -> bool {
        let length = (block.bytes / 16) as u64;
        let now = block.at | length << LENGTH_SHIFT | PACKED;
        self.change(now, now) // not a load, which might come before the reading
    }

    /// Release: the copy that was made before, for the next touch.
    fn change(&self, from: u64, to: u64) -> bool {
        self.0.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }
}
