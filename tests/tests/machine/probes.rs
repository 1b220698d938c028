//! No page fault comes with interrupts off, checked by the guest from inside.

use tests::guest::Boot;

#[test]
fn nothing_reaches_further_than_it_has_probed() {
    let cmdline = "program=probes slice=1 log=error";
    let outcome = Boot::guest("probes").series(2).cmdline(cmdline).run();
    outcome.assert_test("nothing_reaches_further_than_it_has_probed");
    outcome.assert_ok();
}
