//! Blocks: several to a page, for the used parts of stacks.
//!
//! A page has blocks of one size, as many as fit: that number is its class. The first word of the
//! page says which are in use. **The packer alone takes blocks; any CPU returns one**, in a page
//! fault, by clearing its bit. A page of which a block was returned goes to the list of its class
//! ([`Blocks::returned`]), unless it is *listed* already; the packer takes the whole list at once,
//! so an entry never leaves it behind the back of a CPU that adds one. Pages without a block in use
//! are freed by the packer ([`Blocks::sweep`]). The model `loom_pack` compiles this very file.

use super::sys::{AtomicU64, AtomicUsize};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

pub(super) const PAGE: u64 = 4096;
/// At the head of a page: its state, and the next page of the same list.
pub(super) const HEAD: u64 = 16;
const NEXT: u64 = 8;
/// The fewest and the most blocks of a page.
const LEAST: u64 = 3;
const MOST: u64 = 16;
const CLASSES: usize = (MOST - LEAST + 1) as usize;
pub const LARGEST: usize = bytes_of(LEAST) as usize;

// The state of a page: a bit for each block in use, its class, and whether it is listed: in a list,
// or the packer's.
const CLASS_SHIFT: u32 = 32;
const USED: u64 = (1 << CLASS_SHIFT) - 1;
const LISTED: u64 = 1 << 63;

/// A block: its physical address, and how many bytes of it are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub at: u64,
    pub bytes: usize,
}

/// The memory that blocks are in.
pub trait Memory {
    fn alloc(&self) -> Option<u64>;
    fn free(&self, page: u64);
    fn word(&self, at: u64) -> &AtomicU64;
}

pub struct Blocks {
    /// Pages of which blocks were returned, by class.
    returned: [AtomicU64; CLASSES],
    /// Pages that the packer takes from. Its own.
    own: [AtomicU64; CLASSES],
    pages: AtomicUsize,
}

/// Bytes of a block if a page has so many.
const fn bytes_of(class: u64) -> u64 {
    (PAGE - HEAD) / class / 16 * 16
}

impl Blocks {
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Blocks {
            returned: [const { AtomicU64::new(0) }; CLASSES],
            own: [const { AtomicU64::new(0) }; CLASSES],
            pages: AtomicUsize::new(0),
        }
    }

    #[cfg(loom)]
    pub fn new() -> Self {
        let words = || core::array::from_fn(|_| AtomicU64::new(0));
        Blocks { returned: words(), own: words(), pages: AtomicUsize::new(0) }
    }

    /// How many pages there are.
    pub fn pages(&self) -> usize {
        self.pages.load(Relaxed)
    }

    /// A block for so many bytes. The packer only.
    pub fn take(&self, bytes: usize, memory: &impl Memory) -> Option<Block> {
        let class = (LEAST..=MOST).rev().find(|&class| bytes_of(class) >= bytes as u64)?;
        let (own, returned) = (&self.own[index(class)], &self.returned[index(class)]);
        loop {
            let mut page = own.load(Relaxed);
            if page == 0 {
                page = returned.swap(0, Acquire); // pairs with `put`: the links
            }
            if page == 0 {
                page = memory.alloc()?;
                self.pages.fetch_add(1, Relaxed);
                memory.word(page).store(LISTED | class << CLASS_SHIFT, Relaxed);
                memory.word(page + NEXT).store(0, Relaxed);
            }
            own.store(page, Relaxed);
            let state = memory.word(page);
            let now = state.load(Relaxed);
            let block = (!now & USED).trailing_zeros() as u64;
            if block < class {
                // Acquire: the CPU that returned it has read it.
                state.fetch_or(1 << block, Acquire);
                return Some(Block { at: page + HEAD + block * bytes_of(class), bytes });
            }
            // It is full: from here on it is found by its blocks. Unless one was returned just now.
            own.store(memory.word(page + NEXT).load(Relaxed), Relaxed);
            if state.compare_exchange(now, now & !LISTED, Release, Relaxed).is_err() {
                self.list(page, class, memory);
            }
        }
    }

    /// Returns the block at this address. Any CPU, any context.
    pub fn put(&self, block: u64, memory: &impl Memory) {
        let page = block & !(PAGE - 1);
        let state = memory.word(page);
        let class = (state.load(Relaxed) & !LISTED) >> CLASS_SHIFT;
        let bit = 1 << ((block - page - HEAD) / bytes_of(class));
        let mut now = state.load(Relaxed);
        // Release: we have read the block; pairs with `take`. Acquire: the page is not the packer's
        // any more.
        while let Err(other) = state.compare_exchange(now, now & !bit | LISTED, AcqRel, Relaxed) {
            now = other;
        }
        if now & LISTED == 0 {
            self.list(page, class, memory);
        }
    }

    fn list(&self, page: u64, class: u64, memory: &impl Memory) {
        let head = &self.returned[index(class)];
        let mut first = head.load(Relaxed);
        loop {
            memory.word(page + NEXT).store(first, Relaxed);
            match head.compare_exchange(first, page, Release, Relaxed) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }

    /// Frees the pages of which no block is in use; how many. The packer only.
    pub fn sweep(&self, memory: &impl Memory) -> usize {
        let before = self.pages();
        for (own, returned) in self.own.iter().zip(&self.returned) {
            let mut kept = 0;
            for mut page in [own.load(Relaxed), returned.swap(0, Acquire)] {
                while page != 0 {
                    let next = memory.word(page + NEXT).load(Relaxed);
                    // Acquire: its blocks were read. No block of a page without any is returned.
                    if memory.word(page).load(Acquire) & USED == 0 {
                        memory.free(page);
                        self.pages.fetch_sub(1, Relaxed);
                    } else {
                        memory.word(page + NEXT).store(kept, Relaxed);
                        kept = page;
                    }
                    page = next;
                }
            }
            own.store(kept, Relaxed);
        }
        before - self.pages()
    }
}

fn index(class: u64) -> usize {
    (class - LEAST) as usize
}
