//! The heap's pages: free runs of them, committed or uncommitted.
//!
//! All addresses below `top` are pages, and each page has a [`Record`] beside the heap, found by
//! its number. Free neighbours form one *run*; the records of its first and its last page hold its
//! length, so freeing a page finds the runs beside it without a search, and merges them. Runs are
//! on lists by length: one list for each length up to 32 pages, then one for each power of two.
//!
//! A run has memory in all of its pages or in none. Pages without memory were never used, or were
//! uncommitted when frames were short ([`Pages::take_out`]); they get memory when they are taken.
//! So a large request never fails for want of neighbours: there are always addresses, and any
//! frames will do. Runs of different kinds do not merge.
//!
//! # What was rejected
//!
//! - *A list of holes, sorted by address*: freeing walks it, and small blocks must be sorted to
//!   become holes again, a hundred thousand at a time, with interrupts off for seconds. The crate
//!   `linked_list_allocator` keeps such a list, for a region with few holes (`mem::dma`).
//! - *Runs with memory in some of their pages*: fewer runs, but then a request must read each
//!   page's record of each run to know what it would cost.
//! - *Buddies*: a request for 5 pages would take 8.
//!
//! Called by [`super::classes`] under its lock; the lists of records also serve [`super::slabs`].

use core::ops::Range;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

/// The fewest and the most pages of addresses taken at a time: records are made under the lock.
const CHUNK: usize = 64;
const MOST_AT_ONCE: usize = 2048;
/// Runs that are tried on lists whose runs may not fit.
const LOOKS: usize = 32;
/// Runs up to this length have a list for each length.
const SHORT: usize = 32;
const LISTS: usize = SHORT + (SPAN.ilog2() - SHORT.ilog2()) as usize + 1;
/// The bits of a length; the bit above them says that the run has memory.
const SPAN: u32 = MEMORY - 1;
const MEMORY: u32 = 1 << 31;
/// The heap has at most this many pages, so that their numbers fit a link.
pub const MOST: usize = SPAN as usize;

/// Where the heap's memory comes from: one range of pages, with a record each.
///
/// # Safety
///
/// `base()` is always the same pointer, as aligned as any block is asked to be, and at least to a
/// page; the page with number `n` begins `n` pages above it. The heap alone may use it, from when
/// `commit` gave it memory until it was taken out. `record` gives each page its own.
pub unsafe trait Source {
    fn base(&self) -> *mut u8;
    /// The record of a page, for which `prepare` was called.
    fn record(&self, page: usize) -> &Record;
    /// Makes new records for these pages, all zero; false: it cannot.
    fn prepare(&self, pages: Range<usize>) -> bool;
    /// Whether memory for that many pages is available. Checked first, not found out on the
    /// way: one absurd request must not move all memory here before it fails.
    fn can_have(&self, pages: usize) -> bool;
    /// Commits these pages, from the first on; returns how many have memory now.
    fn commit(&self, pages: Range<usize>) -> usize;
}

/// The record of a page. Zero is a page that is in use and on no list.
///
/// Atomic, so that a shared reference is enough to change it, under the heap's lock.
#[cfg_attr(test, derive(Default))]
pub struct Record {
    /// At both ends of a free run: how long it is, and whether it has memory. Else 0.
    span: AtomicU32,
    /// Neighbours on a list: the page's number plus one, or 0.
    next: AtomicU32,
    prev: AtomicU32,
    /// Of a page with small blocks: the number of free blocks in it, and the first of them.
    pub(super) count: AtomicU32,
    pub(super) head: AtomicPtr<Block>,
}

/// A free block: it holds only the link.
pub struct Block {
    pub(super) next: *mut Block,
}

/// Whether the pages of a run have memory: none of them, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Without,
    With,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Taken {
    /// Pages with memory, from this one on.
    With(usize),
    /// Pages without memory, to commit or put back, and count off [`Pages::promised`].
    Without(usize),
    /// None yet, but the heap has more addresses than before: call again.
    NotYet,
}

/// The free pages. All methods take the same source.
pub struct Pages {
    /// Pages that have a record.
    pub(super) top: usize,
    /// Pages that were taken without memory and will be committed.
    pub(super) promised: usize,
    /// By kind and length.
    runs: [[List; LISTS]; 2],
    /// Free pages, by kind.
    pub(super) free: [usize; 2],
}

impl Pages {
    pub const fn new() -> Self {
        Pages { top: 0, promised: 0, runs: [const { [List::EMPTY; LISTS] }; 2], free: [0; 2] }
    }

    /// `count` neighbours, the first at a multiple of `align`: one step towards them, which
    /// takes no longer for many pages than for few. None: there is no memory for them.
    pub fn take<S: Source>(&mut self, source: &S, count: usize, align: usize) -> Option<Taken> {
        if let Some(first) = self.take_run(source, Kind::With, count, align) {
            return Some(Taken::With(first));
        }
        if !source.can_have(count + self.promised) {
            return None;
        }
        if let Some(first) = self.take_run(source, Kind::Without, count, align) {
            self.promised += count;
            return Some(Taken::Without(first));
        }
        self.grow(source, count + align - 1)?;
        Some(Taken::NotYet)
    }

    /// Takes out at most `most` free pages that have memory, neighbours, to use it elsewhere. They
    /// belong to the caller until it [`put`](Self::put)s them back.
    pub fn take_out<S: Source>(&mut self, source: &S, most: usize) -> Option<Range<usize>> {
        let lists = &self.runs[Kind::With as usize];
        let first = lists.iter().rev().find_map(List::first)?;
        let length = (source.record(first).span.load(Relaxed) & SPAN) as usize;
        let count = length.min(most);
        self.unlink(source, first..first + length, Kind::With);
        self.put(source, first + count..first + length, Kind::With);
        (count > 0).then_some(first..first + count)
    }

    /// A run that is long enough, from the lists with the shortest runs first. Any run on a list
    /// beyond `sure` fits; on the others only some runs are tried, as the caller holds the lock.
    /// The memory of the rest returns by [`take_out`](Self::take_out) before a request that can
    /// wait fails.
    fn take_run<S: Source>(
        &mut self,
        source: &S,
        kind: Kind,
        count: usize,
        align: usize,
    ) -> Option<usize> {
        let lists = &self.runs[kind as usize];
        let sure = (list_for(count + align - 1) + 1).min(LISTS);
        let fits = |start: usize| {
            let end = start + (source.record(start).span.load(Relaxed) & SPAN) as usize;
            let first = start.next_multiple_of(align);
            (first + count <= end).then_some((start..end, first))
        };
        let unsure = lists[list_for(count)..sure].iter().flat_map(|list| list.iter(source));
        let (run, first) = unsure
            .take(LOOKS)
            .chain(lists[sure..].iter().filter_map(List::first))
            .find_map(fits)?;
        self.unlink(source, run.clone(), kind);
        self.put(source, run.start..first, kind);
        self.put(source, first + count..run.end, kind);
        Some(first)
    }

    /// Adds addresses at the top: a chunk if there is room, else what is needed, or a part of it.
    fn grow<S: Source>(&mut self, source: &S, need: usize) -> Option<()> {
        let need = need.min(MOST_AT_ONCE);
        let count = [need.max(CHUNK), need].into_iter().find(|&count| {
            count <= MOST - self.top && source.prepare(self.top..self.top + count)
        })?;
        let pages = self.top..self.top + count;
        self.top = pages.end;
        self.put(source, pages, Kind::Without);
        Some(())
    }

    /// Frees pages: makes them a run, merged with neighbouring runs of the same kind.
    pub fn put<S: Source>(&mut self, source: &S, pages: Range<usize>, kind: Kind) {
        if pages.is_empty() {
            return;
        }
        let Range { mut start, mut end } = pages;
        if let Some(length) = start.checked_sub(1).and_then(|last| free_at(source, last, kind)) {
            self.unlink(source, start - length..start, kind);
            start -= length;
        }
        if end < self.top
            && let Some(length) = free_at(source, end, kind)
        {
            self.unlink(source, end..end + length, kind);
            end += length;
        }
        let length = end - start;
        let span = length as u32 | if kind == Kind::With { MEMORY } else { 0 };
        source.record(start).span.store(span, Relaxed);
        source.record(end - 1).span.store(span, Relaxed);
        self.free[kind as usize] += length;
        self.runs[kind as usize][list_for(length)].push(source, start);
    }

    fn unlink<S: Source>(&mut self, source: &S, run: Range<usize>, kind: Kind) {
        source.record(run.start).span.store(0, Relaxed);
        source.record(run.end - 1).span.store(0, Relaxed);
        self.free[kind as usize] -= run.len();
        self.runs[kind as usize][list_for(run.len())].remove(source, run.start);
    }
}

/// The length of the free run of that kind that has this page at one of its ends.
fn free_at<S: Source>(source: &S, page: usize, kind: Kind) -> Option<usize> {
    let span = source.record(page).span.load(Relaxed);
    let is_it = span != 0 && (span & MEMORY != 0) == (kind == Kind::With);
    is_it.then_some((span & SPAN) as usize)
}

/// The list of runs of that length. At least one page.
const fn list_for(length: usize) -> usize {
    if length <= SHORT { length - 1 } else { SHORT + (length.ilog2() - SHORT.ilog2()) as usize }
}

/// Pages on a list, linked through their records.
pub struct List {
    /// The number of the first page plus one, or 0.
    head: u32,
}

impl List {
    pub const EMPTY: List = List { head: 0 };

    pub fn first(&self) -> Option<usize> {
        self.head.checked_sub(1).map(|page| page as usize)
    }

    /// Inserts a page, which is on no list, at the front.
    pub fn push<S: Source>(&mut self, source: &S, page: usize) {
        let record = source.record(page);
        record.prev.store(0, Relaxed);
        record.next.store(self.head, Relaxed);
        let link = page as u32 + 1;
        if let Some(next) = self.first() {
            source.record(next).prev.store(link, Relaxed);
        }
        self.head = link;
    }

    /// Removes a page, wherever it is on the list.
    pub fn remove<S: Source>(&mut self, source: &S, page: usize) {
        let record = source.record(page);
        let (next, prev) = (record.next.load(Relaxed), record.prev.load(Relaxed));
        match prev.checked_sub(1) {
            Some(prev) => source.record(prev as usize).next.store(next, Relaxed),
            None => self.head = next,
        }
        if let Some(next) = next.checked_sub(1) {
            source.record(next as usize).prev.store(prev, Relaxed);
        }
    }

    fn iter<S: Source>(&self, source: &S) -> impl Iterator<Item = usize> {
        core::iter::successors(self.first(), |&page| {
            source.record(page).next.load(Relaxed).checked_sub(1).map(|next| next as usize)
        })
    }
}
