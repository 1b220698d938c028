//! The bitmap of frames, in all interleavings: no frame has two holders, and none is lost.
//!
//! A frame is a cell of loom's, so that two holders at once, or one that does not see what the
//! holder before did, are found. The bitmap is the kernel's own file.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p runnext --profile loom --test loom_frames`
#![cfg(loom)]
#![allow(dead_code, missing_docs, reason = "the source is written for another crate")]

#[path = "../src/mem/frames/bitmap.rs"]
mod bitmap;

/// What the bitmap needs of the kernel.
mod sys {
    pub use loom::hint::spin_loop as relax;
    pub use loom::sync::atomic::{AtomicU64, AtomicUsize};

    pub const MAX_CPUS: usize = 1;
    /// All frames are counted.
    pub const FIRST: usize = 0;

    pub fn cpu_index() -> usize {
        0
    }
}

use bitmap::Bitmap;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

struct Machine {
    bitmap: Bitmap<'static>,
    frames: Vec<UnsafeCell<u32>>,
}

// SAFETY: loom checks every access to the cells.
unsafe impl Sync for Machine {}
// SAFETY: the same.
unsafe impl Send for Machine {}

impl Machine {
    /// Frames 1 to `count` are free.
    fn new(count: usize) -> Arc<Self> {
        Self::with(1..count + 1)
    }

    /// These frames are free, of the 128 of two words and their summary.
    fn with(free: core::ops::Range<usize>) -> Arc<Self> {
        let words = Box::leak(Box::new([0; 3].map(sys::AtomicU64::new)));
        let bitmap = Bitmap::new(words);
        let frames = (0..free.end).map(|_| UnsafeCell::new(0)).collect();
        bitmap.add(free);
        Arc::new(Machine { bitmap, frames })
    }

    /// Takes a frame, writes to it and frees it. False if there was none.
    fn use_one(&self) -> bool {
        self.use_some(1) == 1
    }

    /// Takes up to `most` frames at once, writes to each and frees it. How many it got.
    fn use_some(&self, most: usize) -> usize {
        let taken: Vec<usize> = self.bitmap.take(0, most).collect();
        for &index in &taken {
            // SAFETY: loom checks that this is the only holder.
            self.frames[index].with_mut(|uses| unsafe { *uses += 1 });
        }
        for &index in &taken {
            assert!(self.bitmap.put(index), "a double free");
        }
        taken.len()
    }

    fn uses(&self) -> u32 {
        // SAFETY: loom checks that no other thread writes.
        self.frames.iter().map(|frame| frame.with(|uses| unsafe { *uses })).sum()
    }
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn a_frame_has_one_holder_and_comes_back() {
    check(|| {
        let machine = Machine::new(1);
        let other = machine.clone();
        let other = thread::spawn(move || other.use_one());
        let mine = machine.use_one();
        let others = other.join().unwrap();
        // Either of them may find the other at it, but not both.
        assert!(mine || others);
        assert_eq!(machine.uses(), u32::from(mine) + u32::from(others));
        assert!(machine.use_one(), "lost");
    });
}

#[test]
fn where_there_are_enough_all_get_one() {
    check(|| {
        let machine = Machine::new(2);
        let other = machine.clone();
        let other = thread::spawn(move || other.use_one() && other.use_one());
        assert!(machine.use_one());
        assert!(other.join().unwrap());
        assert_eq!((machine.uses(), machine.bitmap.free()), (3, 2));
    });
}

#[test]
fn a_batch_and_a_frame_at_a_time_share_a_word() {
    check(|| {
        let machine = Machine::new(3);
        let other = machine.clone();
        let other = thread::spawn(move || other.use_some(2));
        let mine = machine.use_one();
        let others = other.join().unwrap();
        // A batch that was cut short has claimed more for a moment, but never all three.
        assert!(mine && (1..=2).contains(&others));
        assert_eq!((machine.uses(), machine.bitmap.free()), (1 + others as u32, 3));
    });
}

#[test]
fn a_mark_of_the_summary_that_a_search_clears_is_not_missed() {
    check(|| {
        // One frame in each word; both CPUs begin in the first word, so one of them searches.
        let machine = Machine::with(63..65);
        let other = machine.clone();
        let other = thread::spawn(move || other.use_one() && other.use_one());
        assert!(machine.use_one());
        assert!(other.join().unwrap());
        assert_eq!((machine.uses(), machine.bitmap.free()), (3, 2));
        let both = [(); 2].map(|()| machine.bitmap.take(0, 1).next());
        assert!(both[0] != both[1] && !both.contains(&None));
    });
}

#[test]
fn a_frame_that_is_freed_twice_is_found() {
    check(|| {
        let machine = Machine::new(1);
        let index = machine.bitmap.take(0, 1).next().unwrap();
        let other = machine.clone();
        let other = thread::spawn(move || other.bitmap.put(index));
        let mine = machine.bitmap.put(index);
        assert!(mine != other.join().unwrap());
        assert_eq!(machine.bitmap.free(), 1);
    });
}
