//! What a person asks for on the command line, and what becomes of it.

use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

/// Boots the standard image with 2 CPUs and these words; it ends well.
#[track_caller]
fn asked_for(words: &str) -> Outcome {
    let name = words.replace(['=', ' '], "-");
    let outcome = Boot::new(format!("override-{name}")).smp(2).cmdline(words).run();
    outcome.assert_ok();
    outcome.assert_line(expect::HELLO_END);
    outcome.assert_no_line("ignored");
    outcome
}

/// QEMU's TCG accepts the register and never fires.
#[test]
fn a_timer_that_does_not_fire_is_replaced_loudly() {
    let outcome = asked_for("timer=tsc-deadline");
    outcome.assert_line("error: cpu 0: timer: CPU 0: tsc-deadline does not fire");
    outcome.assert_line(&expect::banner("timer", "one-shot "));
    outcome.assert_line(&expect::all_online(2));
}

#[test]
fn the_one_shot_timer_can_be_asked_for() {
    asked_for("timer=lapic").assert_line(&expect::banner("timer", "one-shot "));
}

#[test]
fn an_x2apic_that_is_not_there_is_done_without() {
    let outcome = asked_for("apic=x2apic");
    outcome.assert_line("warn: cpu 0: apic=x2apic: this CPU has none, using xapic");
    outcome.assert_line(&expect::all_online(2));
}

#[test]
fn the_hpet_can_be_the_clock() {
    let outcome = asked_for(&format!("clock=hpet {}", expect::DETAILS));
    outcome.assert_line(&expect::banner("clock", "hpet; tsc "));
    outcome.assert_line("tsc not used");
}

#[test]
fn without_acpi_the_boot_cpu_runs_alone() {
    let outcome = asked_for("acpi=off");
    outcome.assert_line(expect::NO_MADT);
    outcome.assert_line(&expect::all_online(1));
}

#[test]
fn no_more_cpus_are_started_than_asked_for() {
    let online = expect::all_online(1) + ", 1 beyond maxcpus";
    asked_for("maxcpus=1").assert_line(&online);
}
