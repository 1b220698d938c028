//! What the guest checks from inside, one boot for all of it.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;

static SELFTEST: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("selftest-{cpus}")).series(cpus).cmdline("program=selftest")
}

guest_tests!(SELFTEST => selftest);

#[test]
fn the_selftest_ends_with_zero() {
    SELFTEST.assert_ok();
}

#[test]
fn the_selftest_holds_on_one_cpu() {
    boot(1).run().assert_ok();
}

#[test]
fn the_selftest_holds_on_two_cpus() {
    boot(2).run().assert_ok();
}

#[test]
#[ignore = "make test-full"]
fn the_selftest_holds_on_four_cpus() {
    boot(4).run().assert_ok();
}

#[test]
#[ignore = "make test-full"]
fn the_selftest_holds_on_sixteen_cpus() {
    boot(16).run().assert_ok();
}
