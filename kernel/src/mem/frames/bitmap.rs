//! A bit for each frame, 1 if it is free, and how many are. The protocol is at the head of
//! `frames`; the model `loom_frames` compiles this very file.
//!
//! # The summary
//!
//! A second bitmap has a bit for each word of the first, so that a search in a large memory that is
//! nearly full passes over 4,096 frames at a time. It is a hint: a search that finds no frame by it
//! walks all words. A word that becomes empty stays marked until a search comes by ([`unmark`]); a
//! frame that comes to an empty word marks it. Each of these two writes one bitmap and then reads
//! the other, all SeqCst: so one of them sees what the other has done, and the mark is not lost.
//!
//! [`unmark`]: Bitmap::unmark

use super::sys::{AtomicU64, AtomicUsize, FIRST, MAX_CPUS, cpu_index, relax};
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

pub const BITS: usize = 64;

pub struct Bitmap<'a> {
    words: &'a [AtomicU64],
    /// Of words with frames above 1 MiB.
    summary: &'a [AtomicU64],
    /// Free frames above 1 MiB that no caller has claimed.
    free: AtomicUsize,
    /// The word where the next search of a CPU begins.
    hints: [AtomicUsize; MAX_CPUS],
    /// The word where a search of a CPU begins whose hint has led to an empty word, plus one; 0:
    /// there. It is the begin of its NUMA node's memory.
    homes: [AtomicUsize; MAX_CPUS],
}

/// Frames of one word, taken together: their numbers. Each belongs to the caller.
#[must_use = "frames that are dropped are lost"]
pub struct Batch {
    word: usize,
    bits: u64,
}

impl Iterator for Batch {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let frame = self.word * BITS + self.bits.trailing_zeros() as usize;
        let is_there = self.bits != 0;
        self.bits &= self.bits.wrapping_sub(1);
        is_there.then_some(frame)
    }
}

impl<'a> Bitmap<'a> {
    /// How many words a bitmap of that many frames needs, its summary included.
    pub const fn words_for(frames: usize) -> usize {
        let words = frames.div_ceil(BITS);
        words + words.div_ceil(BITS)
    }

    /// All bits are clear, as `words` are. For each 64 of these one is the summary's.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        let (words, summary) = words.split_at(words.len() * BITS / (BITS + 1));
        let (first, span) = (FIRST / BITS, words.len().saturating_sub(FIRST / BITS));
        let hints = core::array::from_fn(|cpu| AtomicUsize::new(first + cpu * span / MAX_CPUS));
        let homes = core::array::from_fn(|_| AtomicUsize::new(0));
        Bitmap { words, summary, free: AtomicUsize::new(0), hints, homes }
    }

    /// The searches of that CPU begin at that frame from now on; any CPU, at any time.
    pub fn set_home(&self, cpu: usize, frame: usize) {
        if (FIRST..self.len()).contains(&frame) {
            self.homes[cpu].store(frame / BITS + 1, Relaxed);
            self.hints[cpu].store(frame / BITS, Relaxed);
        }
    }

    /// Frees the frames with these numbers. No other CPU uses the bitmap yet.
    pub fn add(&self, frames: Range<usize>) {
        let counted = frames.start.max(FIRST)..frames.end;
        self.free.fetch_add(counted.len(), Release);
        if !counted.is_empty() {
            set_all(self.summary, counted.start / BITS..counted.end.div_ceil(BITS));
        }
        set_all(self.words, frames);
    }

    /// Up to `most` frames of one word above 1 MiB; at least `left` stay free. If there is none,
    /// the batch is empty. Two locked instructions, three if that word had fewer than claimed.
    pub fn take(&self, left: usize, most: usize) -> Batch {
        let Some(claimed) = self.claim(left, most) else { return Batch { word: 0, bits: 0 } };
        let hint = &self.hints[cpu_index()];
        loop {
            let near = hint.load(Relaxed);
            if let Some(batch) = self.grab(near, claimed).or_else(|| self.search(near, claimed)) {
                hint.store(batch.word, Relaxed);
                let rest = claimed - batch.bits.count_ones() as usize;
                if rest > 0 {
                    self.free.fetch_add(rest, Release);
                }
                return batch;
            }
            relax(); // there is one: other CPUs have taken and freed frames meanwhile
        }
    }

    /// The first free frame whose number is in `area`, which is above 1 MiB; at least `left` stay
    /// free.
    pub fn take_counted_in(&self, left: usize, area: Range<usize>) -> Option<usize> {
        self.claim(left, 1)?;
        let frame = self.take_in(area);
        self.free.fetch_add(usize::from(frame.is_none()), Release);
        frame
    }

    /// The first free frame whose number is in `area`. Not counted.
    pub fn take_in(&self, area: Range<usize>) -> Option<usize> {
        let mut index = area.start;
        while index < area.end.min(self.len()) {
            let word = &self.words[index / BITS];
            let free = word.load(Relaxed) & (u64::MAX << (index % BITS));
            index = index / BITS * BITS + free.trailing_zeros() as usize; // or to the next word
            let bit = free.isolate_lowest_one();
            // As in `grab`. If the bit is gone, the search goes on here.
            if index < area.end && bit != 0 && word.fetch_and(!bit, Acquire) & bit != 0 {
                return Some(index);
            }
        }
        None
    }

    /// Takes up to `most` from the count, at least one; leaves `left`.
    fn claim(&self, left: usize, most: usize) -> Option<usize> {
        let mut free = self.free();
        loop {
            let count = most.min(free.saturating_sub(left));
            if count == 0 {
                return None;
            }
            match self.free.compare_exchange_weak(free, free - count, Acquire, Relaxed) {
                Ok(_) => return Some(count),
                Err(now) => free = now,
            }
        }
    }

    /// Takes up to `most` frames out of a word; `None` if it has none.
    #[inline(always)]
    fn grab(&self, word: usize, most: usize) -> Option<Batch> {
        let bits = self.words.get(word)?;
        loop {
            let free = bits.load(Relaxed);
            if free == 0 {
                return None;
            }
            let mut rest = free & (free - 1);
            for _ in 1..most {
                rest &= rest.wrapping_sub(1);
            }
            // Acquire pairs with `put`: the last holder is done with them. Some may be gone:
            // another CPU was first.
            let taken = bits.fetch_and(rest | !free, Acquire) & free & !rest;
            if taken != 0 {
                return Some(Batch { word, bits: taken });
            }
        }
    }

    /// As [`grab`](Self::grab), of the next word that has any, from `near` on and round to it.
    #[cold]
    fn search(&self, near: usize, most: usize) -> Option<Batch> {
        let near = self.homes[cpu_index()].load(Relaxed).checked_sub(1).unwrap_or(near);
        let mut from = u64::MAX << (near % BITS);
        for turn in 0..=self.summary.len() {
            let group = (near / BITS + turn) % self.summary.len();
            let mut marks = self.summary[group].load(Relaxed) & from;
            from = u64::MAX;
            while marks != 0 {
                let word = group * BITS + marks.trailing_zeros() as usize;
                let found = self.grab(word, most);
                if found.is_some() {
                    return found;
                }
                self.unmark(word);
                marks &= marks - 1;
            }
        }
        // A CPU is between the two steps of `put`, or of `unmark`.
        (FIRST / BITS..self.words.len()).find_map(|word| self.grab(word, most))
    }

    fn mark(&self, word: usize) {
        let (marks, bit) = (&self.summary[word / BITS], 1 << (word % BITS));
        if marks.load(SeqCst) & bit == 0 {
            marks.fetch_or(bit, SeqCst);
        }
    }

    fn unmark(&self, word: usize) {
        self.summary[word / BITS].fetch_and(!(1 << (word % BITS)), SeqCst);
        if self.words[word].load(SeqCst) != 0 {
            self.mark(word);
        }
    }

    /// Frees a frame. False if it was free.
    pub fn put(&self, index: usize) -> bool {
        let (word, bit) = (index / BITS, 1 << (index % BITS));
        let Some(bits) = self.words.get(word) else { return false };
        let before = bits.fetch_or(bit, SeqCst);
        let is_held = before & bit == 0;
        if is_held && index >= FIRST {
            if before == 0 {
                self.mark(word);
            }
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

/// Sets the bits with these numbers, a word at a time where all of its bits are among them.
fn set_all(words: &[AtomicU64], Range { start, end }: Range<usize>) {
    let (first, last) = (start.div_ceil(BITS), end / BITS);
    if let Some(whole) = words.get(first..last) {
        whole.iter().for_each(|word| word.store(u64::MAX, Relaxed));
    }
    // The bits of the words at both ends.
    for index in (start..end.min(first * BITS)).chain(start.max(last * BITS)..end) {
        words[index / BITS].fetch_or(1 << (index % BITS), Relaxed);
    }
}
