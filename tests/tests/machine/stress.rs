//! Everything at once with 100,000 Gs, at every number of CPUs.

use tests::expect;
use tests::guest::Boot;

/// Boots, and wants all counts right.
#[track_caller]
fn all_counts_are_right_on(cpus: usize) {
    let name = format!("stress-{cpus}");
    let cmdline = "program=stress log=error -- 100000";
    let outcome = Boot::guest(name).smp(cpus).mem("2G").cmdline(cmdline).limit(300).run();
    outcome.assert_test("all_of_it_at_once_comes_out_right");
    outcome.assert_ok();
    outcome.assert_no_line(expect::STUCK);
}

#[test]
fn all_counts_are_right_on_one_cpu() {
    all_counts_are_right_on(1);
}

#[test]
#[ignore = "make test-full"]
fn all_counts_are_right_on_two_cpus() {
    all_counts_are_right_on(2);
}

#[test]
#[ignore = "make test-full"]
fn all_counts_are_right_on_four_cpus() {
    all_counts_are_right_on(4);
}

#[test]
fn all_counts_are_right_on_eight_cpus() {
    all_counts_are_right_on(8);
}
