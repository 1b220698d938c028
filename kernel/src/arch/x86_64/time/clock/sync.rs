//! Are two CPUs' time stamp counters in step? A ping-pong that finds out.
//!
//! The boot CPU leads, another CPU follows. In each round the leader reads its
//! counter, hands the turn over, the follower stamps it with its own counter,
//! hands back, and the leader reads again. Cause comes before effect, so
//!
//! ```text
//!   leader    before ────────┐           ┌──────▶ after
//!   follower                 └─▶ stamp ──┘
//!
//!   before ≤ stamp − offset ≤ after
//!   stamp − after ≤ offset ≤ stamp − before
//! ```
//!
//! Each round gives an interval that holds the offset, and so does what all of
//! them have in common: the quickest round counts most, and an interruption in
//! the middle of a round only makes its interval wide, never wrong. If nothing
//! is left in common, the two counters do not run at one pace.
//!
//! Every wait is bounded in polls. The first polls are tight, since a `pause` may
//! take longer than a round; the later ones do `pause`: under QEMU's `-icount` a
//! spinning CPU would otherwise keep its turn from the one it waits for.

use crate::arch;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Rounds in a measurement.
pub const ROUNDS: u32 = 24;
/// Polls in which the partner must answer: 50 ms on hardware, seconds under
/// an emulator that shares its cores.
pub const MAX_POLLS: u32 = 4_000_000;
/// Tight polls: about as long as a round takes on hardware.
const POLLS_BEFORE_PAUSE: u32 = 100;
/// Polls in which a follower must be invited, while others go before it.
pub const MAX_POLLS_FOR_INVITATION: u32 = 16 * MAX_POLLS;

/// How two counters stand, in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing seen contradicts that they are equal.
    InStep {
        /// Half the width of what could not be told apart.
        uncertainty: u64,
    },
    /// The follower is ahead by `cycles` (behind if negative).
    Apart {
        /// The middle of the possible offsets.
        cycles: i64,
        /// Half their width.
        uncertainty: u64,
    },
    /// No constant offset explains what was seen.
    Unsteady,
}

/// The partner did not answer within the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAnswer;

/// The offsets that are still possible.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    low: i64,
    high: i64,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { low: i64::MIN, high: i64::MAX }
    }
}

impl Bounds {
    /// Takes one round into account.
    pub fn narrow(&mut self, before: u64, stamp: u64, after: u64) {
        self.low = self.low.max(stamp.wrapping_sub(after) as i64);
        self.high = self.high.min(stamp.wrapping_sub(before) as i64);
    }

    /// What follows from all rounds.
    pub fn verdict(&self) -> Verdict {
        if self.low > self.high {
            return Verdict::Unsteady;
        }
        let uncertainty = self.high.abs_diff(self.low).div_ceil(2);
        if self.low <= 0 && self.high >= 0 {
            return Verdict::InStep { uncertainty };
        }
        Verdict::Apart { cycles: self.low.midpoint(self.high), uncertainty }
    }
}

/// The cache line over which two CPUs play. One for the machine: the leader
/// plays with one follower at a time.
#[repr(align(64))]
pub struct Exchange {
    /// Whose turn it is, and with which follower: see [`turn`].
    turn: AtomicU64,
    /// The follower's counter. Ordered by `turn`.
    stamp: AtomicU64,
}

impl Exchange {
    /// An exchange at rest.
    pub const fn new() -> Exchange {
        Exchange { turn: AtomicU64::new(0), stamp: AtomicU64::new(0) }
    }

    /// The boot CPU's side. The follower then waits for [`Exchange::finish`].
    pub fn lead(
        &self,
        cpu: usize,
        max_polls: u32,
        read: impl Fn() -> u64,
    ) -> Result<Verdict, NoAnswer> {
        let mut bounds = Bounds::default();
        for round in 0..ROUNDS {
            let before = read();
            self.turn.store(turn(cpu, ping(round)), Release); // pairs with the follower's wait
            if self.wait_for(cpu, pong(round), max_polls).is_err() {
                self.turn.store(turn(cpu, ABORTED), Release);
                return Err(NoAnswer);
            }
            let after = read();
            bounds.narrow(before, self.stamp.load(Relaxed), after);
        }
        Ok(bounds.verdict())
    }

    /// Lets the follower go; what the leader stored before is visible to it.
    pub fn finish(&self, cpu: usize) {
        self.turn.store(turn(cpu, DONE), Release); // pairs with the follower's last wait
    }

    /// The other CPU's side: from the invitation to the leader's finish.
    pub fn follow(
        &self,
        cpu: usize,
        max_polls: u32,
        max_polls_for_invitation: u32,
        read: impl Fn() -> u64,
    ) -> Result<(), NoAnswer> {
        for round in 0..ROUNDS {
            let polls = if round == 0 { max_polls_for_invitation } else { max_polls };
            self.wait_for(cpu, ping(round), polls)?;
            self.stamp.store(read(), Relaxed);
            // Not a plain store: a leader that gave up has moved on, and its
            // turn with the next follower must not be overwritten. Pairs with
            // the leader's wait.
            let (from, to) = (turn(cpu, ping(round)), turn(cpu, pong(round)));
            self.turn.compare_exchange(from, to, Release, Relaxed).map_err(|_| NoAnswer)?;
        }
        self.wait_for(cpu, DONE, max_polls)
    }

    fn wait_for(&self, cpu: usize, step: u32, max_polls: u32) -> Result<(), NoAnswer> {
        for poll in 0..max_polls {
            let now = self.turn.load(Acquire); // pairs with the partner's store
            if now == turn(cpu, step) {
                return Ok(());
            }
            // Ended, and not as hoped: no use to wait on.
            if now == turn(cpu, ABORTED) || now == turn(cpu, DONE) {
                break;
            }
            if poll >= POLLS_BEFORE_PAUSE {
                arch::relax();
            }
        }
        Err(NoAnswer)
    }
}

const DONE: u32 = u32::MAX;
const ABORTED: u32 = u32::MAX - 1;

const fn ping(round: u32) -> u32 {
    2 * round + 1
}

const fn pong(round: u32) -> u32 {
    2 * round + 2
}

/// One word for follower and step, so that a follower never takes a turn that
/// is meant for another.
const fn turn(cpu: usize, step: u32) -> u64 {
    (cpu as u64) << 32 | step as u64
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::InStep { uncertainty } => write!(f, "in step (+-{uncertainty} cycles)"),
            Verdict::Apart { cycles, uncertainty } => {
                write!(f, "apart by {cycles} +-{uncertainty} cycles")
            }
            Verdict::Unsteady => f.write_str("not at one pace"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::x86_64::time::clock::tsc::rdtsc_ordered;
    use std::thread;

    fn verdict(rounds: &[(u64, u64, u64)]) -> Verdict {
        let mut bounds = Bounds::default();
        rounds.iter().for_each(|&(before, stamp, after)| bounds.narrow(before, stamp, after));
        bounds.verdict()
    }

    #[test]
    fn quickest_round_wins() {
        let found =
            verdict(&[(1000, 1600, 9000), (10_000, 10_560, 10_120), (20_000, 90_500, 99_000)]);
        assert_eq!(found, Verdict::Apart { cycles: 500, uncertainty: 60 });
    }

    #[test]
    fn rounds_that_overlap_narrow_each_other() {
        let found = verdict(&[(0, 100, 100), (1000, 1010, 1200)]);
        assert_eq!(found, Verdict::InStep { uncertainty: 5 });
    }

    #[test]
    fn offsets_of_both_signs_are_found_across_the_wrap_of_the_counter() {
        let behind = verdict(&[(100, 50u64.wrapping_sub(1000), 120)]);
        assert_eq!(behind, Verdict::Apart { cycles: -1060, uncertainty: 10 });
    }

    #[test]
    fn counters_that_drift_are_unsteady() {
        assert_eq!(verdict(&[(0, 500, 10), (1000, 1600, 1010)]), Verdict::Unsteady);
    }

    /// Plays with a follower whose counter is ahead by `ahead`.
    fn play(ahead: i64) -> Verdict {
        let exchange = Exchange::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                let read = || rdtsc_ordered().wrapping_add_signed(ahead);
                exchange.follow(3, u32::MAX, u32::MAX, read).expect("leader plays");
            });
            let found = exchange.lead(3, u32::MAX, rdtsc_ordered).expect("follower plays");
            exchange.finish(3);
            found
        })
    }

    #[test]
    fn two_threads_of_one_machine_are_in_step() {
        assert!(matches!(play(0), Verdict::InStep { .. }));
    }

    #[test]
    fn offset_between_two_threads_is_found_within_its_uncertainty() {
        // An hour: more than any scheduling delay of the test machine.
        for ahead in [10_000_000_000_000, -10_000_000_000_000] {
            match play(ahead) {
                Verdict::Apart { cycles, uncertainty } => {
                    assert!(cycles.abs_diff(ahead) <= uncertainty, "{cycles} ±{uncertainty}");
                }
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn absent_partner_ends_the_game_on_both_sides() {
        let exchange = Exchange::new();
        assert_eq!(exchange.follow(1, 10, 10, || 0), Err(NoAnswer));
        assert_eq!(exchange.lead(1, 10, || 0), Err(NoAnswer));
        // A follower that comes late finds the game ended.
        assert_eq!(exchange.follow(1, 10, u32::MAX, || 0), Err(NoAnswer));
        exchange.finish(1);
        assert_eq!(exchange.follow(1, 10, u32::MAX, || 0), Err(NoAnswer));
    }

    #[test]
    fn late_follower_does_not_take_the_turn_of_the_next() {
        let exchange = Exchange::new();
        exchange.turn.store(turn(2, ping(0)), Relaxed);
        assert_eq!(exchange.follow(1, 10, 10, || 0), Err(NoAnswer));
        assert_eq!(exchange.turn.load(Relaxed), turn(2, ping(0)));
    }
}
