//! All Gs of a program wait: found when the last P goes idle (Go: checkdead).
//!
//! Gs that wait for each other in a ring are found earlier: [`cycle`]. And a program that is
//! deadlocked while others run is found a little later: [`beside`].
//!
//! As in Go, this is a fatal error of the program: the booted program takes the machine with it
//! ([`crate::EXIT_DEADLOCK`]), a started one ends with [`Ended::Deadlock`]. Nothing is counted
//! where Gs wait, and no timer ticks for it: a CPU that finds nothing to run, and sees that no
//! other P runs a G, scans all Gs ([`Look`]) before it halts.
//!
//! # What counts as a deadlock
//!
//! > No P runs a G, and each G of the program waits for an event that only another
//! > G can cause.
//!
//! A wait with a deadline, for a device, or for another program's end will end by itself
//! ([`Wait::is_external`]). So does a wait for an object that the kernel keeps for all programs
//! ([`expect_from_outside`]): its holder may be a G of another program. Programs are linked into
//! one image and could make each other's Gs wait, by a channel in a static of a third crate, say. A
//! program whose Gs all wait for another program's G that sleeps is taken for deadlocked, and ends:
//! a channel knows neither its future sender nor that G's program, and to assume that every static
//! is shared would hide the deadlocks of all programs that use one. So programs that share a
//! channel must each have a G that waits with a limit.
//!
//! # How it is found
//!
//! Usually some G of the program sleeps or waits for input. The scan remembers that G, the
//! *witness*, and while it waits so no other G is examined. If it does not, all Gs are examined,
//! with interrupts on. The machine does not stand still meanwhile, so the result counts only if no
//! G has left a CPU since ([`schedule::cycles_run`]): a G that was woken after it was examined was
//! a witness then; a G that was woken before was runnable or running, if it has not left its CPU
//! again.
//!
//! A scan is not repeated before some G has run. So a machine that has nothing to do scans once,
//! and then halts. But a scan counts only if the machine was at rest from beginning to end: a CPU
//! that is woken for nothing looks for Gs meanwhile, runs none, and leaves no trace in the cycles
//! run. A CPU whose scan was void therefore looks for Gs, and then scans again; if another CPU is
//! awake by then, that CPU scans when it goes idle. A CPU that finds another one scanning leaves it
//! to that one.

pub mod beside;
pub mod cycle;
mod ring;
mod watcher;

use crate::arch::{self, irq::IrqState};
use crate::panic::Message;
use crate::park;
use crate::program::{self, Ended, Instance};
use crate::schedule;
use crate::tasks::{GInfo, GState};
use crate::waiting::{Reason, Wait};
use core::fmt::{self, Write};
use core::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// Maximum number of Gs in a report; the rest are counted.
const MAX_TOLD: usize = 100;
/// Up to so many Gs, the report has their backtraces, too.
const MAX_WITH_CALLS: usize = 16;

/// How long Gs had run at the last scan that counts, plus one.
static LOOKED_AT: AtomicU64 = AtomicU64::new(0);
/// A CPU is scanning.
static LOOKING: AtomicBool = AtomicBool::new(false);

/// The hook of a CPU that sees all Ps idle: the scan to do with interrupts on, if one is due.
pub fn on_all_idle(cycles_run: u64) -> Option<schedule::hooks::Scan> {
    let Look { .. } = Look::is_due(cycles_run)?;
    Some(|cycles_run| Look { cycles_run }.take())
}

/// The right to do one scan.
#[must_use]
pub struct Look {
    /// How long Gs have run.
    cycles_run: u64,
}

impl Look {
    /// For a CPU that sees all Ps idle, Gs having run for so long: `Some` if a scan is due and no
    /// other CPU scans. Any context.
    pub fn is_due(cycles_run: u64) -> Option<Look> {
        let has_counted = LOOKED_AT.load(Relaxed) == cycles_run.wrapping_add(1);
        // Acquire: pairs with the end of the previous scan.
        (!has_counted && !LOOKING.swap(true, Acquire)).then_some(Look { cycles_run })
    }

    /// Checks all programs for a deadlock, and ends those that have one. On the stack of an M, no G
    /// running here, interrupts on.
    pub fn take(self) {
        if program::running().all(|instance| self.counts_for(instance)) {
            LOOKED_AT.store(self.cycles_run.wrapping_add(1), Relaxed);
        }
        LOOKING.store(false, Release); // pairs with `is_due`
    }

    /// Checks one program. False if the machine was not at rest.
    fn counts_for(&self, instance: &'static Instance) -> bool {
        let id = instance.id();
        if !is_stuck(instance) {
            return true; // if that changes, a G has run
        }
        if schedule::cycles_run() != self.cycles_run || !schedule::all_idle() {
            return false;
        }
        if !instance.is_started() {
            crate::panic::deadlock(|out| report(out, instance));
        }
        instance.end(id, Ended::Deadlock, |supervisor| {
            arch::irq::disable();
            park::ready_from_interrupt(supervisor);
            arch::irq::restore(IrqState::ON); // it is in this CPU's inbox, which this CPU checks next
        });
        true
    }
}

/// Whether all Gs of the program wait for each other, as far as is known.
fn is_stuck(instance: &Instance) -> bool {
    let is_witness =
        |info: &GInfo| info.state != GState::Running && info.wait.is_some_and(is_external);
    if let Some(witness) = instance.witness()
        && schedule::info(&witness).as_ref().is_some_and(is_witness)
    {
        return false;
    }
    let (verdict, witness) = judge(schedule::members(instance.id()).map(|(handle, info)| {
        // A G that was killed meanwhile continues, to its end.
        let waits = matches!(info.state, GState::Waiting | GState::InCall)
            && !schedule::ends_when_woken(&handle);
        (handle, info.wait.filter(|_| waits))
    }));
    instance.set_witness(witness);
    verdict
}

/// For each G: its handle, and its wait, if it waits. Whether the Gs wait for each other; if not, a
/// G that waits for something else, if there is one.
fn judge<G>(gs: impl Iterator<Item = (G, Option<Wait>)>) -> (bool, Option<G>) {
    let mut is_empty = true;
    for (g, wait) in gs {
        match wait {
            None => return (false, None),
            Some(wait) if is_external(wait) => return (false, Some(g)),
            Some(_) => is_empty = false,
        }
    }
    (!is_empty, None)
}

/// Whether this wait can end without another G of the same program.
fn is_external(wait: Wait) -> bool {
    let kernels = || OUTSIDE.iter().any(|place| place.holds(wait.object));
    wait.is_external() || wait.reason == Reason::ProgramEnd || kernels()
}

/// Kernel objects that Gs of all programs wait for.
static OUTSIDE: [Place; 4] = [const { Place::new() }; 4];

/// An object's first address and its size. Size 0: unused.
struct Place(AtomicUsize, AtomicUsize);

impl Place {
    const fn new() -> Self {
        Place(AtomicUsize::new(0), AtomicUsize::new(0))
    }

    fn holds(&self, address: usize) -> bool {
        let size = self.1.load(Acquire); // pairs with `expect_from_outside`
        address.wrapping_sub(self.0.load(Relaxed)) < size
    }
}

/// Makes a wait for `object`, or for a part of it, count as external: its holder may be a G of
/// another program. Once for each object, four at most.
pub fn expect_from_outside<T: ?Sized>(object: &'static T) {
    let (at, size) = (core::ptr::from_ref(object).addr(), size_of_val(object));
    let is_taken = |place: &&Place| {
        place.0.compare_exchange(0, at, Relaxed, Relaxed).is_ok_and(|_| {
            place.1.store(size, Release);
            true
        })
    };
    assert!(OUTSIDE.iter().any(|place| is_taken(&place)), "too many for OUTSIDE");
}

/// Prints the report as Go does.
pub fn log_report(instance: &Instance) {
    let mut text = Message::new();
    let _ = match cycle::within(instance) {
        Some(first) => {
            cycle::settle(first);
            cycle::report(&mut text, first)
        }
        None => report(&mut text, instance),
    };
    // A program that has used all memory is reported all the same.
    let begin = if text.is_empty() { "fatal error: deadlock!" } else { text.as_str() };
    let rest = if text.is_cut() { "\n... there is no memory for the rest" } else { "" };
    ::log::error!("{}: {begin}{rest}", instance.name());
}

/// Reports that all Gs are asleep, and what each of them waits for.
fn report(out: &mut dyn Write, instance: &Instance) -> fmt::Result {
    writeln!(out, "fatal error: all goroutines are asleep - deadlock!")?;
    let gs = || schedule::members(instance.id()).map(|(_, info)| info);
    let count = gs().count();
    for g in gs().take(MAX_TOLD) {
        writeln!(out, "\n{}", Told(&g))?;
        if count <= MAX_WITH_CALLS {
            write_calls(out, g.id);
        }
    }
    match count.checked_sub(MAX_TOLD) {
        None | Some(0) => {}
        Some(more) => writeln!(out, "\n... and {more} more")?,
    }
    write_abandoned(out, schedule::abandoned())
}

/// Reports that `n` abandoned Gs may be the reason: mutexes and write locks report that their
/// holder was abandoned; everything else that such a G held makes other Gs wait.
fn write_abandoned(out: &mut dyn Write, n: usize) -> fmt::Result {
    match n {
        0 => Ok(()),
        n => writeln!(
            out,
            "\nabandoned since boot: {n}. Read locks, permits, channel ends, running Onces and \
             WaitGroup tickets of an abandoned goroutine are never given back"
        ),
    }
}

/// Writes the backtrace of a G that waits.
fn write_calls(out: &mut dyn Write, id: u64) {
    schedule::with_calls(id, |number, address| {
        let _ = writeln!(out, "  #{number} {}", crate::backtrace::Frame::new(number, address));
    });
}

/// Formats a G for a report.
struct Told<'a>(&'a GInfo);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Told(g) = self;
        let wait = g.wait.unwrap_or_default();
        match wait.reason {
            Reason::None => write!(f, "goroutine {} [{}]:", g.id, g.state)?,
            reason => write!(f, "goroutine {} [{reason}]:", g.id)?,
        }
        if !g.name.is_empty() {
            write!(f, " {:?}", g.name)?;
        }
        match (wait.reason, wait.object) {
            (_, 0) => {}
            (Reason::Join, id) => write!(f, " for goroutine {id}")?,
            (_, object) => write!(f, " at {object:#x}")?,
        }
        if let Some(holder) = g.holder {
            write!(f, ", held by goroutine {holder}")?;
        }
        g.site.map_or(Ok(()), |site| write!(f, "\nspawned at {site}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(reason: Reason) -> Option<Wait> {
        Some(Wait::new(reason, 0))
    }

    fn judged(gs: &[Option<Wait>]) -> (bool, Option<usize>) {
        judge(gs.iter().copied().enumerate())
    }

    #[test]
    fn gs_that_wait_for_each_other_are_deadlocked() {
        let stuck = [wait(Reason::ChanReceive), wait(Reason::MutexLock), wait(Reason::Join)];
        assert_eq!(judged(&stuck), (true, None));
    }

    #[test]
    fn one_that_runs_or_may_run_can_wake_the_others() {
        assert_eq!(judged(&[wait(Reason::ChanReceive), None, wait(Reason::Sleep)]), (false, None));
    }

    #[test]
    fn one_that_waits_for_the_clock_a_device_or_a_program_is_the_witness() {
        for reason in [Reason::Sleep, Reason::Poll, Reason::Call, Reason::ProgramEnd] {
            let gs = [wait(Reason::ChanSend), wait(reason), wait(Reason::ChanSend)];
            assert_eq!(judged(&gs), (false, Some(1)), "{reason}");
        }
        let in_time = Some(Wait::new(Reason::ChanSend, 0).with_deadline());
        assert_eq!(judged(&[in_time]), (false, Some(0)));
    }

    #[test]
    fn a_program_without_gs_is_only_starting() {
        assert_eq!(judged(&[]), (false, None));
    }

    #[test]
    fn what_the_kernel_keeps_for_all_is_no_reason() {
        static SHARED: [u64; 4] = [0; 4];
        expect_from_outside(&SHARED);
        let at = |address: *const u64| Some(Wait::new(Reason::MutexLock, address.addr()));
        assert_eq!(judged(&[at(&SHARED[0])]), (false, Some(0)));
        assert_eq!(judged(&[at(&SHARED[3])]), (false, Some(0)));
        assert_eq!(judged(&[at(SHARED.as_ptr_range().end)]), (true, None));
        assert_eq!(judged(&[wait(Reason::MutexLock)]), (true, None), "no object is nobody's");
    }

    #[test]
    fn a_look_is_due_once_until_somebody_has_run() {
        let look = Look::is_due(7).expect("nobody has looked");
        assert!(Look::is_due(7).is_none(), "somebody looks");
        look.take();
        assert!(Look::is_due(7).is_none(), "somebody has looked");
        assert!(Look::is_due(8).is_some());
    }

    #[test]
    fn abandoned_gs_are_named_as_a_reason_if_there_are_any() {
        let told = |n| {
            let mut text = String::new();
            write_abandoned(&mut text, n).expect("a string takes everything");
            text
        };
        assert_eq!(told(0), "");
        assert!(told(3).starts_with("\nabandoned since boot: 3. Read locks, permits"));
    }

    #[test]
    fn the_report_speaks_as_go_does() {
        let mut g = GInfo::for_tests(7, "worker", GState::Waiting);
        g.wait = Some(Wait::new(Reason::ChanReceive, 0x1000));
        assert_eq!(Told(&g).to_string(), "goroutine 7 [chan receive]: \"worker\" at 0x1000");
        g.wait = Some(Wait::new(Reason::MutexLock, 0x1000));
        g.holder = Some(8);
        let told = "goroutine 7 [sync.Mutex.Lock]: \"worker\" at 0x1000, held by goroutine 8";
        assert_eq!(Told(&g).to_string(), told);
        g.wait = Some(Wait::new(Reason::Join, 9));
        (g.name, g.holder) = ("", None);
        assert_eq!(Told(&g).to_string(), "goroutine 7 [join]: for goroutine 9");
    }
}
