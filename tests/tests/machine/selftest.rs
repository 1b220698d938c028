//! What the guest checks from inside, one boot for all of it.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;
use tests::{fixture, guest_tests};

static SELFTEST: LazyLock<Outcome> = LazyLock::new(|| fixture::once(&boot(8)));

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("selftest-{cpus}")).smp(cpus).cmdline("program=selftest")
}

guest_tests!(SELFTEST =>
    a_panic_inside_core_runs_destructors,
    join_gives_the_panic_message,
    a_g_may_panic_again_when_the_first_was_caught,
    no_page_is_writable_and_executable,
    page_zero_and_the_low_half_are_unmapped,
    every_cpu_runs_gs,
    every_cpu_has_a_timer_that_fired,
    an_isa_interrupt_reaches_the_chosen_cpu,
    a_line_that_is_not_there_is_an_error,
    heap_blocks_never_overlap,
    an_absurd_allocation_is_an_error,
    an_absurd_stack_is_an_error,
    spawning_takes_no_global_heap_lock,
    stack_pages_are_committed_on_first_touch,
    stacks_go_back_when_gs_end,
    a_lock_excludes_on_all_cpus,
    the_clock_never_goes_back,
    detached_gs_run_to_their_end,
    an_unpark_that_comes_first_is_kept,
    no_unpark_is_lost_between_cpus,
    an_old_handle_unparks_nobody_else,
    gs_are_counted,
    every_cpu_counts_what_it_does,
);

#[test]
fn the_selftest_ends_with_zero() {
    SELFTEST.assert_ok();
}

#[test]
fn the_selftest_holds_on_one_cpu() {
    boot(1).run().assert_ok();
}

#[test]
fn the_selftest_holds_on_two_cpus() {
    boot(2).run().assert_ok();
}

#[test]
#[ignore = "make test-full"]
fn the_selftest_holds_on_four_cpus() {
    boot(4).run().assert_ok();
}

#[test]
#[ignore = "make test-full"]
fn the_selftest_holds_on_sixteen_cpus() {
    boot(16).run().assert_ok();
}
