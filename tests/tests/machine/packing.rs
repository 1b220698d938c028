//! Packed stacks of parked Gs: nothing on them changes, and waking them fails never; checked by the
//! guest from inside.

use std::sync::LazyLock;
use tests::guest::Boot;
use tests::outcome::Outcome;

static PACKING: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

fn boot(cpus: usize) -> Boot {
    let name = format!("packing-{cpus}");
    Boot::guest(name).series(cpus).mem("64M").cmdline("program=packing pack=on log=warn").limit(600)
}

guest_tests!(PACKING => packing);

#[test]
fn all_of_it_holds_on_eight_cpus() {
    PACKING.assert_ok();
}

#[test]
fn with_memory_full_all_ends_as_it_does_without_packing() {
    for cpus in [1, 8] {
        let boot = Boot::guest(format!("packing-memory-{cpus}")).smp(cpus).mem("56M").limit(300);
        boot.cmdline("program=memory pack=on log=error").run().assert_ok();
    }
}

/// With a page each they would need twice the memory.
#[test]
fn more_gs_than_there_are_pages_park_and_are_woken() {
    let boot = Boot::new("packing-million").smp(8).mem("64M").limit(600);
    let outcome = boot.cmdline("program=million log=error -- 20000").run();
    outcome.assert_ok();
    assert!(outcome.lines.iter().any(|line| line == "20000 of 20000 were woken and have ended"));
}

/// On a host with 18 GiB that are free: ten minutes.
#[test]
#[ignore = "make test-full"]
fn ten_million_gs_park_and_are_woken() {
    let boot = Boot::new("packing-ten-million").smp(8).mem("16G").limit(3600);
    let outcome = boot.cmdline("program=million log=error -- 10000000").run();
    outcome.assert_ok();
    outcome.assert_line("10000000 of 10000000 were woken and have ended");
}

/// An instruction is a nanosecond here.
#[test]
fn packed_sleepers_are_woken_in_time() {
    let boot = Boot::guest("packing-1").smp(1).mem("64M").icount("shift=0,sleep=off").limit(300);
    let outcome = boot.cmdline("program=packing pack=on log=warn").run();
    outcome.assert_ok();
    let said = outcome.lines.iter().find_map(|line| line.strip_prefix("PACKING woken "));
    let late = said.and_then(|line| line.split(' ').next()?.parse::<u64>().ok());
    let late_ns = late.expect("it says so");
    assert!(late_ns < 50_000, "a packed sleeper was woken {late_ns} ns late");
}

/// Every G that parks is packed at once, on a machine that also preempts and delays at random.
#[test]
fn packed_at_every_park_nothing_is_lost_under_chaos() {
    let programs = ["syncing", "scheduling", "unwinding", "overflow", "blocking"];
    for (program, seed) in programs.into_iter().zip(3..) {
        let boot = Boot::guest(format!("packing-{program}")).smp(8).limit(600);
        let words = format!("program={program} pack=always chaos={seed} log=warn");
        boot.cmdline(&words).run().assert_ok();
    }
}
