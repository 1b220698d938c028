//! A physical memory of tables only, for tests.

use super::super::{ENTRIES, PhysMemory, Space, Table};
use crate::arch::paging::PAGE_SIZE;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const MOST: usize = 64;

/// Frames 1.. are tables; frame 1 is the root.
pub struct FakeMemory {
    tables: Vec<Table>,
    used: AtomicUsize,
    limit: AtomicUsize,
    pub freed: AtomicUsize,
}

impl FakeMemory {
    /// Room for a root and `count` more tables.
    pub fn new(count: usize) -> Self {
        let empty = || Table([const { AtomicU64::new(0) }; ENTRIES]);
        FakeMemory {
            tables: (0..MOST + 2).map(|_| empty()).collect(),
            used: AtomicUsize::new(2),
            limit: AtomicUsize::new(2 + count.min(MOST)),
            freed: AtomicUsize::new(0),
        }
    }

    /// The table in the frame at `phys`.
    pub fn at(&self, phys: u64) -> &Table {
        &self.tables[phys as usize / PAGE_SIZE]
    }

    /// Room for `count` more.
    pub fn add(&self, count: usize) {
        let limit = self.limit.load(Ordering::Relaxed) + count;
        self.limit.store(limit.min(self.tables.len()), Ordering::Relaxed);
    }
}

/// The space of the root in frame 1.
pub fn space(memory: &FakeMemory) -> Space<&FakeMemory> {
    Space::new(PAGE_SIZE as u64, memory)
}

impl PhysMemory for &FakeMemory {
    fn table(&self, phys: u64) -> &Table {
        self.at(phys)
    }

    fn alloc_table(&self) -> Option<u64> {
        let limit = self.limit.load(Ordering::Relaxed);
        let take = |used: usize| (used < limit).then_some(used + 1);
        let index = self.used.try_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some((index * PAGE_SIZE) as u64)
    }

    fn free_table(&self, _: u64) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }
}
