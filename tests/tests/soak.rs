//! Everything at once leaves nothing behind; `make soak` for longer.

use tests::soak;

#[test]
fn repeating_the_workload_grows_nothing() {
    let outcome = soak::boot(8, "5").limit(300).run();
    outcome.assert_test("repeating_the_workload_grows_nothing");
    outcome.assert_ok();
    outcome.assert_line("LEDGER Gs: ");
}
