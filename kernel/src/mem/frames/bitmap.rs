//! A bit for each frame, 1 if it is free, and how many are. The protocol is at the head of `frames`;
//! the model `loom_frames` compiles this very file.

use super::sys::{AtomicU64, AtomicUsize, FIRST, MAX_CPUS, cpu_index, relax};
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub const BITS: usize = 64;

pub struct Bitmap<'a> {
    words: &'a [AtomicU64],
    /// Free frames above 1 MiB that no caller has claimed.
    free: AtomicUsize,
    /// The word where the next search of a CPU begins.
    hints: [AtomicUsize; MAX_CPUS],
}

impl<'a> Bitmap<'a> {
    /// All bits are clear.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        let (first, span) = (FIRST / BITS, words.len().saturating_sub(FIRST / BITS));
        let hints = core::array::from_fn(|cpu| AtomicUsize::new(first + cpu * span / MAX_CPUS));
        Bitmap { words, free: AtomicUsize::new(0), hints }
    }

    /// Frees the frames with these numbers, a word at a time. No other CPU uses the bitmap yet.
    pub fn add(&self, Range { start, end }: Range<usize>) {
        let (first, last) = (start.div_ceil(BITS), end / BITS);
        if let Some(whole) = self.words.get(first..last) {
            whole.iter().for_each(|word| word.store(u64::MAX, Relaxed));
        }
        // The frames of the words at both ends.
        for index in (start..end.min(first * BITS)).chain(start.max(last * BITS)..end) {
            self.words[index / BITS].fetch_or(1 << (index % BITS), Relaxed);
        }
        self.free.fetch_add(end.max(FIRST) - start.clamp(FIRST, end.max(FIRST)), Release);
    }

    /// The number of a frame in `area`, which is above 1 MiB; at least `left` stay free.
    pub fn take(&self, left: usize, area: Range<usize>) -> Option<usize> {
        let mut free = self.free();
        while let Err(now) = self.free.compare_exchange_weak(
            free,
            free.checked_sub(1).filter(|&rest| rest >= left)?,
            Acquire,
            Relaxed,
        ) {
            free = now;
        }
        if area.end < self.words.len() * BITS {
            let frame = self.take_in(area);
            self.free.fetch_add(usize::from(frame.is_none()), Release);
            return frame;
        }
        // There is one. If it is not found, other CPUs have taken and freed frames meanwhile.
        loop {
            let hint = &self.hints[cpu_index()];
            let start = hint.load(Relaxed) * BITS;
            let found = self.take_in(start..usize::MAX).or_else(|| self.take_in(area.start..start));
            if let Some(frame) = found {
                hint.store(frame / BITS, Relaxed);
                return found;
            }
            relax();
        }
    }

    /// The first free frame whose number is in `area`. Not counted.
    pub fn take_in(&self, area: Range<usize>) -> Option<usize> {
        let mut index = area.start;
        while index < area.end.min(self.words.len() * BITS) {
            let word = &self.words[index / BITS];
            let free = word.load(Relaxed) & (u64::MAX << (index % BITS));
            index = index / BITS * BITS + free.trailing_zeros() as usize; // or to the next word
            let bit = free.isolate_lowest_one();
            // Acquire pairs with `put`: the last holder is done with it. If the bit is gone,
            // another CPU was first, and the search goes on here.
            if index < area.end && bit != 0 && word.fetch_and(!bit, Acquire) & bit != 0 {
                return Some(index);
            }
        }
        None
    }

    /// Frees a frame. False if it was free.
    pub fn put(&self, index: usize) -> bool {
        let (word, bit) = (index / BITS, 1 << (index % BITS));
        let is_held = self.words.get(word).is_some_and(|w| w.fetch_or(bit, Release) & bit == 0);
        if is_held && index >= FIRST {
            self.hints[cpu_index()].store(word, Relaxed);
            self.free.fetch_add(1, Release); // after its bit is set
        }
        is_held
    }

    /// How many frames above 1 MiB are free.
    pub fn free(&self) -> usize {
        self.free.load(Relaxed)
    }

    /// How many bits are set.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.load(Relaxed).count_ones() as usize).sum()
    }

    /// How many frames it has bits for.
    pub fn len(&self) -> usize {
        self.words.len() * BITS
    }
}
