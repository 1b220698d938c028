//! Failures: one G unwinds, or the whole machine stops with a report.
//!
//! A panic in a G ends that G only: it unwinds to the root of the G and becomes the error of its
//! join. If a destructor panics meanwhile, and catches that itself, the first unwinding goes on; if
//! not, there is no frame left to unwind to: the G is abandoned (`abandon`), its locks are
//! abandoned and its joiner is woken. A panic anywhere else (scheduler, interrupt, interrupts off),
//! and an exception that no handler can repair, is the kernel's: all other CPUs are stopped by NMI,
//! the report is printed past all locks, and the machine ends with its own exit code.
//!
//! The report has the failure, then the backtrace of each CPU, then, if events were recorded
//! (`trace=`), the last ones of each. The first CPU that fails writes it; a second one halts, and
//! is in the report like any other. If the report itself fails, a line says so, and if not even
//! that is possible, the machine ends at once.

use super::end::{self, EXIT_FAULT, EXIT_PANIC};
use crate::arch::{self, Fault};
use crate::drivers::log;
use crate::run::error::JoinError;
use crate::run::payload::{Hook, Panic, PanicHookInfo};
use crate::run::{door, unwind};
use crate::watch::{backtrace, trace};
use crate::{fail, run};
use alloc::string::String;
use core::fmt::{self, Display, Write};
use core::panic::Location;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Stops the machine for an exception; the `fatal` of [`arch::Handlers`].
pub fn fault(fault: &Fault<'_>) -> ! {
    stop(EXIT_FAULT, (fault.frame.rip, fault.frame.rbp), |out| {
        let (cpu, place) = (arch::cpu_index(), place(false));
        writeln!(out, "fatal exception on CPU {cpu}, {place}: {fault}\n{}", fault.frame)?;
        let Some(caller) = fault.called_from() else { return Ok(()) };
        writeln!(out, "  called from {}", backtrace::Frame::new(1, caller as usize))
    })
}

/// Stops the machine for a violated invariant of the kernel itself (Go: throw).
pub fn kernel_bug(what: fmt::Arguments<'_>) -> ! {
    let here = arch::here();
    stop(EXIT_PANIC, here, |out| {
        let mut in_handler = false;
        backtrace::walk(here, |address| in_handler |= arch::is_trap_return(address));
        let (cpu, place) = (arch::cpu_index(), place(in_handler));
        writeln!(out, "kernel panic on CPU {cpu}, {place}: {what}")
    })
}

/// The CPU that stops the machine, plus one; 0 if there is none.
static STOPPER: AtomicUsize = AtomicUsize::new(0);
/// Its report has failed, and it has printed that.
static HAS_STUMBLED: AtomicBool = AtomicBool::new(false);
const LAST_EVENTS: u64 = 16;

/// Stops all CPUs, reports with the backtrace and the last events of each, ends with `code`.
fn stop(code: u32, at: (u64, u64), report: impl FnOnce(&mut dyn Write) -> fmt::Result) -> ! {
    stop_with(code, |out| {
        report(out)?;
        backtrace::print_callers(out, at)?;
        let me = arch::cpu_index();
        for cpu in (0..arch::num_cpus()).filter(|&cpu| cpu != me) {
            let Some(at) = arch::stopped_at(cpu) else {
                writeln!(out, "CPU {cpu} did not stop")?;
                continue;
            };
            match run::present(cpu).1 {
                Some(g) => writeln!(out, "CPU {cpu} was stopped, in G {g}, at")?,
                None => writeln!(out, "CPU {cpu} was stopped, in no G, at")?,
            }
            backtrace::print(out, at)?;
        }
        (0..arch::num_cpus()).try_for_each(|cpu| print_events(out, cpu))
    })
}

/// Stops all CPUs, reports, ends with `code`.
pub(super) fn stop_with(code: u32, report: impl FnOnce(&mut dyn Write) -> fmt::Result) -> ! {
    arch::irq::disable();
    let me = arch::cpu_index() + 1;
    match STOPPER.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {}
        Err(stopper) if stopper == me => stumble(code, report),
        // Another CPU stops the machine and will stop this CPU too.
        Err(_) => arch::halt_forever(),
    }
    #[cfg(debug_assertions)]
    crate::arch::lock::order::stop(); // locks that are held now stay held
    arch::stop_others();
    // SAFETY: the machine goes down, and the other CPUs were told to stop.
    let mut out = unsafe { log::emergency() };
    // An error comes from a caller's `Display`; what it wrote until then is printed.
    let _ = report(&mut out);
    let _ = end::write_note(&mut out); // what reproduces the run
    trace::abandon(code);
    arch::exit(code, log::print_line)
}

/// The report itself failed, with this one: reports that, and ends. If that fails, too, it ends
/// without a word.
#[cold]
fn stumble(code: u32, report: impl FnOnce(&mut dyn Write) -> fmt::Result) -> ! {
    if !HAS_STUMBLED.swap(true, Ordering::Relaxed) {
        // SAFETY: as in `stop_with`; the holder of the console is code that this interrupted or
        // called, and does not run again.
        let mut out = unsafe { log::emergency() };
        let _ = out.write_str("\nwhile this was reported: ");
        let _ = report(&mut out);
    }
    arch::exit(code, log::print_line)
}

/// Prints the last events of a CPU, newest last; nothing if they were not recorded.
fn print_events(out: &mut dyn Write, cpu: usize) -> fmt::Result {
    for (number, event) in trace::last(cpu, LAST_EVENTS).enumerate() {
        if number == 0 {
            writeln!(out, "CPU {cpu}, last events (us, what, G, argument):")?;
        }
        let ns = arch::cycles_to_ns(event.time);
        let (us, ns, arg) = (ns / 1_000, ns % 1_000, event.what.arg());
        match event.what.kind() {
            Some(kind) => writeln!(out, "  {us:9}.{ns:03} {kind:?} {} {arg:#x}", event.g)?,
            None => writeln!(out, "  {us:9}.{ns:03} ?")?,
        }
    }
    Ok(())
}

/// Which G runs here, if any, or was interrupted by the handler that this CPU is in.
fn place(in_handler: bool) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        f.write_str(if in_handler { "in a handler that interrupted " } else { "in " })?;
        match run::current() {
            Some(g) if run::is_in_call() && !in_handler => write!(f, "{g}, in a blocking call"),
            Some(g) => write!(f, "{g}"),
            None => f.write_str("no G"),
        }
    })
}

/// A text that is cut where there is no memory for more.
#[derive(Default)]
pub(crate) struct Message {
    pub(crate) text: String,
    pub(crate) is_cut: bool,
}

impl Write for Message {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.is_cut |= self.text.try_reserve(part.len()).is_err();
        if self.is_cut {
            return Err(fmt::Error);
        }
        self.text.push_str(part);
        Ok(())
    }
}

static PANICS: AtomicUsize = AtomicUsize::new(0);
/// Panics of Gs that show their calls: a program that panics by the thousand is not slowed down by
/// the search for names, and its first panics are not scrolled away.
const MOST_SHOWN: usize = 10;

/// Reports a panic of the running G as a program without a hook has it: a line, and the calls that
/// led to it for the first [`MOST_SHOWN`].
pub(crate) fn report(message: &dyn Display, location: Option<&Location<'_>>) {
    let (Some(g), Some(location)) = (run::current(), location) else { return };
    ::log::error!("{g} panicked at {location}: {message}");
    if PANICS.fetch_add(1, Ordering::Relaxed) < MOST_SHOWN {
        let at = arch::here();
        log::print(format_args!("{}", fmt::from_fn(|f| backtrace::print_callers(f, at))));
    }
}

/// How a panic of the running G becomes known.
enum Told {
    /// Not at all: a killed G may panic because others have ended.
    Not,
    /// By [`report`].
    Here,
    ByHook(Hook),
}

impl Told {
    fn now() -> Self {
        match door::program().hook() {
            _ if door::was_killed() => Told::Not,
            // A panic in a hook is not given to a hook.
            Some(hook) if !run::is_in_hook() => Told::ByHook(hook),
            _ if cfg!(target_os = "none") => Told::Here,
            _ => Told::Not, // on the host
        }
    }

    /// Calls the hook, if that is how; returns the reason to unwind with.
    ///
    /// The hook is code of the program. It is called without a lock, and is counted here; what
    /// unwinds out of it is caught here. So it may wait, panic, and be replaced while it runs. A
    /// panic that leaves it was reported, and now the first one is.
    fn by_hook(self, mut panic: Panic, location: Option<&Location<'_>>) -> JoinError {
        let Told::ByHook(hook) = self else { return JoinError::Panicked(panic) };
        let info = PanicHookInfo { payload: panic.payload(), location };
        match run::during_hook(|| unwind::catch(move || hook(&info))) {
            Ok(()) => {}
            Err(JoinError::Panicked(_)) => run::report_panic(|| report(&panic.message(), location)),
            Err(why) => return why, // if it has lost locks, that is seen to at the root of the G
        }
        JoinError::Panicked(panic)
    }
}

/// Panics with that value: tells of it, and unwinds.
pub(crate) fn panic_any(panic: Panic, location: &Location<'_>) -> ! {
    #[cfg(target_os = "none")]
    handler::begin(&panic.message(), Some(location));
    let told = Told::now();
    if matches!(told, Told::Here) {
        run::report_panic(|| report(&panic.message(), Some(location)));
    }
    raise(told.by_hook(panic, Some(location)))
}

/// Unwinds the running G.
fn raise(why: JoinError) -> ! {
    #[cfg(target_os = "none")]
    if !unwind::has_memory() {
        fail::fail_without_memory();
    }
    let code = unwind::begin(why);
    // (Not by its name: the host has nothing to stop.)
    (run::hooks::get().kernel_bug)(format_args!("cannot unwind a panic (code {code})"))
}

#[cfg(target_os = "none")]
mod handler {
    use super::*;
    use crate::run::{WhichPanic, call};
    use core::panic::PanicInfo;

    #[panic_handler]
    fn panic(info: &PanicInfo<'_>) -> ! {
        let location = info.location();
        begin(&info.message(), location);
        let (told, mut message) = (Told::now(), Message::default());
        // The message, and the payload, are on the heap; there is a reserve for them.
        run::report_panic(|| {
            if matches!(told, Told::Here) {
                report(&info.message(), location);
            }
            let _ = write!(message, "{}", info.message());
        });
        let Some(panic) = Panic::try_new(message.text) else { fail::fail_without_memory() };
        let mut why = told.by_hook(panic, location);
        // A failed allocation: `alloc` panics in this file for nothing else. The message would not
        // do: a program may use the same words.
        if location.is_some_and(|at| at.file().ends_with("library/alloc/src/alloc.rs"))
            && unwind::has_memory()
        {
            why = unwind::begin_above(why);
        }
        raise(why)
    }

    fn panicked(message: Message) -> JoinError {
        Panic::try_new(message.text).map_or(JoinError::NoMemory, JoinError::Panicked)
    }

    /// A panic begins. Returns if the G can unwind.
    pub(super) fn begin(message: &dyn Display, location: Option<&Location<'_>>) {
        match run::begin_panic() {
            Some(WhichPanic::First) => {}
            // The destructor catches it, and the unwinding that runs that goes on afterwards; or it
            // is in a hook.
            Some(WhichPanic::Nested) if arch::is_caught(arch::here().1, call::stack_end()) => {}
            Some(panic) => give_up(panic, message, location),
            None => match location {
                Some(at) => kernel_bug(format_args!("panicked at {at}:\n{message}")),
                None => kernel_bug(format_args!("panicked:\n{message}")),
            },
        }
    }

    /// The running G panics while it panics: in a destructor that does not catch it, or as its
    /// message is printed. It is abandoned. Interrupts are on, so it holds no kernel lock.
    ///
    /// What was rejected: **to unwind a second time**, as a thread of `std` does, until that leaves
    /// the destructor: then the G is abandoned all the same, with a second unwinding done and the
    /// reason forgotten. Here the tables are asked first ([`arch::is_caught`]).
    #[cold]
    fn give_up(which: WhichPanic, said: &dyn Display, location: Option<&Location<'_>>) -> ! {
        let mut message = Message::default();
        // A message that panics as it is printed is not printed again.
        if which == WhichPanic::InLastReport {
            let _ = message.write_str("while its panic was printed");
            fail::fail(panicked(message))
        }
        run::report_last_panic(|| {
            let _ = write!(message, "while it panicked: {said}");
            if let (Some(g), Some(location)) = (run::current(), location) {
                ::log::error!("{g} panicked at {location}, {}", message.text);
            }
        });
        fail::fail(panicked(message))
    }
}
