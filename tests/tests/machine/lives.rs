//! What a G has of its own, and how it may end, checked by the guest from inside.

use std::sync::LazyLock;

use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

static LIVES: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("lives-{cpus}")).series(cpus).cmdline("program=lives log=warn")
}

guest_tests!(LIVES => lives);

#[test]
fn all_of_it_holds_on_one_cpu_on_two_and_on_eight() {
    LIVES.assert_ok();
    boot(1).run().assert_ok();
    boot(2).run().assert_ok();
}

#[test]
fn it_holds_under_chaos() {
    let boot = Boot::guest("lives-chaos").smp(8).limit(300);
    boot.cmdline("program=lives chaos=5 log=warn").run().assert_ok();
}

#[test]
fn the_booted_program_without_a_g_is_deadlocked() {
    let outcome = Boot::guest("lives-left").cmdline("program=leaves_alone").run();
    outcome.assert_code(expect::CODE_DEADLOCK);
    outcome.assert_line("no goroutines (main called goexit)");
}
