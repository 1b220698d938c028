//! Gs seen and ended from outside, programs inside the machine, and deadlocks.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;
use tests::{expect, fixture};

/// One boot for each guest program, and what it must promise.
mod tasks {
    use super::*;
    use tests::guest_tests;

    static TASKS: LazyLock<Outcome> = LazyLock::new(|| fixture::once(&boot(8)));

    fn boot(cpus: usize) -> Boot {
        Boot::guest(format!("tasks-{cpus}")).smp(cpus).cmdline("program=tasks")
    }

    guest_tests!(TASKS, boot =>
        every_g_that_lives_is_listed_once_and_by_number,
        a_g_is_seen_to_run_to_wait_and_to_be_in_a_call,
        an_ended_g_is_listed_no_more,
        names_are_whole_while_lives_change,
        who_joins_is_seen_to_wait_for_that_g,
        a_waiting_g_shows_where_it_waits,
        a_call_shows_where_it_waits,
        running_and_ended_gs_show_no_frames,
        frames_are_read_while_stacks_come_and_go,
    );
}

mod programs {
    use super::*;
    use tests::guest_tests;

    static PROGRAMS: LazyLock<Outcome> = LazyLock::new(|| fixture::once(&boot(8)));

    fn boot(cpus: usize) -> Boot {
        Boot::guest(format!("programs-{cpus}")).smp(cpus).cmdline("program=programs")
    }

    guest_tests!(PROGRAMS, boot =>
        a_program_ends_as_its_main_or_its_exit_says,
        a_program_has_its_own_arguments,
        there_is_no_program_of_another_name,
        gs_are_of_the_program_that_started_them,
        when_main_returns_all_other_gs_are_unwound,
        a_program_is_stopped_whatever_it_does,
        a_g_that_calls_nobody_is_abandoned_with_its_program,
        a_crowd_that_calls_nobody_is_abandoned_with_its_program,
        a_program_that_starts_gs_without_end_is_stopped,
        a_deadlocked_program_ends_and_the_others_do_not,
        a_deadlock_is_found_while_another_program_computes,
        a_deadlock_is_found_while_another_program_reads_what_is_typed,
        who_waits_for_another_programs_lock_is_not_deadlocked,
        a_machine_at_rest_takes_no_ticks_for_its_programs,
        a_deadlock_is_told_without_memory,
        destructors_that_wait_are_waited_for,
        a_hundred_programs_leave_nothing_behind,
    );

    /// It takes each of them ten seconds of its own time.
    #[test]
    fn destructors_that_do_not_end_do_not_keep_their_cpus() {
        for cpus in [1, 8] {
            let boot = Boot::guest(format!("endless-{cpus}")).smp(cpus).limit(120);
            let outcome = boot.cmdline("program=endless").run();
            outcome.assert_ok();
            outcome.assert_line("has a destructor that does not end: it is abandoned");
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
    use tests::guest_tests;

    static KILLING: LazyLock<Outcome> = LazyLock::new(|| fixture::once(&boot(8)));

    fn boot(cpus: usize) -> Boot {
        Boot::guest(format!("killing-{cpus}")).smp(cpus).cmdline("program=killing")
    }

    guest_tests!(KILLING, boot =>
        a_waiting_g_unwinds_and_its_join_says_killed,
        a_g_in_a_call_is_killed_there,
        a_killed_holder_frees_its_lock,
        who_waits_behind_a_killed_writer_is_let_in,
        who_wants_less_than_a_killed_one_is_served,
        a_value_is_not_lost_with_a_killed_receiver,
        a_g_that_calls_nobody_is_told_and_goes_on,
        a_g_that_waits_long_after_it_was_told_ends,
        a_g_that_was_told_ends_at_its_next_call,
        a_g_that_was_told_can_still_print,
        a_g_that_panics_is_not_killed_before_that_is_over,
        a_kill_hits_no_later_life,
        nobody_and_the_kernel_are_not_killed,
        kills_at_any_moment_lose_nobody,
    );
}

fn deadlocked(cpus: usize, how: &str) -> Outcome {
    let boot = Boot::guest(format!("deadlocked-{how}-{cpus}")).smp(cpus);
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
        let outcome = deadlocked(cpus, "beside");
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
