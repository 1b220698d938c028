//! Stacks of Gs: reserved as addresses, committed on first touch.
//!
//! A [`Stack`] is a slot of addresses of which only the top page has memory; the page-fault handler
//! commits the others as they are touched ([`Pool::handle_fault`]), but for the lowest: they are
//! *closed*, and a touch there is an overflow. Code probes below its stack pointer before it takes
//! a lock (`arch::probe_stack`, a page at most), and from the last good page that must still land
//! in the closed part. A [kernel stack](new_kernel_stack) has all its memory from the start, for
//! interrupts and for CPUs that come up.
//!
//! ```text
//!   base                                                 start     end
//!    │ guard │ spare │ margin │ not there yet │ page │ page ··│ canary │    │ record │ header │
//!      1       5       1 page                   ◀── grows       16 bytes     432      16 bytes
//! ```
//!
//! # The closed part
//!
//! The *spare* pages are opened when a stack is full ([`rescue`]): its G ends on them. The *margin*
//! is opened for what the kernel does on the stack of a G that did not call it ([`Pool::open`]): so
//! that is no overflow of the G, and does not use up the spare pages. The guard is never opened. A
//! stack that was opened is not recycled before [`Pool::trim`] closes it; nor is that of an M,
//! though the M keeps it ([`Pool::close_later`]).
//!
//! # Record and header
//!
//! Class, slot and guard follow from the address alone ([`slot`]), and so does where the slot has
//! its *record* ([`Stack::record`]), which holds the G, and its *header*, the state of the slot.
//! Both are in a region of their own, nine slots to a page, and have memory for ever once the slot
//! was made: any CPU reads and writes the G, whatever has become of the stack. ([`pool`] keeps the
//! free slots, tested on the host.) At the top of the stack, in builds with `debug_assertions`, is
//! a canary: words that are written when the top page is committed, and never again. If they have
//! changed ([`is_whole`]), there was a stray write, or one that ran over the top of the stack.
//!
//! Rejected: the record in the top page. It saved 448 bytes for each G that has a page, but then
//! the page of a parked G could not be packed ([`pack`]) without faults on every touch of the G.
//!
//! # TLB shootdown
//!
//! A returned stack keeps its pages, and the next G finds them warm. [`Pool::trim`] unmaps them in
//! batches: every CPU must flush them from its TLB, which costs the same for one page as for
//! hundreds. It waits for other CPUs, so only code with interrupts on and no lock calls it:
//! `mem::reclaim`. Returning a stack never waits.
//!
//! # What is zeroed
//!
//! Records and headers, which have pages of their own. The pages of stacks are not: they come from
//! [`frames::take`] with what their last users left there, and the canary is written when the top
//! page is committed. All else is the stack of a G, where compiled code writes each local before it
//! reads it: a safe program cannot read what it did not write, as with a stack that is recycled.
//! Kernel code reads a stack in two ways only, both along what was written: backtraces and the
//! unwinder follow frames from the saved stack pointer up.

pub mod pack;
mod pool;
pub mod slot;

use crate::arch::{self, paging};
use crate::mem::frames::{self, Frame, Stock};
use crate::mem::{self, NoMemory, reclaim};
use core::num::NonZeroU64;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use pool::{Backing, Header, Pool};
use slot::Slot;

pub use pool::{BATCH, StackStats};
pub use slot::{DEFAULT_SIZE, MAIN_SIZE, MAX_SIZE};

/// How often memory is reclaimed for a stack.
const TRIES: usize = 4;
/// Bytes that a G with a full stack gets to end on: at least, and at most.
const RESCUE_BYTES: Range<u64> = 15 << 10..24 << 10;
pub(crate) static POOL: Pool<Window> = Pool::new(Window);
static LEAST_SIZE: AtomicUsize = AtomicUsize::new(DEFAULT_SIZE);

/// Gives all Gs a stack of at least `bytes`, up to [`MAX_SIZE`]: `stack=` on the command line.
/// Before the first G is started: a recycled G keeps the stack it has.
pub fn set_least_size(bytes: usize) {
    LEAST_SIZE.store(bytes.clamp(DEFAULT_SIZE, MAX_SIZE), Ordering::Relaxed);
}

/// The smallest stack of a G: [`DEFAULT_SIZE`], or more.
pub fn least_size() -> usize {
    LEAST_SIZE.load(Ordering::Relaxed)
}

/// Commits memory below `sp` on the stack of this slot, which is full there, for its G to
/// end on. False if there is no memory, or no room any more. As [`Pool::handle_fault`].
pub fn rescue(slot: Slot, sp: u64) -> bool {
    let start = slot.spare().max(sp.saturating_sub(RESCUE_BYTES.end));
    sp.saturating_sub(start) >= RESCUE_BYTES.start
        && POOL.open(slot, start..sp, slot::MARGIN_PAGES + slot::SPARE_PAGES)
}

/// A G's stack. Dropped, it is recycled for the next G; its pages stay until they are trimmed, and
/// are not zeroed: safe code cannot read them.
#[derive(Debug)]
pub struct Stack {
    /// Where the stack pointer starts, from which all else follows; an optional stack is one word.
    start: NonZeroU64,
}

impl Stack {
    /// A stack with at least `size` bytes for its user, up to [`MAX_SIZE`]. If there is no memory,
    /// a caller that can wait tries again (`mem::reclaim`): the stacks of other Gs grow meanwhile.
    pub fn new(size: usize) -> Result<Stack, NoMemory> {
        Self::some(size, 1)?.next().ok_or(NoMemory)
    }

    /// As [`new`](Self::new): up to `most` stacks, at least one. The caller takes all of them.
    pub fn some(size: usize, most: usize) -> Result<impl Iterator<Item = Stack>, NoMemory> {
        let class = slot::class_for(size).ok_or(NoMemory)?;
        let mut slots = POOL.take_some(class, most);
        let mut tries = 0..TRIES;
        while slots.is_empty() && tries.next().is_some() && reclaim::wait_for(1) {
            slots = POOL.take_some(class, 1);
        }
        let stack = |slot: Slot| NonZeroU64::new(slot.start()).map(|start| Stack { start });
        if slots.is_empty() { Err(NoMemory) } else { Ok(slots.into_iter().filter_map(stack)) }
    }

    /// Where the stack pointer starts; aligned to 16 bytes. The page below is committed.
    #[inline(always)]
    pub fn start(&self) -> u64 {
        self.start.get()
    }

    /// The addresses for its user, from the end of the closed part to [`start`](Self::start).
    pub fn bounds(&self) -> Range<u64> {
        self.slot().bounds()
    }

    /// The record that stays with this stack for ever; made by `make` at the first use.
    ///
    /// # Safety
    /// All callers, for all stacks, use the same `T`.
    pub unsafe fn record<T: Send + Sync>(&self, make: impl FnOnce() -> T) -> &'static T {
        const { assert!(size_of::<T>() <= slot::RECORD_BYTES && align_of::<T>() <= 64) }
        let at = core::ptr::with_exposed_provenance_mut::<T>(self.slot().record() as usize);
        let slot = self.slot();
        if !POOL.has_record(slot) {
            // SAFETY: aligned to 64, in memory that was committed for it when the slot was made;
            // and no other CPU has seen it yet.
            unsafe { at.write(make()) };
            POOL.set_has_record(slot);
        }
        // SAFETY: written above or before, and a `T` by the caller's promise. The record of a slot
        // that was made is never unmapped, and no `&mut` of it is made.
        unsafe { &*at }
    }

    /// Commits its highest `pages` pages now; tries twice.
    pub fn commit(&self, pages: usize) -> Result<(), NoMemory> {
        let commit = || POOL.commit(self.slot(), pages);
        commit().or_else(|none| if reclaim::wait_for(pages) { commit() } else { Err(none) })
    }

    /// Its slot, by which the pool knows it.
    pub fn slot(&self) -> Slot {
        let (slot, _) = slot::locate(self.start.get()).expect("made by `new` from a slot");
        slot
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        POOL.put(self.slot());
    }
}

/// Whether the stack of that record is of [`DEFAULT_SIZE`] and has used a page or two only.
///
/// # Safety
/// [`Stack::record`] has returned it.
#[inline(always)]
pub unsafe fn is_as_new<T>(record: &'static T) -> bool {
    let at = core::ptr::from_ref(record).addr();
    let header = core::ptr::with_exposed_provenance::<Header>(at + slot::RECORD_BYTES);
    // SAFETY: the header is beside the record (`Slot::header`); the rest as in `Window::header`.
    slot::is_smallest_record(at as u64) && unsafe { &*header }.deep() <= 1
}

/// A stack of `pages` pages, less the header, that has all its memory: where its stack pointer
/// starts, aligned to 16 bytes. Never freed, as its user (an M, an interrupt) is not either.
pub fn new_kernel_stack(pages: usize) -> Option<u64> {
    POOL.take_kernel(pages).ok().map(Slot::start)
}

/// The canary's words before the XOR with their address, so that no two are equal.
const CANARY: u64 = 0xca7a_71e5_b1bd_5a1e;

/// Whether the canary of a slot that was made is unchanged, as far as that can be seen: its top
/// page is there, or packed. Interrupts off.
pub fn is_whole(slot: Slot) -> bool {
    canary(slot).all(|at| pack::peek(at).is_none_or(|word| word == CANARY ^ at))
}

/// The addresses of the canary's words; there are none in a build without it.
fn canary(slot: Slot) -> impl Iterator<Item = u64> {
    let end = if cfg!(debug_assertions) { slot.end() } else { slot.start() };
    (slot.start()..end).step_by(size_of::<u64>())
}

fn write_canary(slot: Slot) {
    for at in canary(slot) {
        let word = core::ptr::with_exposed_provenance_mut::<u64>(at as usize);
        // SAFETY: aligned, and in the top page of a slot that the pool makes, which was mapped just
        // now; no G uses it yet.
        unsafe { word.write(CANARY ^ at) };
    }
}

pub(crate) struct Window;

impl Backing for Window {
    fn make(&self, first: Slot, most: usize) -> usize {
        let page_of = |addr: u64| addr & !(mem::PAGE_SIZE as u64 - 1);
        let slots = (first.index()..).map(|index| Slot::new(first.class(), index)).take(most);
        let end = slots.clone().last().map_or(0, Slot::header);
        let mut pages = (page_of(first.record())..=page_of(end)).step_by(mem::PAGE_SIZE);
        // SAFETY: the addresses belong to the pool. The first page may be there already, with the
        // record before these.
        if pages.any(|page| unsafe { mem::commit(page, Stock::Free) }.is_err()) {
            return 0;
        }
        let mut frames = frames::take(Stock::Free, most);
        let mut done = 0;
        for (slot, frame) in slots.zip(&mut frames) {
            // SAFETY: the address belongs to the pool.
            if unsafe { mem::map(slot.page_from_top(0), frame, Stock::Free) }.is_err() {
                break;
            }
            write_canary(slot);
            done += 1;
        }
        // SAFETY: taken, and not used.
        frames.for_each(|frame| unsafe { frames::free(frame) });
        done
    }

    #[inline(always)]
    fn header(&self, slot: Slot) -> &Header {
        let at = core::ptr::with_exposed_provenance::<Header>(slot.header() as usize);
        // SAFETY: the pool passes slots that were made, whose headers have memory for ever; it came
        // zeroed, a valid header; all access is atomic, and no record overlaps it.
        unsafe { &*at }
    }

    fn commit(&self, page: u64, stock: Stock) -> Result<(), NoMemory> {
        if let Some(restored) = pack::restore(page, stock) {
            return restored;
        }
        let frame = frames::take(stock, 1).next().ok_or(NoMemory)?;
        // SAFETY: the address belongs to the pool.
        unsafe { mem::map(page, frame, stock) }?;
        let slot = slot::locate(page).map(|(slot, _)| slot);
        slot.filter(|slot| page == slot.page_from_top(0)).into_iter().for_each(write_canary);
        Ok(())
    }

    fn is_committed(&self, page: u64) -> bool {
        paging::is_mapped(page)
    }

    fn restore(&self, page: u64, stock: Stock) -> Option<Result<(), NoMemory>> {
        pack::restore(page, stock)
    }

    fn uncommit(&self, page: u64) -> Option<Frame> {
        // SAFETY: the pool calls this for slots that it holds and that are unused.
        unsafe { paging::unmap_page(page) }.map(Frame::containing)
    }

    fn forget(&self, list: &[Frame]) {
        arch::shootdown();
        // SAFETY: unmapped by `uncommit`, and flushed from the TLBs of all CPUs.
        list.iter().for_each(|&frame| unsafe { frames::free(frame) });
    }
}
