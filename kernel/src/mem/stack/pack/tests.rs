//! Blocks over pages of the host.

use super::blocks::{Block, Blocks, HEAD, LARGEST, Memory, PAGE};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::collections::HashMap;
use std::sync::Mutex;

/// Pages by address; there are `room` at the most.
struct Fake {
    pages: Mutex<HashMap<u64, &'static [AtomicU64; 512]>>,
    made: AtomicU64,
    room: usize,
}

impl Fake {
    fn new(room: usize) -> Self {
        Fake { pages: Mutex::default(), made: AtomicU64::new(0), room }
    }

    fn count(&self) -> usize {
        self.pages.lock().unwrap().len()
    }
}

impl Memory for Fake {
    fn alloc(&self) -> Option<u64> {
        let mut pages = self.pages.lock().unwrap();
        let page = (self.made.fetch_add(1, Relaxed) + 1) * PAGE;
        let words = || Box::leak(Box::new([const { AtomicU64::new(u64::MAX) }; 512]));
        (pages.len() < self.room).then(|| pages.insert(page, words())).map(|_| page)
    }

    fn free(&self, page: u64) {
        assert!(self.pages.lock().unwrap().remove(&page).is_some(), "freed twice");
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        let pages = self.pages.lock().unwrap();
        &pages.get(&(at & !(PAGE - 1))).expect("a page that is there")[(at % PAGE / 8) as usize]
    }
}

#[test]
fn blocks_are_apart_and_inside_their_page() {
    for bytes in (16..=LARGEST).step_by(16) {
        let (blocks, memory) = (Blocks::new(), Fake::new(2));
        let taken: Vec<Block> = (0..3).map(|_| blocks.take(bytes, &memory).unwrap()).collect();
        for pair in taken.windows(2) {
            assert!(pair[0].at + bytes as u64 <= pair[1].at, "{bytes} bytes overlap");
        }
        for block in taken {
            assert!(block.at % PAGE >= HEAD && block.at % PAGE + bytes as u64 <= PAGE);
            assert!(block.at.is_multiple_of(16));
        }
        assert_eq!(memory.count(), 1);
    }
    assert_eq!(Blocks::new().take(LARGEST + 1, &Fake::new(1)), None);
}

#[test]
fn a_usual_stack_takes_a_14th_of_a_page() {
    let (blocks, memory) = (Blocks::new(), Fake::new(2));
    for _ in 0..14 {
        blocks.take(280, &memory).unwrap();
    }
    assert_eq!(blocks.pages(), 1);
    blocks.take(280, &memory).unwrap();
    assert_eq!(blocks.pages(), 2);
}

#[test]
fn a_returned_block_is_taken_again_before_a_new_page_is_made() {
    let (blocks, memory) = (Blocks::new(), Fake::new(2));
    let taken: Vec<Block> = (0..6).map(|_| blocks.take(1000, &memory).unwrap()).collect();
    assert_eq!(blocks.pages(), 2, "four to a page");
    blocks.put(taken[1].at, &memory);
    let more: Vec<u64> = (0..3).map(|_| blocks.take(1000, &memory).unwrap().at).collect();
    assert!(more.contains(&taken[1].at));
    assert_eq!(blocks.take(1000, &memory), None, "no third page");
}

#[test]
fn a_page_is_freed_when_its_last_block_is_back_and_not_before() {
    let (blocks, memory) = (Blocks::new(), Fake::new(9));
    let taken: Vec<Block> = (0..9).map(|_| blocks.take(1300, &memory).unwrap()).collect();
    assert_eq!((blocks.sweep(&memory), memory.count()), (0, 3));
    taken[..4].iter().for_each(|block| blocks.put(block.at, &memory));
    assert_eq!((blocks.sweep(&memory), memory.count()), (1, 2));
    taken[4..].iter().for_each(|block| blocks.put(block.at, &memory));
    assert_eq!((blocks.sweep(&memory), memory.count(), blocks.pages()), (2, 0, 0));
}
