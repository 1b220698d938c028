//! Lab 5 on the host: what is left of a slice, the verdict, and for when the timer is armed, with a
//! clock that this file makes up.

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

/// The verdict while another G waits.
fn verdict(slices: &Slices, now: u64) -> Option<Leaving> {
    slices.is_urgent.set(false);
    slices.why_to_leave(now, || true)
}

/// The same while an urgent G waits.
fn urgent(slices: &Slices, now: u64) -> Option<Leaving> {
    slices.is_urgent.set(true);
    slices.why_to_leave(now, || true)
}

#[test]
fn a_slice_is_spent_by_running() {
    let slices = begun(1_000);
    for (now, left, why) in
        [(1_000, 100, None), (1_099, 1, None), (1_100, 0, Some(Expire)), (1_500, 0, Some(Expire))]
    {
        assert_eq!(slices.left(now), left, "left at {now} of a slice of {SLICE} from 1000");
        assert_eq!(verdict(&slices, now), why, "at {now}");
    }
}

#[test]
fn a_slice_without_a_waiter_begins_anew() {
    let slices = begun(1_000);
    assert_eq!(slices.why_to_leave(1_050, || false), None);
    assert_eq!(slices.left(1_050), 50, "it is not over");
    assert_eq!(slices.why_to_leave(1_130, || false), None, "no other G waits");
    assert_eq!(slices.left(1_130), SLICE, "a new slice begins");
    assert_eq!(verdict(&slices, 1_229), None);
    assert_eq!(verdict(&slices, 1_230), Some(Expire));
}

#[test]
fn the_counter_may_wrap() {
    let slices = begun(u64::MAX - 20);
    assert_eq!(slices.left(9), 70, "30 cycles later, beyond the wrap");
    assert_eq!(verdict(&slices, 78), None);
    assert_eq!(verdict(&slices, 79), Some(Expire));
}

#[test]
fn an_urgent_g_displaces() {
    let slices = begun(1_000);
    assert_eq!(urgent(&slices, 1_030), Some(Displace));
    slices.lend(1_030);
    assert_eq!(slices.left(1_030), 50, "half a slice is lent");
    slices.resume(1_050);
    assert_eq!(slices.left(1_050), 70, "the G that lent it goes on with what was left");
}

#[test]
fn loans_of_a_slice_are_half_of_it() {
    let slices = begun(1_000);
    slices.lend(1_010);
    slices.resume(1_030); // 20 are given back
    slices.lend(1_040);
    assert_eq!(slices.left(1_040), 30, "20 of the half were lent before");
    slices.resume(1_070); // 50 in all
    assert_eq!(urgent(&slices, 1_070), None, "the half of this slice is used up");
    slices.begin(1_200);
    assert_eq!(urgent(&slices, 1_200), Some(Displace), "a new slice has a new half");
}

#[test]
fn a_loan_is_not_lent_on() {
    let slices = begun(1_000);
    slices.lend(1_010);
    assert_eq!(urgent(&slices, 1_020), None, "while a loan is under way");
    assert_eq!(urgent(&slices, 1_059), None, "a cycle of the loan is left");
    assert_eq!(urgent(&slices, 1_060), Some(Expire), "the loan is over");
}

#[test]
fn a_g_that_outranks_the_borrower_displaces_it() {
    let slices = begun(1_000);
    slices.lend(1_010);
    slices.make_way(); // sets `outranks`
    assert_eq!(urgent(&slices, 1_020), Some(Displace), "a normal G has borrowed this slice");
    slices.resume(1_060); // 50 are given back
    assert_eq!(urgent(&slices, 1_060), None, "the half of this slice is used up");
}

#[test]
fn the_earliest_time_wins() {
    for (due, at, wanted) in
        [(NEVER, 500, 500), (300, 500, 300), (500, 300, 300), (300, NEVER, 300)]
    {
        let slices = begun(0);
        slices.due.set(due);
        slices.arm_by(at);
        assert_eq!(
            slices.armed.get(),
            wanted,
            "the first deadline is {due}, the slice ends at {at}"
        );
    }
    let slices = begun(0);
    slices.arm_by(NEVER);
    assert_eq!(slices.armed.get(), NEVER, "there is nothing to arm it for");
}

#[test]
fn a_timer_that_is_armed_early_is_left_alone() {
    let slices = begun(0);
    slices.arm_by(400);
    slices.arm_by(500);
    assert_eq!(slices.armed.get(), 400, "armed for 400, then a slice that ends at 500");
    slices.arm_by(200);
    assert_eq!(slices.armed.get(), 200, "then one that ends at 200");
    slices.due.set(100);
    slices.arm_by(NEVER);
    assert_eq!(slices.armed.get(), 100, "then a sleeper that is due at 100");
}
