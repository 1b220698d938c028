//! Gs that wait for each other in a ring, and the locks of those that are gone.

use std::sync::LazyLock;

use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

static CYCLES: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());
static ON_ONE_CPU: LazyLock<Outcome> = LazyLock::new(|| boot(1).run());

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("cycles-{cpus}")).series(cpus).cmdline("program=cycles")
}

guest_tests!(CYCLES => cycles);

#[test]
fn all_of_it_holds_on_one_cpu_and_on_eight() {
    CYCLES.assert_ok();
    ON_ONE_CPU.assert_ok();
}

#[test]
fn a_ring_is_named_g_by_g() {
    for outcome in [&*CYCLES, &*ON_ONE_CPU] {
        outcome.assert_line(&format!("c_two: {}", expect::ring(2)));
        outcome.assert_line("[sync.Mutex.Lock]: \"left\" at 0x");
        outcome.assert_line("[sync.Mutex.Lock]: \"right\" at 0x");
        outcome.assert_line(expect::HELD_BY);
        outcome.assert_line("guest::cycles::two");
        outcome.assert_line(&format!("c_three: {}", expect::ring(3)));
        outcome.assert_line("[join]: \"joins\" for goroutine ");
        outcome.assert_line("[sync.RWMutex.RLock]: \"reads\" at 0x");
        outcome.assert_line(&format!("c_self: {}", expect::ring(1)));
        outcome.assert_line(&format!("c_self_join: {}", expect::ring(1)));
        outcome.assert_line(&format!("c_large_join: {}", expect::ring(2)));
        outcome.assert_line("[join]: \"joins large\" for goroutine ");
        outcome.assert_no_line(&format!("c_sound: {}", expect::DEADLOCK));
    }
}

#[test]
fn a_ring_ends_the_program_that_was_booted_while_others_run() {
    for cpus in [1, 8] {
        let boot = Boot::guest(format!("ring-{cpus}")).smp(cpus);
        let outcome = boot.cmdline("program=ring").run();
        outcome.assert_code(expect::CODE_DEADLOCK);
        outcome.assert_line(&expect::ring(2));
        outcome.assert_line("\"left\" at 0x");
        outcome.assert_line("\"right\" at 0x");
    }
}
