//! What panics carry, and hooks, checked by the guest from inside.

use std::sync::LazyLock;

use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

static PANICS: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("panics-{cpus}")).series(cpus).cmdline("program=panics")
}

guest_tests!(PANICS => panics);

#[test]
fn all_of_it_holds_on_one_cpu_on_two_and_on_eight() {
    PANICS.assert_ok();
    boot(1).run().assert_ok();
    boot(2).run().assert_ok();
}

#[test]
fn all_of_it_holds_under_chaos() {
    let boot = Boot::guest("panics-chaos").smp(8).limit(300);
    boot.cmdline("program=panics chaos=7").run().assert_ok();
}

#[test]
fn a_hook_that_panics_is_reported_and_then_the_first_panic() {
    PANICS.assert_line(": in the hook");
    PANICS.assert_line(": Box<dyn Any>");
    PANICS.assert_no_line(expect::KERNEL_PANIC);
}
