//! `order=`: each order in which an idle P looks for Gs runs a program that
//! needs stealing. What each order prefers is `sched`'s to show, on the host
//! (`kernel/sched/tests/decisions.rs`).

use tests::guest::Boot;

#[track_caller]
fn runs_all(order: &str) {
    let outcome = Boot::new(format!("order-{order}"))
        .smp(4)
        .cmdline(&format!("program=fanout order={order} -- 2000 500"))
        .run();
    outcome.assert_ok();
    outcome.assert_line("started 2000, ran 2000");
    outcome.assert_no_line("ignored");
}

#[test]
fn gos_order_runs_all() {
    runs_all("go");
}

#[test]
fn stealing_first_runs_all() {
    runs_all("steal-first");
}

#[test]
fn the_poller_first_runs_all() {
    runs_all("poller-first");
}

#[test]
fn the_poller_last_runs_all() {
    runs_all("poller-last");
}
