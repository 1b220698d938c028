//! The harness itself: ends, hangs and pictures are what they are said to be.

use tests::expect;
use tests::guest::Boot;
use tests::outcome::Ended;

#[test]
fn a_guest_that_ends_gives_its_code() {
    let outcome = Boot::guest("harness-exit").cmdline(&expect::fault("exit")).run();
    outcome.assert_code(expect::FAULT_EXIT_CODE);
}

#[test]
fn a_guest_that_hangs_is_reported_with_the_place_of_every_cpu() {
    let (line, function) = expect::HANGING;
    let boot = Boot::guest("harness-hang").smp(2).cmdline(&expect::fault("hang"));
    let outcome = boot.limit_after(line, 1).run();
    let hang = outcome.hang().unwrap_or_else(|| panic!("expected a hang\n{outcome}"));
    assert_eq!(hang.cpus.len(), 2, "{outcome}");
    for place in &hang.cpus {
        // A name has a plus before its offset; a mere address has none.
        assert!(place.functions[0].contains('+'), "CPU {} has no name\n{hang}", place.cpu.index);
    }
    assert!(hang.to_string().contains(function), "nobody is in {function}\n{hang}");
    assert!(hang.screenshot.as_ref().is_some_and(|png| png.is_file()), "{hang}");
    assert!(outcome.to_string().contains("HANG"), "{outcome}");
}

#[test]
fn a_machine_is_stopped_when_the_line_is_there() {
    let (line, _) = expect::HANGING;
    let boot = Boot::guest("harness-line").cmdline(&expect::fault("hang")).until_line(line);
    let outcome = boot.run();
    assert!(matches!(outcome.ended, Ended::Seen), "{outcome}");
}

#[test]
fn arguments_that_qemu_refuses_are_no_end_of_the_guest() {
    let outcome = Boot::guest("harness-refused").arg("-no-such-option").run();
    assert_eq!(outcome.code(), None);
    assert!(outcome.to_string().contains("QEMU failed with status 1"), "{outcome}");
    assert!(outcome.to_string().contains("no-such-option"), "{outcome}");
}

/// What is measured differs; what is there does not.
#[test]
fn a_machine_from_a_snapshot_says_what_a_cold_one_says() {
    let boot = |name| Boot::new(name).smp(2).cmdline("program=hello log=info -- a,b");
    let [cold, resumed] = [boot("harness-cold").cold(), boot("harness-resumed")].map(|boot| {
        let outcome = boot.run();
        outcome.assert_ok();
        let words = outcome.lines.iter().map(|line| line.replace(|c: char| c.is_ascii_digit(), ""));
        words.collect::<Vec<_>>()
    });
    assert_eq!(cold, resumed);
}
