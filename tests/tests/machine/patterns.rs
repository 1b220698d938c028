//! The examples of patterns, all in one boot: what each prints, and how it ends.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;

/// On CPUs that take turns, in virtual time: none of what is read here is a time.
static PATTERNS: LazyLock<Outcome> = LazyLock::new(|| {
    Boot::new("patterns")
        .app("examples/patterns")
        .smp(4)
        .cmdline("program=tour")
        .virtual_time()
        .run()
});

#[test]
fn each_says_what_it_is_for_and_ends_well() {
    PATTERNS.assert_ok();
    for line in [
        "50000 numbers are in order",
        "without a broken page: Ok(60)",
        "with one: Err(\"page 17 is broken\")",
        "10 requests, 3 at once, then one each 5ms at most",
        "subscriber 1 has all news, or knows what it missed",
        "the slow one read 16 and missed 84",
        "4 bodies, 100 steps: the energy is what it was, to a thousandth",
        "500 lines, at most 12 of them under way",
        "500 meals, with two forks each",
    ] {
        PATTERNS.assert_line(line);
    }
    let programs = ["merge_sort", "crawler", "rate_limiter", "pub_sub", "nbody", "back_pressure"];
    for name in programs.into_iter().chain(["philosophers_in_order"]) {
        PATTERNS.assert_line(&format!("{name}: exit 0"));
    }
}

#[test]
fn the_philosophers_deadlock_is_named_and_ends_their_program_only() {
    PATTERNS.assert_line("philosophers: deadlock");
    for name in ["Plato", "Hypatia", "Kant", "Arendt", "Hume"] {
        PATTERNS.assert_line(&format!("[sync.Mutex.Lock]: \"{name}\""));
    }
    PATTERNS.assert_line(tests::expect::HELD_BY);
}
