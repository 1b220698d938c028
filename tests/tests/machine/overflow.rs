//! Full stacks: each ends its G and nobody else, checked by the guest from inside.

use boot::exit;
use std::sync::LazyLock;
use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

static OVERFLOW: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("overflow-{cpus}")).smp(cpus).cmdline("program=overflow").limit(300)
}

guest_tests!(OVERFLOW => overflow);

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

/// So many, and as many again.
#[track_caller]
fn many_leave_nothing_behind_on(cpus: usize, many: usize) {
    let name = format!("overflow-many-{cpus}-{many}");
    let cmdline = format!("program=overflow_many log=error -- {many}");
    let outcome = Boot::guest(name).smp(cpus).cmdline(&cmdline).limit(300).run();
    outcome.assert_ok();
    outcome.assert_line(&format!("MANY {many} and {many} again"));
}

#[test]
fn five_hundred_and_as_many_more_leave_nothing_behind_on_one_cpu() {
    many_leave_nothing_behind_on(1, 500);
}

#[test]
fn five_hundred_and_as_many_more_leave_nothing_behind_on_eight_cpus() {
    many_leave_nothing_behind_on(8, 500);
}

#[test]
#[ignore = "make test-full"]
fn ten_thousand_and_as_many_more_leave_nothing_behind_on_one_cpu_and_on_eight() {
    [1, 8].into_iter().for_each(|cpus| many_leave_nothing_behind_on(cpus, 10_000));
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

static STACKS: LazyLock<Outcome> =
    LazyLock::new(|| Boot::guest("stacks").smp(2).mem("512M").cmdline("program=stacks").run());

mod sizes {
    use super::*;

    guest_tests!(STACKS => stacks);

    #[test]
    fn main_has_room_for_large_arrays() {
        STACKS.assert_ok();
    }

    #[test]
    fn a_boot_word_says_how_large_all_stacks_are() {
        let boot = Boot::guest("stacks-word").smp(2);
        let outcome = boot.cmdline("program=bootword stack=1024 -- 900").run();
        outcome.assert_ok();
        outcome.assert_line("BOOTWORD 900");
    }

    #[test]
    fn what_a_deep_stack_has_used_is_free_again() {
        deep_stack(64, "512M");
    }

    #[test]
    #[ignore = "make test-full"]
    fn seven_hundred_mebibytes_of_stack_are_used_and_free_again() {
        deep_stack(700, "2G");
    }

    #[track_caller]
    fn deep_stack(mib: usize, mem: &str) {
        let boot = Boot::guest(format!("deepstack-{mib}")).smp(2).mem(mem).limit(300);
        let outcome = boot.cmdline(&format!("program=deepstack -- {mib}")).run();
        outcome.assert_ok();
        outcome.assert_line(&format!("DEEP {mib} MiB, "));
    }

    #[test]
    fn a_bad_boot_word_is_named() {
        let boot = Boot::guest("stacks-bad-word").smp(1);
        let outcome = boot.cmdline("program=bootword stack=2G -- 56").run();
        outcome.assert_ok();
        outcome.assert_line("`stack=2G` ignored");
        outcome.assert_line("the value must be <KiB>, 1 to 1048576");
    }
}
