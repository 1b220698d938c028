//! How the machine ends: its exit codes, and the last things that it does.

use crate::arch;
use crate::drivers::log::print_line;
use crate::run::{Ended, Instance, ProgramId};
use crate::watch::trace;
use alloc::string::String;
use core::fmt;

/// Exit code of a machine whose program's main panicked, was killed, or overflowed its stack.
pub const EXIT_MAIN_PANIC: u32 = 100;
/// Exit code of a machine after a panic of the kernel itself.
pub const EXIT_PANIC: u32 = 101;
/// Exit code of a machine after an exception that no handler could repair.
pub const EXIT_FAULT: u32 = 102;
/// Exit code of a machine that has no program to run.
pub const EXIT_NO_PROGRAM: u32 = 103;
/// Exit code of a machine in which all Gs of the booted program wait for each other.
pub const EXIT_DEADLOCK: u32 = 104;
/// Exit code of a machine whose CPU lacks a required feature.
pub const EXIT_CPU: u32 = 105;

/// Writes a line that helps to repeat the run, if there is one: every report of an end has it.
pub(crate) static NOTE: spin::Once<fn(&mut dyn fmt::Write) -> fmt::Result> = spin::Once::new();

pub(crate) fn write_note(out: &mut dyn fmt::Write) -> fmt::Result {
    NOTE.get().map_or(Ok(()), |note| note(out))
}

/// Ends that run of a program; with the booted program the machine ends. Any context.
pub(crate) fn end_program(instance: &'static Instance, id: ProgramId, how: Ended) {
    if instance.is_started() {
        instance.end(id, how);
        return;
    }
    match how {
        Ended::Code(code) => end_machine(code),
        // All other ways to get here have reported it.
        Ended::Stopped => ::log::error!("{}: main was killed", instance.name()),
        Ended::Panicked | Ended::Deadlock => {}
    }
    end_machine(EXIT_MAIN_PANIC)
}

pub(crate) fn end_machine(code: u32) -> ! {
    if code != 0 {
        let mut note = String::new();
        let _ = write_note(&mut note); // a string takes everything
        if !note.is_empty() {
            ::log::error!("ends with {code} under {}", note.trim_end());
        }
    }
    arch::report_late_cpus(); //     where no CPU watches others it is reported here
    trace::finish(code);
    arch::exit(code, print_line)
}

/// Ends the machine with success, and switches it off where that is possible.
pub fn power_off() -> ! {
    trace::finish(0);
    arch::power_off(print_line)
}

/// As [`power_off`], in an interrupt: the rest of a trace is written without waiting.
pub(crate) fn power_off_at_once() -> ! {
    trace::abandon(0);
    arch::power_off(print_line)
}

/// Restarts the machine.
pub fn reboot() -> ! {
    trace::finish(0);
    arch::reboot(print_line)
}
