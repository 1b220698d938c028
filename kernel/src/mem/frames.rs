//! Physical memory, a page at a time: one bitmap, without a lock.
//!
//! A bit says whether its frame is free. Allocating first takes one from the *count* of free
//! frames, and fails if too few are left; then it clears a bit. The count is never larger than the
//! number of bits that are set and not claimed, so there is a bit for the caller, and the search
//! ends. Freeing sets the bit, then adds to the count. A bit that is set already is a double free.
//! A caller that needs several at once ([`take`]) gets as many as one word has, for the same two
//! steps: up to 64 frames.
//!
//! So neither a page fault nor an interrupt ever waits for the code that it interrupted, and no CPU
//! has a cache whose frames the others cannot get. Each CPU searches from the word where it last
//! found or freed a frame: CPUs mostly use different words, and a frame that was freed just now,
//! whose lines are still in the cache, is the next one. On a machine with NUMA nodes a search of a
//! new word begins where the memory of the CPU's node does ([`set_home`]).
//!
//! **Frames are kept for page faults by the count alone** ([`Stock`]): an ordinary request fails
//! while some are left, a page fault finds these, and a G that must end finds the last ones.
//!
//! **A frame is zeroed if its user may read what it did not write**: page tables, the heap's
//! records. [`alloc()`] and its relatives zero it, once, as it leaves; [`take`] does not, for
//! stacks (`mem::stack`, "What is zeroed"). Frames below 1 MiB are not counted, and given only by
//! [`alloc_below_1m`]: the CPUs' start page must be there.
//!
//! # What was rejected
//!
//! - *A lock, and frames cached per CPU in front of it*: the caches must be emptied when another
//!   CPU has none, and the page-fault handler needs a cache of its own, as it cannot take a lock.
//! - *A list through the free frames*: it cannot tell a double free, nor give a frame below 4 GiB.
//!
//! Called by page tables, heap and stacks. Devices have memory of their own (`mem::dma`).

mod bitmap;

use crate::mem::{PAGE_SIZE, phys_to_virt};
use bitmap::Bitmap;
use bootloader_api::info::MemoryRegion;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sys::FIRST;

pub use crate::arch::paging::LOW_END;

const PAGE: u64 = PAGE_SIZE as u64;
/// With fewer frames than this, fewer are kept for page faults.
const LITTLE: usize = 4096;
/// The bitmap may take one part in this many of memory.
const BITMAP_SHARE: u64 = 128;

/// What `bitmap` needs of the kernel; its model has a `sys` of its own.
mod sys {
    pub use crate::arch::{MAX_CPUS, cpu_index, relax};
    pub use core::sync::atomic::{AtomicU64, AtomicUsize};

    /// The first frame that is counted.
    pub const FIRST: usize = super::LOW_END as usize / super::PAGE_SIZE;
}

/// Which frames an allocation may take. Of the first two the number is how many it leaves, beside
/// the reserve for unpacking stacks ([`reserve`]); of the others, how many thirds of the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stock {
    /// Those that are not kept for the others.
    Free = 128,
    /// For a page fault: all but the last ones.
    Fault = 64,
    /// For the stack of a G that is switched to: a third of the reserve, too.
    Run = 2,
    /// For a caller that must not fail, as its G is to end: two thirds of the reserve.
    Last = 1,
    /// For a stack that is touched by another G: all.
    Unpack = 0,
}

/// Frames that are reserved for unpacking, for each CPU and in all: what for is said in
/// `stack::pack`, "Unpacking finds a frame".
const UNPACKED_PER_CPU: usize = 36;
const UNPACKED: usize = 16;

/// A physical page. A plain number: its holder promises that it holds the frame, see [`free`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(u64);

impl Frame {
    /// The frame that begins at physical address `addr`, rounded down.
    pub const fn containing(addr: u64) -> Frame {
        Frame(addr & !(PAGE - 1))
    }

    pub const fn addr(self) -> u64 {
        self.0
    }

    #[inline(always)]
    fn at(index: usize) -> Frame {
        Frame((index * PAGE_SIZE) as u64)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameStats {
    /// Frames that can be handed out at all.
    pub total: usize,
    /// Free ones among them.
    pub free: usize,
    /// Frames that were freed while free. A kernel bug each.
    pub double_frees: usize,
}

static FRAMES: spin::Once<Frames<'static>> = spin::Once::new();

/// Takes over these pieces of whole frames, which do not overlap. `None`: no room for the bitmap.
///
/// # Safety
///
/// Called once. The pieces are unused, and mapped from `PHYS_OFFSET` on.
pub unsafe fn init(pieces: &mut [MemoryRegion]) -> Option<()> {
    let (at, count) = cut_bitmap(pieces)?;
    let words = phys_to_virt(at).cast::<AtomicU64>();
    // SAFETY: unused, mapped and in one piece, and in no piece any more.
    unsafe { words.write_bytes(0, count) };
    // SAFETY: zero bytes are valid atomics; written just now, and only used by the bitmap.
    let words = unsafe { core::slice::from_raw_parts(words, count) };
    FRAMES.call_once(|| Frames::new(pieces, words));
    Some(())
}

/// Cuts the memory of the bitmap off a piece: its address, and how many words. If there is a piece
/// so far up that the bitmap would need more than its share of memory, less is covered.
pub fn cut_bitmap(pieces: &mut [MemoryRegion]) -> Option<(u64, usize)> {
    let memory: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
    let mut end = pieces.iter().map(|piece| piece.end).max()?;
    while end > LOW_END {
        let words = Bitmap::words_for((end / PAGE) as usize);
        let bytes = (words as u64 * 8).next_multiple_of(PAGE);
        let has_room =
            |piece: &&mut MemoryRegion| piece.end.saturating_sub(piece.start.max(LOW_END)) >= bytes;
        if bytes <= (memory / BITMAP_SHARE).max(PAGE)
            && let Some(piece) = pieces.iter_mut().find(has_room)
        {
            piece.end -= bytes;
            return Some((piece.end, words));
        }
        end = (end / 2).next_multiple_of(PAGE);
    }
    None
}

/// Up to `most` frames above 1 MiB, 64 at the most, with what their last users left there. The
/// caller uses all of them, or frees them.
pub fn take(stock: Stock, most: usize) -> impl Iterator<Item = Frame> {
    FRAMES.get().into_iter().flat_map(move |frames| frames.take(stock, most))
}

/// A zeroed frame above 1 MiB.
pub fn alloc_from(stock: Stock) -> Option<Frame> {
    FRAMES.get()?.take(stock, 1).next().map(zeroed)
}

/// As [`alloc_from`], with what the last holder left there.
pub fn alloc_as_is(stock: Stock) -> Option<Frame> {
    FRAMES.get()?.take(stock, 1).next()
}

/// From here on frames are reserved for unpacking stacks on so many CPUs.
pub fn reserve(cpus: usize) {
    if let Some(frames) = FRAMES.get() {
        frames.reserve.store(UNPACKED + cpus * UNPACKED_PER_CPU, Ordering::Relaxed);
    }
}

/// That CPU takes the frames from `address` on first, as they are near it (`run::near`).
pub fn set_home(cpu: usize, address: u64) {
    if let Some(frames) = FRAMES.get() {
        frames.bitmap.set_home(cpu, (address / PAGE) as usize);
    }
}

/// What is left of the reserve for unpacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reserve {
    /// Less than a third.
    Critical,
    /// Nothing for [`Stock::Run`].
    Low,
    Enough,
}

/// What is left of the reserve.
pub fn reserve_left() -> Reserve {
    let Some(frames) = FRAMES.get() else { return Reserve::Enough };
    let (free, run) = (frames.bitmap.free(), frames.kept(Stock::Run));
    match free {
        _ if run == 0 => Reserve::Enough, // nothing is packed
        _ if free < run / 2 => Reserve::Critical,
        _ if free <= run => Reserve::Low,
        _ => Reserve::Enough,
    }
}

/// Whether the reserve has to be filled up before a G runs.
#[inline]
pub fn is_low() -> bool {
    reserve_left() < Reserve::Enough
}

/// A free frame above 1 MiB, zeroed.
pub fn alloc() -> Option<Frame> {
    alloc_from(Stock::Free)
}

/// A zeroed frame whose address fits 32 bits: an AP loads its first page table in 32-bit code.
pub fn alloc_below_4g() -> Option<Frame> {
    FRAMES.get()?.take_below(Stock::Free, (1 << 32) / PAGE_SIZE).map(zeroed)
}

/// A zeroed frame below 1 MiB, never frame 0: where an AP can start.
pub fn alloc_below_1m() -> Option<Frame> {
    FRAMES.get()?.take_in(0..FIRST).map(zeroed)
}

fn zeroed(frame: Frame) -> Frame {
    // SAFETY: mapped from PHYS_OFFSET on; it has just left the allocator and has no user yet.
    unsafe { phys_to_virt(frame.0).write_bytes(0, PAGE_SIZE) };
    frame
}

/// Frees a frame. On a double free a debug build stops; a release build counts it.
///
/// # Safety
///
/// The caller holds `frame` and it is unused: no page table maps it, no TLB of any CPU caches such
/// a mapping, no device writes to it.
pub unsafe fn free(frame: Frame) {
    if let Some(frames) = FRAMES.get() {
        frames.put(frame);
    }
}

/// A snapshot of the counters. Walks the bitmap; not for hot paths.
pub fn stats() -> FrameStats {
    FRAMES.get().map_or_else(FrameStats::default, Frames::stats)
}

/// How many frames an ordinary allocation could still get; cheap.
pub fn free_estimate() -> usize {
    let free = |frames: &Frames<'_>| frames.bitmap.free().saturating_sub(frames.kept(Stock::Free));
    FRAMES.get().map_or(0, free)
}

pub fn total() -> usize {
    FRAMES.get().map_or(0, |frames| frames.total)
}

pub struct Frames<'a> {
    bitmap: Bitmap<'a>,
    total: usize,
    /// Kept for the last three of [`Stock`].
    reserve: AtomicUsize,
    double_frees: AtomicUsize,
}

impl<'a> Frames<'a> {
    /// The frames of `pieces`, which do not overlap. Left out are frames beyond the end of `words`,
    /// which are zero, and frame 0, which stays a null pointer.
    pub fn new(pieces: &[MemoryRegion], words: &'a [AtomicU64]) -> Self {
        let bitmap = Bitmap::new(words);
        let mut total = 0;
        for piece in pieces {
            let (start, end) = (piece.start / PAGE, piece.end / PAGE);
            let frames = (start as usize).max(1)..end.min(bitmap.len() as u64) as usize;
            total += frames.len();
            bitmap.add(frames);
        }
        let [reserve, double_frees] = [const { AtomicUsize::new(0) }; 2];
        Frames { total, bitmap, reserve, double_frees }
    }

    /// Up to `most` frames above 1 MiB; see [`take`].
    pub fn take(&self, stock: Stock, most: usize) -> impl Iterator<Item = Frame> + use<> {
        self.bitmap.take(self.kept(stock), most).map(Frame::at)
    }

    /// The first free frame above 1 MiB whose number is below `end`.
    pub fn take_below(&self, stock: Stock, end: usize) -> Option<Frame> {
        self.bitmap.take_counted_in(self.kept(stock), FIRST..end).map(Frame::at)
    }

    /// The first free frame whose number is in `area`. Not counted.
    pub fn take_in(&self, area: Range<usize>) -> Option<Frame> {
        self.bitmap.take_in(area).map(Frame::at)
    }

    pub fn put(&self, frame: Frame) {
        if !self.bitmap.put(frame.0 as usize / PAGE_SIZE) {
            self.double_frees.fetch_add(1, Ordering::Relaxed);
            debug_assert!(false, "double free of frame {:#x}", frame.0);
        }
    }

    /// How many frames a request leaves. Of little memory less is kept.
    fn kept(&self, stock: Stock) -> usize {
        let reserve = self.reserve.load(Ordering::Relaxed);
        let kept = match stock {
            Stock::Free | Stock::Fault => stock as usize + reserve,
            Stock::Run | Stock::Last | Stock::Unpack => stock as usize * reserve / 3,
        };
        kept.min(kept * self.total / LITTLE)
    }

    pub fn stats(&self) -> FrameStats {
        FrameStats {
            total: self.total,
            free: self.bitmap.count(),
            double_frees: self.double_frees.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests;
