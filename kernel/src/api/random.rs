//! `random()`, and the keys of hash maps.
//!
//! A program's random words are apart from those of the scheduler, whose choices must repeat from
//! boot to boot. One generator (SplitMix64) serves all CPUs: a step is one addition, and its output
//! is mixed from the sum. It is not cryptographic: who sees a few words knows all of them.
#![forbid(unsafe_code)]

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

static STATE: AtomicU64 = AtomicU64::new(0);

/// The sums go through all words before they repeat.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A random word, another in each boot: its seed is the CPU's own generator (RDRAND) where it has
/// one, mixed with the cycle counter. With `seed=` on the command line a program that asks in the
/// same order gets the same words. Not for secrets.
///
/// ```
/// use runnext::prelude::*;
/// let die = random() % 6 + 1;
/// assert!((1..=6).contains(&die));
/// ```
#[must_use]
pub fn random() -> u64 {
    mix(STATE.fetch_add(STEP, Relaxed))
}

pub(crate) fn init(seed: Option<u64>) {
    STATE.store(seed.unwrap_or_else(crate::arch::entropy), Relaxed);
}

fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_differ_and_have_as_many_ones_as_zeros() {
        let mut words: Vec<_> = (0..10_000).map(|_| random()).collect();
        let ones: u32 = words.iter().map(|word| word.count_ones()).sum();
        assert!((315_000..325_000).contains(&ones), "{ones} of 640,000");
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 10_000);
    }
}
