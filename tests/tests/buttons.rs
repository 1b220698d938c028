//! What comes from outside and was not asked for: an NMI.

use tests::expect;
use tests::guest::Boot;

/// At the shell's prompt; it ends when it says so.
fn shell(name: &str) -> Boot {
    Boot::new(format!("buttons-{name}")).smp(4).cmdline("program=shell").at_terminal()
}

/// Each goes to all four CPUs, so 24 come; the reports are of number 1, 2, 4, 8 and 16.
#[test]
fn an_nmi_that_was_not_asked_for_is_reported_and_the_machine_goes_on() {
    let unasked = "an NMI that was not asked for, number ";
    let boot =
        (0..6).fold(shell("nmi"), |boot, _| boot.monitor_after(expect::PROMPT, "inject-nmi"));
    let outcome =
        boot.typed_after(unasked, "run hello\r").typed_after(expect::HELLO_END, "poweroff\r").run();
    outcome.assert_ok();
    outcome.assert_line(&format!("{unasked}1, at 0x"));
    outcome.assert_line("no reason given; it goes on");
    assert!(outcome.count(unasked) <= 5, "{outcome}");
}
