//! Blocking calls, checked by the guest from inside, with both ways to hand on.

use std::sync::LazyLock;

use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

static BLOCKING: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("blocking-{cpus}")).series(cpus).cmdline("program=blocking")
}

guest_tests!(BLOCKING, boot => blocking);

/// The same with Go's way to hand on. Its monitor decides when, so all that counts
/// calls waits until it has.
#[test]
fn all_of_it_holds_with_the_monitor_on_one_and_four_cpus() {
    for cpus in [1, 4] {
        let name = format!("blocking-sysmon-{cpus}");
        let cmdline = "program=blocking handoff=sysmon";
        Boot::guest(name).smp(cpus).cmdline(cmdline).run().assert_ok();
    }
}

#[test]
fn a_call_too_many_is_refused_and_the_others_go_on() {
    let outcome =
        Boot::guest("call-limit").smp(4).mem("2G").cmdline("program=call_limit").limit(300).run();
    outcome.assert_ok();
    let line = outcome.lines.iter().find(|line| line.starts_with("LIMIT "));
    assert!(line.is_some_and(|line| line.starts_with("LIMIT 10000 Ms, ")), "{line:?}");
}

/// Shortest, median and longest time until another G has the P of a call that
/// waits, in virtual nanoseconds.
fn gaps(handoff: &str) -> [u64; 3] {
    let outcome = Boot::guest(format!("gap-{handoff}"))
        .icount("shift=0,sleep=off")
        .cmdline(&format!("program=handoff_gap handoff={handoff}"))
        .run();
    outcome.assert_ok();
    let line = outcome.lines.iter().find_map(|line| line.strip_prefix("GAP "));
    let words = line.unwrap_or("").split(' ').filter_map(|word| word.parse().ok());
    let numbers: Vec<u64> = words.collect();
    numbers.try_into().unwrap_or_else(|_| panic!("the guest said nothing of the gap\n{outcome}"))
}

/// An instruction is a nanosecond here.
#[test]
fn an_immediate_handoff_takes_less_than_five_thousand_instructions() {
    let [_, _, longest] = gaps("immediate");
    assert!(longest < 5_000, "{longest} ns");
}

#[test]
fn a_handoff_by_the_monitor_takes_what_it_takes_in_go() {
    let [shortest, _, longest] = gaps("sysmon");
    assert!(shortest >= 20_000, "the monitor looks every 20 µs at most, twice: {shortest} ns");
    assert!(longest <= 21_000_000, "two looks are 20 ms apart at most: {longest} ns");
}

/// A fixed number of threads: the P is not handed on, and its Gs wait until the call of 50 ms is over.
#[test]
fn without_a_handoff_others_wait_for_the_end_of_the_call() {
    let [shortest, _, _] = gaps("never");
    assert!(shortest >= 50_000_000, "{shortest} ns");
}

/// The trap: each call waits for a lock, and the G that holds it finds no M, as they keep all Ps.
#[test]
fn calls_that_keep_all_ps_are_reported_with_the_g_that_has_no_m() {
    for (cpus, words, told) in [
        (4, "handoff=never", "fatal error: 4 Ms wait in calls, which keep all Ps - deadlock!"),
        (
            1,
            "handoff=never",
            "fatal error: an M waits in a call, which keeps the only P - deadlock!",
        ),
        (4, "system=n1", "fatal error: an M waits in a call, which keeps the only P - deadlock!"),
    ] {
        let name = format!("trap-{cpus}-{}", words.replace('=', "-"));
        let cmdline = format!("program=blocking {words} -- trap");
        let outcome = Boot::new(name).smp(cpus).cmdline(&cmdline).run();
        outcome.assert_code(expect::CODE_DEADLOCK);
        outcome.assert_line(told);
        outcome.assert_line("[sync.Mutex.Lock]: at 0x");
        outcome.assert_line("goroutine 1 holds the lock, is runnable and has no M");
    }
}

#[test]
fn the_trap_is_none_where_a_spare_m_takes_over() {
    for words in ["handoff=immediate", "handoff=sysmon"] {
        let name = format!("no-trap-{}", words.replace('=', "-"));
        let boot = Boot::new(name).smp(4).cmdline(&format!("program=blocking {words} -- trap"));
        let outcome = boot.run();
        outcome.assert_ok();
        outcome.assert_line("no deadlock: each had it once (8)");
    }
}
