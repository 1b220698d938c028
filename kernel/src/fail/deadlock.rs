//! All Gs of a program wait for each other: found, reported, and that program ends.
//!
//! As in Go, this is a fatal error of the program: the booted program takes the machine with it
//! ([`super::end::EXIT_DEADLOCK`]), a started one ends with [`Ended::Deadlock`]. It is found in
//! four ways. Nothing is counted where Gs wait, and no timer ticks for any of them.
//!
//! - **The machine is idle** (Go: checkdead): a CPU that finds nothing to run, and sees that no
//!   other P runs a G, scans all Gs before it halts ([`on_all_idle`]).
//! - **Another program runs**: a service G of the kernel, the *watcher*, scans one program after
//!   the other, a second apart ([`watch()`]).
//! - **A few Gs wait in a ring** for locks and joins while others run: the last G of the ring finds
//!   it ([`cycle`]).
//! - **Calls that wait keep all CPUs**, which takes `handoff=never`: the last of them finds it
//!   ([`kept`]).
//!
//! # What counts as a deadlock
//!
//! > Each G of the program waits for an event that only another G of it can cause.
//!
//! A wait with a deadline, for a device, or for another program's end will end by itself
//! ([`Wait::is_external`]). So does a wait for an object that the kernel keeps for all programs
//! ([`expect_from_outside`]). Programs are linked into one image and could make each other's Gs
//! wait, by a channel in a static of a third crate, say. A program whose Gs all wait for another
//! program's G that sleeps is taken for deadlocked, and ends: a channel does not know its future
//! sender, and to assume that every static is shared would hide the deadlocks of all programs that
//! use one. So programs that share a channel must each have a G that waits with a limit.
//!
//! Usually some G of the program sleeps or waits for input. The scan remembers that G
//! ([`Instance::outside_wait`]), and while it waits so no other G is examined.
//!
//! A program whose main has called `goexit` goes on with its other Gs, and is deadlocked as well
//! when none of them is left.
//!
//! # The scan of an idle machine
//!
//! The machine does not stand still during a scan, so the result counts only if no G has left a CPU
//! since ([`run::cycles_run`]): a G that was woken after it was examined waited for an outside
//! event then; a G that was woken before was runnable or running, if it has not left its CPU again.
//!
//! A scan is not repeated before some G has run: an idle machine scans once, and then halts. But a
//! CPU that is woken for nothing runs no G, and leaves no trace in the cycles run. So a scan also
//! counts only if no P was awake at its end; a CPU whose scan was void looks for Gs, and scans
//! again. A CPU that finds another one scanning leaves it to that one.
//!
//! # The scan of a program while others run
//!
//! The watcher exists as soon as a program was started beside the booted one. It examines all
//! member Gs of a program twice ([`scan_twice`]). If each was in the same wait both times (the same
//! life, which has not left a CPU since), all of them waited at the moment between. There was no
//! other member then: the G that starts a member is a member itself and runs, and so was not seen
//! to wait; unless it began to wait in the middle of the first scan, and the new G was put where
//! the scan had been already. So the result counts only if no G began or ended on the whole machine
//! ([`run::lives_changed`]). From that moment on only a G of another program can wake any of them.
//! A lock in a static has an owner, and if that G is of another program the wait is no deadlock
//! ([`crate::watch::waits_for_another`]). A channel has none: so a program must be seen in the very
//! same state in two scans, a second apart.
//!
//! After a scan that suspects no program the watcher *rests*, without a deadline: until a timer
//! fires on any CPU, or a CPU halts while another one is busy: while it rests, a bit of their
//! attention words makes both call [`poll_watcher`]. Then it waits for a second, and scans. The
//! last G of a program to wait leaves its CPU either with no G to run, and that CPU halts; or to a
//! G that had waited for a CPU, for which there was a timer that fires within a slice. So the last
//! wait of a deadlock is followed by a scan. Two events do not count, or the watcher would keep
//! itself awake: the tick of a watchdog CPU, and a CPU that halts while only the watcher runs.
#![forbid(unsafe_code)]

pub mod cycle;
pub mod kept;
mod ring;

use super::end::EXIT_DEADLOCK;
use super::panic::{self, Message};
use crate::run::error::SpawnError;
use crate::run::poller::PollDesc;
use crate::run::preempt::Attention;
use crate::run::time::{Duration, Instant, sleep};
use crate::run::waiting::{Reason, Wait};
use crate::run::{Ended, Instance, ProgramId, service};
use crate::watch::{GInfo, GState, backtrace, holder};
use crate::{arch, fail, run, watch};
use core::fmt::{self, Write};
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};

/// Maximum number of Gs in a report; the rest are counted.
const MAX_TOLD: usize = 100;
/// Up to so many Gs, the report has their backtraces, too.
const MAX_WITH_CALLS: usize = 16;

/// How long Gs had run at the last scan of an idle machine that counts, plus one.
static SCANNED_AT: AtomicU64 = AtomicU64::new(0);
static IS_SCANNING: AtomicBool = AtomicBool::new(false);

/// For a CPU that sees all Ps idle, Gs having run for so long: the scan to do with interrupts on,
/// with the same argument, if one is due and no other CPU scans. Any context.
pub fn on_all_idle(cycles_run: u64) -> Option<fn(u64)> {
    let has_counted = SCANNED_AT.load(Relaxed) == cycles_run.wrapping_add(1);
    // Acquire: pairs with the end of the previous scan.
    (!has_counted && !IS_SCANNING.swap(true, Acquire)).then_some(scan_all)
}

/// Checks all programs for a deadlock, and ends those that have one. On the stack of an M, no G
/// running here, interrupts on.
fn scan_all(cycles_run: u64) {
    if run::program::running().all(|instance| scan_at_rest(instance, cycles_run)) {
        SCANNED_AT.store(cycles_run.wrapping_add(1), Relaxed);
    }
    IS_SCANNING.store(false, Release); // pairs with `on_all_idle`
}

/// Checks one program. False if the machine was not at rest.
fn scan_at_rest(instance: &'static Instance, cycles_run: u64) -> bool {
    let id = instance.id();
    if scan_program(instance, |_| false).is_none() {
        return true; // if that changes, a G has run
    }
    if run::cycles_run() != cycles_run || !run::all_idle() {
        return false;
    }
    end_program(instance, id);
    true
}

/// Ends that run of a program, which is deadlocked; with the booted program the machine.
fn end_program(instance: &'static Instance, id: ProgramId) {
    if !instance.is_started() {
        panic::stop_with(EXIT_DEADLOCK, |out| report(out, instance));
    }
    instance.end(id, Ended::Deadlock);
}

/// A stamp of the waits of a program's Gs, if there are any and each of them waits for another, as
/// far as is known; `is_outside` says of a G that it waits for another program.
fn scan_program(instance: &Instance, is_outside: impl Fn(&run::GHandle) -> bool) -> Option<u64> {
    let remembered = instance.outside_wait().and_then(|g| watch::info(&g));
    if remembered.is_some_and(|g| g.state != GState::Running && g.wait.is_some_and(is_external)) {
        return None;
    }
    let stamp = scan(watch::members(instance.id()).map(|(handle, info)| {
        // A G that was killed meanwhile continues, to its end.
        let waits = matches!(info.state, GState::Waiting | GState::InCall)
            && !fail::ends_when_woken(&handle)
            && !is_outside(&handle);
        let wait = info.wait.filter(|_| waits).map(|wait| (wait, [info.id, info.switches]));
        (handle, wait)
    }));
    instance.set_outside_wait(stamp.as_ref().err().cloned().flatten());
    // As in Go: main has left, and no G is left.
    let is_left = instance.has_no_main() && watch::members(instance.id()).next().is_none();
    if is_left { Some(NO_G_LEFT) } else { stamp.ok() }
}

/// `gs` yields for each G its handle and, if it waits, its wait and two words that change when it
/// runs. Returns a stamp of all that if the Gs wait for each other; else a G that waits for
/// something else, if there is one.
fn scan<G>(gs: impl Iterator<Item = (G, Option<(Wait, [u64; 2])>)>) -> Result<u64, Option<G>> {
    let mut stamp = None;
    for (g, wait) in gs {
        let Some((wait, [id, switches])) = wait else { return Err(None) };
        if is_external(wait) {
            return Err(Some(g));
        }
        let mixed = holder::mix(stamp.unwrap_or(0), [id, switches, wait.pack()]);
        stamp = Some(mixed.max(1)); // 0 means none
    }
    stamp.ok_or(None)
}

/// Whether this wait can end without another G of the same program.
fn is_external(wait: Wait) -> bool {
    let is_kernels = || OUTSIDE.get().is_some_and(|object| object.contains(&wait.object));
    wait.is_external() || wait.reason == Reason::ProgramEnd || is_kernels()
}

/// The addresses of the object that Gs of all programs wait for.
static OUTSIDE: spin::Once<Range<usize>> = spin::Once::new();

/// Makes a wait for `object`, or for a part of it, count as external: its holder may be a G of
/// another program. Once.
pub fn expect_from_outside<T: ?Sized>(object: &'static T) {
    let at = core::ptr::from_ref(object).addr();
    OUTSIDE.call_once(|| at..at + size_of_val(object));
}

/// The stamp of a program without a G.
const NO_G_LEFT: u64 = 1;

const PERIOD: Duration = Duration::from_secs(1);
/// The watcher uses at most one part in so many of its time for scans: there may be many Gs.
const SHARE: u32 = 20;
/// How often a scan is repeated because Gs began or ended meanwhile.
const TRIES: usize = 16;

static WATCHER: Watcher = Watcher::new();

/// A program is being started, and counts as running: ensures that there is a watcher.
pub fn begin_watching() -> Result<(), SpawnError> {
    if cfg!(not(target_os = "none")) {
        return Ok(()); // the host does not know what a thread waits for
    }
    static IS_THERE: AtomicBool = AtomicBool::new(false);
    if IS_THERE.swap(true, Relaxed) {
        WATCHER.wake();
        return Ok(());
    }
    service::spawn("deadlocks", watch).inspect_err(|_| IS_THERE.store(false, Relaxed))
}

/// This CPU is about to halt while so many CPUs run Gs, or its timer has fired (`usize::MAX`):
/// makes the watcher scan soon. True if it may be in the inbox of this CPU. Interrupts off.
pub fn poll_watcher(busy: usize) -> bool {
    WATCHER.poll(busy)
}

fn watch() {
    let mut took = Duration::ZERO;
    loop {
        sleep(PERIOD.max(took * SHARE));
        WATCHER.begin_scan(run::program::running().any(Instance::is_started));
        let began = Instant::now();
        let suspects = run::program::running().filter(|instance| scan_started(instance)).count();
        took = began.elapsed();
        WATCHER.scans.store(false, Relaxed);
        if suspects == 0 {
            let _ = WATCHER.events.wait(None); // it rests; no other G waits for them
        }
    }
}

/// Scans one program, and ends it if all its Gs have been in the very same waits since the last
/// scan. True if they wait for each other, but perhaps not since then: it is scanned once more.
fn scan_started(instance: &'static Instance) -> bool {
    let id = instance.id();
    let is_outside = |handle: &_| watch::waits_for_another(handle, instance);
    let scan = || scan_program(instance, is_outside);
    let stamp = scan_twice(scan, run::lives_changed).unwrap_or(0);
    let is_same = instance.last_stamp.swap(stamp, Relaxed) == stamp;
    if stamp != 0 && is_same {
        end_program(instance, id);
    }
    stamp != 0 && !is_same
}

/// The stamp that two scans in a row have given, with no G begun or ended on the machine from
/// before the first until after the second (`lives` counts those).
fn scan_twice(
    mut scan: impl FnMut() -> Option<u64>,
    mut lives: impl FnMut() -> u64,
) -> Option<u64> {
    for _ in 0..TRIES {
        let before = lives();
        let first = scan()?;
        if scan()? == first && lives() == before {
            return Some(first);
        }
    }
    None
}

/// Whether the watcher rests or scans.
struct Watcher {
    /// It rests, or is about to: events on the machine must wake it.
    rests: AtomicBool,
    scans: AtomicBool,
    /// One since it began to scan is remembered, and it does not rest.
    events: PollDesc,
}

impl Watcher {
    const fn new() -> Self {
        let [rests, scans] = [const { AtomicBool::new(false) }; 2];
        Watcher { rests, scans, events: PollDesc::new() }
    }

    /// The watcher begins to scan; every event from here on is a reason to scan again. Events are
    /// ignored unless other programs than the booted one run: for that, the scan of the idle
    /// machine is enough.
    fn begin_scan(&self, others_run: bool) {
        self.scans.store(true, Relaxed);
        let _ = self.events.reset(); // the watcher, which alone waits for them, does not
        self.rests.store(others_run, Relaxed);
        set_attention(others_run);
    }

    /// A CPU is about to halt while so many CPUs run Gs, which is no event if only the watcher
    /// runs; or another event came (`usize::MAX`). True if it is the first event. Any context.
    #[inline]
    fn poll(&self, busy: usize) -> bool {
        let is_watcher = busy <= 1 && self.scans.load(Relaxed);
        let is_event = !is_watcher && self.rests.load(Relaxed);
        if is_event {
            self.wake();
        }
        is_event
    }

    /// Makes the watcher scan, with or without an event.
    #[cold]
    fn wake(&self) {
        self.rests.store(false, Relaxed);
        set_attention(false);
        self.events.ready(); // last: if a scan begins meanwhile, it is repeated
    }
}

fn set_attention(is_wanted: bool) {
    let set = if is_wanted { Attention::set } else { Attention::clear };
    run::all_slices().for_each(|slices| set(&slices.at_rest, Attention::WATCHER));
}

/// Prints the report as Go does.
pub fn log_report(instance: &Instance) {
    let mut text = Message::default();
    let _ = match cycle::within(instance) {
        Some(first) => {
            cycle::wait_until_parked(first);
            cycle::report(&mut text, first)
        }
        None => report(&mut text, instance),
    };
    // A program that has used all memory is reported all the same.
    let begin = if text.text.is_empty() { "fatal error: deadlock!" } else { &text.text };
    let rest = if text.is_cut { "\n... there is no memory for the rest" } else { "" };
    ::log::error!("{}: {begin}{rest}", instance.name());
}

fn report(out: &mut dyn Write, instance: &Instance) -> fmt::Result {
    let gs = || watch::members(instance.id()).map(|(_, info)| info);
    let count = gs().count();
    if count == 0 {
        writeln!(out, "fatal error: no goroutines (main called goexit) - deadlock!")?;
        return write_abandoned(out, fail::abandoned());
    }
    writeln!(out, "fatal error: all goroutines are asleep - deadlock!")?;
    for g in gs().take(MAX_TOLD) {
        write_g(out, &g, count <= MAX_WITH_CALLS)?;
    }
    if count > MAX_TOLD {
        writeln!(out, "\n... and {} more", count - MAX_TOLD)?;
    }
    write_abandoned(out, fail::abandoned())
}

fn write_g(out: &mut dyn Write, g: &GInfo, has_calls: bool) -> fmt::Result {
    writeln!(out, "\n{}", describe(g))?;
    match has_calls {
        true if g.id == run::current_id() => backtrace::print(out, arch::here()),
        true => backtrace::print_all(out, watch::calls(g.id).into_iter().flatten()),
        false => Ok(()),
    }
}

/// Reports that `n` abandoned Gs may be the reason: mutexes and write locks report that their
/// holder was abandoned; everything else that such a G held makes other Gs wait.
fn write_abandoned(out: &mut dyn Write, n: usize) -> fmt::Result {
    if n == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "\nabandoned since boot: {n}. Read locks, permits, channel ends, running Onces and \
         WaitGroup tickets of an abandoned goroutine are never given back"
    )
}

fn describe(g: &GInfo) -> impl fmt::Display {
    fmt::from_fn(move |f| {
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
    })
}

#[cfg(test)]
mod tests;
