//! Free small blocks that are in no cache, by the page that they are in.
//!
//! A page that was cut into blocks of one class is a *slab*. Its record holds the list of its free
//! blocks and their number: so when its last block returns, the page is known to be free without a
//! search, and goes back to the pages, where any class and any large request can take it. Each
//! class keeps one spare page, so that a load that alternates does not cut pages again and again. A
//! block in the cache of a CPU is not in its page's record ([`super::classes::Allocator::trim`]).
//!
//! Called by [`super::classes`], under its lock.

use super::pages::{Block, Kind, List, Pages, Record, Source};
use crate::mem::PAGE_SIZE;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::Relaxed;

pub struct Slabs {
    /// Pages some of whose blocks are free.
    some: List,
    /// A page all of whose blocks are free.
    spare: Option<usize>,
}

impl Slabs {
    pub const EMPTY: Slabs = Slabs { some: List::EMPTY, spare: None };

    /// Up to `count` blocks.
    pub fn take<S: Source>(&mut self, source: &S, count: usize) -> FreeList {
        let mut taken = FreeList::EMPTY;
        while taken.count < count {
            if self.some.first().is_none()
                && let Some(page) = self.spare.take()
            {
                self.some.push(source, page);
            }
            let Some(page) = self.some.first() else { break };
            let mut rest = FreeList::of(source.record(page));
            taken.take_from(&mut rest, count - taken.count);
            rest.store(source.record(page));
            if rest.count == 0 {
                self.some.remove(source, page);
            }
        }
        taken
    }

    /// Frees blocks of `size` bytes. Pages that are free now, except one spare, go back to `pages`.
    pub fn put<S: Source>(
        &mut self,
        source: &S,
        size: usize,
        mut list: FreeList,
        pages: &mut Pages,
    ) {
        while let Some(block) = list.pop() {
            let page = (block.addr().get() - source.base().addr()) / PAGE_SIZE;
            let mut home = FreeList::of(source.record(page));
            // SAFETY: popped just now, so it is on no list.
            unsafe { home.push(block) };
            home.store(source.record(page));
            if home.count == 1 {
                self.some.push(source, page);
            }
            if home.count == PAGE_SIZE / size {
                self.some.remove(source, page);
                self.give_up(source, pages);
                self.spare = Some(page);
            }
        }
    }

    /// Cuts a page, which is the caller's, into blocks of `size` bytes.
    ///
    /// # Safety
    ///
    /// The page has memory, and is unused.
    pub unsafe fn cut<S: Source>(&mut self, source: &S, size: usize, page: usize) {
        let mut list = FreeList::EMPTY;
        for at in (0..PAGE_SIZE).step_by(size).rev() {
            // SAFETY: in the heap's range, by the promise of the source.
            let block = unsafe { source.base().add(page * PAGE_SIZE + at) };
            let Some(block) = NonNull::new(block.cast()) else { return };
            // SAFETY: a part of that page, aligned to its size, and unused.
            unsafe { list.push(block) };
        }
        list.store(source.record(page));
        self.some.push(source, page);
    }

    pub fn give_up<S: Source>(&mut self, source: &S, pages: &mut Pages) {
        if let Some(page) = self.spare.take() {
            pages.put(source, page..page + 1, Kind::With);
        }
    }
}

/// Free blocks of one class, last in first out.
pub struct FreeList {
    head: *mut Block,
    pub(super) count: usize,
}

// SAFETY: blocks on a list belong to the list, wherever it goes.
unsafe impl Send for FreeList {}

impl FreeList {
    pub const EMPTY: FreeList = FreeList { head: ptr::null_mut(), count: 0 };

    /// The list of a record, which is not used before this one is stored there.
    fn of(record: &Record) -> Self {
        let count = record.count.load(Relaxed) as usize;
        FreeList { head: record.head.load(Relaxed), count }
    }

    fn store(&self, record: &Record) {
        record.head.store(self.head, Relaxed);
        record.count.store(self.count as u32, Relaxed);
    }

    /// # Safety
    ///
    /// `block` is free memory of at least 16 bytes, aligned to 16, on no list.
    #[inline]
    pub unsafe fn push(&mut self, block: NonNull<Block>) {
        // SAFETY: free memory of the right size, by the caller's promise.
        unsafe { block.write(Block { next: self.head }) };
        self.head = block.as_ptr();
        self.count += 1;
    }

    #[inline]
    pub fn pop(&mut self) -> Option<NonNull<Block>> {
        let block = NonNull::new(self.head)?;
        // SAFETY: blocks on the list belong to it, and `push` wrote them.
        self.head = unsafe { block.read() }.next;
        self.count -= 1;
        Some(block)
    }

    /// Moves up to `count` blocks of `other` to the front of this list.
    pub fn take_from(&mut self, other: &mut FreeList, count: usize) {
        for _ in 0..count {
            let Some(block) = other.pop() else { return };
            // SAFETY: popped just now, so it is on no list.
            unsafe { self.push(block) };
        }
    }
}
