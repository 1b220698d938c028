//! Promises of the clock's decisions. The counters themselves are tested in
//! their own files, the clock on a machine by the whole-machine tests.

use super::*;
use std::cell::Cell;

const MEASURED: Option<(u64, &str)> = Some((2_995_000_000, "hpet"));

fn stated(hz: u64) -> Hints {
    Hints { stated: Some((hz, "cpuid")), ..Hints::default() }
}

#[test]
fn stated_frequency_goes_before_a_measured_one() {
    assert_eq!(combine(&stated(2_995_200_000), MEASURED), (2_995_200_000, "cpuid"));
    assert_eq!(combine(&stated(2_995_200_000), None), (2_995_200_000, "cpuid"));
}

#[test]
fn measurement_overrules_a_statement_that_is_far_off() {
    assert_eq!(combine(&stated(2_500_000_000), MEASURED), (2_995_000_000, "hpet"));
}

#[test]
fn measurement_and_guess_come_last() {
    assert_eq!(combine(&Hints::default(), MEASURED), (2_995_000_000, "hpet"));
    assert_eq!(combine(&Hints::default(), None), (ASSUMED_TSC_HZ, "guess"));
}

#[test]
fn source_is_the_tsc_only_where_trusted_or_forced_or_alone() {
    let (doubtful, invariant, emulated) = (
        Hints::default(),
        Hints { is_invariant: true, ..Hints::default() },
        Hints { is_virtual: true, ..Hints::default() },
    );
    for (choice, hints, is_hpet) in [
        (ClockChoice::Auto, &invariant, false),
        (ClockChoice::Auto, &emulated, false),
        (ClockChoice::Auto, &doubtful, true),
        (ClockChoice::Tsc, &doubtful, false),
        (ClockChoice::Hpet, &invariant, true),
    ] {
        assert_eq!(choose_hpet(choice, hints, true), is_hpet, "{choice:?}");
        assert!(!choose_hpet(choice, hints, false), "there is none");
    }
}

#[test]
fn clock_starts_at_zero_and_never_below() {
    let clock = Clock::new(3_000_000_000, 1_000_000, 0);
    assert_eq!(clock.ns_at(1_000_000), 0);
    assert_eq!(clock.ns_at(999_000), 0, "a CPU that is a little behind");
    assert!(1_000_000 - clock.ns_at(1_000_000 + 3_000_000) <= 1);
    let later = Clock::new(3_000_000_000, 1_000_000, 77);
    assert_eq!(later.ns_at(1_000_000), 77, "it takes over from another clock");
    let hour = Scale::new(NS_PER_SECOND, 3_000_000_000).apply(3_600 * NS_PER_SECOND);
    assert!(hour.abs_diff(3_600 * 3_000_000_000) <= 1);
}

#[test]
fn wait_ends_when_the_counter_stands_still() {
    assert!(!spin(1_000, || 5));
    let now = Cell::new(u64::MAX - 100);
    let passed = spin(1_000, || now.replace(now.get().wrapping_add(10)));
    assert!(passed, "a counter that wraps still counts");
}

#[test]
fn frequencies_read_as_a_person_would_say_them() {
    assert_eq!(Mhz(2_995_200_123).to_string(), "2995.2 MHz");
    assert_eq!(Mhz(999_960_000).to_string(), "1000.0 MHz");
}
