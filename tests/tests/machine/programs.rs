//! Gs seen and ended from outside, programs inside the machine, and deadlocks.

use std::sync::LazyLock;

use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

/// One boot for each guest program, and what it must promise.
mod tasks {
    use super::*;

    static TASKS: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

    fn boot(cpus: usize) -> Boot {
        Boot::guest(format!("tasks-{cpus}")).series(cpus).cmdline("program=tasks")
    }

    guest_tests!(TASKS, boot => tasks);
}

mod crowd {
    use super::*;

    static CROWD: LazyLock<Outcome> = LazyLock::new(|| {
        let boot = Boot::guest("programs-crowd").virtual_time();
        boot.cmdline("program=programs -- crowd").run()
    });

    guest_tests!(CROWD => programs_crowd);

    #[test]
    fn all_of_it_holds() {
        CROWD.assert_ok();
    }
}

mod checked_inside {
    use super::*;

    static PROGRAMS: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

    fn boot(cpus: usize) -> Boot {
        Boot::guest(format!("programs-{cpus}")).series(cpus).cmdline("program=programs")
    }

    guest_tests!(PROGRAMS, boot => programs);

    /// It takes each of them ten seconds of its own time.
    #[test]
    fn destructors_that_do_not_end_do_not_keep_their_cpus() {
        for cpus in tests::eight_or(1) {
            let boot = Boot::guest(format!("endless-{cpus}")).smp(cpus).limit(120);
            let outcome = boot.cmdline("program=endless").run();
            outcome.assert_ok();
            outcome.assert_line("was killed, but is in a destructor that does not end: abandoned");
        }
    }

    #[test]
    fn a_machine_at_rest_takes_no_ticks_for_its_programs() {
        for cpus in [1, 8] {
            let boot = Boot::guest(format!("rest-{cpus}")).smp(cpus).icount("shift=0,sleep=off");
            // Measured frequencies are off by a little, and a timer that fires a microsecond early
            // takes a second tick.
            let outcome = boot.cmdline("program=rest tsc=1000 lapic=1000").run();
            outcome.assert_test("a_machine_at_rest_takes_no_ticks_for_its_programs");
            outcome.assert_ok();
        }
    }

    #[test]
    fn a_deadlocked_program_is_reported_by_name() {
        PROGRAMS.assert_line(&format!("p_deadlocks: {}", expect::DEADLOCK));
        PROGRAMS.assert_line("[park]: \"stuck\"");
        PROGRAMS.assert_line("p_hoards: fatal error: ");
        PROGRAMS.assert_no_line("Err(Killed)");
    }
}

mod killing {
    use super::*;

    static KILLING: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

    fn boot(cpus: usize) -> Boot {
        Boot::guest(format!("killing-{cpus}")).series(cpus).cmdline("program=killing")
    }

    guest_tests!(KILLING, boot => killing);
}

fn deadlocked(cpus: usize, how: &str) -> Outcome {
    let mut boot = Boot::guest(format!("deadlocked-{how}-{cpus}")).smp(cpus);
    // In that one a CPU computes.
    if how != "while-another-runs" {
        boot = boot.single_threaded();
    }
    boot.cmdline(&format!("program=deadlocked -- {how}")).run()
}

#[test]
fn a_main_that_waits_for_nobody_is_a_deadlock() {
    for cpus in [1, 8] {
        let outcome = deadlocked(cpus, "alone");
        outcome.assert_code(expect::CODE_DEADLOCK);
        outcome.assert_line(expect::DEADLOCK);
        outcome.assert_line("[chan receive]: \"deadlocked\"");
        outcome.assert_line("guest::killing::deadlocked");
    }
}

#[test]
fn a_main_that_waits_for_nobody_is_found_while_another_program_computes() {
    for cpus in [1, 8] {
        let outcome = deadlocked(cpus, "while-another-runs");
        outcome.assert_code(expect::CODE_DEADLOCK);
        outcome.assert_line(expect::DEADLOCK);
        outcome.assert_line("[chan receive]: \"deadlocked\"");
    }
}

#[test]
fn a_deadlock_tells_of_each_g_why_it_waits_and_where_it_was_started() {
    for cpus in [1, 8] {
        let outcome = deadlocked(cpus, "ways");
        outcome.assert_code(expect::CODE_DEADLOCK);
        outcome.assert_line(expect::DEADLOCK);
        let told = [
            "[chan receive]: \"receives\" at 0x",
            "[chan send]: \"sends\" at 0x",
            "[select]: \"selects\"",
            "[sync.Mutex.Lock]: \"locks\" at 0x",
            "[sync.RWMutex.RLock]: \"reads\" at 0x",
            "[sync.RWMutex.Lock]: \"writes\" at 0x",
            "[sync.Once]: \"comes second\" at 0x",
            "[sync.Cond.Wait]: \"is not notified\" at 0x",
            "[semacquire]: \"acquires\" at 0x",
            "[semacquire]: \"calls\" at 0x",
            "[semacquire]: \"holds the locks\" at 0x",
            "[sync.WaitGroup.Wait]: \"waits for a group\" at 0x",
            "[park]: \"parks\"",
            "[join]: \"deadlocked\" for goroutine ",
        ];
        told.iter().for_each(|told| outcome.assert_line(told));
        assert_eq!(outcome.count("goroutine "), told.len(), "each of them, and nobody twice");
        assert_eq!(outcome.count(expect::HELD_BY), 3, "of a mutex, a reader and a writer");
        assert_eq!(outcome.count("spawned at tests/guest/src/killing.rs:"), told.len() - 1);
        outcome.assert_line("guest::killing::wait_in_every_way");
    }
}

#[test]
fn who_waits_for_what_an_abandoned_g_held_is_named_and_why() {
    for cpus in [1, 8] {
        let outcome = deadlocked(cpus, "abandoned");
        outcome.assert_code(expect::CODE_DEADLOCK);
        outcome.assert_line(expect::DEADLOCK);
        let told = [
            "[sync.RWMutex.Lock]: \"writes\" at 0x",
            "[semacquire]: \"acquires\" at 0x",
            "[sync.Once]: \"comes second\" at 0x",
            "[sync.WaitGroup.Wait]: \"waits for a group\" at 0x",
            "[chan receive]: \"receives\" at 0x",
            "[chan send]: \"sends\" at 0x",
            "[join]: \"deadlocked\" for goroutine ",
        ];
        told.iter().for_each(|told| outcome.assert_line(told));
        outcome.assert_line("abandoned since boot: 1. Read locks, permits, channel ends");
    }
}

#[test]
fn a_deadlock_of_a_thousand_is_reported_in_short() {
    for cpus in [1, 8] {
        let outcome = deadlocked(cpus, "many");
        outcome.assert_code(expect::CODE_DEADLOCK);
        outcome.assert_line("... and 901 more");
    }
}

#[test]
fn a_main_that_sleeps_is_no_deadlock() {
    for cpus in [1, 8] {
        let outcome = deadlocked(cpus, "not");
        outcome.assert_ok();
        outcome.assert_line("still here");
    }
}
