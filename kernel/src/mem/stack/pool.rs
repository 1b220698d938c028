//! Free stacks, the meaning of a fault on one, and freeing pages.
//!
//! ```text
//!            take          put               trim
//!   (1) fresh ────▶ LIVE ─────▶ FREE, idle (2) ───▶ FREE, bare (3)
//!                    ▲               │                    │
//!                    └───────────────┴────────────────────┘ take
//!   LIVE ──▶ KERNEL, for ever: take_kernel
//!   LIVE ──▶ FREE, open (4) ── trim ──▶ FREE, bare (3)
//!   LIVE ──▶ LIVE, closing (5) ── trim ──▶ LIVE
//!   FREE, bare (3) ── strip ──▶ FREE, empty (6) ── take ──▶ LIVE
//! ```
//!
//! 1. Number at or above `made`: never used, no page mapped, no header to read.
//! 2. On its class's idle list, with its pages.
//! 3. On its class's bare list, only the top page left.
//! 4. On its class's open list: its user was given pages of the closed part
//!    ([`Pool::open`]), and it is not recycled before they are unmapped.
//! 5. On the same list, but its user keeps it, and meanwhile uses only its highest pages
//!    ([`Pool::close_later`]). An M is never freed, and neither is its stack.
//! 6. On its class's empty list, with no page: memory is or was short.
//!
//! Below `made` header and record have memory for ever, so any CPU can read them at any time. Lists
//! are linked through the headers, and have a lock for each class. A common G takes none: its stack
//! stays with it when it ends, on the free list of its P (`run::spawn`, `recycle`); and where there
//! is no dead G, a P takes several stacks at a time ([`Pool::take_some`]).

use super::slot::{self, CLASSES, Part, Slot};
use crate::arch::PageFault;
use crate::arch::lock::{IrqLock, Level};
use crate::mem::frames::{Frame, Stock};
use crate::mem::{NoMemory, PAGE_SIZE};
use arrayvec::ArrayVec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};

/// Stacks that are taken at a time: those whose top pages share a page table.
pub const BATCH: usize = 16;
/// Stacks, and their pages, that all CPUs flush from their TLBs at a time.
const TRIM_SLOTS: usize = 32;
const TRIM_PAGES: usize = 256;
/// Top pages of stacks, the same.
const STRIP_PAGES: usize = 512;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackStats {
    /// Stacks ever made; each has at least one page.
    pub made: usize,
    /// Pages committed by faults since boot.
    pub commits: usize,
    /// Of these, commits with interrupts off on the stack in use. A kernel bug each.
    pub late_commits: usize,
    /// Pages committed by [`Pool::open`] since boot.
    pub opened_pages: usize,
    /// Pages, the top ones not counted, on unused stacks.
    pub idle_pages: usize,
    /// Pages freed by trimming since boot.
    pub trimmed_pages: usize,
    /// Pages on stacks that were abandoned: see [`Pool::leave`].
    pub left_pages: usize,
}

/// The memory under the slots: the machine's, or a test's.
pub trait Backing {
    /// Commits the records and headers of up to `most` slots from `first` on, for ever, and their
    /// top pages; returns how many.
    fn make(&self, first: Slot, most: usize) -> usize;
    fn header(&self, slot: Slot) -> &Header;
    /// Commits a page, or unpacks it; a committed page stays as it is.
    fn commit(&self, page: u64, stock: Stock) -> Result<(), NoMemory>;
    /// Whether a page has memory, and is not packed.
    fn is_committed(&self, page: u64) -> bool;
    /// Unpacks a page that is packed, or about to be; `None` if there is no page.
    fn restore(&self, page: u64, stock: Stock) -> Option<Result<(), NoMemory>>;
    /// Unmaps a page. Its frame is not free before `forget`.
    fn uncommit(&self, page: u64) -> Option<Frame>;
    /// Flushes the TLBs of all CPUs, then frees `frames`.
    fn forget(&self, frames: &[Frame]);
}

/// The header of a slot, beside its record.
#[repr(C)]
pub struct Header {
    /// Pages below the top one that may be committed, from the top down.
    deep: AtomicU32,
    /// The next slot on the same list, plus one; 0 ends it.
    next: AtomicU32,
    /// If its user keeps it while it is on the open list: how many pages; else 0.
    closing: AtomicU32,
    state: AtomicU8,
    has_record: AtomicBool,
}

impl Header {
    /// How many pages below the top one were touched. For the owner of the slot.
    #[inline(always)]
    pub fn deep(&self) -> usize {
        self.deep.load(Ordering::Relaxed) as usize
    }
}

/// A zeroed page makes a FREE header.
pub const FREE: u8 = 0;
pub const LIVE: u8 = 1;
const KERNEL: u8 = 2;

const _: () = assert!(size_of::<Header>() <= slot::HEADER_BYTES);

/// All slots of all classes, and the counters of [`StackStats`].
pub struct Pool<B> {
    backing: B,
    classes: [Class; CLASSES],
    commits: AtomicUsize,
    late_commits: AtomicUsize,
    opened_pages: AtomicUsize,
    idle_pages: AtomicUsize,
    trimmed_pages: AtomicUsize,
    open: AtomicUsize,
    bare: AtomicUsize,
    left_pages: AtomicUsize,
}

struct Class {
    /// Slots below this number have a header. Written under `lists`.
    made: AtomicU32,
    lists: IrqLock<Lists>,
}

/// Heads of the free lists: a slot's number plus one, or 0.
struct Lists {
    idle: u32,
    bare: u32,
    open: u32,
    empty: u32,
}

/// The pages collected for one TLB shootdown, and their stacks.
#[derive(Default)]
struct Round {
    slots: ArrayVec<Slot, TRIM_SLOTS>,
    frames: ArrayVec<Frame, TRIM_PAGES>,
}

impl<B: Backing> Pool<B> {
    pub const fn new(backing: B) -> Self {
        Pool {
            backing,
            classes: [const {
                let lists = Lists { idle: 0, bare: 0, open: 0, empty: 0 };
                Class { made: AtomicU32::new(0), lists: IrqLock::at(Level::Stacks, lists) }
            }; CLASSES],
            commits: AtomicUsize::new(0),
            late_commits: AtomicUsize::new(0),
            opened_pages: AtomicUsize::new(0),
            idle_pages: AtomicUsize::new(0),
            trimmed_pages: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            bare: AtomicUsize::new(0),
            left_pages: AtomicUsize::new(0),
        }
    }

    pub fn take(&self, class: usize) -> Result<Slot, NoMemory> {
        self.take_some(class, 1).pop().ok_or(NoMemory)
    }

    /// Slots of `class` for Gs: a warm one, else up to `most` bare ones, else up to `most` new.
    pub fn take_some(&self, class: usize, most: usize) -> ArrayVec<Slot, BATCH> {
        let mut slots = ArrayVec::new();
        let lists = &mut *self.classes[class].lists.lock();
        if let Some(idle) = self.pop(class, &mut lists.idle) {
            self.idle_pages.fetch_sub(self.deep(idle), Ordering::Relaxed);
            slots.push(idle);
        } else {
            let most = most.min(BATCH);
            slots.extend(core::iter::from_fn(|| self.pop(class, &mut lists.bare)).take(most));
            self.bare.fetch_sub(slots.len(), Ordering::Relaxed);
            if slots.is_empty() {
                slots.extend(core::iter::from_fn(|| self.pop(class, &mut lists.empty)).take(most));
            }
            if slots.is_empty() {
                slots.extend(self.make(class, most).map(|index| Slot::new(class, index)));
            }
        }
        // Of empty ones.
        slots.retain(|&mut slot| {
            let is_whole = self.backing.commit(slot.page_from_top(0), Stock::Free).is_ok();
            if is_whole {
                self.backing.header(slot).state.store(LIVE, Ordering::Relaxed);
            } else {
                self.push(&mut lists.empty, slot);
            }
            is_whole
        });
        slots
    }

    /// Makes the next new slots, up to `most`, with their top pages committed: their numbers. The
    /// caller holds the lists.
    fn make(&self, class: usize, most: usize) -> Range<u32> {
        let made = &self.classes[class].made;
        let first = made.load(Ordering::Relaxed);
        let most = most.min((slot::capacity(class) - first) as usize);
        if most == 0 {
            return first..first;
        }
        let count = self.backing.make(Slot::new(class, first), most);
        let end = first + count as u32;
        made.store(end, Ordering::Release); // pairs with `handle_fault`
        first..end
    }

    /// A slot with `pages` pages committed, which is never freed.
    pub fn take_kernel(&self, pages: usize) -> Result<Slot, NoMemory> {
        let bytes = pages.checked_mul(PAGE_SIZE).filter(|&bytes| bytes > 0).ok_or(NoMemory)?;
        let class = slot::class_for(bytes - slot::CANARY_BYTES).ok_or(NoMemory)?;
        let slot = self.take(class)?;
        if self.commit(slot, pages).is_err() {
            self.put(slot);
            return Err(NoMemory);
        }
        self.backing.header(slot).state.store(KERNEL, Ordering::Relaxed);
        Ok(slot)
    }

    /// Commits the highest `pages` pages of a slot that the caller owns.
    pub fn commit(&self, slot: Slot, pages: usize) -> Result<(), NoMemory> {
        for n in 1..pages {
            self.backing.commit(slot.page_from_top(n), Stock::Free)?;
            self.backing.header(slot).deep.fetch_max(n as u32, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether the record of a slot was written. Any CPU.
    pub fn has_record(&self, slot: Slot) -> bool {
        self.backing.header(slot).has_record.load(Ordering::Acquire) // pairs with the next
    }

    pub fn set_has_record(&self, slot: Slot) {
        self.backing.header(slot).has_record.store(true, Ordering::Release);
    }

    /// How many slots of a class were made: each has a header.
    pub fn made(&self, class: usize) -> u32 {
        self.classes[class].made.load(Ordering::Acquire) // pairs with the store in `make`
    }

    /// Whether a slot that was made is [`LIVE`] or [`FREE`]. Any CPU; it may change.
    pub fn state(&self, slot: Slot) -> u8 {
        self.backing.header(slot).state.load(Ordering::Relaxed)
    }

    /// Returns a G's slot, with the pages it has.
    pub fn put(&self, slot: Slot) {
        let state = &self.backing.header(slot).state;
        debug_assert!(state.load(Ordering::Relaxed) == LIVE, "stack freed twice");
        state.store(FREE, Ordering::Relaxed);
        self.list(slot);
    }

    /// Handles a page fault on a page that is *not present* (a protection fault would repeat for
    /// ever). Runs with interrupts off, on the handler's own stack, and waits for nothing.
    ///
    /// `irqs_off_at` is the stack pointer of the fault if interrupts were off there. A commit of
    /// the same stack is then late: a kernel bug, as code probes before it turns interrupts off.
    /// The page is committed anyway.
    pub fn handle_fault(&self, addr: u64, irqs_off_at: Option<u64>) -> PageFault {
        let Some((slot, part)) = slot::locate(addr) else { return PageFault::Stray };
        // Acquire pairs with the store in `make`: the header is mapped.
        if slot.index() >= self.classes[slot.class()].made.load(Ordering::Acquire) {
            return PageFault::Stray;
        }
        let header = self.backing.header(slot);
        match (header.state.load(Ordering::Relaxed), part) {
            (LIVE, Part::Body) => {}
            (LIVE, Part::Closed) | (KERNEL, _) => return PageFault::StackOverflow,
            _ => return PageFault::Stray,
        }
        let page = addr & !(PAGE_SIZE as u64 - 1);
        let is_own = irqs_off_at.and_then(slot::locate).is_some_and(|(at, _)| at == slot);
        // Interrupts are off and the stack is packed, so not in use: its G is being switched to
        // (`pack`, "Unpacking finds a frame").
        let stock = match irqs_off_at {
            Some(_) if !is_own => Stock::Unpack,
            _ => Stock::Run,
        };
        if let Some(restored) = self.backing.restore(page, stock) {
            let none = if is_own { PageFault::StillPacked } else { PageFault::NoMemory };
            return restored.map_or(none, |()| PageFault::Mended);
        }
        // Recorded first: if the commit fails, a later unmap of the page is only wasted.
        header.deep.fetch_max(slot.depth_of(page) as u32, Ordering::Relaxed);
        if self.backing.commit(page, Stock::Fault).is_err() {
            return PageFault::NoMemory;
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        // Not late: an interrupt handler that makes room on the stack of the G that it preempts.
        if is_own {
            self.late_commits.fetch_add(1, Ordering::Relaxed);
        }
        PageFault::Mended
    }

    /// Commits the missing pages of `range`, also from the last frames, in a slot that the caller
    /// owns; of its closed part the highest `closed` pages at most. False if there is no memory or
    /// no room. As [`handle_fault`](Self::handle_fault).
    pub fn open(&self, slot: Slot, range: Range<u64>, closed: usize) -> bool {
        debug_assert!(closed <= slot::MARGIN_PAGES + slot::SPARE_PAGES, "the guard");
        if range.end > slot.start() {
            return false;
        }
        let mut pages = slot.depth_of(range.end)..=slot.depth_of(range.start.max(slot.base()));
        pages.all(|n| {
            let page = slot.page_from_top(n);
            if self.backing.is_committed(page) {
                return true;
            }
            if n >= slot.body_pages() + closed {
                return false;
            }
            self.backing.header(slot).deep.fetch_max(n as u32, Ordering::Relaxed);
            let is_there = self.backing.commit(page, Stock::Last).is_ok();
            self.opened_pages.fetch_add(is_there.into(), Ordering::Relaxed);
            is_there
        })
    }

    /// Has the next [`trim`](Self::trim) unmap all but the highest `keep` pages of a slot that the
    /// caller keeps. Until it [`is_closed`](Self::is_closed) the slot is not used below these.
    pub fn close_later(&self, slot: Slot, keep: usize) {
        self.backing.header(slot).closing.store(keep as u32, Ordering::Relaxed);
        let mut lists = self.classes[slot.class()].lists.lock();
        self.push(&mut lists.open, slot);
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether no page is left to be unmapped.
    pub fn is_closed(&self, slot: Slot) -> bool {
        self.backing.header(slot).closing.load(Ordering::Acquire) == 0 // pairs with `finish`
    }

    /// The user of a slot abandons it for good, with its pages; returns how many.
    pub fn leave(&self, slot: Slot) -> usize {
        let pages = self.deep(slot) + 1;
        self.left_pages.fetch_add(pages, Ordering::Relaxed);
        pages
    }

    /// Frees the pages of up to `most` unused stacks of each size, all but the top one each, and
    /// closes the open ones; returns how many. Waits for all CPUs: interrupts on, no lock held.
    pub fn trim(&self, most: usize) -> usize {
        let mut round = Round::default();
        let mut pages = 0;
        for class in 0..CLASSES {
            for _ in 0..most {
                let Some(slot) = self.pop_idle(class) else { break };
                pages += self.uncommit_slot(slot, &mut round);
                if round.slots.is_full() {
                    self.finish(&mut round);
                }
            }
        }
        self.finish(&mut round);
        self.trimmed_pages.fetch_add(pages, Ordering::Relaxed);
        pages
    }

    /// Frees the top pages of up to `most` unused stacks that have no other; returns how many. As
    /// [`trim`](Self::trim).
    pub fn strip(&self, most: usize) -> usize {
        let mut stripped = 0;
        for class in 0..CLASSES {
            let mut is_more = true;
            while is_more && stripped < most {
                let mut frames = ArrayVec::<_, STRIP_PAGES>::new();
                let mut empty = 0;
                while is_more && frames.len() < STRIP_PAGES.min(most - stripped) {
                    let slot = self.pop(class, &mut self.classes[class].lists.lock().bare);
                    is_more = slot.is_some();
                    let Some(slot) = slot else { break };
                    self.bare.fetch_sub(1, Ordering::Relaxed);
                    frames.extend(self.backing.uncommit(slot.page_from_top(0)));
                    self.push(&mut empty, slot);
                }
                if !frames.is_empty() {
                    self.backing.forget(&frames);
                }
                while let Some(slot) = self.pop(class, &mut empty) {
                    self.push(&mut self.classes[class].lists.lock().empty, slot);
                }
                stripped += frames.len();
            }
        }
        stripped
    }

    /// Pages that [`strip`](Self::strip) could free, about.
    pub fn bare_slots(&self) -> usize {
        self.bare.load(Ordering::Relaxed)
    }

    /// Pages that [`trim`](Self::trim) could free.
    pub fn idle_pages(&self) -> usize {
        self.idle_pages.load(Ordering::Relaxed)
    }

    /// Unused stacks that must be trimmed before they are recycled.
    pub fn open_slots(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub fn stats(&self) -> StackStats {
        StackStats {
            made: self.classes.iter().map(|c| c.made.load(Ordering::Relaxed) as usize).sum(),
            commits: self.commits.load(Ordering::Relaxed),
            late_commits: self.late_commits.load(Ordering::Relaxed),
            opened_pages: self.opened_pages.load(Ordering::Relaxed),
            idle_pages: self.idle_pages(),
            trimmed_pages: self.trimmed_pages.load(Ordering::Relaxed),
            left_pages: self.left_pages.load(Ordering::Relaxed),
        }
    }

    /// Stacks in use. Kernel stacks are not counted.
    #[cfg(any(not(target_os = "none"), feature = "internals"))]
    pub fn in_use(&self) -> usize {
        let slots = |class: usize| {
            (0..self.classes[class].made.load(Ordering::Acquire)).map(move |n| Slot::new(class, n))
        };
        let state = |slot| self.backing.header(slot).state.load(Ordering::Relaxed);
        (0..CLASSES).flat_map(slots).filter(|&slot| state(slot) == LIVE).count()
    }

    fn list(&self, slot: Slot) {
        let deep = self.deep(slot);
        let Lists { idle, bare, open, .. } = &mut *self.classes[slot.class()].lists.lock();
        let list = match deep {
            0 => {
                self.bare.fetch_add(1, Ordering::Relaxed);
                bare
            }
            _ if deep >= slot.body_pages() => {
                self.open.fetch_add(1, Ordering::Relaxed);
                open
            }
            _ => idle,
        };
        self.push(list, slot);
        self.idle_pages.fetch_add(deep, Ordering::Relaxed);
    }

    /// A slot with pages to unmap; open ones first.
    fn pop_idle(&self, class: usize) -> Option<Slot> {
        let mut lists = self.classes[class].lists.lock();
        let open = self.pop(class, &mut lists.open).inspect(|_| {
            self.open.fetch_sub(1, Ordering::Relaxed);
        });
        let slot = open.or_else(|| self.pop(class, &mut lists.idle))?;
        // One that its user keeps is not counted as idle.
        if self.is_closed(slot) {
            self.idle_pages.fetch_sub(self.deep(slot), Ordering::Relaxed);
        }
        Some(slot)
    }

    /// Unmaps all pages of a slot but the top one, or the ones that it keeps; returns how many.
    fn uncommit_slot(&self, slot: Slot, round: &mut Round) -> usize {
        let header = self.backing.header(slot);
        let keep = header.closing.load(Ordering::Relaxed).max(1) as usize;
        let deep = header.deep.swap(keep as u32 - 1, Ordering::Relaxed) as usize;
        let mut pages = 0;
        for n in keep..=deep {
            if round.frames.is_full() {
                self.backing.forget(&round.frames);
                round.frames.clear();
            }
            if let Some(frame) = self.backing.uncommit(slot.page_from_top(n)) {
                round.frames.push(frame);
                pages += 1;
            }
        }
        round.slots.push(slot);
        pages
    }

    /// Flushes a round on all CPUs; only then may the slots be recycled.
    fn finish(&self, round: &mut Round) {
        if round.slots.is_empty() {
            return;
        }
        self.backing.forget(&round.frames);
        for slot in round.slots.drain(..) {
            // A slot that its user keeps may be used down to its end again.
            if self.backing.header(slot).closing.swap(0, Ordering::Release) == 0 {
                self.list(slot);
            }
        }
        round.frames.clear();
    }

    /// [`Header::deep`] of a slot, which the caller owns.
    pub fn deep(&self, slot: Slot) -> usize {
        self.backing.header(slot).deep()
    }

    fn pop(&self, class: usize, head: &mut u32) -> Option<Slot> {
        let slot = Slot::new(class, head.checked_sub(1)?);
        *head = self.backing.header(slot).next.load(Ordering::Relaxed);
        Some(slot)
    }

    fn push(&self, head: &mut u32, slot: Slot) {
        self.backing.header(slot).next.store(*head, Ordering::Relaxed);
        *head = slot.index() + 1;
    }
}

#[cfg(test)]
mod tests;
