//! Exceptions and panics: each says where, what and who, and ends the machine.

use boot::exit;
use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

/// On one CPU and on eight.
fn boots(how: &str) -> impl Iterator<Item = (usize, Outcome)> {
    [1, 8].into_iter().map(move |cpus| {
        let boot = Boot::guest(format!("fault-{how}-{cpus}")).smp(cpus).single_threaded();
        (cpus, boot.cmdline(&expect::fault(how)).run())
    })
}

/// The report of an exception, on one CPU and on eight: its name, the G, registers, and
/// the function that raised it by name; and all other CPUs were stopped.
#[track_caller]
fn reports(how: &str, name: &str, function: &str) -> Vec<Outcome> {
    let check = |(cpus, outcome): (usize, Outcome)| {
        outcome.assert_code(exit::EXCEPTION);
        outcome.assert_line(expect::FATAL);
        let line = outcome.line(expect::FATAL).unwrap_or_default();
        assert!(line.contains(name), "no {name:?} in {line:?}\n{outcome}");
        assert!(line.contains(expect::VICTIM), "no G in {line:?}\n{outcome}");
        outcome.assert_line(function);
        assert_eq!(outcome.count(expect::STOPPED), cpus - 1, "{outcome}");
        outcome
    };
    boots(how).map(check).collect()
}

#[test]
fn an_address_that_cannot_be_is_reported() {
    let outcomes = reports("non-canonical", "general protection", "fault::non_canonical");
    outcomes.iter().for_each(|outcome| outcome.assert_line("error code 0x0"));
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
fn killed_main_ends_the_machine_and_is_said_to_be() {
    for (_, outcome) in boots("kill-main") {
        outcome.assert_code(expect::CODE_MAIN_PANIC);
        outcome.assert_line("fault: main was killed");
    }
}

#[test]
fn a_panic_of_main_ends_the_program_and_not_well() {
    for (_, outcome) in boots("panic-main") {
        outcome.assert_code(expect::CODE_MAIN_PANIC);
        outcome.assert_line("main gives up");
        outcome.assert_no_line(expect::KERNEL_PANIC);
        // The call that panicked is the innermost one that is shown.
        let said = outcome.lines.iter().position(|line| line.contains("main gives up"));
        let first = said.and_then(|at| outcome.lines.get(at + 1));
        let is_main = first.is_some_and(|line| line.contains("fault::main"));
        assert!(is_main, "no calls of main\n{outcome}");
    }
}

/// The report of a panic of the kernel's, on one CPU and on eight: with the calls of
/// every CPU and the last events of each.
#[track_caller]
fn panics_everywhere(how: &str, lines: &[&str]) {
    for cpus in [1, 8] {
        let cmdline = format!("trace=on {}", expect::fault(how));
        let boot = Boot::guest(format!("fault-{how}-{cpus}"))
            .smp(cpus)
            .single_threaded()
            .cmdline(&cmdline);
        let outcome = boot.run();
        outcome.assert_code(exit::PANIC);
        outcome.assert_line(expect::KERNEL_PANIC);
        lines.iter().for_each(|line| outcome.assert_line(line));
        let count = |text| outcome.lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!(count(expect::STOPPED), cpus - 1, "not all CPUs were stopped\n{outcome}");
        assert_eq!(count(expect::LAST_EVENTS), cpus, "not all CPUs have events\n{outcome}");
        // A line for the first call of each that was stopped, by name; of the CPU that panics the
        // functions that report it are left out.
        assert_eq!(count("  #0 0xffff"), cpus - 1, "not all CPUs have calls\n{outcome}");
        assert_eq!(count("fail::panic::"), 0, "the report is in the backtrace\n{outcome}");
        assert!(cpus == 1 || count("fault::wait_for_ever") > 0, "no names\n{outcome}");
    }
}

#[test]
fn a_panic_in_an_interrupt_stops_all_cpus_and_names_what_it_interrupted() {
    let lines = ["in a handler that interrupted G", "in a handler", "fault::interrupted_here"];
    panics_everywhere("panic-interrupt", &lines);
}

#[test]
fn a_panic_in_the_scheduler_stops_all_cpus() {
    panics_everywhere("panic-scheduler", &["not parking", "run::proc::park_m"]);
}

#[test]
fn of_cpus_that_panic_at_once_one_reports_and_all_are_in_it() {
    for cpus in [1, 8] {
        let boot = Boot::guest(format!("fault-everywhere-{cpus}")).smp(cpus);
        let cmdline = format!("chaos=7 {}", expect::fault("panic-everywhere"));
        let outcome = boot.cmdline(&cmdline).run();
        outcome.assert_code(exit::PANIC);
        assert_eq!(outcome.lines.last().map(String::as_str), Some("chaos=7"), "{outcome}");
        let count = |text| outcome.lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!(count(expect::KERNEL_PANIC), 1, "{outcome}");
        assert_eq!(count(expect::STOPPED), cpus - 1, "{outcome}");
        assert!(count("panic_everywhere") >= cpus, "{outcome}");
    }
}

#[test]
fn a_report_that_goes_wrong_says_so_and_ends() {
    for cpus in [1, 8] {
        for (how, line) in [("panic-report", "as it was printed"), ("fault-report", "0x8")] {
            let boot = Boot::guest(format!("fault-{how}-{cpus}")).smp(cpus).single_threaded();
            let outcome = boot.cmdline(&expect::fault(how)).run();
            assert!([Some(exit::PANIC), Some(exit::EXCEPTION)].contains(&outcome.code()));
            outcome.assert_line("a bomb: ");
            outcome.assert_line("while this was reported: ");
            outcome.assert_line(line);
        }
    }
}

#[test]
fn a_panic_with_interrupts_off_is_the_kernels() {
    for (cpus, outcome) in boots("panic-irqs-off") {
        outcome.assert_code(exit::PANIC);
        outcome.assert_line(expect::KERNEL_PANIC);
        outcome.assert_line("with interrupts off");
        outcome.assert_line("guest::fault::main");
        assert_eq!(outcome.count(expect::STOPPED), cpus - 1, "{outcome}");
    }
}
