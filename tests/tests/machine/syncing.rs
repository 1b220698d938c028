//! Channels, select and locks across CPUs, checked by the guest from inside.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;
use tests::{fixture, guest_tests};

static SYNCING: LazyLock<Outcome> = LazyLock::new(|| fixture::once(&boot(8)));

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("syncing-{cpus}")).smp(cpus).cmdline("program=syncing")
}

guest_tests!(SYNCING, boot =>
    a_rendezvous_loses_and_doubles_nothing,
    a_bounded_channel_loses_and_doubles_nothing,
    an_unbounded_channel_loses_and_doubles_nothing,
    a_channel_keeps_the_order_of_a_sender,
    close_wakes_all_who_wait,
    a_failed_send_gives_the_value_back,
    a_receive_times_out,
    a_send_times_out_and_gives_the_value_back,
    select_loses_and_doubles_nothing,
    select_takes_every_ready_case_now_and_then,
    select_waits_for_all_of_its_cases,
    select_after_ends_a_wait,
    a_mutex_excludes,
    a_lock_times_out,
    a_writer_is_alone_and_readers_are_not,
    a_condvar_wakes_those_who_wait,
    a_condvar_times_out,
    a_semaphore_admits_so_many,
    a_wait_group_waits_for_all,
    once_runs_once,
    a_panic_poisons_the_mutex,
    a_panic_poisons_what_is_written,
    a_panic_of_a_reader_lets_the_writer_in,
    a_panic_gives_permits_back,
    a_panic_poisons_the_once,
    a_panic_closes_its_channels,
);
