//! When things go wrong: one G unwinds, or the whole machine stops and says so.
//!
//! A panic in a G is that G's own: it unwinds to the root of the G and becomes
//! the error of its join. A panic anywhere else (scheduler, interrupt,
//! interrupts off, a panic while panicking), and an exception that nobody can
//! mend, is the kernel's: all other CPUs are stopped by NMI, the report goes
//! out past all locks, and the machine ends with a code of its own.

use crate::arch::{self, Fault};
use crate::{EXIT_DEADLOCK, EXIT_FAULT, EXIT_PANIC, backtrace, log, schedule, trace};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Stops the machine for an exception; the `fatal` of [`arch::Handlers`].
pub fn fault(fault: &Fault<'_>) -> ! {
    let (rip, rbp) = (fault.frame.rip, fault.frame.rbp);
    stop(EXIT_FAULT, rip, rbp, |out| {
        writeln!(out, "fatal exception on CPU {}, {}: {fault}", arch::cpu_index(), Where)?;
        writeln!(out, "{}", fault.frame)?;
        match fault.called_from() {
            Some(caller) => {
                writeln!(out, "  called from {}", backtrace::Frame::new(1, caller as usize))
            }
            None => Ok(()),
        }
    })
}

/// Stops the machine for a broken promise of the kernel itself.
pub fn kernel_bug(what: fmt::Arguments<'_>) -> ! {
    let (rip, rbp) = arch::here();
    stop(EXIT_PANIC, rip, rbp, |out| {
        writeln!(out, "kernel panic on CPU {}, {}: {what}", arch::cpu_index(), Where)
    })
}

/// Stops the machine because all Gs of its program wait for each other.
pub fn deadlock(report: impl FnOnce(&mut dyn Write) -> fmt::Result) -> ! {
    stop_with(EXIT_DEADLOCK, report)
}

/// The CPU that stops the machine, plus one; 0 while nobody does.
static STOPPER: AtomicUsize = AtomicUsize::new(0);

/// Stops all CPUs, reports with the calls of each, ends with `code`.
fn stop(code: u32, rip: u64, rbp: u64, report: impl FnOnce(&mut dyn Write) -> fmt::Result) -> ! {
    stop_with(code, |out| {
        let _ = report(out);
        let _ = print_calls(out, rip, rbp);
        let me = arch::cpu_index();
        for cpu in (0..arch::num_cpus()).filter(|&cpu| cpu != me) {
            if let Some((rip, rbp)) = arch::stopped_at(cpu) {
                let _ = writeln!(out, "CPU {cpu} was stopped at");
                let _ = print_calls(out, rip, rbp);
            }
        }
        Ok(())
    })
}

/// Stops all CPUs, reports, ends with `code`.
fn stop_with(code: u32, report: impl FnOnce(&mut dyn Write) -> fmt::Result) -> ! {
    arch::irq_save();
    let me = arch::cpu_index() + 1;
    match STOPPER.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {}
        // The report itself went wrong: say no more, but end.
        Err(stopper) if stopper == me => arch::exit(code),
        // Somebody else is at it and will stop this CPU too.
        Err(_) => arch::halt_forever(),
    }
    arch::stop_others();
    // SAFETY: the machine goes down, and the other CPUs were told to stop.
    let mut out = unsafe { log::emergency() };
    let _ = report(&mut out);
    trace::abandon(code);
    arch::exit(code)
}

fn print_calls(out: &mut dyn Write, rip: u64, rbp: u64) -> fmt::Result {
    let readable = |address: usize| arch::paging::translate(address as u64).is_some();
    backtrace::print(out, rip as usize, rbp as usize, readable)
}

/// Says which G runs here, if any.
struct Where;

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match schedule::current() {
            Some(g) if schedule::is_in_call() => write!(f, "in {g}, in a blocking call"),
            Some(g) => write!(f, "in {g}"),
            None => f.write_str("in no G"),
        }
    }
}

#[cfg(target_os = "none")]
mod handler {
    use super::*;
    use crate::go::JoinError;
    use crate::unwind;
    use alloc::string::ToString;
    use core::panic::PanicInfo;

    #[panic_handler]
    fn panic(info: &PanicInfo<'_>) -> ! {
        let Some(panics) = schedule::begin_panic() else { kernel_bug(format_args!("{info}")) };
        if panics > 1 && schedule::is_full().is_some() {
            ::log::error!("a panic while a full stack is unwound: {info}");
            schedule::leave_behind();
        }
        if panics > 1 {
            kernel_bug(format_args!("a panic while panicking: {info}"));
        }
        let message = info.message().to_string();
        // One that is to end stumbles over others that have: that is no news.
        let is_news = !schedule::was_killed();
        if let (Some(g), Some(location), true) = (schedule::current(), info.location(), is_news) {
            ::log::error!("{g} panicked at {location}: {message}");
        }
        let code = unwind::begin(JoinError::Panicked(message));
        kernel_bug(format_args!("cannot unwind (code {code}): {info}"))
    }
}
