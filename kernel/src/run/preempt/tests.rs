//! Slices that are spent, lent and renewed, and alarms.

use super::*;
use Leaving::{Displace, Expire};

const SLICE: u64 = 100;

/// A slice of that length that began at `now`.
fn begun(now: u64) -> Slices {
    let slices = Slices::new();
    slices.length.store(SLICE, Ordering::Relaxed);
    slices.begin(now);
    slices
}

/// The decision while other Gs wait, one of them urgent.
fn urgent(slices: &Slices, now: u64) -> Option<Leaving> {
    slices.is_urgent.set(true);
    slices.why_to_leave(now, || true)
}

/// The same, without an urgent G.
fn tick(slices: &Slices, now: u64) -> Option<Leaving> {
    slices.is_urgent.set(false);
    slices.why_to_leave(now, || true)
}

/// As the switch does it on its slow way.
fn begin_new(slices: &Slices, now: u64) {
    slices.begin(now);
    slices.end_loan();
}

#[test]
fn a_slice_is_spent_by_running_and_ends_if_somebody_waits() {
    let slices = begun(1000);
    assert_eq!((slices.left(1000), slices.left(1099)), (SLICE, 1));
    assert_eq!(tick(&slices, 1099), None);
    assert_eq!(tick(&slices, 1100), Some(Expire));
    assert_eq!(slices.left(1250), 0, "not below zero");
    assert_eq!(slices.why_to_leave(1250, || false), None);
    assert_eq!(slices.left(1250), SLICE, "another one begins");
}

#[test]
fn whoever_lends_goes_on_with_what_was_left() {
    let slices = begun(1000);
    assert_eq!(urgent(&slices, 1030), Some(Displace));
    slices.lend(1030);
    slices.resume(1050);
    assert_eq!(slices.left(1050), 70);
    assert_eq!(tick(&slices, 1119), None);
    assert_eq!(tick(&slices, 1120), Some(Expire));
}

#[test]
fn a_loan_is_half_a_slice_at_most_wherever_it_begins() {
    for lent_at in [1000, 1030, 1099, 1100, 1500] {
        let slices = begun(1000);
        assert_eq!(urgent(&slices, lent_at), Some(Displace));
        slices.lend(lent_at);
        assert_eq!(slices.left(lent_at), 50);
        assert_eq!(tick(&slices, lent_at + 49), None);
        assert_eq!(tick(&slices, lent_at + 50), Some(Expire));
    }
}

#[test]
fn all_loans_of_a_slice_are_half_of_it_together() {
    let slices = begun(1000);
    slices.lend(1010);
    slices.resume(1030); // 20 are given back
    assert_eq!(urgent(&slices, 1040), Some(Displace));
    slices.lend(1040);
    assert_eq!(slices.left(1040), 30);
    slices.resume(1069); // 49
    assert_eq!(urgent(&slices, 1070), Some(Displace));
    slices.lend(1070);
    assert_eq!((slices.left(1070), tick(&slices, 1071)), (1, Some(Expire)));
    slices.resume(1071); // 50
    assert_eq!(urgent(&slices, 1071), None, "all is lent");
    assert_eq!(slices.left(1071), SLICE - 21, "it ran for 10, 10 and 1");
    assert_eq!(urgent(&slices, 1150), Some(Expire));
}

#[test]
fn a_borrower_that_stayed_too_long_has_had_it_all() {
    let slices = begun(1000);
    slices.lend(1010);
    assert_eq!(slices.left(1200), 0);
    slices.resume(1200); // with interrupts off, say
    assert_eq!(urgent(&slices, 1200), None);
    assert_eq!(slices.left(1200), 90, "the lender pays nothing");
}

#[test]
fn while_a_loan_is_under_way_a_hurry_waits_for_its_end() {
    let slices = begun(1000);
    slices.lend(1010);
    assert_eq!(urgent(&slices, 1020), None);
    slices.resume(1030);
    assert_eq!(urgent(&slices, 1030), Some(Displace));
    slices.lend(1030);
    assert_eq!((urgent(&slices, 1059), urgent(&slices, 1060)), (None, Some(Expire)));
}

#[test]
fn a_slice_that_follows_a_whole_one_has_a_new_half_to_lend() {
    let slices = begun(1000);
    slices.lend(1000);
    slices.resume(1050);
    assert_eq!(urgent(&slices, 1050), None, "all is lent");
    slices.begin(1150);
    assert_eq!(urgent(&slices, 1150), Some(Displace));
    slices.lend(1150);
    assert_eq!(slices.left(1150), 50);
}

#[test]
fn what_short_slices_lend_is_half_of_what_their_own_gs_run() {
    let slices = begun(1000);
    slices.lend(1000);
    slices.resume(1050);
    slices.begin(1060); // its G ran for 10
    assert_eq!(urgent(&slices, 1060), Some(Displace));
    slices.lend(1060);
    assert_eq!(slices.left(1060), 5);
    begin_new(&slices, 1080); // the borrower stayed, and its lender is gone
    assert_eq!(slices.left(1080), SLICE);
    assert_eq!((urgent(&slices, 1090), slices.may_lend(1090)), (None, false));
    slices.rested(1100); // nothing ran, so nothing is owed
    assert!(slices.may_lend(1100));
}

/// Urgent Gs that always want to run, beside normal Gs whose slices are of any length.
#[test]
fn normal_gs_have_two_thirds_whatever_urgent_gs_do() {
    for normal_runs in [1, 7, 30, 100, 1000] {
        let slices = begun(0);
        let (mut now, mut own, mut lent, mut displaced) = (0, 0, 0, false);
        while now < 100_000 {
            let lends = if displaced { slices.may_lend_next(now) } else { slices.may_lend(now) };
            if lends {
                // It displaces, or comes before the next slice.
                match displaced {
                    true => slices.lend_next(now),
                    false => _ = slices.lend(now),
                }
                let left = slices.left(now);
                (now, lent) = (now + left, lent + left);
                match displaced {
                    true => begin_new(&slices, now),
                    false => slices.resume(now),
                }
                displaced = !displaced;
            }
            let run = normal_runs.min(slices.left(now));
            (now, own) = (now + run, own + run);
            slices.begin(now);
        }
        assert!(3 * own >= 2 * now - 2 * SLICE, "{normal_runs}: {own} of {now}");
        assert!(3 * lent >= now - 3 * SLICE, "{normal_runs}: only {lent} of {now} lent");
    }
}

#[test]
fn an_urgent_g_takes_over_the_loan_of_a_normal_one() {
    let slices = begun(1000);
    slices.lend(1010);
    assert_eq!(urgent(&slices, 1020), None);
    slices.outranks.set(true);
    assert_eq!(urgent(&slices, 1020), Some(Displace));
    assert_eq!(slices.lend(1020), 40, "10 are used");
    slices.resume(1060);
    assert_eq!((slices.left(1060), slices.may_lend(1060)), (90, false));
}

#[test]
fn less_than_a_sixteenth_of_a_slice_is_not_lent() {
    let slices = begun(1000);
    slices.lend(1000);
    slices.resume(1044);
    assert!(slices.may_lend(1044));
    slices.lend(1044);
    slices.resume(1045);
    assert!(!slices.may_lend(1045));
}

#[test]
fn a_lender_that_comes_back_after_slices_of_others_has_a_new_one() {
    let slices = begun(1000);
    slices.lend(1040);
    begin_new(&slices, 1060);
    slices.resume(1100);
    assert_eq!(slices.left(1100), SLICE);
    assert_eq!(urgent(&slices, 1100), Some(Displace));
}

#[test]
fn the_counter_may_wrap_in_the_middle() {
    let start = u64::MAX - 20;
    let at = |after: u64| start.wrapping_add(after);
    let slices = begun(start);
    assert_eq!(slices.left(at(30)), 70);
    slices.lend(at(10));
    assert_eq!(slices.left(at(30)), 30);
    slices.resume(at(30));
    assert_eq!(slices.left(at(30)), 90);
    assert_eq!((tick(&slices, at(119)), tick(&slices, at(120))), (None, Some(Expire)));
}

#[test]
fn an_alarm_goes_off_once_and_not_before_its_time() {
    let slices = Slices::new();
    slices.alarms[Alarm::Watchdog as usize].store(100, Ordering::Relaxed);
    slices.alarms[Alarm::LateWakes as usize].store(200, Ordering::Relaxed);
    let all_due = |now_ns| core::iter::from_fn(|| slices.take_due(now_ns)).collect::<Vec<_>>();
    assert_eq!(all_due(99), []);
    assert_eq!(all_due(100), [Alarm::Watchdog]);
    assert_eq!((slices.alarm(Alarm::Watchdog), slices.alarm(Alarm::LateWakes)), (NEVER, 200));
    assert_eq!(all_due(300), [Alarm::LateWakes]);
    assert_eq!(all_due(NEVER - 1), []);
}

#[test]
fn a_tick_for_the_watchdog_alone_is_not_counted() {
    let slices = Slices::new();
    slices.at(Alarm::Watchdog).set(100);
    for (armed, ticks) in [(100, 0), (99, 1)] {
        slices.armed.set(armed);
        assert_eq!((slices.fired(0).is_some(), slices.counters()[0]), (ticks > 0, ticks));
        assert!(!slices.is_timed());
    }
}
