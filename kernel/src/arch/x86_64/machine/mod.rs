//! The bring-up: every part of the machine in its order, a line each.
//!
//! This file knows the order and passes one part's findings to the next; each part knows only
//! itself. [`init_boot_cpu`] before there is memory, [`init`] when there is, `smp::start_cpus`
//! last.

pub mod exit;
pub mod report;

use super::acpi::{self, Firmware};
use super::cpu::topology::{self, Topology};
use super::cpu::{self, gdt, mmio, ports};
use super::irq::apic::{self, Message};
use super::irq::{ioapic, nmi, trap};
use super::paging::{self, PAGE_SIZE};
use super::time::{clock, hpet, pit, timer};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// What the kernel asks of the machine, by the words of the command line (frequencies are not to
/// be measured then), and what it was told by the loader.
pub struct Config {
    pub apic: Option<apic::Mode>,
    pub clock: clock::ClockChoice,
    pub timer: timer::TimerChoice,
    pub tsc_hz: Option<u64>,
    pub lapic_hz: Option<u64>,
    pub max_cpus: usize,
    /// A stack of so many pages with a guard page below, for ever: its end.
    pub new_stack: fn(usize) -> Option<u64>,
    /// A frame below 1 MiB, in which CPUs start: its physical address.
    pub alloc_low: fn() -> Option<u64>,
    /// Where the loader found the RSDP; `None` without ACPI, or with `acpi=off`.
    pub rsdp: Option<u64>,
    /// ACPI tables in place of the firmware's, by signature; an empty one hides the firmware's.
    pub overrides: fn(&str) -> Option<Vec<u8>>,
}

/// What is known of one CPU.
#[derive(Clone, Copy, Debug)]
pub struct CpuInfo {
    /// Its dense number.
    pub index: usize,
    /// The id of its local APIC.
    pub apic_id: u32,
    /// Where it sits.
    pub topology: Topology,
    /// The mode of its timer, seen to fire; `None` if it has none.
    pub timer: Option<timer::Mode>,
}

/// Pages of each stack that a CPU starts and takes faults on.
pub(super) const STACK_PAGES: usize = 4;

/// Stacks of the boot CPU's handlers: there is no memory yet to allocate from.
#[repr(align(16))]
struct BootStacks([[u8; STACK_PAGES * PAGE_SIZE]; gdt::IST_STACKS]);

static mut BOOT_STACKS: BootStacks = BootStacks([[0; _]; gdt::IST_STACKS]);
static mut BOOT_TABLES: gdt::Tables = gdt::Tables::new();

pub(super) static MACHINE: spin::Once<Machine> = spin::Once::new();

pub(super) struct Machine {
    pub config: Config,
    pub firmware: Firmware,
    pub boot_cpu: CpuInfo,
}

pub(super) static CPUS: spin::Once<Vec<CpuInfo>> = spin::Once::new();

/// The boot CPU's own tables: from here on a fault finds a handler. The clock's time 0.
pub fn init_boot_cpu() {
    clock::begin();
    // SAFETY: the first thing that happens, once, on the boot CPU.
    unsafe { cpu::init_cpu(0, topology::this_apic_id()) };
    let stacks = &raw mut BOOT_STACKS;
    let tops = core::array::from_fn(|i| {
        // SAFETY: the address of an element, not a reference to it.
        let stack = unsafe { &raw mut (*stacks).0[i] };
        stack as u64 + size_of::<[u8; STACK_PAGES * PAGE_SIZE]>() as u64
    });
    let tables = &raw mut BOOT_TABLES;
    // SAFETY: named nowhere else.
    let tables = unsafe { &mut *tables };
    // SAFETY: once, on the boot CPU; the stacks are named nowhere else.
    unsafe { gdt::init_cpu(tables, tops) };
    trap::init_cpu();
}

/// Firmware tables, interrupt controllers, the clock, the boot CPU's timer.
pub fn init(config: Config) {
    guard_boot_stacks(config.new_stack);
    let firmware = read_firmware(&config);
    init_ioapics(&firmware);
    pit::silence(&ports::Hardware);
    init_apic(config.apic, &firmware);
    nmi::report_unasked(); // one that came before there was an interrupt for it
    let hpet = firmware.hpet.and_then(|address| map(address, hpet::WINDOW_BYTES));
    let clock = clock::init(config.clock, hpet, firmware.fixed.pm_timer, config.tsc_hz);
    report::note("clock", clock);
    timer::init(config.lapic_hz);
    let timer = timer::init_cpu(config.timer);
    match timer {
        Some(proved) => report::note("timer", proved),
        None => report::note("timer", "no timer"),
    }
    let entry = firmware.cpus[0];
    let topology = topology::read_this_cpu(entry.node);
    let boot_cpu = CpuInfo {
        index: 0,
        apic_id: entry.apic_id,
        topology,
        timer: timer.map(|timer| timer.mode),
    };
    MACHINE.call_once(|| Machine { config, firmware, boot_cpu });
}

/// Puts guards below the stacks of the boot CPU's handlers, now that there is memory.
fn guard_boot_stacks(new_stack: fn(usize) -> Option<u64>) {
    match handler_stacks(new_stack) {
        // SAFETY: on the boot CPU, which takes no interrupts yet; the stacks were
        // made for it, and a kernel stack is never given back.
        Some(tops) => unsafe { gdt::init_cpu(Box::leak(Box::new(gdt::Tables::new())), tops) },
        None => log::error!("no memory for guarded stacks of CPU 0's handlers"),
    }
}

pub(super) fn handler_stacks(
    new_stack: fn(usize) -> Option<u64>,
) -> Option<[u64; gdt::IST_STACKS]> {
    let mut tops = [0; gdt::IST_STACKS];
    for top in &mut tops {
        *top = new_stack(STACK_PAGES)?;
    }
    Some(tops)
}

fn read_firmware(config: &Config) -> Firmware {
    // Tables lie anywhere in physical memory, so all that is mapped counts.
    let end = paging::direct_map_end(u64::MAX);
    // SAFETY: 1. `end` is what the tables map. 2. Firmware tables are not among the frames.
    let memory = |at, len| unsafe { acpi::direct_map(paging::PHYS_OFFSET, end, at, len) };
    let firmware = acpi::read(config.rsdp, &memory, &config.overrides, topology::this_apic_id());
    firmware.log_notices();
    firmware
}

fn init_ioapics(firmware: &Firmware) {
    let ioapics = firmware.io_apics.iter().filter_map(|io| {
        let registers = map(io.address.into(), ioapic::WINDOW_BYTES)?;
        Some((io.id, io.global_system_interrupt_base, registers))
    });
    report::note("ioapic", ioapic::init(ioapics, firmware.isa_overrides));
}

fn init_apic(choice: Option<apic::Mode>, firmware: &Firmware) {
    let nmis: Vec<_> = firmware.local_nmis_of(&firmware.cpus[0]).collect();
    let registers = map(firmware.local_apic, PAGE_SIZE);
    // SAFETY: 1. The MADT's address, or the default. 2. Once, on the boot CPU, interrupts off.
    match unsafe { apic::init(choice, firmware.local_apic, registers, &nmis) } {
        Ok(found) => report::note("apic", found),
        Err(error) => log::error!("apic: {error}; no timer, and no other CPU"),
    }
}

/// Maps registers; what cannot be mapped is named and done without.
fn map(phys: u64, len: usize) -> Option<mmio::Window> {
    paging::map_mmio(phys, len)
        .inspect_err(|error| log::warn!("registers at {phys:#x} cannot be mapped: {error}"))
        .ok()
}

/// See `pit::begin_turns`; 0: none. After bring-up, whose length differs from run to run: a run
/// repeats their phase.
pub fn begin_turns(turn_us: u16) {
    if turn_us > 0 {
        pit::begin_turns(&ports::Hardware, turn_us);
    }
}

/// Interrupts CPU `index`, so that it looks for work. If it is about to halt, the halt ends at
/// once.
#[cold]
pub fn wake(index: usize) {
    let sent = apic::send(cpu::apic_id_of(index), Message::Vector(apic::WAKE_VECTOR));
    // The only failure is an APIC that does not answer, and then all is lost.
    if let Err(error) = sent {
        panic!("cannot wake CPU {index}: {error}");
    }
}

/// Sends the ISA interrupt `irq` to CPU `index` as `vector`, and lets it come.
pub fn route_isa(irq: u8, vector: u8, index: usize) -> Result<(), ioapic::RouteError> {
    let target = cpus().get(index).ok_or(ioapic::RouteError::NoSuchCpu(index))?;
    ioapic::route(irq, vector, target.apic_id)
}

/// What is known of the CPUs that came up, by index.
pub fn cpus() -> &'static [CpuInfo] {
    CPUS.get().map_or(&[], Vec::as_slice)
}

/// Which memory is near which NUMA node, as far as the firmware says.
pub fn node_memory() -> &'static [(Range<u64>, u32)] {
    MACHINE.get().map_or(&[], |machine| &machine.firmware.memory)
}

pub fn fixed_hardware() -> Option<&'static acpi::FixedHardware> {
    MACHINE.get().map(|machine| &machine.firmware.fixed)
}
