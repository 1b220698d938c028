//! Exceptions and panics: each says where, what and who, and ends the machine.

use boot::exit;
use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

fn boot(how: &str) -> Outcome {
    Boot::guest(format!("fault-{how}")).smp(2).cmdline(&expect::fault(how)).run()
}

/// The report of an exception: its name, the G, registers, and the function
/// that raised it by name.
#[track_caller]
fn reports(how: &str, name: &str, function: &str) -> Outcome {
    let outcome = boot(how);
    outcome.assert_code(exit::EXCEPTION);
    outcome.assert_line(expect::FATAL);
    let line = outcome.line(expect::FATAL).unwrap_or_default();
    assert!(line.contains(name), "no {name:?} in {line:?}\n{outcome}");
    assert!(line.contains(expect::VICTIM), "no G in {line:?}\n{outcome}");
    outcome.assert_line(function);
    outcome
}

#[test]
fn an_address_that_cannot_be_is_reported() {
    let outcome = reports("non-canonical", "general protection", "fault::non_canonical");
    outcome.assert_line("error code 0x0");
}

#[test]
fn an_invalid_opcode_is_reported() {
    reports("invalid-opcode", "invalid opcode", "fault::invalid_opcode");
}

#[test]
fn a_division_by_zero_is_reported() {
    reports("divide", "divide error", "fault::divide");
}

#[test]
fn a_breakpoint_is_reported() {
    reports("breakpoint", "breakpoint", "fault::breakpoint");
}

#[test]
fn a_double_fault_is_reported_on_a_stack_of_its_own() {
    reports("double-fault", "double fault", "fault::divide");
}

#[test]
fn a_panic_of_main_ends_the_program_and_not_well() {
    let outcome = boot("panic-main");
    outcome.assert_code(expect::CODE_MAIN_PANIC);
    outcome.assert_line("main gives up");
    outcome.assert_no_line(expect::KERNEL_PANIC);
}

#[test]
fn a_panic_with_interrupts_off_is_the_kernels() {
    let outcome = boot("panic-irqs-off");
    outcome.assert_code(exit::PANIC);
    outcome.assert_line(expect::KERNEL_PANIC);
    outcome.assert_line("with interrupts off");
    outcome.assert_line("guest::fault::main");
}
