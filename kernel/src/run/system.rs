//! The scheduling system of this boot (`system=`; `sched::system`), and what Ms do for it.
//!
//! A system that differs from M:P:N in its queues only needs nothing from Ms. The others do:
//!
//! - **A G with an M of its own** (`1to1`, `pool`) runs as one blocking call from its start to its
//!   end: on the stack of its M, which leaves the CPU with it at every wait (`call`). It gets its M
//!   when its record is made, where a missing M is an error of `spawn`. Under `pool` M and record
//!   stay together when the G has ended; under `1to1` both are freed.
//! - **Rings of Ms** (`distributed`): where the M of a CPU changes, so does the ring of its P.
//!
//! Under all but `mpn` and `n1`, and with `place=`, [`Attention::SYSTEM`] is set on every CPU. It
//! sends spawn and hand-over to slow paths, which call this module, and `sched` for its queues. So
//! M:P:N pays nothing.

use super::error::SpawnError;
use super::m::{BlockingError, M};
use super::preempt::Attention;
use super::task::Task;
use super::{Cpu, Handoff, Leaving, OnCpu, SCHED, Work, all_slices, call, mcall_for_good, with_p};
use crate::arch;
use alloc::vec::Vec;
use sched::system::{self, MRing};
use sched::{G, Owner, StartPlace};
use spin::Once;

pub use sched::system::{About, Here, OwnM, Places, Promises, Queued, Ready, Rules, System, Why};

/// The system of this boot, and what it said when it was chosen: it is not asked again.
static CHOSEN: Once<Chosen> = Once::new();

struct Chosen {
    about: &'static About,
    places: Option<&'static dyn Places<Task>>,
}

/// A scheduling system that a program has added ([`system!`](crate::system!)).
pub struct Registered(&'static dyn System<Task>);

impl Registered {
    /// For [`system!`](crate::system!).
    #[must_use]
    pub const fn new(system: &'static dyn System<Task>) -> Self {
        Registered(system)
    }
}

/// Adds a scheduling system to the image, under the name by which `system=` chooses it:
/// `runnext::system!(Mine)`, for a value that implements [`System`] for every type.
/// `examples/system` shows one.
#[macro_export]
macro_rules! system {
    ($system:expr) => {
        const _: () = {
            #[used]
            #[unsafe(link_section = ".runnext.systems")]
            static SYSTEM: $crate::system::Registered = $crate::system::Registered::new(&$system);
        };
    };
}

/// Those that programs of this image have added.
fn registered() -> &'static [Registered] {
    #[cfg(target_os = "none")]
    {
        unsafe extern "C" {
            static __systems_start: u8;
            static __systems_end: u8;
        }
        let start = (&raw const __systems_start).cast::<Registered>();
        let bytes = (&raw const __systems_end).addr() - start.addr();
        // SAFETY: the linker script puts nothing but `Registered` statics between the two symbols,
        // aligned to 8, and they live for ever.
        unsafe { core::slice::from_raw_parts(start, bytes / size_of::<Registered>()) }
    }
    #[cfg(not(target_os = "none"))]
    &[]
}

/// All systems of this image: the six, and those that were added.
pub fn all() -> impl Iterator<Item = &'static dyn System<Task>> {
    system::all().into_iter().chain(registered().iter().map(|added| added.0))
}

/// The system called that.
pub fn find(name: &str) -> Option<&'static About> {
    all().map(System::about).find(|about| about.name == name)
}

/// Chooses a system; before any CPU has its P.
pub fn choose(name: &str) {
    if let Some(system) = all().find(|system| system.about().name == name) {
        CHOSEN.call_once(|| Chosen { about: system.about(), places: system.places() });
    }
}

/// Chooses where new Gs wait, under a system that has Go's queues; before any is started.
pub fn place(place: StartPlace) {
    SCHED.set_start_place(place);
}

/// Where its Gs wait, if not as in Go.
pub(crate) fn places() -> Option<&'static dyn Places<Task>> {
    CHOSEN.get()?.places
}

/// The system of this boot: its name, its four answers, its drawback, and what it promises.
///
/// ```
/// let system = runnext::system::running();
/// assert_eq!(system.name, "mpn");
/// assert!(system.promises.parallel);
/// ```
pub fn running() -> &'static About {
    CHOSEN.get().map_or(&system::mpn::ABOUT, |chosen| chosen.about)
}

/// Sets the attention bit of all CPUs, if the system or the place of new Gs needs it; after the
/// CPUs are known.
pub(crate) fn init() {
    let rules = running().rules;
    let starts_elsewhere = SCHED.start_place() != StartPlace::Here;
    if starts_elsewhere || places().is_some() || rules.m != OwnM::InCalls || rules.rings_of_ms {
        all_slices().for_each(|slices| slices.attention.set(Attention::SYSTEM));
    }
}

/// The most Ps that may run Gs.
pub(crate) fn most_ps() -> usize {
    if running().rules.one_p { 1 } else { arch::num_cpus() }
}

/// When the P of a call that waits is handed off, if the command line says `said`. Where each G is
/// a call from its start to its end, its waits are all the waits that there are.
pub fn handoff(said: Handoff) -> Handoff {
    let rules = running().rules;
    match (rules.keeps_p, rules.m) {
        (true, _) => Handoff::Never,
        (_, OwnM::InCalls) => said,
        _ => Handoff::Immediate,
    }
}

/// Whether each G has an M for life.
pub(crate) fn binds() -> bool {
    running().rules.m != OwnM::InCalls
}

/// A record for Gs is made, or used again: under a system that binds, it gets its M.
#[cold]
pub(crate) fn bind(g: &'static G<Task>) -> Result<(), SpawnError> {
    if !binds() || g.kernel.m.get().is_some() {
        return Ok(());
    }
    let is_pooled = running().rules.m == OwnM::Pooled;
    let spare = if is_pooled { M::take_spare() } else { None };
    let m = match spare.map_or_else(M::create, Ok) {
        // Perhaps dead Gs have them, whose stacks are of another size than this one's.
        Err(BlockingError::TooMany) if is_pooled => unbind_dead().ok_or(SpawnError::TooManyMs),
        Err(BlockingError::TooMany) => Err(SpawnError::TooManyMs),
        Err(BlockingError::NoMemory) => Err(SpawnError::NoMemory),
        Ok(m) => Ok(m),
    }?;
    g.kernel.m.set(Some(m));
    Ok(())
}

/// Takes the M of a dead G, whose stack goes back to the pool of stacks, and the record with it.
fn unbind_dead() -> Option<&'static M> {
    loop {
        let dead = with_p(|p| SCHED.take_dead(p))?;
        let m = dead.kernel.m.get();
        dead.kernel.m.set(None);
        drop(dead.kernel.stack.take());
        if m.is_some() {
            return m;
        }
    }
}

/// The root of a G that has an M for its life, in place of `g_main`.
pub(crate) extern "C" fn thread_main(_: usize, g: &'static G<Task>) -> ! {
    // SAFETY: 1. Off: the G was just switched to. 2. A G runs here. 3. It has no other.
    let on = unsafe { OnCpu::assume() };
    if let Some(own) = g.kernel.m.get() {
        g.kernel.m.set(None);
        call::keep(on.cpu(), own); // for the call below, which needs a spare M
    }
    let run = || {
        Work::run_from(&g.kernel.work);
        // If the stack of the M was full, the M is retired when the call has ended.
        let is_full = g.kernel.m.get().is_some_and(|m| m.was_full.get());
        if is_full { Err(()) } else { Ok(()) }
    };
    // It is refused only if there is no spare M.
    let ran = call::call(run);
    assert!(ran.is_ok(), "a G without its M");
    arch::irq::disable();
    // SAFETY: 1. See above. 2. A G runs here. 3. It has no other.
    let on = unsafe { OnCpu::assume() };
    let spare = on.cpu().spare.take().or_else(M::take_spare);
    let why = match (running().rules.m, spare) {
        (OwnM::Fresh, Some(m)) => {
            m.free();
            Leaving::ExitThread
        }
        (_, Some(m)) => {
            g.kernel.m.set(Some(m)); // until the next life
            Leaving::Exit
        }
        (_, None) => Leaving::ExitThread, // its M is retired: the next life gets another
    };
    mcall_for_good(on, g, why)
}

/// A ring for a new M, where rings go with Ms.
pub(crate) fn new_ring() -> Result<Option<Owner<Task>>, BlockingError> {
    if !running().rules.rings_of_ms || super::try_this_cpu().is_none() {
        return Ok(None); // the first M of a CPU has the ring that the P came with
    }
    let mut place = Vec::new();
    place.try_reserve_exact(1).map_err(|_| BlockingError::NoMemory)?;
    place.push(MRing::new());
    Ok(SCHED.add_ring(&place.leak()[0])) // an M is never freed under that system
}

/// The M under a CPU changes: so does the ring of its P, where rings go with Ms.
#[cold]
pub(crate) fn swap_rings(cpu: &Cpu, leaves: &M, comes: &M) {
    if let Some(ring) = comes.ring.take() {
        // SAFETY: this CPU's own record, interrupts off; no caller uses its P meanwhile.
        let p = unsafe { &mut *cpu.p.get() };
        // SAFETY: a record that `install` has published has its P.
        let p = unsafe { p.assume_init_mut() };
        leaves.ring.set(Some(p.swap_ring(ring)));
    }
}
