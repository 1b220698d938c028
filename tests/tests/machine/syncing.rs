//! Channels, select and locks across CPUs, checked by the guest from inside.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;

static SYNCING: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

fn boot(cpus: usize) -> Boot {
    let boot = Boot::guest(format!("syncing-{cpus}")).smp(cpus).cmdline("program=syncing");
    // Eight CPUs truly run side by side: a seed does not show every race.
    if cpus == 8 { boot } else { boot.virtual_time() }
}

guest_tests!(SYNCING, boot => syncing);
