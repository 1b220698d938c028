//! Are the time stamp counters of two CPUs in step? A ping-pong that finds out.
//!
//! The boot CPU leads, another CPU follows. In each round the leader reads its counter and
//! hands the turn over, the follower stamps it with its own counter and hands it back, and the
//! leader reads again:
//!
//! ```text
//!   leader    before ────────┐           ┌──────▶ after
//!   follower                 └─▶ stamp ──┘
//!
//!   before ≤ stamp − offset ≤ after
//!   stamp − after ≤ offset ≤ stamp − before
//! ```
//!
//! A round bounds the offset to within its round trip, however long that took: a CPU that is
//! descheduled in the middle makes the bound wide, never wrong. So the quickest round decides.
//! The counters are apart only if it proves an offset of more than a round trip; what is less
//! is the uncertainty that the clock states.
//!
//! Every wait is bounded in polls. The first polls are tight, since a `pause` may take longer
//! than a round; the later ones do `pause`: under QEMU's `-icount` a spinning CPU would
//! otherwise keep its turn from the CPU that it waits for.

use crate::arch;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

const ROUNDS: u32 = 24;
/// Polls in which the partner must answer: 50 ms on hardware, seconds in a busy emulator.
pub const MAX_POLLS: u32 = 4_000_000;
/// Tight polls: about as long as a round takes on hardware.
const POLLS_BEFORE_PAUSE: u32 = 100;

/// The offsets of the follower's counter that a round allows, in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    low: i64,
    high: i64,
}

impl Offset {
    fn of_round(before: u64, stamp: u64, after: u64) -> Offset {
        Offset { low: stamp.wrapping_sub(after) as i64, high: stamp.wrapping_sub(before) as i64 }
    }

    fn round_trip(&self) -> u64 {
        self.high.wrapping_sub(self.low) as u64
    }

    /// Whether the counters may be equal, or are apart by less than a round trip.
    pub fn is_in_step(&self) -> bool {
        let proved = self.low.max(self.high.saturating_neg()).max(0);
        proved as u64 <= self.round_trip()
    }

    /// The largest offset that was not excluded.
    pub fn uncertainty(&self) -> u64 {
        self.low.unsigned_abs().max(self.high.unsigned_abs())
    }
}

/// The cache line over which two CPUs play: the leader, and one follower at a time.
#[repr(align(64))]
pub struct Exchange {
    /// Whose turn it is, and with which follower: see [`turn`].
    turn: AtomicU64,
    /// The follower's counter. Ordered by `turn`.
    stamp: AtomicU64,
}

impl Exchange {
    pub const fn new() -> Exchange {
        Exchange { turn: AtomicU64::new(0), stamp: AtomicU64::new(0) }
    }

    /// The boot CPU's side: what the quickest round shows. A follower that stops answering ends
    /// it; the rounds until then count. It then waits for [`Exchange::finish`].
    pub fn lead(&self, cpu: usize, max_polls: u32, read: impl Fn() -> u64) -> Option<Offset> {
        let mut quickest: Option<Offset> = None;
        for round in 0..ROUNDS {
            let before = read();
            self.turn.store(turn(cpu, 2 * round + 1), Release); // pairs with the follower's wait
            if !self.wait_for(cpu, 2 * round + 2, max_polls) {
                break;
            }
            let after = read();
            let found = Offset::of_round(before, self.stamp.load(Relaxed), after);
            if quickest.is_none_or(|quickest| found.round_trip() < quickest.round_trip()) {
                quickest = Some(found);
            }
        }
        quickest
    }

    /// Lets the follower go; what the leader stored before is visible to it.
    pub fn finish(&self, cpu: usize) {
        self.turn.store(turn(cpu, DONE), Release); // pairs with the follower's last wait
    }

    /// The other CPU's side: from the invitation, while other CPUs may go before it, to the
    /// leader's finish. False if the leader did not come, or did not wait.
    pub fn follow(&self, cpu: usize, max_polls: u32, read: impl Fn() -> u64) -> bool {
        for round in 0..ROUNDS {
            let polls = if round == 0 { max_polls.saturating_mul(16) } else { max_polls };
            let (ping, pong) = (2 * round + 1, 2 * round + 2);
            if !self.wait_for(cpu, ping, polls) {
                return false;
            }
            self.stamp.store(read(), Relaxed);
            // Not a plain store: the turn of the next follower, to which a leader that gave up has
            // moved on, must not be overwritten. Pairs with the leader's wait.
            let (from, to) = (turn(cpu, ping), turn(cpu, pong));
            if self.turn.compare_exchange(from, to, Release, Relaxed).is_err() {
                return false;
            }
        }
        self.wait_for(cpu, DONE, max_polls)
    }

    fn wait_for(&self, cpu: usize, step: u32, max_polls: u32) -> bool {
        for poll in 0..max_polls {
            let now = self.turn.load(Acquire); // pairs with the partner's store
            if now == turn(cpu, step) || now == turn(cpu, DONE) {
                return now == turn(cpu, step);
            }
            if poll >= POLLS_BEFORE_PAUSE {
                arch::relax();
            }
        }
        false
    }
}

/// The step after the last round. In round n the leader stores 2n + 1, the follower 2n + 2.
const DONE: u32 = u32::MAX;

/// One word for follower and step: a follower never takes the turn of another.
const fn turn(cpu: usize, step: u32) -> u64 {
    (cpu as u64) << 32 | step as u64
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Offset { low, high } = self;
        if self.is_in_step() {
            return write!(f, "tsc in step (+-{} cycles)", self.uncertainty());
        }
        write!(f, "tsc apart by {low} to {high} cycles")
    }
}

#[cfg(test)]
mod tests {
    use super::super::tsc::rdtsc_ordered;
    use super::*;
    use std::thread;

    #[test]
    fn a_stamp_between_the_readings_is_in_step_however_long_the_round_took() {
        for (before, stamp, after) in [(1000, 1000, 1000), (1000, 1060, 1120), (0, 1, 1 << 40)] {
            let found = Offset::of_round(before, stamp, after);
            assert!(found.is_in_step(), "{found}");
            assert!(found.uncertainty() <= after - before);
        }
    }

    #[test]
    fn less_than_a_round_trip_is_no_proof_and_stated_as_uncertainty() {
        let found = Offset::of_round(1000, 1300, 1200);
        assert_eq!(found.to_string(), "tsc in step (+-300 cycles)");
    }

    #[test]
    fn offsets_of_both_signs_are_found_across_the_wrap_of_the_counter() {
        let ahead = Offset::of_round(10_000, 10_560, 10_120);
        assert_eq!(ahead.to_string(), "tsc apart by 440 to 560 cycles");
        let behind = Offset::of_round(100, 50u64.wrapping_sub(1000), 120);
        assert_eq!(behind.to_string(), "tsc apart by -1070 to -1050 cycles");
        assert!(!Offset::of_round(0, 1 << 63, 10).is_in_step());
    }

    /// Plays with a follower whose counter is ahead by `ahead`.
    fn play(ahead: i64) -> Offset {
        let exchange = Exchange::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                let read = || rdtsc_ordered().wrapping_add_signed(ahead);
                assert!(exchange.follow(3, u32::MAX, read), "leader plays");
            });
            let found = exchange.lead(3, u32::MAX, rdtsc_ordered).expect("follower plays");
            exchange.finish(3);
            found
        })
    }

    #[test]
    fn two_threads_of_one_machine_are_in_step() {
        assert!(play(0).is_in_step());
    }

    #[test]
    fn an_offset_between_two_threads_is_proved() {
        // An hour: more than any scheduling delay of the test machine.
        for ahead in [10_000_000_000_000, -10_000_000_000_000] {
            let found = play(ahead);
            assert!(!found.is_in_step(), "{found}");
            assert!((found.low..=found.high).contains(&ahead), "{found}");
        }
    }

    #[test]
    fn the_quickest_round_decides_and_a_descheduled_one_does_not() {
        let exchange = Exchange::new();
        thread::scope(|scope| {
            scope.spawn(|| exchange.follow(1, u32::MAX, || 500));
            // A leader whose first round takes a long time, all others 10 cycles.
            let now = std::cell::Cell::new(0u64);
            let steps = std::cell::Cell::new(0u64);
            let read = || {
                steps.set(steps.get() + 1);
                now.replace(now.get() + if steps.get() == 1 { 1_000_000 } else { 10 })
            };
            let found = exchange.lead(1, u32::MAX, read).expect("follower plays");
            exchange.finish(1);
            assert_eq!(found.round_trip(), 10);
            assert!(!found.is_in_step(), "the long round would have allowed it: {found}");
        });
    }

    #[test]
    fn absent_partner_ends_the_game_on_both_sides() {
        let exchange = Exchange::new();
        assert!(!exchange.follow(1, 10, || 0));
        assert_eq!(exchange.lead(1, 10, || 0), None);
        exchange.finish(1);
        assert!(!exchange.follow(1, u32::MAX, || 0), "comes late, and finds the game ended");
    }

    #[test]
    fn late_follower_does_not_take_the_turn_of_the_next() {
        let exchange = Exchange::new();
        exchange.turn.store(turn(2, 1), Relaxed);
        assert!(!exchange.follow(1, 10, || 0));
        assert_eq!(exchange.turn.load(Relaxed), turn(2, 1));
    }
}
