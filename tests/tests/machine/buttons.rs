//! What comes from outside and was not asked for: an NMI, the power button.

use boot::exit::End;
use boot::qemu::Board;
use tests::expect;
use tests::guest::Boot;
use tests::outcome::Ended;

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
    outcome.assert_line("; it goes on");
    assert!(outcome.count(unasked) <= 5, "{outcome}");
}

/// Whatever the program does: here it waits for a key.
#[test]
fn the_power_button_ends_the_machine() {
    let outcome = shell("power").monitor_after(expect::PROMPT, "system_powerdown").run();
    outcome.assert_ok();
    outcome.assert_line("power button pressed; the machine ends");
}

/// On a board with the other chipset, with a G that never stops on every CPU.
#[test]
fn the_power_button_ends_a_busy_machine() {
    let outcome = Boot::new("buttons-busy")
        .smp(2)
        .board(Board::Q35)
        .cmdline("program=echo -- hogs")
        .monitor_after("type a line", "system_powerdown")
        .run();
    outcome.assert_ok();
    outcome.assert_line("power button pressed; the machine ends");
}

/// Without isa-debug-exit the machine is switched off as the firmware says.
#[test]
fn the_power_button_switches_a_machine_off_that_has_no_debug_exit() {
    let boot = shell("off").without_debug_exit();
    let outcome = boot.monitor_after(expect::PROMPT, "system_powerdown").run();
    assert!(matches!(outcome.ended, Ended::Exit(End::Off)), "{outcome}");
    outcome.assert_line("power button pressed; the machine ends");
}

/// A FADT that puts the button's registers where other devices are.
#[test]
fn a_power_button_at_the_ports_of_other_devices_is_left_alone() {
    let mut fadt = b"FACP".to_vec();
    fadt.extend(116u32.to_le_bytes());
    fadt.resize(116, 0);
    fadt[46] = 4; // the serial port's line
    fadt[48..52].copy_from_slice(&0xcf9u32.to_le_bytes()); // resets the machine
    fadt[52] = 6;
    fadt[56..60].copy_from_slice(&0x3f8u32.to_le_bytes()); // the serial port
    fadt[64..68].copy_from_slice(&0x64u32.to_le_bytes()); // the keyboard controller
    fadt[88] = 4;
    fadt[9] = fadt.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
    let outcome = Boot::new("buttons-hostile").smp(2).acpi_table("FACP", fadt).run();
    outcome.assert_ok();
    outcome.assert_line(expect::HELLO_END);
    outcome.assert_no_line("power button");
}
