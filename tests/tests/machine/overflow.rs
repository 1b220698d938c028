//! Full stacks: each ends its G and nobody else, checked by the guest from inside.

use boot::exit;
use std::sync::LazyLock;
use tests::guest::Boot;
use tests::outcome::Outcome;
use tests::{expect, fixture, guest_tests};

static OVERFLOW: LazyLock<Outcome> = LazyLock::new(|| fixture::once(&boot(8)));

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("overflow-{cpus}")).smp(cpus).cmdline("program=overflow").limit(300)
}

guest_tests!(OVERFLOW =>
    a_full_stack_is_the_error_of_its_join,
    destructors_run_from_the_caller_of_the_full_frame_on,
    a_recursion_that_was_proved_not_to_unwind_unwinds_above_it,
    a_frame_larger_than_the_stack_is_an_overflow,
    a_lock_that_was_held_is_poisoned_and_free,
    a_lock_that_no_table_knows_of_is_poisoned_and_free,
    a_peer_of_a_full_g_sees_its_end_of_the_channel_closed,
    a_g_that_waits_at_every_depth_overflows_between_waits,
    a_g_near_the_end_of_its_stack_is_preempted_and_goes_on,
    all_cpus_overflow_at_once,
    overflows_among_timers_and_devices_end_their_gs_only,
    a_destructor_that_overflows_leaves_its_g_behind_and_the_join_says_so,
    the_locks_of_one_that_is_left_behind_go_poisoned_to_who_waits,
    a_program_whose_main_is_left_behind_has_panicked,
    a_full_stack_in_a_call_ends_its_g_only,
    a_call_that_has_waited_overflows_on_the_stack_it_left_with,
    all_cpus_overflow_in_calls_at_once,
    calls_that_overflow_grow_nothing,
    a_destructor_that_overflows_in_a_call_leaves_g_and_m_behind,
    reports_have_calls_again_after_a_while,
);

#[test]
fn the_last_report_has_its_calls_although_there_were_many() {
    OVERFLOW.assert_line("overflow::reports_have_calls_again_after_a_while::late+");
}

#[test]
fn all_of_it_holds_on_eight_cpus() {
    OVERFLOW.assert_ok();
}

#[test]
fn all_of_it_holds_on_one_cpu() {
    boot(1).run().assert_ok();
}

#[test]
fn a_machine_whose_main_is_left_behind_ends() {
    for cpus in [1, 8] {
        let boot = Boot::guest(format!("left-behind-{cpus}")).smp(cpus);
        let outcome = boot.cmdline("program=left_behind").run();
        outcome.assert_code(expect::CODE_MAIN_PANIC);
        outcome.assert_line(expect::LEFT_BEHIND);
    }
}

/// How many, and as many again.
const MANY: usize = 10_000;

#[track_caller]
fn many_leave_nothing_behind_on(cpus: usize) {
    let name = format!("overflow-many-{cpus}");
    let cmdline = format!("program=overflow_many log=error -- {MANY}");
    let outcome = Boot::guest(name).smp(cpus).cmdline(&cmdline).limit(300).run();
    outcome.assert_ok();
    outcome.assert_line(&format!("MANY {MANY} and {MANY} again"));
}

#[test]
fn ten_thousand_and_ten_thousand_more_leave_nothing_behind_on_one_cpu() {
    many_leave_nothing_behind_on(1);
}

#[test]
fn ten_thousand_and_ten_thousand_more_leave_nothing_behind_on_eight_cpus() {
    many_leave_nothing_behind_on(8);
}

fn on_one_cpu_and_on_eight(how: &str) -> impl Iterator<Item = Outcome> {
    [1, 8].into_iter().map(move |cpus| {
        Boot::guest(format!("fault-{how}-{cpus}")).smp(cpus).cmdline(&expect::fault(how)).run()
    })
}

#[test]
fn the_report_names_the_g_its_spawn_site_and_the_function() {
    for outcome in on_one_cpu_and_on_eight("stack-overflow") {
        outcome.assert_ok();
        let line = outcome.line(expect::OVERFLOWED).unwrap_or_default();
        assert!(line.contains(expect::VICTIM), "no G in {line:?}\n{outcome}");
        assert!(line.contains("fault.rs:"), "no spawn site in {line:?}\n{outcome}");
        outcome.assert_line("guest::fault::overflow+");
        outcome.assert_line("the victim came back: Err(StackOverflow)");
    }
}

#[test]
fn a_call_in_which_nothing_unwinds_is_left_behind_with_its_m() {
    for outcome in on_one_cpu_and_on_eight("overflow-in-call") {
        outcome.assert_ok();
        let line = outcome.line(expect::OVERFLOWED).unwrap_or_default();
        assert!(line.contains("in a blocking call"), "{line}\n{outcome}");
        outcome.assert_line(expect::LEFT_BEHIND);
        outcome.assert_line(" pages of stack are kept");
        outcome.assert_line("the victim came back: Err(StackOverflow)");
    }
}

#[test]
fn a_full_stack_with_interrupts_off_stops_the_machine() {
    for outcome in on_one_cpu_and_on_eight("overflow-irqs-off") {
        outcome.assert_code(exit::EXCEPTION);
        outcome.assert_line(": stack overflow");
        outcome.assert_line("with interrupts off");
    }
}
