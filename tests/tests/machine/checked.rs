//! The kernel with all its assertions compiled in (`profile.checked`).
//!
//! Release builds, which all other tests boot, do without them.

use boot::exit;
use tests::expect;
use tests::guest::Boot;

#[test]
fn no_assertion_fails_while_everything_runs_at_once() {
    let cmdline = "program=stress log=error -- 10000";
    let outcome =
        Boot::checked("checked-stress").smp(8).mem("2G").cmdline(cmdline).limit(300).run();
    outcome.assert_test("all_of_it_at_once_comes_out_right");
    outcome.assert_ok();
}

#[test]
fn no_assertion_fails_while_gs_are_scheduled() {
    Boot::checked("checked-scheduling")
        .smp(4)
        .cmdline("program=scheduling")
        .limit(300)
        .run()
        .assert_ok();
}

/// Everything is stopped and counted, again and again, on a machine that is as
/// chaotic as it can be.
#[test]
fn every_g_is_in_one_place_whenever_one_looks() {
    for (cpus, words) in [(1, ""), (8, ""), (4, "chaos=5")] {
        let cmdline = format!("program=invariants log=error {words} -- 8");
        let outcome = Boot::checked(format!("checked-invariants-{cpus}"))
            .smp(cpus)
            .cmdline(&cmdline)
            .limit(300)
            .run();
        outcome.assert_test("every_g_is_in_one_place_whenever_one_looks");
        outcome.assert_test("a_stack_without_a_guard_is_found");
        outcome.assert_test("a_write_over_the_top_of_a_stack_is_found");
        outcome.assert_test("a_stack_that_was_written_over_is_found");
        outcome.assert_ok();
    }
}

/// Under virtual time, as the host may keep a CPU waiting for as long as it likes.
#[test]
fn no_g_waits_beside_an_idle_p_for_longer_than_a_wake_up_takes() {
    for cpus in [1, 8] {
        Boot::checked(format!("checked-idle-latency-{cpus}"))
            .smp(cpus)
            .icount("shift=0,sleep=off")
            .cmdline("program=idle_latency log=error")
            .limit(300)
            .run()
            .assert_ok();
    }
}

/// The end of a stream reads the counters, which takes locks, and has locks of its own.
#[test]
fn no_assertion_fails_while_events_are_written_out() {
    let name = "checked-trace";
    let boot = Boot::checked(name).smp(2).debugcon(tests::files::trace_of(name)).limit(300);
    let outcome = boot.cmdline("program=mix trace=stream log=error -- 20").run();
    outcome.assert_ok();
}

/// Goes wrong in a way that only assertions notice, on one CPU and on many.
#[track_caller]
fn stops(how: &str, lines: &[&str]) {
    for cpus in [1, 8] {
        let name = format!("checked-{how}-{cpus}");
        let outcome = Boot::checked(name).smp(cpus).cmdline(&expect::fault(how)).run();
        outcome.assert_code(exit::PANIC);
        outcome.assert_line(expect::KERNEL_PANIC);
        lines.iter().for_each(|line| outcome.assert_line(line));
    }
}

#[test]
fn a_lock_that_is_taken_against_the_order_stops_the_kernel_with_both_names() {
    let names = ["Plain lock of guest::fault::lock_order::Second", "lock_order::First"];
    stops("lock-order", &["lock order: ", names[0], names[1]]);
}

#[test]
fn a_call_that_may_wait_under_a_lock_stops_the_kernel_though_it_need_not_wait() {
    stops("might-park", &["might park with the Plain lock of guest::fault::might_park::Held"]);
}

/// What an interrupt waits for, in instructions: on one CPU, as others would take their turns of
/// virtual time meanwhile. The screen has a bound of its own, which only `lines` must come near.
#[test]
fn no_section_with_interrupts_off_is_longer_than_its_bound() {
    for (name, words) in [("all", "console=serial"), ("screen", "-- lines")] {
        Boot::checked(format!("checked-irqs-off-{name}"))
            .icount("shift=0,sleep=off")
            .cmdline(&format!("program=irqs_off slice=1 log=error {words}"))
            .limit(300)
            .run()
            .assert_ok();
    }
}
