//! CPU shares of programs, in virtual time: two at 300 and 100 get 3 : 1 within one slice in 100.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;

fn boot(cpus: usize, word: &str) -> Outcome {
    let name = format!("shares-{cpus}{}", word.replace('=', "-"));
    let boot = Boot::guest(name).smp(cpus).virtual_time();
    boot.cmdline(&format!("program=shares slice=1ms {word}")).run()
}

static SHARES: LazyLock<Outcome> = LazyLock::new(|| boot(4, ""));

guest_tests!(SHARES => shares);

#[test]
fn all_of_it_holds_on_four_cpus() {
    SHARES.assert_ok();
}

#[test]
fn all_of_it_holds_on_one_cpu() {
    boot(1, "").assert_ok();
}

/// Those of the other systems that promise shares.
#[test]
#[ignore = "make test-full"]
fn other_systems_that_promise_shares_keep_them() {
    for word in ["system=n1", "system=distributed"] {
        boot(4, word).assert_ok();
    }
}
