//! The poller with simulated devices, checked by the guest from inside.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;

static POLLER: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("poller-{cpus}")).series(cpus).cmdline("program=poller")
}

guest_tests!(POLLER, boot => poller);

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
