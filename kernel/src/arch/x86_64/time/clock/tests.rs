//! Promises of the clock's decisions. The counters themselves are tested in
//! their own files, the clock on a machine by the whole-machine tests.

use super::*;
use std::cell::Cell;
use std::string::ToString;

const MEASURED: Option<(u64, &str)> = Some((2_995_000_000, "hpet"));

fn stated(hz: u64) -> Hints {
    Hints { stated_hz: Some(hz), hypervisor_hz: Some(1_000_000_000), ..Hints::default() }
}

#[test]
fn stated_frequency_goes_before_a_measured_one() {
    assert_eq!(combine(&stated(2_995_200_000), MEASURED), (2_995_200_000, "cpuid"));
    assert_eq!(combine(&stated(2_995_200_000), None), (2_995_200_000, "cpuid"));
    let hints = Hints { hypervisor_hz: Some(2_995_200_000), ..Hints::default() };
    assert_eq!(combine(&hints, MEASURED), (2_995_200_000, "hypervisor"));
}

#[test]
fn measurement_overrules_a_statement_that_is_far_off() {
    assert_eq!(combine(&stated(2_500_000_000), MEASURED), (2_995_000_000, "hpet"));
}

#[test]
fn nominal_frequency_and_guess_come_last() {
    let nominal = Hints { base_hz: Some(2_600_000_000), ..Hints::default() };
    assert_eq!(combine(&nominal, MEASURED), (2_995_000_000, "hpet"));
    assert_eq!(combine(&nominal, None), (2_600_000_000, "nominal frequency"));
    assert_eq!(combine(&Hints::default(), None), (ASSUMED_TSC_HZ, "guess"));
}

#[test]
fn source_is_the_tsc_only_where_trusted_or_forced_or_alone() {
    let (doubtful, invariant, emulated) = (
        Hints::default(),
        Hints { is_invariant: true, ..Hints::default() },
        Hints { is_virtual: true, ..Hints::default() },
    );
    let wide = |choice, hints| choose_source(choice, hints, true, true);
    assert_eq!(wide(ClockChoice::Auto, &invariant), Source::Tsc);
    assert_eq!(wide(ClockChoice::Auto, &emulated), Source::Tsc);
    assert_eq!(wide(ClockChoice::Auto, &doubtful), Source::Hpet);
    assert_eq!(wide(ClockChoice::Tsc, &doubtful), Source::Tsc);
    assert_eq!(wide(ClockChoice::Hpet, &invariant), Source::Hpet);
    let narrow = choose_source(ClockChoice::Auto, &doubtful, true, false);
    assert_eq!(narrow, Source::Tsc, "an hpet that wraps is no clock");
    assert_eq!(choose_source(ClockChoice::Hpet, &invariant, false, false), Source::Tsc);
}

#[test]
fn clock_starts_at_zero_and_never_below() {
    let clock = TscClock::new(3_000_000_000, 1_000_000);
    assert_eq!(clock.ns_at(1_000_000), 0);
    assert_eq!(clock.ns_at(999_000), 0, "a CPU that is a little behind");
    assert!(1_000_000 - clock.ns_at(1_000_000 + 3_000_000) <= 1);
    let hour = clock.from_ns.apply(3_600 * NS_PER_SECOND);
    assert!(hour.abs_diff(3_600 * 3_000_000_000) <= 1);
}

#[test]
fn wait_ends_when_the_counter_stands_still() {
    assert!(!spin_until(1_000, 10_000, || 5));
    let now = Cell::new(u64::MAX - 100);
    let passed = spin_until(1_000, 10_000, || now.replace(now.get().wrapping_add(10)));
    assert!(passed, "a counter that wraps still counts");
}

#[test]
fn delay_before_the_clock_runs_takes_the_time_asked_at_least() {
    let start = std::time::Instant::now();
    delay_us(200);
    // The assumed frequency is an upper limit, so this holds on any host.
    assert!(start.elapsed().as_micros() >= 190);
    assert_eq!(now_ns(), 0);
}

#[test]
fn reports_read_as_a_person_would_say_it() {
    let report = ClockReport { source: Source::Tsc, tsc_hz: 2_995_200_123, by: "hpet" };
    assert_eq!(report.to_string(), "tsc 2995.2 MHz by hpet");
    let report = ClockReport { source: Source::Hpet, tsc_hz: 999_960_000, by: "pit" };
    assert_eq!(report.to_string(), "hpet; tsc 1000.0 MHz by pit");
    assert_eq!(SyncReport::NotUsed.to_string(), "tsc not used");
}
