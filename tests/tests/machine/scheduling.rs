//! Who runs, where and when, checked by the guest from inside.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;

static SCHEDULING: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("scheduling-{cpus}")).series(cpus).cmdline("program=scheduling")
}

guest_tests!(SCHEDULING, boot => scheduling);
