//! CPUs that are stuck: found by another one, reported, and seen to go on.

use std::sync::LazyLock;

use boot::exit;
use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

static GUARDING: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("guarding-{cpus}")).smp(cpus).cmdline("program=guarding log=warn")
}

guest_tests!(GUARDING => guarding);

#[test]
fn the_report_says_who_where_and_for_how_long() {
    let last = 7;
    GUARDING.assert_line(&format!("CPU {last} is stuck in G "));
    GUARDING.assert_line(": interrupts off for ");
    GUARDING.assert_line("guarding::spin_with_interrupts_off");
    GUARDING.assert_line(&format!("CPU {last} goes on after "));
    GUARDING.assert_line("spinning for the lock of guest::guarding::NeverFreed at 0x");
}

#[test]
fn on_one_cpu_nobody_watches_and_nothing_is_said() {
    let outcome = boot(1).run();
    outcome.assert_ok();
    outcome.assert_no_line(expect::STUCK);
}

#[test]
fn a_machine_may_stop_for_a_stuck_cpu() {
    let cmdline = format!("stuck=stop {}", expect::fault("stuck"));
    let outcome = Boot::guest("stuck-stop").smp(8).cmdline(&cmdline).run();
    outcome.assert_code(exit::PANIC);
    outcome.assert_line(expect::KERNEL_PANIC);
    outcome.assert_line("CPU 7 is stuck in G ");
    outcome.assert_line("CPU 7 was stopped, in G ");
    outcome.assert_line("fault::wait_for_ever");
}

/// In virtual time, where seconds cost nothing and every look is counted.
#[test]
fn an_idle_machine_is_not_looked_at() {
    let cmdline = "program=guarding log=warn -- an_idle_machine_is_not_looked_at";
    let boot = Boot::guest("guarding-idle").smp(8).icount("shift=0,sleep=off").cmdline(cmdline);
    let outcome = boot.run();
    outcome.assert_test("an_idle_machine_is_not_looked_at");
    outcome.assert_ok();
}
