//! The outcome of a request: a pure function of the seed and its number.

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
            Latency::Never => None,
        };
        let fails = scale(error_word, 1_000_000) < u64::from(self.errors_per_million);
        Fate { latency_ns, fails }
    }
}

/// A number below `below` in proportion to `word`.
fn scale(word: u64, below: u64) -> u64 {
    ((u128::from(word) * u128::from(below)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn absurd_latencies_are_taken() {
        for latency in [
            Latency::Uniform { min_ns: 0, max_ns: u64::MAX },
            Latency::Uniform { min_ns: 9, max_ns: 3 },
            Latency::Uniform { min_ns: u64::MAX, max_ns: u64::MAX },
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
