//! Gs seen from outside and programs inside the machine, checked from inside.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;
use tests::{fixture, guest_tests};

static TASKS: LazyLock<Outcome> = LazyLock::new(|| fixture::once(&boot(8)));

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("tasks-{cpus}")).smp(cpus).cmdline("program=tasks")
}

guest_tests!(TASKS, boot =>
    every_g_that_lives_is_listed_once_and_by_number,
    a_g_is_seen_to_run_to_wait_and_to_be_in_a_call,
    an_ended_g_is_listed_no_more,
    names_are_whole_while_lives_change,
    a_waiting_g_shows_where_it_waits,
    a_call_shows_where_it_waits,
    running_and_ended_gs_show_no_frames,
    frames_are_read_while_stacks_come_and_go,
);
