//! A machine that has no memory left: who asks for more ends alone, and the rest
//! goes on; checked by the guest from inside.

use std::sync::LazyLock;
use tests::guest::Boot;
use tests::outcome::Outcome;

static MEMORY: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

fn boot(cpus: usize) -> Boot {
    let name = format!("memory-{cpus}");
    Boot::guest(name).series(cpus).mem("56M").cmdline("program=memory log=warn").limit(600)
}

guest_tests!(MEMORY => memory);

#[test]
fn all_of_it_holds_on_eight_cpus() {
    MEMORY.assert_ok();
}

#[test]
fn all_of_it_holds_on_one_cpu() {
    boot(1).run().assert_ok();
}

/// An instruction is a nanosecond here, so a sleeper is as late as interrupts were off.
#[test]
fn interrupts_come_in_while_a_large_block_gets_memory() {
    let boot = Boot::guest("large").smp(1).mem("512M").icount("shift=0,sleep=off").limit(300);
    let outcome = boot.cmdline("program=large -- 200").run();
    outcome.assert_ok();
    let said = outcome.lines.iter().find_map(|line| line.strip_prefix("LARGE "));
    let late = said.and_then(|line| line.split(", ").nth(1)?.strip_suffix(" ns"));
    let late_ns: u64 = late.and_then(|ns| ns.parse().ok()).expect("it says so");
    assert!(late_ns < 100_000, "a sleeper was woken {late_ns} ns late");
}
