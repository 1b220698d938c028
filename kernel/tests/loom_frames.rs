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
        let words = Box::leak(Box::new([sys::AtomicU64::new(0)]));
        let bitmap = Bitmap::new(words);
        bitmap.add(1..count + 1);
        let frames = (0..=count).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Machine { bitmap, frames })
    }

    /// Takes a frame, writes to it and frees it. False if there was none.
    fn use_one(&self) -> bool {
        let Some(index) = self.bitmap.take(0, 0..usize::MAX) else { return false };
        // SAFETY: loom checks that this is the only holder.
        self.frames[index].with_mut(|uses| unsafe { *uses += 1 });
        assert!(self.bitmap.put(index), "a double free");
        true
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
fn a_frame_that_is_freed_twice_is_found() {
    check(|| {
        let machine = Machine::new(1);
        let index = machine.bitmap.take(0, 0..usize::MAX).unwrap();
        let other = machine.clone();
        let other = thread::spawn(move || other.bitmap.put(index));
        let mine = machine.bitmap.put(index);
        assert!(mine != other.join().unwrap());
        assert_eq!(machine.bitmap.free(), 1);
    });
}
