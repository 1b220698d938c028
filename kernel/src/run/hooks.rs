//! Hooks: how `run` calls the rooms `watch`, `check` and `fail`, which use it.
//!
//! The scheduler names none of them: it calls the entries of one table, which [`set`] installs at
//! boot (`start` in `lib.rs`). On the host no entry is called. Entries for observers and checks are
//! called only where a bit of [`Attention`] is set or an [`Alarm`] is due (and by builds with debug
//! assertions); the others where something fails, or all CPUs are idle.

use super::CPUS;
use super::error::JoinError;
use super::event::{Kind, What};
use super::preempt::{Alarm, Attention};
use super::task::Task;
use crate::arch;
use crate::mem::percpu::Here;
use core::fmt;
use core::panic::Location;
use sched::G;
use spin::Once;

/// The table. Interrupts are off in every call but [`Hooks::die`], [`Hooks::on_all_idle`]
/// and [`Hooks::look_for_cycle`].
pub struct Hooks {
    // With `Attention::TRACED`.
    /// An event of this CPU, now; the G's number, or 0.
    pub event: fn(u64, What),
    /// An event of this CPU at that time by the cycle counter.
    pub event_at: fn(u64, u64, What),
    /// This CPU has filled half of its ring of events: it should be drained.
    pub half_full: fn(),
    /// A G was created: its number, the event, its name and spawn site.
    pub created: fn(u64, What, &'static str, &'static Location<'static>),

    // Ticks and halts.
    /// That alarm of this CPU is due.
    pub alarm: fn(Alarm, now_ns: u64),
    /// With [`Attention::WATCHER`]: this CPU has no G to run and so many Ps have, or its timer has
    /// fired (`usize::MAX`). True if a G was readied.
    pub poll_watcher: fn(busy: usize) -> bool,
    /// With [`Attention::WATCHDOG`]: this CPU, which had no G, has found one.
    pub after_rest: fn(),
    /// No P has a G to run, and Gs have run for so many cycles in all. `None`: nothing to do; else
    /// a function to call with interrupts on.
    pub on_all_idle: fn(cycles_run: u64) -> Option<Scan>,

    // With debug assertions; `now` is by the cycle counter.
    pub halts: fn(now: u64),
    pub resumes: fn(now: u64),
    pub runs: fn(&'static G<Task>, now: u64),

    // With `Attention::CHAOS`.
    /// Delays this CPU, perhaps.
    pub delay: fn(),
    /// Delays this CPU, perhaps; how many cycles the slice under way may last.
    pub slice_limit: fn() -> u64,
    /// Whether the wake-up of that CPU is sent later.
    pub defers_wake: fn(&Here, usize) -> bool,

    // Failures.
    /// Ends the running G, by unwinding if it can.
    pub die: fn() -> !,
    /// The running G has ended by a full stack, whose frames may have lost locks: abandons those.
    pub locks_lost: fn(),
    /// Stops the machine: the kernel is broken.
    pub kernel_bug: fn(fmt::Arguments<'_>) -> !,
    /// Finishes a G that was abandoned, for that reason if it recorded one.
    pub finish_abandoned: fn(&'static G<Task>, Option<JoinError>),
    /// A G waits for a lock: looks for a cycle of such waits.
    pub look_for_cycle: fn(bool),
    /// With `handoff=never`: this CPU halts for a call that waits; perhaps all do, for ever.
    pub cpu_is_kept: fn(),
}

/// A scan of all Gs, which have run for so many cycles.
pub type Scan = fn(cycles_run: u64);

static HOOKS: Once<&'static Hooks> = Once::new();

/// Installs the table; once, before any CPU schedules.
pub fn set(hooks: &'static Hooks) {
    HOOKS.call_once(|| hooks);
}

#[inline(always)]
pub(crate) fn get() -> &'static Hooks {
    HOOKS.get().expect("`start` installs the hooks first")
}

pub(crate) fn is_traced() -> bool {
    CPUS[arch::cpu_index()].slices.attention.has(Attention::TRACED)
}

pub(crate) fn event(kind: Kind, g: u64, arg: u32) {
    if is_traced() {
        (get().event)(g, What::new(kind, arg));
    }
}

pub(crate) fn cpu_event(kind: Kind, arg: u32) {
    event(kind, 0, arg);
}
