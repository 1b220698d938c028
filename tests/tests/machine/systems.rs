//! The six scheduling systems: each boots, runs programs right, keeps its promises and shows its
//! drawback, by counts.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;

fn boot(system: &str, cpus: usize) -> Outcome {
    let name = format!("systems-{system}-{cpus}");
    let cmdline = format!("program=systems system={system}");
    let outcome = Boot::guest(name).smp(cpus).cmdline(&cmdline).limit(240).run();
    outcome.assert_ok();
    outcome.assert_line(&format!("SYSTEM name {system}"));
    outcome.assert_line(&format!("sched  {system}: "));
    outcome
}

/// The number that the guest has printed for that.
fn figure(outcome: &Outcome, what: &str) -> u64 {
    let prefix = format!("SYSTEM {what} ");
    let number = outcome.lines.iter().find_map(|line| line.strip_prefix(&prefix));
    number.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no figure {what}\n{outcome}"))
}

/// Each system: its promises, and what it does not promise, on four CPUs and on one. Checked from
/// inside.
macro_rules! systems {
    ($($module:ident $name:literal,)*) => {
        $(mod $module {
            use super::*;

            pub static ON_FOUR: LazyLock<Outcome> = LazyLock::new(|| boot($name, 4));

            #[test]
            fn keeps_its_promises_and_no_others_on_four_cpus() {
                ON_FOUR.assert_test("invariants_hold");
            }

            #[test]
            fn keeps_its_promises_and_no_others_on_one_cpu() {
                boot($name, 1).assert_test("invariants_hold");
            }
        })*
    };
}

systems! {
    one_to_one "1to1",
    n1 "n1",
    pool "pool",
    shared "shared",
    distributed "distributed",
    mpn "mpn",
}

#[test]
fn a_g_with_an_m_of_its_own_takes_four_pages_more() {
    let bytes = |outcome: &Outcome| figure(outcome, "bytes_of_a_waiting_g");
    let [with, without] = [&one_to_one::ON_FOUR, &mpn::ON_FOUR].map(|outcome| bytes(outcome));
    assert!(with >= without + 4 * 4096, "{with} bytes with an M, {without} without");
}

#[test]
fn a_word_that_is_no_system_is_named_and_mpn_runs() {
    let outcome = Boot::guest("systems-none")
        .cmdline("program=systems system=nonesuch -- gs_run_at_once_if_that_is_promised")
        .run();
    outcome.assert_ok();
    outcome.assert_line(
        "`system=nonesuch` ignored: the value must be 1to1|n1|pool|shared|distributed|mpn",
    );
    outcome.assert_line("SYSTEM name mpn");
}

/// One P: the order in which five Gs run follows from the system, if no interrupt readies a G of
/// the kernel in between (that G takes the run-next slot, as in Go, and the fifth goes to the
/// ring's tail). On the host's clock one may come whenever the host has paused the machine.
#[test]
fn a_seventh_system_is_one_file_and_one_line() {
    for (system, order) in [("lifo", "5 4 3 2 1"), ("shared", "1 2 3 4 5"), ("mpn", "5 1 2 3 4")] {
        let boot = Boot::new(format!("systems-seventh-{system}"))
            .app("examples/system")
            .cmdline(&format!("program=lifo system={system}"))
            .virtual_time();
        let outcome = boot.run();
        outcome.assert_ok();
        outcome.assert_line(&format!("system {system}: started 1 2 3 4 5, ran {order}"));
    }
}

/// Random preemption, late wake-ups and delays, which no system may lose a G to.
#[test]
fn every_system_holds_under_chaos() {
    for (seed, system) in ["1to1", "n1", "pool", "shared", "distributed"].iter().enumerate() {
        let checks = "channels_locks_timers_and_joins_work invariants_hold";
        let cmdline = format!("program=systems system={system} chaos={} -- {checks}", seed + 1);
        let boot = Boot::guest(format!("systems-chaos-{system}")).smp(4).cmdline(&cmdline);
        boot.limit(240).run().assert_ok();
    }
}

#[test]
fn every_system_holds_with_every_assertion() {
    for system in ["1to1", "n1", "pool", "shared", "distributed"] {
        let checks = "channels_locks_timers_and_joins_work invariants_hold";
        let cmdline = format!("program=systems system={system} -- {checks}");
        let boot = Boot::checked(format!("systems-checked-{system}")).smp(4).cmdline(&cmdline);
        boot.limit(240).run().assert_ok();
    }
}
