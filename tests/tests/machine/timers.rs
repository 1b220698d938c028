//! Timers, contexts and selections of all kinds, checked by the guest from inside.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;

static TIMERS: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

fn boot(cpus: usize) -> Boot {
    let boot = Boot::guest(format!("timers-{cpus}")).smp(cpus).cmdline("program=timers");
    // As `syncing`.
    if cpus == 8 { boot } else { boot.virtual_time() }
}

guest_tests!(TIMERS, boot => timers);

#[test]
fn all_of_it_holds_under_chaos() {
    Boot::guest("timers-chaos").smp(4).cmdline("program=timers chaos=3").run().assert_ok();
}
