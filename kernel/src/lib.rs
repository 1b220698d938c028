//! runnext: the Go scheduler's model on bare metal.
//!
//! The kernel is a library; a program links with it, as a Go program does with its runtime, and is
//! booted as one image. `sched` decides which G runs, this crate acts, `arch` knows the machine.
//!
//! # The public API
//!
//! The public modules, and no more: [`program`], [`go`], [`mod@scope`], [`local`], [`chan`],
//! [`mod@select`], [`sync`], [`mod@blocking`], [`mod@panic`], [`time`], [`context`], [`gref`],
//! [`console`], [`disk`], [`fs`], [`mod@stats`], [`tasks`], [`mod@system`], [`waiting`],
//! [`inspect`], [`trace`], [`schedtrace`], [`simulated`], [`prelude`].
//!
//! > Safe code that can name only these can neither break memory nor stop the kernel.
//!
//! So a function that trusts its caller is private here, or `unsafe`. Macros expand to calls
//! through `__private`, which keeps the same promise. `tests/src/forbidden.rs` checks that the rest
//! cannot be named. Tests from outside reach it by the feature `internals`, which no program has.
//!
//! # The map
//!
//! Each room uses only rooms above it in this list; the README has the exact arrows.
//!
//! | room | contents |
//! |---|---|
//! | [`arch`] | the contract with the machine, and behind it the machine |
//! | [`mem`] | frames, heap, stacks |
//! | [`run`] | what every M does: the loop, slices, sleepers, calls, the poller, hooks |
//! | [`wait`] | how a G waits: wait queues and locks, the unsafe code behind the public API |
//! | [`drivers`] | devices; the consoles and the lines printed there |
//! | [`watch`] | snapshots, backtraces, traces |
//! | [`fail`] | panics, full stacks, kills, deadlocks, stuck CPUs, the end of the machine |
//! | [`api`] | what a program sees |
//! | [`check`] | random preemption and delays, invariants of the machine, a simulated device |
//! | [`init`] | the steps of [`start`] |
//!
//! # From boot to the first switch
//!
//! [`start`] on the boot CPU and [`start_cpu`] on all others, one line a step; both end in
//! [`run::mstart`], which first finds the program's G.
#![cfg_attr(target_os = "none", no_std)]
// Under loom the kernel is empty: models take its sources file by file.
#![cfg(not(loom))]
// On the host nothing calls `start`, so the compiler takes all of the kernel below it for dead. The
// build for the machine, which has that entry point, finds dead code.
#![cfg_attr(
    not(target_os = "none"),
    allow(dead_code, unused_imports, reason = "the entry point is the machine's")
)]
// The feature opens private modules to tests; that is no reason to explain more of them.
#![cfg_attr(feature = "internals", allow(missing_docs, reason = "private items, for tests"))]

extern crate alloc;

mod api;
mod arch;
mod check;
mod drivers;
mod fail;
mod init;
#[cfg(feature = "internals")]
pub mod internals;
mod mem;
mod run;
mod wait;
mod watch;

pub use api::blocking::blocking;
pub use api::float::Float;
pub use api::gref::{GRef, current};
pub use api::map::{HashMap, HashSet, RandomState};
pub use api::panic::{Panic, catch};
pub use api::random::random;
pub use api::scope::scope;
pub use api::stats::{Stats, num_goroutines, stats};
pub use api::{
    args, blocking, chan, console, current_cpu, disk, exit, fs, go, gref, inspect, local, num_cpus,
    panic, program, scope, select, stats, sync, system, tasks,
};
pub use check::simulated;
pub use fail::end::{
    EXIT_CPU, EXIT_DEADLOCK, EXIT_FAULT, EXIT_MAIN_PANIC, EXIT_NO_PROGRAM, EXIT_PANIC, power_off,
    reboot,
};
pub use run::door::yield_now;
pub use run::{gomaxprocs, set_gomaxprocs, waiting};
pub use wait::limit as context;
pub use watch::{schedtrace, trace};

use bootloader_api::BootInfo;
use check::chaos;
use drivers::log;
use fail::{deadlock, watchdog};
use init::{banner, cmdline, handover};
use run::preempt::Alarm;

/// Instants, sleeping and timers. Waits with a deadline are where the waits are.
pub mod time {
    pub use crate::api::timer::{AfterFunc, Ticker, Timer, after_func};
    pub use crate::run::time::{Duration, Instant, SystemTime, now_utc, sleep, sleep_until};
}

/// What a program needs: `use runnext::prelude::*`.
pub mod prelude {
    pub use crate::api::blocking::{blocking, try_blocking};
    pub use crate::api::float::Float;
    pub use crate::api::go::{Go, JoinError, JoinHandle, Priority, SpawnError, go};
    pub use crate::api::gref::{GRef, current, park, park_timeout};
    pub use crate::api::map::{HashMap, HashSet};
    pub use crate::api::panic::{Panic, catch};
    pub use crate::api::random::random;
    pub use crate::api::scope::{Scope, ScopedJoinHandle, scope};
    pub use crate::api::stats::{num_goroutines, stats};
    pub use crate::run::time::{Duration, Instant, sleep};
    pub use crate::wait::limit::Context;
    pub use crate::{
        args, current_cpu, exit, gomaxprocs, num_cpus, print, println, set_gomaxprocs, yield_now,
    };
    pub use crate::{chan, select, sync};
    pub use alloc::borrow::ToOwned;
    pub use alloc::boxed::Box;
    pub use alloc::string::{String, ToString};
    pub use alloc::vec::Vec;
    pub use alloc::{format, vec};
}

/// The targets of this crate's macros. Not for programs, but programs can call them: everything
/// here is sound however it is called.
#[doc(hidden)]
pub mod __private {
    pub use crate::api::select::{
        AnyOrder, AtOnce, Case, Ever, InOrder, Otherwise, Selection, Until, acquire_case, attempt,
        done_case, join_case, join_next_case, line, recv_case, send_case,
    };
    pub use crate::drivers::log::{print, print_line};

    /// Whether programs can reach kernel internals: see the feature `internals`.
    pub const HAS_INTERNALS: bool = cfg!(feature = "internals");
}

#[cfg(target_os = "none")]
bootloader_api::entry_point!(start, config = &arch::LOADER_CONFIG);

static OPTIONS: spin::Once<cmdline::Options> = spin::Once::new();

/// The boot CPU's way from the loader to the first switch.
fn start(boot: &'static mut BootInfo) -> ! {
    let rsdp = boot.rsdp_addr.into_option();
    run::begin(); //                       no G runs on any CPU
    run::hooks::set(&HOOKS); //            what the scheduler calls above itself
    log::init(); //                             lines are kept until there is a console
    arch::init_boot_cpu(); //                   a fault is reported from here on
    handover::init_serial(); //                 on the serial port
    if arch::missing_features().next().is_some() {
        handover::refuse_cpu(boot);
    }
    handover::init_symbols(boot); //            with names
    init_memory(boot); //                       frames, page tables, heap
    let firmware = handover::firmware(boot);
    let options = OPTIONS.call_once(|| handover::init_options(boot));
    mem::stack::set_least_size(options.stack_kib.unwrap_or(0) << 10);
    handover::init_screen(boot); //             the second console
    log::set_sinks(options.console);
    arch::set_handlers(HANDLERS); //            the entry points of interrupts
    arch::init(handover::machine_config(rsdp, options)); // tables, APIC, clock, timer
    run::system::choose(options.system.name); // before a CPU has its P
    run::near::set_flat(options.is_flat); //    near and far, or all alike
    run::system::place(options.place); //       where new Gs wait
    arch::start_cpus(start_cpu); //             the others come up
    drivers::power_button::init(fail::end::power_off_at_once); // a press ends the machine
    drivers::virtio_blk::init(); //             a disk, or none
    drivers::serial::init_input(); //           input from the serial port
    console::init(options.terminal); //         one reader at a time
    api::random::init(options.choices()); //    of programs
    run::init(options.gomaxprocs, options.order, options.handoff);
    run::preempt::init(options.slice_ns);
    run::init_cpu(options.choices());
    run::packing::init(options.pack); //        stacks of parked Gs
    arch::begin_turns(options.turns_us); //     of an emulator's CPUs, if requested
    if options.accounting {
        core::mem::forget(stats::FullAccounting::begin()); // for ever
    }
    trace::begin(options.trace, options.events); // time 0 of the scheduler's events
    fail::end::NOTE.call_once(|| chaos::note);
    chaos::begin(options.chaos); //             from here on, if at all
    watchdog::begin(options.stuck); //          CPUs watch each other
    arch::sections::count(); //                 with interrupts off, where that is measured
    banner::show(options, firmware); //         the machine in a dozen lines
    start_program(options);
    trace::begin_draining(); //                 the service Gs that observe it, if requested
    schedtrace::begin(options.schedtrace_ms, options.scheddetail);
    run::mstart()
}

/// The way of every other CPU, when it has come up.
fn start_cpu() -> ! {
    let options = OPTIONS.get().expect("options are read before the other CPUs start");
    run::init_cpu(options.choices());
    watchdog::begin_cpu();
    run::mstart()
}

const HANDLERS: arch::Handlers = arch::Handlers {
    tick: run::on_tick,
    wake: run::on_wake,
    device,
    device_end: run::on_device_end,
    liveness_ipi: watchdog::on_liveness_ipi,
    nmi_sample: watchdog::on_nmi_sample,
    shootdown: mem::reclaim::trim_if_asked,
    page_fault,
    stack_full: fail::stack_full,
    room_to_preempt: fail::room_to_preempt,
    resumed_in_call: run::resumed_in_call,
    fatal: fail::panic::fault,
};

/// A device has interrupted: its driver serves it.
fn device(vector: u8) {
    trace::event_now(0, trace::What::new(trace::Kind::Irq, vector.into()));
    drivers::irq::on_interrupt(vector);
}

static HOOKS: run::hooks::Hooks = run::hooks::Hooks {
    event: trace::event_now,
    event_at: trace::event_at,
    half_full: trace::ask,
    created: trace::created,
    alarm: |alarm, now_ns| match alarm {
        Alarm::LateWakes => chaos::on_alarm(),
        Alarm::Watchdog => watchdog::on_alarm(now_ns),
        Alarm::Pack => run::packing::on_alarm(now_ns),
    },
    poll_watcher: deadlock::poll_watcher,
    after_rest: watchdog::after_rest,
    on_all_idle: deadlock::on_all_idle,
    halts: check::halts,
    resumes: check::resumes,
    runs: check::begins,
    delay: chaos::delay,
    slice_limit: chaos::cut,
    defers_wake: chaos::puts_off,
    die: fail::kill::die,
    locks_lost: fail::abandon::locks_lost,
    kernel_bug: |what| fail::panic::kernel_bug(what),
    finish_abandoned: fail::finish_abandoned,
    look_for_cycle: deadlock::cycle::find,
    cpu_is_kept: deadlock::kept::find,
};

/// Commits a page of a stack, if the address is in one.
fn page_fault(address: u64, irqs_off_at: Option<u64>) -> arch::PageFault {
    if mem::is_short() {
        run::ask_for_upkeep();
    }
    let found = mem::stack::POOL.handle_fault(address, irqs_off_at);
    if mem::frames::is_low() {
        run::refill_reserve(irqs_off_at.is_some());
    }
    found
}

/// Brings memory up, or ends the machine: without it the kernel cannot run.
fn init_memory(boot: &BootInfo) {
    let mut buffer = handover::Regions::new();
    let added = handover::added_regions(&mut buffer);
    let screen = handover::screen_region(boot);
    let map: [&[_]; 4] = [&boot.memory_regions, added, screen.as_slice(), &arch::NEVER_MEMORY];
    // SAFETY: once, on the boot CPU, as the loader left things; its regions exist.
    if let Err(error) = unsafe { mem::init(mem::survey::Map(&map)) } {
        panic!("no memory to start with: {error}");
    }
    mem::heap::set_in_need(run::is_panicking);
    mem::reclaim::set_wait(run::wait_for_memory);
}

fn start_program(options: &'static cmdline::Options) {
    let chosen = program::choose(
        program::all(),
        !program::all_tests().is_empty(),
        options.program.as_deref(),
    );
    let program = chosen.unwrap_or_else(|error| {
        ::log::error!("{error}; this image holds:");
        program::all().iter().for_each(|p| ::log::error!("  {}", p.name()));
        arch::exit(EXIT_NO_PROGRAM, log::print_line)
    });
    let boot = &run::program::BOOT;
    boot.set_booted(program.name(), &options.args);
    if let Some(Err(error)) = options.share.map(|share| boot.set_share(share)) {
        ::log::warn!("share= ignored: {error}");
    }
    let main = go::Go::new().name(program.name()).stack_size(program.stack_size());
    let main = main.spawn(move || program::run::run_main(program, boot, boot.id()));
    if let Err(error) = main {
        panic!("cannot start {}: {error}", program.name());
    }
}
