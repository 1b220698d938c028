//! When a CPU is taken for stuck, and which CPUs watch.

use super::*;

const HALF: u64 = 500_000_000;

/// The steps of checks half a second apart, with these beats and samples.
fn steps(sights: &[(u64, bool, Option<bool>)]) -> Vec<Step> {
    let mut state = CpuState::NEW;
    let look = |(number, &(beat, is_busy, irqs_off))| {
        state.check(Observation { now_ns: number as u64 * HALF, beat, is_busy, irqs_off })
    };
    sights.iter().enumerate().map(look).collect()
}

#[test]
fn cpu_that_goes_on_is_left_alone() {
    let sights: Vec<_> = (1..50).map(|beat| (beat, true, None)).collect();
    assert!(steps(&sights).iter().all(|step| *step == Step::Nothing));
}

#[test]
fn cpu_that_halts_is_never_asked() {
    assert_eq!(steps(&[(1, false, None); 50]), [Step::Nothing; 50]);
}

#[test]
fn g_alone_on_its_cpu_answers_and_is_asked_every_other_time() {
    let sights = [(1, true, None), (1, true, None), (2, true, None), (2, true, None)];
    assert_eq!(steps(&sights), [Step::Nothing, Step::Ask, Step::Nothing, Step::Ask]);
}

#[test]
fn cpu_with_interrupts_off_is_reported_once_after_two_seconds_and_when_it_goes_on() {
    let off = (1, true, Some(true));
    let sights = [(1, true, None), off, off, off, off, off, off, off, (2, true, None)];
    let expected = [
        Step::Nothing,
        Step::Ask,
        Step::Sample,
        Step::Sample,
        Step::Sample,
        Step::Report(2_000_000_000),
        Step::Nothing,
        Step::Nothing,
        Step::Over(HALF),
    ];
    assert_eq!(steps(&sights), expected);
}

#[test]
fn cpu_that_has_no_core_is_not_reported_however_long_it_takes() {
    // It takes one NMI, and the next one never.
    let mut sights = vec![(1, true, None); 3];
    sights.push((1, true, Some(true)));
    sights.extend([(1, true, None); 100]);
    assert!(!steps(&sights).iter().any(|step| matches!(step, Step::Report(_))));
}

#[test]
fn nmi_that_finds_interrupts_on_takes_back_what_was_held_against_it() {
    let (off, on) = ((1, true, Some(true)), (1, true, Some(false)));
    let sights = [(1, true, None), off, off, off, off, on, off, off, off];
    let steps = steps(&sights);
    assert!(steps[..8].iter().all(|step| !matches!(step, Step::Report(_))), "{steps:?}");
    assert!(matches!(steps[8], Step::Report(_)), "{steps:?}");
}

#[test]
fn strikes_in_a_hurry_do_not_make_two_seconds() {
    let mut state = CpuState::NEW;
    let reported = (0..100).any(|now_ns| {
        let seen = Observation { now_ns, beat: 1, is_busy: true, irqs_off: Some(true) };
        matches!(state.check(seen), Step::Report(_))
    });
    assert!(!reported);
}
