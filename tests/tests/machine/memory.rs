//! A machine that has no memory left: who asks for more ends alone, and the rest
//! goes on; checked by the guest from inside.

use std::sync::LazyLock;
use tests::fixture;
use tests::guest::Boot;
use tests::outcome::Outcome;

static MEMORY: LazyLock<Outcome> = LazyLock::new(|| fixture::once(&boot(8)));

fn boot(cpus: usize) -> Boot {
    let name = format!("memory-{cpus}");
    Boot::guest(name).smp(cpus).mem("128M").cmdline("program=memory log=warn").limit(600)
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
