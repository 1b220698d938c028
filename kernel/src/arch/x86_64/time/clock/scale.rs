//! From one frequency to another, by a multiplication and a shift.
//!
//! `(count × mult) >> shift` with a product of 128 bits: one `mul` and one `shrd`, no division, no
//! overflow. The multiplier has as many bits as fit into 63 or 64, so ten years of a time stamp
//! counter come out right to the nanosecond.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    mult: u64,
    shift: u32,
}

impl Scale {
    /// The scale from `from_hz` to `to_hz`; from 0 as from 1.
    pub const fn new(from_hz: u64, to_hz: u64) -> Scale {
        let from_hz = from_hz as u128 + (from_hz == 0) as u128;
        let mut shift = 63; // below 64, so that the product is shifted by one `shrd`
        loop {
            let mult = ((to_hz as u128) << shift) / from_hz;
            // Ends at shift 0 at the latest, where the quotient is a u64.
            if mult <= u64::MAX as u128 {
                return Scale { mult: mult as u64, shift };
            }
            shift -= 1;
        }
    }

    /// `count` in the other frequency, rounded down; at most `u64::MAX`.
    #[inline]
    pub const fn apply(&self, count: u64) -> u64 {
        let scaled = (count as u128 * self.mult as u128) >> (self.shift & 63);
        if scaled > u64::MAX as u128 { u64::MAX } else { scaled as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NS: u64 = 1_000_000_000;

    #[test]
    fn ten_years_are_exact_to_the_nanosecond() {
        for hz in [1_000_000, 14_318_180, 999_999_937, NS, 2_995_200_000, 9_999_999_999] {
            let scale = Scale::new(hz, NS);
            for seconds in [1, 86_400, 10 * 365 * 86_400] {
                let count = hz * seconds + hz / 3;
                let exact = (u128::from(count) * u128::from(NS) / u128::from(hz)) as u64;
                assert!(exact - scale.apply(count) <= 1, "{hz} Hz after {seconds} s");
            }
        }
    }

    #[test]
    fn result_grows_with_the_count() {
        let scale = Scale::new(2_995_200_000, NS);
        let base = 1 << 62;
        assert!((base..base + 1000).is_sorted_by_key(|count| scale.apply(count)));
        assert_eq!(scale.apply(0), 0);
    }

    #[test]
    fn overflow_saturates_and_does_not_wrap() {
        assert_eq!(Scale::new(1, NS).apply(u64::MAX), u64::MAX);
        assert_eq!(Scale::new(NS, NS).apply(u64::MAX), u64::MAX);
    }

    #[test]
    fn senseless_frequencies_do_no_harm() {
        assert_eq!(Scale::new(0, NS).apply(2), 2 * NS);
        assert_eq!(Scale::new(NS, 0).apply(u64::MAX), 0);
        assert_eq!(Scale::new(1, u64::MAX).apply(1), u64::MAX);
        assert_eq!(Scale::new(u64::MAX, 1).apply(u64::MAX), 0);
    }
}
