//! What `make run` shows: every scene of the tour holds, on every machine.

use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

fn tour(name: &str) -> Boot {
    Boot::new(format!("tour-{name}")).default_program().limit(300)
}

/// All scenes were played, each with evidence and a mark, and none failed.
#[track_caller]
fn holds(outcome: &Outcome) {
    outcome.assert_ok();
    outcome.assert_line("all of it holds");
    outcome.assert_no_line(expect::FAILED_MARK);
    for scene in 1..=expect::SCENES {
        outcome.assert_line(&format!("{scene:2}. "));
    }
    assert!(outcome.count(expect::MARK) >= 2 * expect::SCENES, "{outcome}");
}

#[test]
fn every_scene_holds_on_eight_cpus() {
    holds(&tour("8").smp(8).run());
}

/// What a scene asserts follows from what the system promises; the tour is the same.
#[test]
fn every_scene_holds_under_every_system() {
    for system in ["1to1", "n1", "pool", "shared", "distributed"] {
        let outcome = tour(system).smp(4).cmdline(&format!("program=tour system={system}")).run();
        holds(&outcome);
        outcome.assert_line(&format!("system={system}"));
    }
}

#[test]
fn every_scene_holds_on_one_and_two_cpus() {
    for cpus in [1, 2] {
        holds(&tour(&cpus.to_string()).smp(cpus).run());
    }
}

/// The least that the loader can do with. Scene 1 has as many Gs as there is memory for,
/// and leaves none of them to the other scenes.
#[test]
fn every_scene_holds_in_little_memory() {
    for (mem, cpus) in [("32M", 1), ("32M", 8), ("48M", 4)] {
        let outcome = tour(&format!("{mem}-{cpus}")).smp(cpus).mem(mem).run();
        holds(&outcome);
        outcome.assert_line("Gs, and not for 10000");
    }
}

#[test]
#[ignore = "make test-full"]
fn every_scene_holds_on_sixteen_cpus_from_uefi() {
    holds(&tour("16").smp(16).uefi().run());
}

#[test]
fn every_scene_holds_by_counted_instructions() {
    holds(&tour("icount").smp(4).icount("shift=0,sleep=off").run());
}

/// Gs that wake are preempted before they have looked at the others: `chaos` cuts their slices,
/// on a CPU so slow that a slice is a few hundred instructions.
#[test]
fn sleepers_that_are_preempted_woke_in_order_all_the_same() {
    let boot = tour("preempted").smp(1).mem("32M").icount("shift=7,sleep=off");
    let outcome = boot.cmdline("program=tour tsc=1000 lapic=1000 chaos=1 seed=1").run();
    let promise = "none woke while one with an earlier deadline slept";
    outcome.assert_line(&format!("{}{promise}", expect::MARK));
}

#[test]
fn a_scene_that_fails_makes_the_code_one() {
    let outcome = tour("fail").smp(2).cmdline("program=tour -- fail").run();
    outcome.assert_code(1);
    outcome.assert_line(&format!("{} two and two are five", expect::FAILED_MARK));
    outcome.assert_line("1 of the scenes failed");
}

/// A key for each scene; one that means nothing is passed over. The shell follows, and has what the
/// tour has not shown.
#[test]
fn at_a_terminal_each_scene_waits_for_a_key_and_the_shell_follows() {
    const NEXT: &str = "Enter: next scene";
    let outcome = tour("shell")
        .smp(2)
        .at_terminal()
        .typed_after(NEXT, "\r")
        .typed_after(NEXT, " ")
        .typed_after(NEXT, "xq")
        .typed_after(expect::PROMPT, "run\r")
        .typed_after("which program?", "poweroff\r")
        .run();
    outcome.assert_ok();
    outcome.assert_line("all of it holds");
    outcome.assert_line("left after scene 3 of ");
    outcome.assert_line(" 3. ");
    outcome.assert_no_line(" 4. ");
    assert_eq!(outcome.count("      read  kernel/"), 3, "{outcome}");
    assert_eq!(outcome.count("      try   "), 3, "{outcome}");
    let bytes = std::fs::read(&outcome.log).expect("the log");
    let colored = format!("\x1b[32m{}", expect::MARK);
    assert!(String::from_utf8_lossy(&bytes).contains(&colored), "{outcome}");
}
