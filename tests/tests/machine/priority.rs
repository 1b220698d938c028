//! Priorities: what is promised, in virtual time, on four CPUs and on one.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;

fn boot(cpus: usize) -> Boot {
    let boot = Boot::guest(format!("priority-{cpus}")).icount("shift=0,sleep=off").smp(cpus);
    boot.cmdline("program=priority slice=1").limit(300)
}

static PRIORITY: LazyLock<Outcome> = LazyLock::new(|| boot(4).run());

guest_tests!(PRIORITY => priority);

#[test]
fn priorities_hold_on_four_cpus() {
    PRIORITY.assert_ok();
}

#[test]
fn priorities_hold_on_one_cpu() {
    boot(1).run().assert_ok();
}
