//! Gs that borrow have ended before what they borrow is gone, checked by the guest from
//! inside.

use std::sync::LazyLock;

use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

static SCOPES: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("scopes-{cpus}")).series(cpus).cmdline("program=scopes log=warn")
}

guest_tests!(SCOPES => scopes);

#[test]
fn all_of_it_holds_on_one_cpu_on_two_and_on_eight() {
    SCOPES.assert_ok();
    SCOPES.assert_no_line(expect::KERNEL_PANIC);
    boot(1).run().assert_ok();
    boot(2).run().assert_ok();
}

/// Under chaos, and with every stack packed as its G parks.
#[test]
fn it_holds_under_chaos() {
    chaos(8, 3);
}

#[test]
#[ignore = "takes a minute: the same on other machines, with other seeds"]
fn it_holds_under_chaos_of_many_seeds() {
    for (cpus, seed) in [1, 2, 4, 8].into_iter().cycle().zip(4..16) {
        chaos(cpus, seed);
    }
}

fn chaos(cpus: usize, seed: u64) {
    let boot = Boot::guest(format!("scopes-chaos-{cpus}")).smp(cpus).limit(300);
    let words = format!("program=scopes pack=always chaos={seed} log=warn");
    boot.cmdline(&words).run().assert_ok();
}
