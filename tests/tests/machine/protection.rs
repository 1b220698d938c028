//! W^X, no-execute, guards, page 0, zeroed frames: each is tried.

use std::sync::LazyLock;

use boot::exit;
use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

mod looked_at {
    use super::*;

    static PROTECTION: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

    fn boot(cpus: usize) -> Boot {
        Boot::guest(format!("protection-{cpus}")).series(cpus).cmdline("program=protection")
    }

    guest_tests!(PROTECTION => protection);

    #[test]
    fn all_of_it_holds_on_eight_cpus() {
        PROTECTION.assert_ok();
    }

    /// And on a CPU that has all there is to have.
    #[test]
    fn all_of_it_holds_on_one_cpu_with_smep_and_smap() {
        let outcome = boot(1).cpu("max").run();
        outcome.assert_ok();
        outcome.assert_line("SMEP, SMAP, UMIP: 3 of 3");
    }

    #[test]
    fn all_of_it_holds_after_uefi() {
        Boot::guest("protection-uefi")
            .smp(2)
            .uefi()
            .cmdline("program=protection")
            .run()
            .assert_ok();
    }
}

/// Tries it on one CPU and on eight: the machine ends, and the report names what
/// was violated, the G, and the function that did it.
#[track_caller]
fn reports(how: &str, violation: &str, function: &str) {
    for cpus in [1, 8] {
        let boot = Boot::guest(format!("try-{how}-{cpus}")).smp(cpus).single_threaded();
        let outcome = boot.cmdline(&format!("program=protection -- try {how}")).run();
        outcome.assert_code(exit::EXCEPTION);
        let line = outcome.line(expect::FATAL).unwrap_or_default();
        assert!(line.ends_with(violation), "not {violation:?}: {line:?}\n{outcome}");
        assert!(line.contains(expect::VICTIM), "no G in {line:?}\n{outcome}");
        outcome.assert_line(function);
        outcome.assert_no_line("nothing happened");
    }
}

#[test]
fn page_zero_cannot_be_read() {
    reports("null-read", ": read through a null pointer", "protection::null_read");
}

#[test]
fn page_zero_cannot_be_written() {
    reports("null-write", ": write through a null pointer", "protection::null_write");
}

#[test]
fn page_zero_cannot_be_called() {
    reports("null-call", ": execution through a null pointer", "guest::protection::null_call");
}

#[test]
fn code_cannot_be_written() {
    reports("write-code", ": write to read-only code", "protection::write_code");
}

#[test]
fn constants_cannot_be_written() {
    reports("write-constant", ": write to read-only data", "protection::write_constant");
}

#[test]
fn the_heap_cannot_be_executed() {
    let violation = ": execution of a no-execute page, in the heap";
    reports("execute-heap", violation, "guest::protection::execute_heap");
}

#[test]
fn stacks_cannot_be_executed() {
    let violation = ": execution of a no-execute page, in the window of stacks";
    reports("execute-stack", violation, "guest::protection::execute_stack");
}

#[test]
fn data_cannot_be_executed() {
    let violation = ": execution of a no-execute page, in the kernel's image";
    reports("execute-data", violation, "guest::protection::execute_data");
}

#[test]
fn code_cannot_be_executed_where_it_could_be_written() {
    let violation = ": execution of a no-execute page, in the window of physical memory";
    reports("execute-physical", violation, "guest::protection::execute_physical");
}
