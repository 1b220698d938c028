//! When a CPU was not running although it should have been: the host was elsewhere.
//!
//! A virtual CPU is a thread of the host. With more virtual CPUs than cores, or beside other
//! work, the host takes it off its core for tens of milliseconds; a G then seems to run far
//! beyond its slice, and a P seems to ignore its wake-up. The scheduler has no part in that, so a
//! trace must tell such times from its own. Two events show them:
//!
//! - a `Tick` says how late its interrupt was, in microseconds: the timer was to fire that
//!   long ago, and an interrupt that waits is taken at the next instruction;
//! - between a `WakeSent` to a CPU and that CPU's next `WakeReceived` it had only to take the interrupt.
//!
//! The kernel holds interrupts off for microseconds at most, so what is later than [`LATE_NS`] is
//! the host's. A CPU without a timer and without a wake-up under way shows nothing: what is
//! found is a lower bound.

use super::Interval;

/// What is this late was not running.
pub const LATE_NS: u64 = 1_000_000;

/// Watches one CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    found: Vec<Interval>,
    /// When the first wake-up was sent that it has not received yet.
    sent: Option<u64>,
}

impl Watch {
    /// Its timer has fired, so many microseconds late.
    pub(super) fn ticked(&mut self, now: u64, late_us: u32) {
        self.late(now.saturating_sub(u64::from(late_us) * 1_000), now);
    }

    /// Another CPU has woken it.
    pub(super) fn sent(&mut self, now: u64) {
        self.sent.get_or_insert(now);
    }

    /// It has received that.
    pub(super) fn woken(&mut self, now: u64) {
        if let Some(sent) = self.sent.take() {
            self.late(sent, now);
        }
    }

    fn late(&mut self, from: u64, to: u64) {
        if to.saturating_sub(from) >= LATE_NS {
            self.found.push(Interval { from, to });
        }
    }

    /// By time, those that overlap as one.
    pub(super) fn into_intervals(mut self) -> Vec<Interval> {
        self.found.sort_by_key(|time| time.from);
        let mut merged: Vec<Interval> = Vec::new();
        for time in self.found {
            match merged.last_mut() {
                Some(last) if time.from <= last.to => last.to = last.to.max(time.to),
                _ => merged.push(time),
            }
        }
        merged
    }
}

/// How much of `time` is in `intervals`, which are sorted and apart.
pub fn within(intervals: &[Interval], time: Interval) -> u64 {
    let first = intervals.partition_point(|one| one.to <= time.from);
    let overlaps = intervals[first..].iter().take_while(|one| one.from < time.to);
    overlaps.map(|one| one.to.min(time.to).saturating_sub(one.from.max(time.from))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn interval(from: u64, to: u64) -> Interval {
        Interval { from: from * MS, to: to * MS }
    }

    #[test]
    fn a_late_tick_and_a_late_wake_up_show_and_short_ones_do_not() {
        let mut watch = Watch::default();
        watch.ticked(5 * MS, 999);
        watch.ticked(50 * MS, 40_000);
        watch.sent(100 * MS);
        watch.sent(120 * MS);
        watch.woken(130 * MS);
        watch.woken(190 * MS);
        assert_eq!(watch.into_intervals(), [interval(10, 50), interval(100, 130)]);
    }

    #[test]
    fn what_overlaps_is_counted_once() {
        let mut watch = Watch::default();
        watch.ticked(50 * MS, 40_000);
        watch.sent(5 * MS);
        watch.woken(20 * MS);
        watch.ticked(60 * MS, 12_000);
        assert_eq!(watch.into_intervals(), [interval(5, 60)]);
    }

    #[test]
    fn a_stream_that_is_later_than_it_is_long_does_no_harm() {
        let mut watch = Watch::default();
        watch.ticked(2 * MS, 0xff_ffff);
        assert_eq!(watch.into_intervals(), [interval(0, 2)]);
    }

    #[test]
    fn parts_of_intervals_add_up() {
        let all = [interval(1, 3), interval(5, 6), interval(8, 20)];
        assert_eq!(within(&all, interval(2, 10)), 4 * MS);
        assert_eq!(within(&all, interval(3, 5)), 0);
        assert_eq!(within(&[], interval(0, 9)), 0);
    }
}
