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

/// A ring holds 256 Gs: nearly all of 4,000 go through the global queue, from where no P
/// steals. What `fanout` calls stolen is in the events of thieves.
#[test]
fn fanout_calls_stolen_what_thieves_took() {
    let file = tests::files::trace_of("order-stolen");
    let outcome = Boot::new("order-stolen")
        .smp(4)
        .debugcon(&file)
        .cmdline("program=fanout trace=stream events=65536 -- 4000 100")
        .run();
    outcome.assert_ok();
    let line = outcome.line("started 4000, ran 4000").expect("what came of it");
    let stolen: u64 = line.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    let stream = trace::decode::decode(&std::fs::read(&file).expect("a stream")).expect("whole");
    assert_eq!(stream.lost(), 0, "{outcome}");
    let model = trace::model::Model::new(&stream);
    let taken: u64 = model.steals.iter().map(|steal| u64::from(steal.count)).sum();
    assert!(stolen <= taken, "{taken} by events: {line}");
}
