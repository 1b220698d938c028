//! Channels, select and locks across CPUs, checked by the guest from inside.

use std::sync::LazyLock;

use tests::fixture;
use tests::guest::Boot;
use tests::outcome::Outcome;

static SYNCING: LazyLock<Outcome> = LazyLock::new(|| fixture::once(&boot(8)));

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("syncing-{cpus}")).smp(cpus).cmdline("program=syncing")
}

guest_tests!(SYNCING, boot => syncing);
