//! The outcome of a request: a pure function of the seed and its number.
//!
//! Integers only: the kernel has no floating point.

use sched::Random;

/// How a simulated device behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Seed of all random choices.
    pub seed: u64,
    /// How long a request takes.
    pub latency: Latency,
    /// How many of a million requests fail, on average.
    pub errors_per_million: u32,
}

impl Default for Config {
    /// 10 to 100 µs, as a fast disk, and no errors.
    fn default() -> Self {
        let latency = Latency::Uniform { min_ns: 10_000, max_ns: 100_000 };
        Config { seed: 1, latency, errors_per_million: 0 }
    }
}

/// How long requests take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// Any time from `min_ns` to `max_ns`, both included, equally likely.
    Uniform {
        /// The shortest, ns.
        min_ns: u64,
        /// The longest, ns.
        max_ns: u64,
    },
    /// Mostly short and sometimes long, without a bound: as if the device were equally likely to
    /// finish in each moment.
    Exponential {
        /// The average, ns.
        mean_ns: u64,
    },
    /// No request is ever answered.
    Never,
}

/// The outcome of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// How long it takes; `None`: for ever.
    pub latency_ns: Option<u64>,
    /// Whether the answer is an error.
    pub fails: bool,
}

impl Config {
    /// The outcome of the `n`-th request, counted from 0.
    ///
    /// ```
    /// use runnext::simulated::Config;
    /// let config = Config { errors_per_million: 250_000, ..Config::default() };
    /// let failures = (0..1_000).filter(|&n| config.fate(n).fails).count();
    /// assert!((200..300).contains(&failures));
    /// assert_eq!(config.fate(17), config.fate(17));
    /// ```
    #[must_use]
    pub fn fate(&self, n: u64) -> Fate {
        // Two words of the seed's sequence for each request, whose state moves on by this step.
        let step: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut words = Random(self.seed.wrapping_add((2 * n).wrapping_mul(step)));
        let [word, error_word] = [words.next_word(), words.next_word()];
        let latency_ns = match self.latency {
            Latency::Uniform { min_ns, max_ns } => {
                let span = max_ns.saturating_sub(min_ns).saturating_add(1);
                Some(min_ns.saturating_add(scale(word, span)))
            }
            Latency::Exponential { mean_ns } => Some(multiply(mean_ns, minus_ln(word))),
            Latency::Never => None,
        };
        let fails = scale(error_word, 1_000_000) < u64::from(self.errors_per_million);
        Fate { latency_ns, fails }
    }
}

/// Fractions are counted in parts of 2^32.
const FRACTION: u32 = 32;
/// ln 2.
const LN_2: u64 = 2_977_044_472;

/// −ln of `word` / 2^64, which is exponentially distributed if `word` is evenly.
///
/// The leading zeros are the whole part of −log2. The rest follows from the bits behind the leading
/// one by squaring: a number from 1 to 2 squared is 2 or more exactly if the next bit of its log2 is
/// one. 0 counts as 1.
fn minus_ln(word: u64) -> u64 {
    let word = word.max(1);
    let zeros = word.leading_zeros();
    let mut mantissa = word << zeros >> (64 - FRACTION - 1); // from 1 to 2
    let mut log2 = 0;
    for bit in (0..FRACTION).rev() {
        mantissa = multiply(mantissa, mantissa);
        if mantissa >> (FRACTION + 1) != 0 {
            mantissa >>= 1;
            log2 |= 1 << bit;
        }
    }
    // 64 − zeros − 1 + log2 is log2 of the word; the result is 64 minus that.
    multiply(((u64::from(zeros) + 1) << FRACTION) - log2, LN_2)
}

/// Product of two numbers of which at least one is a fraction.
fn multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    u64::try_from(product >> FRACTION).unwrap_or(u64::MAX)
}

/// A number below `below` in proportion to `word`.
fn scale(word: u64, below: u64) -> u64 {
    ((u128::from(word) * u128::from(below)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_right() {
        for word in [1, 2, 3, 1 << 31, 1 << 32, u64::MAX / 3, 1 << 63, u64::MAX - 1, u64::MAX] {
            let expected = -(word as f64 / 2f64.powi(64)).ln();
            let found = minus_ln(word) as f64 / 2f64.powi(32);
            assert!(
                (found - expected).abs() < 1e-8 * expected.max(1.0),
                "{word}: {found}, {expected}"
            );
        }
        assert_eq!(minus_ln(0), minus_ln(1));
    }

    fn latencies(latency: Latency) -> impl Iterator<Item = u64> {
        let config = Config { latency, ..Config::default() };
        (0..10_000).map(move |n| config.fate(n).latency_ns.expect("it answers"))
    }

    #[test]
    fn uniform_latencies_fill_their_range() {
        let all = || latencies(Latency::Uniform { min_ns: 1_000, max_ns: 1_009 });
        for ns in 1_000..=1_009 {
            let count = all().filter(|&found| found == ns).count();
            assert!((850..1_150).contains(&count), "{ns} ns: {count} of 10,000");
        }
        assert!(all().all(|ns| (1_000..=1_009).contains(&ns)));
    }

    #[test]
    fn exponential_latencies_have_their_mean_and_a_tail() {
        let all = || latencies(Latency::Exponential { mean_ns: 1_000_000 });
        let mean = all().sum::<u64>() / 10_000;
        assert!((970_000..1_030_000).contains(&mean), "{mean}");
        let long = all().filter(|&ns| ns > 3_000_000).count();
        assert!((430..570).contains(&long), "{long} of 10,000; e^-3 is 5 %");
    }

    #[test]
    fn absurd_latencies_are_taken() {
        for latency in [
            Latency::Uniform { min_ns: 0, max_ns: u64::MAX },
            Latency::Uniform { min_ns: 9, max_ns: 3 },
            Latency::Uniform { min_ns: u64::MAX, max_ns: u64::MAX },
            Latency::Exponential { mean_ns: 0 },
            Latency::Exponential { mean_ns: u64::MAX },
        ] {
            assert_eq!(latencies(latency).count(), 10_000);
        }
    }

    #[test]
    fn errors_come_as_often_as_asked_and_differ_by_seed() {
        let failures = |seed, errors_per_million| {
            let config = Config { seed, errors_per_million, ..Config::default() };
            (0..10_000).filter(|&n| config.fate(n).fails).count()
        };
        assert_eq!((failures(1, 0), failures(1, 1_000_000)), (0, 10_000));
        assert!((850..1_150).contains(&failures(1, 100_000)), "{}", failures(1, 100_000));
        assert_ne!(failures(1, 100_000), failures(2, 100_000));
    }
}
