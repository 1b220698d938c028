//! Everything at once leaves nothing behind; `make soak` for longer.

use tests::soak;

#[track_caller]
fn grows_nothing(cpus: usize, rounds: &str) {
    let outcome = soak::boot(cpus, rounds).limit(300).run();
    outcome.assert_test("repeating_the_workload_grows_nothing");
    outcome.assert_ok();
    outcome.assert_line("LEDGER Gs: ");
}

#[test]
fn repeating_the_workload_on_eight_cpus_grows_nothing() {
    grows_nothing(8, "5");
}

#[test]
fn repeating_the_workload_on_one_cpu_grows_nothing() {
    grows_nothing(1, "4");
}
