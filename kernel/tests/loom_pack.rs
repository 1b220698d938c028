//! Packing a page against touches of it, in all interleavings: no write is lost, none goes to a frame
//! that has another holder, and no block has two.
//!
//! A CPU has a TLB of one translation. It answers a shootdown between two accesses, never inside its
//! page-fault handler. The entry and the blocks are the kernel's own files.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p runnext --profile loom --test loom_pack`
#![cfg(loom)]
#![allow(dead_code, missing_docs, reason = "the source is written for another crate")]

#[path = "../src/mem/stack/pack/blocks.rs"]
mod blocks;
#[path = "../src/mem/stack/pack/entry.rs"]
mod entry;

/// What they need of the kernel.
mod sys {
    pub use loom::sync::atomic::{AtomicU64, AtomicUsize};

    pub fn present_entry(phys: u64) -> u64 {
        phys | 1
    }
}

use blocks::{Block, Blocks, Memory};
use entry::{Entry, Found};
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::thread;
use sys::{AtomicU64, AtomicUsize};

const PAGE: u64 = 4096;
/// The frame that is packed, and those that touches get.
const FIRST: u64 = PAGE;
/// What another holder writes to a frame, or to a block, that was freed.
const FOREIGN: u64 = 99;

/// One page: its entry, its frames (a word for each toucher), the block, and the shootdown.
struct Machine {
    entry: AtomicU64,
    frames: Vec<[AtomicU64; 2]>,
    block: [AtomicU64; 2],
    is_block_free: AtomicUsize,
    asked: AtomicUsize,
    answered: [AtomicUsize; 2],
}

const BLOCK: Block = Block { at: 64 * PAGE, bytes: 16 };

impl Machine {
    fn new() -> Arc<Self> {
        let pair = || [AtomicU64::new(0), AtomicU64::new(0)];
        Arc::new(Machine {
            entry: AtomicU64::new(sys::present_entry(FIRST)),
            frames: (0..4).map(|_| pair()).collect(),
            block: pair(),
            is_block_free: AtomicUsize::new(1),
            asked: AtomicUsize::new(0),
            answered: [AtomicUsize::new(0), AtomicUsize::new(0)],
        })
    }

    fn frame(&self, phys: u64) -> &[AtomicU64; 2] {
        &self.frames[(phys / PAGE) as usize]
    }

    /// The packer, with a shootdown of so many CPUs. True if the page was packed.
    fn pack(&self, cpus: usize) -> bool {
        let entry = Entry::new(&self.entry);
        let Some(frame) = entry.unmap() else { return false };
        self.asked.store(1, Release);
        for cpu in 0..cpus {
            while self.answered[cpu].load(Acquire) == 0 {
                thread::yield_now();
            }
        }
        assert_eq!(self.is_block_free.swap(0, AcqRel), 1);
        for (from, to) in self.frame(frame).iter().zip(&self.block) {
            to.store(from.load(Relaxed), Relaxed);
        }
        let is_packed = entry.pack(frame, BLOCK);
        if is_packed {
            self.frame(frame).iter().for_each(|word| word.store(FOREIGN, Relaxed));
        } else {
            self.is_block_free.store(1, Release);
        }
        is_packed
    }

    /// The page-fault handler of a CPU, which has a frame in reserve.
    fn fault(&self, spare: u64) {
        let entry = Entry::new(&self.entry);
        match entry.found() {
            Found::Moving => _ = entry.take_back(),
            Found::Packed(block) => {
                for (from, to) in self.block.iter().zip(self.frame(spare)) {
                    to.store(from.load(Relaxed), Relaxed);
                }
                if entry.unpack(block, spare) {
                    // The next holder of the block, while the other handler may still copy it.
                    self.block.iter().for_each(|word| word.store(FOREIGN, Relaxed));
                    self.is_block_free.store(1, Release);
                }
            }
            Found::Present(_) | Found::Nothing => {}
        }
    }

    /// A CPU touches the page: the frame that it finds in its TLB or in the entry.
    fn touch(&self, tlb: &mut Option<u64>, spare: u64) -> u64 {
        loop {
            if let Some(frame) = *tlb {
                return frame;
            }
            let now = self.entry.load(Acquire);
            if now & 1 != 0 {
                *tlb = Some(now & !1);
            } else {
                self.fault(spare);
                thread::yield_now();
            }
        }
    }

    fn answer(&self, cpu: usize, tlb: &mut Option<u64>) {
        if self.asked.load(Acquire) == 1 && self.answered[cpu].load(Relaxed) == 0 {
            *tlb = None;
            self.answered[cpu].store(1, Release);
        }
    }

    /// A CPU that has used the page before, writes to it, and reads what it wrote.
    fn use_it(&self, cpu: usize, writes: u64) {
        let spare = (2 + cpu as u64) * PAGE;
        let mut tlb = Some(FIRST);
        for value in 1..=writes {
            let frame = self.touch(&mut tlb, spare);
            self.frame(frame)[cpu].store(value, Relaxed);
            self.answer(cpu, &mut tlb);
        }
        let frame = self.touch(&mut tlb, spare);
        assert_eq!(self.frame(frame)[cpu].load(Relaxed), writes, "a write was lost");
        // It has no translation from here on, and takes none.
        self.answered[cpu].store(1, Release);
    }
}

/// As `loom::model`, for three threads: with three preemptions at most.
fn bounded(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// The value of each word at the end, wherever the page is.
fn at_the_end(machine: &Machine) -> [u64; 2] {
    let mut tlb = None;
    let frame = machine.touch(&mut tlb, 2 * PAGE);
    [0, 1].map(|cpu| machine.frame(frame)[cpu].load(Relaxed))
}

#[test]
fn a_write_is_never_lost_while_the_page_is_packed() {
    loom::model(|| {
        let machine = Machine::new();
        let toucher = {
            let machine = machine.clone();
            thread::spawn(move || machine.use_it(0, 2))
        };
        machine.pack(1);
        toucher.join().unwrap();
        assert_eq!(at_the_end(&machine)[0], 2);
    });
}

#[test]
fn of_two_touches_of_a_packed_page_both_see_the_same_frame() {
    loom::model(|| {
        let machine = Machine::new();
        machine.frame(FIRST).iter().for_each(|word| word.store(7, Relaxed));
        assert!(machine.pack(0));
        let touchers = [0, 1].map(|cpu| {
            let machine = machine.clone();
            thread::spawn(move || {
                let frame = machine.touch(&mut None, (2 + cpu) * PAGE);
                assert_eq!(machine.frame(frame)[cpu as usize].load(Relaxed), 7, "a foreign block");
                machine.frame(frame)[cpu as usize].store(cpu + 1, Relaxed);
            })
        });
        touchers.into_iter().for_each(|toucher| toucher.join().unwrap());
        assert_eq!(at_the_end(&machine), [1, 2]);
    });
}

#[test]
fn a_touch_takes_the_frame_back_or_waits_for_no_one() {
    bounded(|| {
        let machine = Machine::new();
        let touchers = [0, 1].map(|cpu| {
            let machine = machine.clone();
            thread::spawn(move || machine.use_it(cpu, 1))
        });
        machine.pack(2);
        touchers.into_iter().for_each(|toucher| toucher.join().unwrap());
        assert_eq!(at_the_end(&machine), [1, 1]);
    });
}

#[test]
fn a_late_handler_does_not_unpack_what_was_packed_again_into_the_same_block() {
    loom::model(|| {
        let machine = Machine::new();
        assert!(machine.pack(0));
        let late = {
            let machine = machine.clone();
            thread::spawn(move || {
                machine.fault(2 * PAGE);
                machine.answered[0].store(1, Release);
            })
        };
        let frame = machine.touch(&mut None, 3 * PAGE);
        machine.frame(frame)[1].store(7, Relaxed);
        assert!(machine.pack(1));
        late.join().unwrap();
        assert_eq!(at_the_end(&machine)[1], 7, "the page went back in time");
    });
}

/// As `peek` reads a word.
fn peek(machine: &Machine) -> u64 {
    let entry = Entry::new(&machine.entry);
    loop {
        match entry.found() {
            Found::Nothing => panic!("the page holds something"),
            Found::Present(frame) => return machine.frame(frame)[0].load(Relaxed),
            Found::Moving => _ = entry.take_back(),
            Found::Packed(block) => {
                let value = machine.block[0].load(Relaxed);
                if entry.is_still(block) {
                    return value;
                }
            }
        }
    }
}

#[test]
fn a_word_is_read_in_place_while_the_page_is_packed_and_unpacked() {
    loom::model(|| {
        let machine = Machine::new();
        machine.frame(FIRST)[0].store(7, Relaxed);
        let reader = {
            let machine = machine.clone();
            thread::spawn(move || {
                assert_eq!(peek(&machine), 7, "a foreign word");
                machine.answered[0].store(1, Release);
            })
        };
        machine.pack(1);
        machine.touch(&mut None, 2 * PAGE);
        reader.join().unwrap();
    });
    loom::model(|| {
        let machine = Machine::new();
        machine.frame(FIRST)[0].store(7, Relaxed);
        assert!(machine.pack(0));
        let reader = {
            let machine = machine.clone();
            thread::spawn(move || assert_eq!(peek(&machine), 7, "a foreign word"))
        };
        machine.touch(&mut None, 2 * PAGE);
        reader.join().unwrap();
    });
}

/// Pages of blocks: their first two words.
struct Pages {
    words: Vec<[AtomicU64; 2]>,
    free: AtomicUsize,
}

impl Memory for Pages {
    fn alloc(&self) -> Option<u64> {
        let next = self.free.fetch_add(1, Relaxed);
        (next < self.words.len()).then_some(next as u64 * PAGE)
    }

    fn free(&self, page: u64) {
        self.words[(page / PAGE) as usize].iter().for_each(|word| word.store(FOREIGN, Relaxed));
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[(at / PAGE) as usize][(at % PAGE / 8) as usize]
    }
}

#[test]
fn blocks_that_two_cpus_return_are_taken_once() {
    bounded(|| {
        let pair = || [AtomicU64::new(0), AtomicU64::new(0)];
        let pages = Pages { words: (0..3).map(|_| pair()).collect(), free: AtomicUsize::new(1) };
        let shared = Arc::new((Blocks::new(), pages));
        let (blocks, pages) = &*shared;
        // A page of three, full.
        let taken = [0; 3].map(|_| blocks.take(blocks::LARGEST, pages).unwrap().at);
        let returners = [0, 1].map(|n| {
            let shared = shared.clone();
            thread::spawn(move || shared.0.put(taken[n], &shared.1))
        });
        let more = blocks.take(blocks::LARGEST, pages).unwrap().at;
        assert_ne!(more, taken[2]);
        returners.into_iter().for_each(|returner| returner.join().unwrap());
        let again = blocks.take(blocks::LARGEST, pages).unwrap().at;
        assert!(again != more && again != taken[2]);
        blocks.put(taken[2], pages);
        [more, again].iter().for_each(|&block| blocks.put(block, pages));
        blocks.sweep(pages);
        assert_eq!(blocks.pages(), 0, "every page comes back");
    });
}
