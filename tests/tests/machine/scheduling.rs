//! Who runs, where and when, checked by the guest from inside.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;
use tests::{fixture, guest_tests};

static SCHEDULING: LazyLock<Outcome> = LazyLock::new(|| fixture::once(&boot(8)));

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("scheduling-{cpus}")).smp(cpus).cmdline("program=scheduling")
}

guest_tests!(SCHEDULING, boot =>
    an_idle_cpu_takes_no_ticks,
    a_g_alone_on_its_cpu_takes_no_ticks,
    a_hog_without_calls_is_preempted,
    all_hogs_of_a_cpu_get_on,
    an_idle_cpu_steals_from_a_busy_one,
    pinned_gs_run_only_on_their_cpu,
    a_pin_to_a_cpu_that_is_not_there_is_an_error,
    gomaxprocs_goes_down_and_up_and_nobody_is_lost,
    a_hog_that_nobody_waits_for_leaves_a_cpu_beyond_gomaxprocs,
    a_pinned_g_runs_beyond_gomaxprocs,
    a_ping_pong_pair_shares_a_slice_and_starves_nobody,
    sleep_is_never_over_early,
    sleepers_of_a_cpu_wake_in_the_order_of_their_deadlines,
    ten_thousand_sleepers_wake,
    a_sleeper_wakes_although_every_cpu_has_a_hog,
);
