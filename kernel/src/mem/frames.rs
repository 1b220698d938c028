//! Physical memory, a page at a time.
//!
//! A bitmap says which frames are free; in front of it each CPU has a magazine of frames,
//! so that the common path takes no lock. A second bitmap marks the frames that are
//! handed out: its bits flip one at a time as frames leave and return, so a double free
//! is detected even while the frame lies in a magazine.
//!
//! **Every frame is zeroed when it leaves**, once, outside the lock. Frames in magazines
//! are not zeroed yet; frames in the reserve are, because they have left already: the
//! page-fault handler takes from the reserve.
//!
//! Frames below 1 MiB are given only by [`alloc_below_1m`]: the CPUs' start page must be
//! there. A magazine can keep frames from a CPU that has none, until `mem::reclaim` has
//! them returned; a caller that cannot wait for that gets "no memory" while other CPUs
//! hold a few. The magazines shrink with the memory, so that this stays below an eighth
//! of it on 64 CPUs.
//!
//! Called by page tables, heap and stacks. Devices have memory of their own (`mem::dma`).

pub(crate) mod bitmap;

use crate::arch::lock::{IrqLock, Level};
use crate::mem::percpu::{CpuLocal, Here};
use crate::mem::{PAGE_SIZE, phys_to_virt};
use arrayvec::ArrayVec;
use bitmap::Bitmap;
use bootloader_api::info::MemoryRegion;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

pub use bitmap::highest_usable;

/// Frames below this address are kept for [`alloc_below_1m`].
pub use crate::arch::paging::LOW_END;
/// The most frames a magazine takes from the bitmap at once.
const MAX_BATCH: usize = 32;
/// Memory for each frame of a batch, in frames: 128 MiB gives the full batch.
const FRAMES_PER_BATCH: usize = 1024;
/// The bitmaps may take one part in this many of usable memory.
const BOOKS_SHARE: u64 = 64;
/// Zeroed frames that each CPU keeps for page faults.
const RESERVE: usize = 16;
/// Zeroed frames that are set aside for Gs that end because no other frame is free.
const EMERGENCY: usize = 64;

/// A CPU's frames in front of the bitmap. Not zeroed.
type Magazine = ArrayVec<Frame, { 2 * MAX_BATCH }>;

/// A physical page. A plain number: its holder promises that it holds the frame, see
/// [`free`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(u64);

/// Counters of the frame allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameStats {
    /// Frames that can be handed out at all.
    pub total: usize,
    /// Free ones among them, in magazines or in the bitmap.
    pub free: usize,
    /// Frames that were freed while not held. A kernel bug each.
    pub double_frees: usize,
}

static FRAMES: spin::Once<Frames> = spin::Once::new();
static MAGAZINES: CpuLocal<Magazine> = CpuLocal::new();
static RESERVES: CpuLocal<ArrayVec<Frame, RESERVE>> = CpuLocal::new();
/// The frames set aside, and whether all are there, so that a refill mostly takes no
/// lock.
static EMERGENCIES: IrqLock<ArrayVec<Frame, EMERGENCY>> = IrqLock::new(ArrayVec::new_const());
static EMERGENCIES_FULL: AtomicBool = AtomicBool::new(false);

/// Takes the loader's map over. `limit` is where mapped physical memory ends; no frame at
/// or above it is used. `None`: there is no room for the bitmaps.
///
/// # Safety
///
/// Called once. Usable regions below `limit` are unused, and are mapped from
/// `PHYS_OFFSET` on.
pub unsafe fn init(regions: &[MemoryRegion], limit: u64) -> Option<()> {
    let limit = limit.min(highest_usable(regions));
    let (home, words, limit) = plan_books(regions, limit)?;
    let books = phys_to_virt(home).cast::<u64>();
    // SAFETY: the caller's promise covers these bytes: usable, mapped, and by
    // `plan_books` in one piece; `u64` has no invalid values; page-aligned.
    let map = unsafe { core::slice::from_raw_parts_mut(books, words) };
    // SAFETY: the first `words` words are the slice above, and the region has twice as
    // many.
    let second = unsafe { books.add(words) };
    // SAFETY: zero bytes are valid atomics, and the range is ours as above.
    unsafe { second.write_bytes(0, words) };
    // SAFETY: just written, ours for ever, and disjoint from `map`.
    let held = unsafe { core::slice::from_raw_parts(second.cast::<AtomicU64>(), words) };

    let mut map = Bitmap::new(regions, map);
    map.withdraw(home..home + 16 * words as u64);
    map.withdraw(limit..u64::MAX);
    FRAMES.call_once(|| Frames::new(map, held, &MAGAZINES, zero_frame));
    Some(())
}

/// Where the two bitmaps go: (address, words in each, memory's end). An absurd usable
/// region far up would need bitmaps larger than the memory that exists; then less is
/// covered. Bitmaps of a sound map take a 16384th.
pub fn plan_books(regions: &[MemoryRegion], mut limit: u64) -> Option<(u64, usize, u64)> {
    let budget = (bitmap::usable_bytes(regions) / BOOKS_SHARE).max(PAGE_SIZE as u64);
    while limit > LOW_END {
        let words = (limit / PAGE_SIZE as u64).div_ceil(64) as usize;
        let bytes = 16 * words as u64;
        if let Some(home) = bitmap::find_home(regions, bytes, limit).filter(|_| bytes <= budget) {
            return Some((home, words, limit));
        }
        limit = (limit / 2).next_multiple_of(PAGE_SIZE as u64);
    }
    None
}

/// Which frames an allocation may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stock {
    /// Free ones.
    Free,
    /// For a page fault: this CPU's reserve, at once and without a lock; then free ones,
    /// which may take the bitmap's lock and zeroes: slower, not wrong (see `mem`, the lock
    /// order).
    Fault,
    /// For a caller that must not fail, as its G is to end: at last those set aside.
    Last,
}

/// A zeroed frame above 1 MiB.
pub fn alloc_from(stock: Stock) -> Option<Frame> {
    match stock {
        Stock::Free => alloc(),
        Stock::Fault => RESERVES.with(&Here::enter(), ArrayVec::pop).or_else(alloc),
        Stock::Last => alloc().or_else(|| {
            EMERGENCIES_FULL.store(false, Relaxed);
            EMERGENCIES.lock().pop()
        }),
    }
}

/// A free frame above 1 MiB, zeroed.
#[inline]
pub fn alloc() -> Option<Frame> {
    FRAMES.get()?.alloc()
}

/// A zeroed frame whose address fits 32 bits: an AP loads its first page table
/// in 32-bit code.
pub fn alloc_below_4g() -> Option<Frame> {
    FRAMES.get()?.alloc_in(LOW_END..1 << 32)
}

/// A zeroed frame below 1 MiB, never frame 0: where an AP can start.
pub fn alloc_below_1m() -> Option<Frame> {
    FRAMES.get()?.alloc_in(0..LOW_END)
}

/// Frees a frame. On a double free a debug build stops; a release build counts it and
/// drops the frame.
///
/// # Safety
///
/// The caller holds `frame` and it is in use no more: no page table maps it, no TLB of
/// any CPU caches such a mapping, no device writes to it.
pub unsafe fn free(frame: Frame) {
    if let Some(frames) = FRAMES.get() {
        frames.put(&Here::enter(), frame);
    }
}

/// Frees many frames, taking the lock once per batch.
///
/// # Safety
///
/// As for [`free`], for each frame.
pub unsafe fn free_many(list: &[Frame]) {
    if let Some(frames) = FRAMES.get() {
        frames.free_many(list);
    }
}

/// Refills this CPU's reserve, and the frames set aside. Called outside interrupts, with no
/// lock held.
pub fn refill() {
    let reserve_is_full = || RESERVES.with(&Here::enter(), |reserve| reserve.is_full());
    let to_reserve =
        |frame| RESERVES.with(&Here::enter(), |reserve| reserve.try_push(frame).is_ok());
    fill(RESERVE, reserve_is_full, to_reserve);
    let set_aside = |frame| {
        let mut all = EMERGENCIES.lock();
        let is_in = all.try_push(frame).is_ok();
        // Relaxed: a stale flag is corrected when the next frame is taken.
        EMERGENCIES_FULL.store(all.is_full(), Relaxed);
        is_in
    };
    fill(EMERGENCY, || EMERGENCIES_FULL.load(Relaxed), set_aside);
}

/// Allocates frames for a stock until it is full: `most` at most, in case frames are taken
/// meanwhile.
fn fill(most: usize, is_full: impl Fn() -> bool, push: impl Fn(Frame) -> bool) {
    for _ in 0..most {
        if is_full() {
            return;
        }
        let Some(frame) = alloc() else { return };
        if !push(frame) {
            // SAFETY: allocated above and not passed on.
            unsafe { free(frame) };
        }
    }
}

/// A snapshot of the counters. Walks the bitmaps; not for hot paths.
pub fn stats() -> FrameStats {
    FRAMES.get().map_or_else(FrameStats::default, Frames::stats)
}

/// About how many frames an ordinary allocation could still get; cheap.
pub fn free_estimate() -> usize {
    FRAMES.get().map_or(0, |frames| frames.free_in_bitmap.load(Relaxed))
}

/// How many frames there are in all.
pub fn total() -> usize {
    FRAMES.get().map_or(0, |frames| frames.total)
}

/// Returns the frames of this CPU's magazine to the bitmap.
pub(super) fn trim(here: &Here) {
    if let Some(frames) = FRAMES.get() {
        frames.trim(here);
    }
}

fn zero_frame(frame: Frame) {
    // SAFETY: the frame has just left the allocator and has no other user yet; all frames
    // of the allocator are mapped from PHYS_OFFSET on.
    unsafe { phys_to_virt(frame.0).write_bytes(0, PAGE_SIZE) };
}

impl Frame {
    /// The frame that begins at physical address `addr`, rounded down.
    pub const fn containing(addr: u64) -> Frame {
        Frame(addr & !(PAGE_SIZE as u64 - 1))
    }

    /// Its physical address.
    pub const fn addr(self) -> u64 {
        self.0
    }

    const fn from_index(index: usize) -> Frame {
        Frame((index * PAGE_SIZE) as u64)
    }

    const fn index(self) -> usize {
        self.0 as usize / PAGE_SIZE
    }
}

/// The allocator: the bitmap, the magazines in front, and the marks of held frames.
struct Frames {
    bitmap: IrqLock<Bitmap<'static>>,
    /// One bit a frame, 1 = handed out.
    held: &'static [AtomicU64],
    magazines: &'static CpuLocal<Magazine>,
    zero: fn(Frame),
    batch: usize,
    total: usize,
    free_in_bitmap: AtomicUsize,
    lock_acquisitions: AtomicUsize,
    double_frees: AtomicUsize,
}

impl Frames {
    fn new(
        map: Bitmap<'static>,
        held: &'static [AtomicU64],
        magazines: &'static CpuLocal<Magazine>,
        zero: fn(Frame),
    ) -> Self {
        let free = map.free_count();
        Frames {
            total: free + map.free_low_count(),
            batch: (free / FRAMES_PER_BATCH).clamp(1, MAX_BATCH),
            bitmap: IrqLock::at(Level::Frames, map),
            held,
            magazines,
            zero,
            free_in_bitmap: AtomicUsize::new(free),
            lock_acquisitions: AtomicUsize::new(0),
            double_frees: AtomicUsize::new(0),
        }
    }

    fn alloc(&self) -> Option<Frame> {
        let frame = self.take(&Here::enter())?;
        (self.zero)(frame);
        Some(frame)
    }

    #[cfg(test)]
    fn alloc_many(&self, out: &mut [Frame]) -> usize {
        let count = self.locked(|map| map.take_many(out));
        for &frame in &out[..count] {
            self.mark_held(frame);
            (self.zero)(frame);
        }
        count
    }

    /// A zeroed frame of these addresses.
    fn alloc_in(&self, area: Range<u64>) -> Option<Frame> {
        let frame = self.locked(|map| map.take_in(area))?;
        self.mark_held(frame);
        (self.zero)(frame);
        Some(frame)
    }

    fn free_many(&self, list: &[Frame]) {
        for chunk in list.chunks(MAX_BATCH) {
            // Marked before the lock is taken: a double free may print.
            let ours = chunk.iter().copied().filter(|&frame| self.mark_free(frame));
            self.put_in_bitmap(&ours.collect::<ArrayVec<_, MAX_BATCH>>());
        }
    }

    /// A frame from this CPU's magazine, or a batch from the bitmap and one of it. Not
    /// zeroed.
    fn take(&self, here: &Here) -> Option<Frame> {
        if let Some(frame) = self.magazines.with(here, ArrayVec::pop) {
            self.mark_held(frame);
            return Some(frame);
        }
        // The lock is taken with the magazine given back: see `percpu`.
        let mut fresh = [Frame(0); MAX_BATCH];
        let count = self.locked(|map| map.take_many(&mut fresh[..self.batch]));
        let (&first, rest) = fresh[..count].split_first()?;
        let kept = self.magazines.with(here, |magazine| {
            rest.iter().take_while(|&&frame| magazine.try_push(frame).is_ok()).count()
        });
        self.put_in_bitmap(&rest[kept..]);
        self.mark_held(first);
        Some(first)
    }

    /// Returns a frame to this CPU's magazine; a full one first returns half to the
    /// bitmap.
    fn put(&self, here: &Here, frame: Frame) {
        if !self.mark_free(frame) {
            return;
        }
        if frame.0 < LOW_END {
            return self.put_in_bitmap(&[frame]);
        }
        let surplus: ArrayVec<_, MAX_BATCH> = self.magazines.with(here, |magazine| {
            let is_full = magazine.len() >= 2 * self.batch;
            let keep = magazine.len() - if is_full { self.batch } else { 0 };
            let surplus = magazine.drain(keep..).collect();
            magazine.push(frame);
            surplus
        });
        self.put_in_bitmap(&surplus);
    }

    fn trim(&self, here: &Here) {
        let all = self.magazines.with(here, core::mem::take);
        self.put_in_bitmap(&all);
    }

    fn put_in_bitmap(&self, list: &[Frame]) {
        if !list.is_empty() {
            self.locked(|map| list.iter().for_each(|&frame| _ = map.put(frame)));
        }
    }

    fn locked<R>(&self, f: impl FnOnce(&mut Bitmap<'static>) -> R) -> R {
        let mut map = self.bitmap.lock();
        let result = f(&mut map);
        self.free_in_bitmap.store(map.free_count(), Relaxed);
        self.lock_acquisitions.fetch_add(1, Relaxed);
        result
    }

    // Relaxed suffices: only the frame's holder flips its bit, and the synchronization
    // that passes a frame from one holder to the next orders their flips too.
    fn mark_held(&self, frame: Frame) {
        let (word, bit) = (frame.index() / 64, 1 << (frame.index() % 64));
        self.held[word].fetch_or(bit, Relaxed);
    }

    /// False, and a report, when the frame was not held.
    fn mark_free(&self, frame: Frame) -> bool {
        let (word, bit) = (frame.index() / 64, 1 << (frame.index() % 64));
        let was_held = self.held.get(word).is_some_and(|w| w.fetch_and(!bit, Relaxed) & bit != 0);
        if !was_held {
            self.double_frees.fetch_add(1, Relaxed);
            debug_assert!(was_held, "double free of frame {:#x}", frame.0);
        }
        was_held
    }

    fn stats(&self) -> FrameStats {
        let held: usize = self.held.iter().map(|w| w.load(Relaxed).count_ones() as usize).sum();
        FrameStats {
            total: self.total,
            free: self.total.saturating_sub(held),
            double_frees: self.double_frees.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests;
