//! The poller with simulated devices, checked by the guest from inside.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;
use tests::{fixture, guest_tests};

static POLLER: LazyLock<Outcome> = LazyLock::new(|| fixture::once(&boot(8)));

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("poller-{cpus}")).smp(cpus).cmdline("program=poller")
}

guest_tests!(POLLER, boot =>
    ten_thousand_outstanding_requests_are_answered_once_and_out_of_order,
    ten_thousand_gs_wait_for_a_device_each,
    errors_come_as_the_seed_says,
    a_device_that_never_answers_ends_at_the_deadline,
    a_close_ends_every_wait,
    requests_dropped_at_any_time_harm_nobody,
    a_g_that_waits_blocks_neither_cpu_nor_p,
    a_blocking_call_waits_for_a_device_as_well,
    an_answer_reaches_its_g_although_every_cpu_has_a_hog,
    an_edge_from_a_g_reaches_another_on_a_busy_cpu,
    an_interrupt_on_one_cpu_readies_a_g_that_is_pinned_to_another,
    edges_and_deadlines_lose_nothing,
);

/// A hundredth of a slice; 1,270 were counted. With all Ps busy, Go's monitor asks
/// the poller after 10 ms, which are 10,000,000.
const LATENCY_MAX_NS: u64 = 100_000;

/// From the device's interrupt to the G that waits, in virtual time.
#[test]
fn a_readied_g_runs_far_within_a_slice_although_every_cpu_has_a_hog() {
    let boot = Boot::guest("latency").smp(8).icount("shift=0,sleep=off").limit(300);
    let outcome = boot.cmdline("program=latency").run();
    outcome.assert_ok();
    let line = outcome.lines.iter().find_map(|line| line.strip_prefix("LATENCY "));
    let numbers = line.unwrap_or("").split(' ').filter_map(|word| word.parse::<u64>().ok());
    match numbers.collect::<Vec<_>>()[..] {
        [_, median, max] if max <= LATENCY_MAX_NS => {
            println!("{median} ns in the middle, {max} ns at most");
        }
        _ => panic!("not within {LATENCY_MAX_NS} ns\n{outcome}"),
    }
}
