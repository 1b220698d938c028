//! The other CPUs: reset together, started one after the other, and let go together.
//!
//! [`apstart`] gets a CPU from its reset to Rust. This file prepares what a CPU starts with,
//! brings it up ([`ap_main`]), and reports one that does not come. [`start_cpus`] runs on the
//! boot CPU.

mod apstart;

use super::acpi::CpuEntry;
use super::cpu::{self, gdt, topology};
use super::irq::apic::{self, Message};
use super::irq::trap;
use super::machine::{CPUS, CpuInfo, MACHINE, STACK_PAGES, handler_stacks, report, wake};
use super::paging::{self, Flags};
use super::time::{clock, timer};
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use apstart::{Block, Machine, Trampoline};
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use x86_64::registers::control::Cr4;

/// When so many CPUs in a row do not answer, the rest of the list is skipped: it names CPUs that do
/// not exist, and the boot CPU would wait seconds for each.
const MAX_SILENT: usize = 4;
/// From the arrival of an AP to the end of its bring-up, µs.
const BRING_UP_LIMIT_US: u64 = 10_000_000;

/// Where the APs go when all have come.
static GO: spin::Once<fn() -> !> = spin::Once::new();
/// Counts the APs that came after they had been given up, and parked themselves.
static LATE: spin::Once<&AtomicU32> = spin::Once::new();

/// Starts all other CPUs, each of which ends in `entry`; returns when all came or were given up.
pub fn start_cpus(entry: fn() -> !) {
    let machine = MACHINE.get().expect("init comes first");
    let others = &machine.firmware.cpus[1..];
    let wanted = &others[..others.len().min(machine.config.max_cpus.clamp(1, cpu::MAX_CPUS) - 1)];
    report_cpu(&machine.boot_cpu, "boot CPU");
    let mut online = Vec::from([machine.boot_cpu]);
    if !wanted.is_empty() {
        match install_trampoline(machine.config.alloc_low) {
            Ok(trampoline) => start_each(trampoline, wanted.to_vec(), &mut online),
            Err(why) => log::error!("smp: {why}; going on with the boot CPU alone"),
        }
    }
    let (came, skipped) = (online.len(), others.len() - wanted.len());
    let failed = wanted.len() + 1 - came;
    cpu::set_num_cpus(came);
    report::note("cpus", format_args!("{came} online, {failed} failed, {skipped} beyond maxcpus"));
    CPUS.call_once(|| online);
    GO.call_once(|| entry);
    (1..came).for_each(wake);
}

/// Reports CPUs that came after they had been given up, if there are new ones.
pub fn report_late_cpus() {
    let late = LATE.get().map_or(0, |late| late.swap(0, Ordering::Relaxed));
    if late > 0 {
        log::warn!("smp: {late} CPUs came after they were given up; they have parked themselves");
    }
}

fn install_trampoline(alloc_low: fn() -> Option<u64>) -> Result<Trampoline, &'static str> {
    let frame = alloc_low().ok_or("no free page below 1 MiB for the trampoline")?;
    let control = [paging::root() as u32, Cr4::read_raw() as u32];
    // SAFETY: 1. Physical memory is mapped there for good, in the one set of
    // tables that all CPUs use. 2. The frame was allocated for this.
    let installed =
        unsafe { Trampoline::install(paging::phys_to_virt(frame), frame, control, ap_main) };
    let trampoline = installed.ok_or("trampoline page not below 1 MiB")?;
    // SAFETY: it is mapped to itself, where nothing else is, and not writable.
    unsafe { paging::map_page(frame, frame, Flags::CODE, paging::alloc_frame) }
        .map_err(|_| "trampoline page cannot be mapped")?;
    Ok(trampoline)
}

/// Resets all, then starts one after the other; those that come are added to `online`. If all come,
/// the trampoline's mapping goes. If not, it stays: without it, an AP that still comes would reset
/// the machine.
fn start_each(mut trampoline: Trampoline, mut wanted: Vec<CpuEntry>, online: &mut Vec<CpuInfo>) {
    wanted.retain(|cpu| {
        let is_in_reach = !cpu.needs_x2apic() || apic::mode() == Some(apic::Mode::X2Apic);
        if !is_in_reach {
            log::error!("smp: APIC id {}: out of an xAPIC's reach, left out", cpu.apic_id);
        }
        is_in_reach
    });
    // SAFETY: the list has no id twice, and not our own.
    unsafe { apstart::reset_all(&Startup, wanted.iter().map(|cpu| cpu.apic_id)) };
    let (mut silent, mut given_up) = (0, 0);
    for (tried, cpu) in wanted.iter().enumerate() {
        if silent == MAX_SILENT {
            let rest = wanted.len() - tried;
            log::error!("smp: {silent} CPUs in a row gave no answer; {rest} more are not tried");
            break;
        }
        match start_cpu(&mut trampoline, cpu, online.len()) {
            Ok(info) => {
                online.push(info);
                silent = 0;
            }
            Err(why) => {
                log::error!("smp: APIC id {}: {why}, left out", cpu.apic_id);
                silent += 1;
                given_up += 1;
            }
        }
    }
    let page = trampoline.page();
    if given_up == 0 {
        // SAFETY: no CPU uses it any more. Some may remember it, but no code leads there.
        unsafe { paging::unmap_page(page) };
    } else {
        log::warn!(
            "smp: {given_up} CPUs given up; the start page {page:#x} stays, should one come"
        );
        LATE.call_once(|| trampoline.late());
    }
}

/// What an AP finds at its argument. Never freed: it may come late.
struct Ap {
    index: usize,
    entry: CpuEntry,
    tables: *mut gdt::Tables,
    ist: [u64; gdt::IST_STACKS],
    /// What it found of itself: set when its bring-up is done.
    info: spin::Once<CpuInfo>,
}

/// Starts one CPU and waits until it is through its bring-up, or says why it is not.
fn start_cpu(
    trampoline: &mut Trampoline,
    cpu: &CpuEntry,
    index: usize,
) -> Result<CpuInfo, &'static str> {
    let new_stack = MACHINE.get().expect("init comes first").config.new_stack;
    let stacks = || Some((handler_stacks(new_stack)?, new_stack(2 * STACK_PAGES)?));
    let (ist, stack_top) = stacks().ok_or("no memory for its stacks")?;
    let tables: *mut _ = Box::leak(Box::new(gdt::Tables::new()));
    let ap: &'static Ap =
        Box::leak(Box::new(Ap { index, entry: *cpu, tables, ist, info: spin::Once::new() }));
    let argument = core::ptr::from_ref(ap).addr();
    // SAFETY: 1. One set of tables for all CPUs, with the trampoline's page.
    // 2. The stack was made for this CPU. 3. `ap_main` wants this argument, and
    // an `Ap` lives for ever. 4. The list has no id twice, and not our own.
    unsafe { trampoline.start(&Startup, cpu.apic_id, stack_top, argument) }?;
    let clock = clock::sync_cpu(index);
    apstart::wait(&Startup, BRING_UP_LIMIT_US, || ap.info.is_completed());
    let Some(info) = ap.info.get() else {
        Startup.send(cpu.apic_id, Message::Init); // its number is given to the next
        return Err("stuck in its bring-up");
    };
    match clock {
        Ok(offset) => report_cpu(info, offset),
        Err(why) => report_cpu(info, why),
    }
    Ok(*info)
}

struct Startup;

impl Machine for Startup {
    fn send(&self, apic_id: u32, message: Message) {
        if let Err(error) = apic::send(apic_id, message) {
            log::warn!("smp: APIC id {apic_id}: {error}");
        }
    }
    fn delay_us(&self, us: u64) -> bool {
        clock::delay_us(us)
    }
}

extern "C" fn ap_main(argument: usize, block: &'static Block, apic_id: u32, ticket: u64) -> ! {
    // SAFETY: `start_cpu` passed the address of an `Ap`, which lives for ever.
    let ap = unsafe { &*(argument as *const Ap) };
    let index = ap.index;
    // SAFETY: the first thing this CPU does; the index is its alone.
    unsafe { cpu::init_cpu(index, apic_id) };
    // SAFETY: made for this CPU, which comes here once.
    let tables = unsafe { &mut *ap.tables };
    // SAFETY: its first stacks, made for it.
    unsafe { gdt::init_cpu(tables, ap.ist) };
    trap::init_cpu();
    paging::init_cpu();
    if !block.arrive(ticket) {
        cpu::halt_forever(); // given up: the others go on without this CPU
    }
    let machine = MACHINE.get().expect("init comes first");
    let nmis: Vec<_> = machine.firmware.local_nmis_of(&ap.entry).collect();
    if let Err(error) = apic::init_cpu(&nmis) {
        log::error!("apic: CPU {index}: {error}");
    }
    clock::init_cpu(index);
    let timer = timer::init_cpu(machine.config.timer).map(|timer| timer.mode);
    let topology = topology::read_this_cpu(ap.entry.node);
    ap.info.call_once(|| CpuInfo { index, apic_id, topology, timer });
    loop {
        if let Some(entry) = GO.get() {
            entry();
        }
        cpu::wait_for_interrupt(); // `start_cpus` wakes us
    }
}

/// The line of the boot report for one CPU, and what was found of its clock.
fn report_cpu(info: &CpuInfo, clock: impl fmt::Display) {
    let CpuInfo { index, apic_id, topology, timer } = info;
    let timer = timer.map_or("no timer".into(), |mode| mode.to_string());
    log::debug!("smp: CPU {index} online: APIC id {apic_id}, {topology}, {timer}, {clock}");
}
