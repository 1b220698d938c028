//! The bring-up: every part of the machine in its order, a line each.
//!
//! This file knows the order and passes one part's findings to the next; each
//! part knows only itself. [`init_boot_cpu`] before there is memory, [`init`]
//! when there is, [`start_cpus`] last. What went how is told to [`report`], and
//! what went wrong is said on the console.

use super::acpi::{self, CpuEntry, Firmware, Override};
use super::apic::{Polarity, Trigger};
use super::apstart::{ApParams, Arrival, ControlRegisters, Limits, Outcome, Trampoline};
use super::report::{self, Part};
use super::topology::{self, Topology};
use super::{
    apic, apstart, clock, cpu, gdt, hpet, ioapic, mmio, paging, pit, pmtimer, ports, shootdown,
};
use super::{timer, trap};
use crate::mem::{self, frames, stack::KernelStack};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

/// What the kernel asks of the machine, and what it was told by the loader.
pub struct Config<'a> {
    /// `apic=` on the command line.
    pub apic: apic::ApicChoice,
    /// `clock=` on the command line.
    pub clock: clock::ClockChoice,
    /// `timer=` on the command line.
    pub timer: timer::TimerChoice,
    /// `tsc=` on the command line, in Hz: not to be measured.
    pub tsc_hz: Option<u64>,
    /// `lapic=` on the command line, in Hz: not to be measured.
    pub lapic_hz: Option<u64>,
    /// `maxcpus=` on the command line: start no more than that.
    pub max_cpus: usize,
    /// Where the loader found the RSDP; `None` without ACPI, or with `acpi=off`.
    pub rsdp: Option<u64>,
    /// ACPI tables to be used in place of the firmware's, by signature.
    pub overrides: &'a dyn Fn(&str) -> Option<Override>,
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
const STACK_PAGES: usize = 4;

/// Stacks of the boot CPU's handlers: there is no memory yet to allocate from.
#[repr(align(16))]
struct BootStacks([[u8; STACK_PAGES * mem::PAGE_SIZE]; gdt::IST_STACKS]);

static mut BOOT_STACKS: BootStacks = BootStacks([[0; _]; gdt::IST_STACKS]);

static MACHINE: spin::Once<Machine> = spin::Once::new();

struct Machine {
    firmware: Firmware,
    timer: timer::TimerChoice,
    max_cpus: usize,
    /// What the boot CPU found of itself.
    boot_cpu: CpuInfo,
}

/// What is known of the CPUs that came up, by index.
static CPUS: spin::Once<Vec<CpuInfo>> = spin::Once::new();

/// The widest uncertainty that comparing two CPUs' counters left, ns.
static CLOCK_UNCERTAINTY_NS: AtomicU64 = AtomicU64::new(0);

/// The boot CPU's own tables: from here on a fault finds a handler.
pub fn init_boot_cpu() {
    // SAFETY: the first thing that happens, once, on the boot CPU.
    unsafe { cpu::init_cpu(0, topology::this_apic_id()) };
    let stacks = &raw mut BOOT_STACKS;
    let tops = core::array::from_fn(|i| {
        // SAFETY: the address of an element, not a reference to it.
        let stack = unsafe { &raw mut (*stacks).0[i] };
        stack as u64 + size_of::<[u8; STACK_PAGES * mem::PAGE_SIZE]>() as u64
    });
    // SAFETY: once, on the boot CPU; the stacks are named nowhere else.
    unsafe { gdt::init_cpu(0, tops) };
    trap::init_cpu();
}

/// Firmware tables, interrupt controllers, the clock, the boot CPU's timer.
pub fn init(config: &Config<'_>) {
    guard_boot_stacks();
    let firmware = read_firmware(config);
    init_ioapics(&firmware);
    pit::silence(&ports::Hardware);
    init_apic(config, &firmware);
    init_clock(config, &firmware);
    timer::init(config.lapic_hz);
    let timer = timer::init_cpu(config.timer);
    report::note(Part::Timer, timer);
    let entry = firmware.cpus[0];
    let topology = topology::read_this_cpu(entry.node);
    let boot_cpu = CpuInfo { index: 0, apic_id: entry.apic_id, topology, timer: timer.mode };
    let max_cpus = config.max_cpus.clamp(1, cpu::MAX_CPUS);
    MACHINE.call_once(|| Machine { firmware, timer: config.timer, max_cpus, boot_cpu });
    cpu::set_online();
}

/// Puts guards below the stacks of the boot CPU's handlers, now that there is
/// memory: one that grows too long is to fault, not to write into the next.
fn guard_boot_stacks() {
    match handler_stacks() {
        // SAFETY: on the boot CPU, which takes no interrupts yet; the stacks were
        // made for it, and a kernel stack is never given back.
        Some(tops) => unsafe { gdt::set_stacks(0, tops) },
        None => log::error!("no memory for guarded stacks of CPU 0's handlers"),
    }
}

/// Stacks for all handlers of a CPU, each with a guard below.
fn handler_stacks() -> Option<[u64; gdt::IST_STACKS]> {
    let mut tops = [0; gdt::IST_STACKS];
    for top in &mut tops {
        *top = KernelStack::new(STACK_PAGES).ok()?.top();
    }
    Some(tops)
}

fn read_firmware(config: &Config<'_>) -> Firmware {
    // Tables lie anywhere in physical memory, so all that is mapped counts.
    let end = paging::direct_map_end(u64::MAX);
    // SAFETY: 1. `end` is what the tables map. 2. Nobody writes there: firmware
    // tables are not among the frames.
    let memory = unsafe { acpi::DirectMap::new(mem::PHYS_OFFSET, end) };
    let firmware = acpi::read(config.rsdp, &memory, config.overrides, topology::this_apic_id());
    for notice in &firmware.notices {
        log::log!(notice.level(), "acpi: {notice}");
    }
    firmware
}

fn init_ioapics(firmware: &Firmware) {
    let ioapics: Vec<_> = firmware
        .io_apics
        .iter()
        .filter_map(|io| {
            let registers = map(io.address, ioapic::WINDOW_BYTES)?;
            Some(ioapic::IoApicInfo { id: io.id, gsi_base: io.gsi_base, registers })
        })
        .collect();
    let overrides: Vec<_> = firmware
        .interrupt_overrides
        .iter()
        .map(|o| ioapic::Override {
            isa_irq: o.irq,
            gsi: o.gsi,
            polarity: level(o.polarity),
            trigger: edge_or_level(o.trigger),
        })
        .collect();
    let report = ioapic::init(&ioapics, &overrides);
    report::note(Part::IoApic, report);
    for source in &firmware.nmi_sources {
        let (polarity, trigger) = (level(source.polarity), edge_or_level(source.trigger));
        if let Err(error) = ioapic::route_nmi(source.gsi, polarity, trigger, cpu::apic_id_of(0)) {
            log::warn!("ioapic: nmi source {}: {error}", source.gsi);
        }
    }
}

fn init_apic(config: &Config<'_>, firmware: &Firmware) {
    let nmis = local_nmis(firmware, &firmware.cpus[0]);
    let apic = apic::ApicConfig {
        choice: config.apic,
        physical_base: firmware.local_apic,
        registers: map(firmware.local_apic, mem::PAGE_SIZE),
        nmis: &nmis,
    };
    // SAFETY: 1. The MADT's address, or the architecture's default. 2. Once, on
    // the boot CPU, interrupts off.
    match unsafe { apic::init(apic) } {
        Ok(report) => report::note(Part::Apic, report),
        Err(error) => log::error!("apic: {error}; no timer, and no other CPU"),
    }
}

fn init_clock(config: &Config<'_>, firmware: &Firmware) {
    let pm_timer = firmware.fixed.pm_timer.map(|pm| {
        (pm.port, if pm.bits == 32 { pmtimer::Width::Bits32 } else { pmtimer::Width::Bits24 })
    });
    let report = clock::init(clock::ClockConfig {
        choice: config.clock,
        hpet: firmware.hpet.and_then(|hpet| map(hpet.address, hpet::WINDOW_BYTES)),
        pm_timer,
        tsc_hz: config.tsc_hz,
    });
    crate::log::set_clock(clock::now_ns);
    report::note(Part::Clock, report);
}

/// Maps registers; what cannot be mapped is named and done without.
fn map(phys: u64, len: usize) -> Option<mmio::Window> {
    match paging::map_mmio(phys, len) {
        // SAFETY: `map_mmio` gives `len` bytes of device registers, for ever.
        Ok(base) => NonNull::new(base).map(|base| unsafe { mmio::Window::new(base, len) }),
        Err(error) => {
            log::warn!("registers at {phys:#x} cannot be mapped: {error:?}");
            None
        }
    }
}

fn local_nmis(firmware: &Firmware, cpu: &CpuEntry) -> Vec<apic::LocalNmi> {
    firmware
        .local_nmis_of(cpu)
        .map(|nmi| apic::LocalNmi { lint: nmi.lint, polarity: level(nmi.polarity) })
        .collect()
}

/// What the firmware says of a line; where it says nothing, the ISA bus's way.
fn level(polarity: acpi::Polarity) -> Polarity {
    match polarity {
        acpi::Polarity::SameAsBus | acpi::Polarity::ActiveHigh => Polarity::ActiveHigh,
        acpi::Polarity::ActiveLow => Polarity::ActiveLow,
    }
}

/// As [`level`], for the trigger.
fn edge_or_level(trigger: acpi::Trigger) -> Trigger {
    match trigger {
        acpi::Trigger::SameAsBus | acpi::Trigger::Edge => Trigger::Edge,
        acpi::Trigger::Level => Trigger::Level,
    }
}

/// Starts all other CPUs, each of which ends in `entry`, and says of each what
/// became of it. Returns when all have come or been given up.
pub fn start_cpus(entry: fn() -> !) {
    let machine = MACHINE.get().expect("init comes first");
    let wanted = &machine.firmware.cpus[1..];
    let wanted = &wanted[..wanted.len().min(machine.max_cpus - 1)];
    let mut online = Vec::with_capacity(1 + wanted.len());
    report_cpu(&machine.boot_cpu, None);
    online.push(machine.boot_cpu);
    if !wanted.is_empty() {
        match install_trampoline() {
            Ok(mut trampoline) => {
                start_each(&mut trampoline, wanted, &mut online);
                paging::unmap_identity_low(trampoline.page());
            }
            Err(why) => log::error!("smp: {why}; going on with the boot CPU alone"),
        }
    }
    let missing = wanted.len() + 1 - online.len();
    let skipped = machine.firmware.cpus.len() - wanted.len() - 1;
    cpu::set_num_cpus(online.len());
    let came = online.len();
    report::note(
        Part::Cpus,
        format_args!("{came} online, {missing} left out, {skipped} not wanted"),
    );
    CPUS.call_once(|| online);
    mem::stack::set_shootdown(shootdown::shootdown);
    GO.store(entry as *const () as u64, Ordering::Release); // pairs with `wait_for_go`
    (1..cpu::num_cpus()).for_each(wake);
}

/// So many that do not answer, one after the other, are a list of CPUs that are
/// not there: each would be waited for for seconds, and there may be hundreds.
const MAX_SILENT: usize = 4;

/// Starts one after the other; those that come are added to `online`.
fn start_each(trampoline: &mut Trampoline, wanted: &[CpuEntry], online: &mut Vec<CpuInfo>) {
    let mut silent = 0;
    for (tried, cpu) in wanted.iter().enumerate() {
        if silent == MAX_SILENT {
            let rest = wanted.len() - tried;
            log::error!("smp: {silent} CPUs in a row gave no answer; {rest} more are not tried");
            return;
        }
        if cpu.needs_x2apic() && apic::mode() != Some(apic::Mode::X2Apic) {
            log::error!("smp: APIC id {}: out of an xAPIC's reach, left out", cpu.apic_id);
            continue;
        }
        match start_cpu(trampoline, cpu, online.len()) {
            Some(info) => {
                online.push(info);
                silent = 0;
            }
            None => silent += 1,
        }
    }
}

/// Where the APs go when all have come: 0 until then.
static GO: AtomicU64 = AtomicU64::new(0);

fn install_trampoline() -> Result<Trampoline, &'static str> {
    let frame = frames::alloc_below_1m().ok_or("no free page below 1 MiB for the trampoline")?;
    let page = u32::try_from(frame.addr()).map_err(|_| "trampoline page not below 1 MiB")?;
    paging::map_identity_low(frame.addr()).map_err(|_| "trampoline page cannot be mapped")?;
    // SAFETY: 1. Physical memory is mapped there for good, in the one set of
    // tables that all CPUs use. 2. The frame was allocated for this.
    unsafe { Trampoline::install(mem::phys_to_virt(frame.addr()), page) }
        .map_err(|_| "trampoline page refused")
}

/// What an AP finds at its argument. Never freed: it may come late.
struct Ap {
    index: usize,
    entry: CpuEntry,
    arrival: Arrival,
    ist: [u64; gdt::IST_STACKS],
    /// What it says of itself, before it says that it is online.
    info: spin::Once<CpuInfo>,
}

/// Starts one CPU. `None`, and a line that says why, if it does not come.
fn start_cpu(trampoline: &mut Trampoline, cpu: &CpuEntry, index: usize) -> Option<CpuInfo> {
    let apic_id = cpu.apic_id;
    let Some((ap, stack_top)) = new_ap(cpu, index) else {
        log::error!("smp: APIC id {apic_id}: no memory for its stacks, left out");
        return None;
    };
    let params = ApParams {
        apic_id,
        control: control_registers(),
        stack_top,
        entry: ap_main,
        argument: core::ptr::from_ref(ap).addr(),
        arrival: &ap.arrival,
    };
    // SAFETY: 1. One set of tables for all CPUs, with the trampoline's page.
    // 2. The stack was made for this CPU. 3. `ap_main` wants this argument, and
    // an `Ap` lives for ever. 4. The list has no id twice, and not our own.
    let outcome = unsafe { trampoline.start(&Startup, &params, &LIMITS) };
    if outcome != Outcome::Started {
        log::error!("smp: APIC id {apic_id}: {outcome}");
        return None;
    }
    let sync = clock::sync_cpu(index);
    note_uncertainty(&sync);
    let info = wait_for_info(ap);
    match info {
        Some(info) => report_cpu(&info, Some(&sync)),
        None => {
            log::error!("smp: APIC id {apic_id}: stuck in its bring-up, left out");
            say_if_stuck(apic_id, apic::send_init(apic_id)); // its number is given to the next
        }
    }
    info
}

/// Generous: it is for hangs, and on an emulator with fewer cores than CPUs a
/// start has been seen to take 300 ms.
const LIMITS: Limits = Limits { claim_us: 5_000_000, arrival_us: 5_000_000 };

fn new_ap(entry: &CpuEntry, index: usize) -> Option<(&'static Ap, u64)> {
    let ist = handler_stacks()?;
    let own = KernelStack::new(2 * STACK_PAGES).ok()?.top();
    let (arrival, info) = (Arrival::new(), spin::Once::new());
    let ap = Box::new(Ap { index, entry: *entry, arrival, ist, info });
    Some((Box::leak(ap), own))
}

fn control_registers() -> ControlRegisters {
    use x86_64::registers::control::{Cr0, Cr4, Efer};
    ControlRegisters {
        cr0: Cr0::read_raw() as u32,
        cr3: paging::root() as u32,
        cr4: Cr4::read_raw() as u32,
        efer: Efer::read_raw() as u32,
    }
}

/// The local APIC and the clock, as `apstart` wants them.
struct Startup;

impl apstart::Machine for Startup {
    fn send_init(&self, apic_id: u32) {
        say_if_stuck(apic_id, apic::send_init(apic_id));
    }
    fn send_sipi(&self, apic_id: u32, vector: u8) {
        say_if_stuck(apic_id, apic::send_startup(apic_id, vector));
    }
    fn delay_us(&self, us: u64) {
        clock::delay_us(us);
    }
    fn now_us(&self) -> u64 {
        clock::now_ns() / 1_000
    }
}

fn say_if_stuck(apic_id: u32, sent: Result<(), apic::ApicError>) {
    if let Err(error) = sent {
        log::warn!("smp: APIC id {apic_id}: {error}");
    }
}

/// Where an AP enters Rust: its own tables, its APIC, its clock, its timer.
extern "C" fn ap_main(argument: usize) -> ! {
    // SAFETY: `start_cpu` passed the address of an `Ap`, which lives for ever.
    let ap = unsafe { &*(argument as *const Ap) };
    // SAFETY: the first thing this CPU does; the index is its alone.
    unsafe { cpu::init_cpu(ap.index, ap.entry.apic_id) };
    // SAFETY: once, by this CPU; the stacks were made for it.
    unsafe { gdt::init_cpu(ap.index, ap.ist) };
    trap::init_cpu();
    paging::init_cpu();
    if !ap.arrival.arrive() {
        cpu::halt_forever(); // given up: the others go on without this CPU
    }
    let machine = MACHINE.get().expect("init comes first");
    if let Err(error) = apic::init_cpu(&local_nmis(&machine.firmware, &ap.entry)) {
        log::error!("apic: CPU {}: {error}", ap.index);
    }
    clock::init_cpu(ap.index);
    let timer = timer::init_cpu(machine.timer).mode;
    let topology = topology::read_this_cpu(ap.entry.node);
    let (index, apic_id) = (ap.index, ap.entry.apic_id);
    ap.info.call_once(|| CpuInfo { index, apic_id, topology, timer });
    cpu::set_online();
    wait_for_go()()
}

/// Waits, halted, until the boot CPU has brought up everybody.
fn wait_for_go() -> fn() -> ! {
    loop {
        let entry = GO.load(Ordering::Acquire) as usize; // pairs with `start_cpus`
        if entry != 0 {
            // SAFETY: only `start_cpus` stores here, and a `fn() -> !`.
            return unsafe { core::mem::transmute::<usize, fn() -> !>(entry) };
        }
        cpu::wait_for_interrupt(); // `start_cpus` wakes us
    }
}

/// Waits, within a bound, until an AP that has arrived is through.
fn wait_for_info(ap: &'static Ap) -> Option<CpuInfo> {
    // Looking seldom: the AP is measuring its timer, and a clock that is read
    // without a pause disturbs that on an emulator.
    const POLL_US: u64 = 50;
    const LIMIT_US: u64 = 10_000_000;
    for _ in 0..LIMIT_US / POLL_US {
        if let Some(info) = ap.info.get() {
            return Some(*info);
        }
        clock::delay_us(POLL_US);
    }
    None
}

fn note_uncertainty(sync: &clock::SyncReport) {
    let hz = clock::tsc_hz().unwrap_or(1).max(1);
    if let Some(cycles) = sync.uncertainty() {
        let ns = u128::from(cycles) * 1_000_000_000 / u128::from(hz);
        CLOCK_UNCERTAINTY_NS.fetch_max(ns as u64 + 1, Ordering::Relaxed);
    }
}

/// The line of the boot report for one CPU.
fn report_cpu(info: &CpuInfo, sync: Option<&clock::SyncReport>) {
    let CpuInfo { index, apic_id, topology, .. } = info;
    let timer: &dyn core::fmt::Display = match &info.timer {
        Some(mode) => mode,
        None => &"no timer",
    };
    match sync {
        Some(sync) => {
            log::debug!("smp: CPU {index} online: APIC id {apic_id}, {topology}, {timer}, {sync}")
        }
        None => {
            log::debug!("smp: CPU {index} online: APIC id {apic_id}, {topology}, {timer}, boot CPU")
        }
    }
}

/// Interrupts CPU `index`, so that it looks for work. It may be halting just now:
/// then the interrupt is pending, and the halt ends at once.
#[cold]
pub fn wake(index: usize) {
    // Off, because an xAPIC is told in two writes, on this CPU.
    let were_on = cpu::irq_save();
    let sent = apic::send_ipi(cpu::apic_id_of(index), apic::WAKE_VECTOR);
    cpu::irq_restore(were_on);
    // The only failure is an APIC that does not answer, and then all is lost.
    if let Err(error) = sent {
        panic!("cannot wake CPU {index}: {error}");
    }
}

/// Sends the ISA interrupt `irq` to CPU `index` as `vector`, and lets it come.
/// Where the line really arrives, and how, is the firmware's to say.
///
/// # Errors
/// No such line, no vector for devices, or a CPU that the line cannot reach.
pub fn route_isa(irq: u8, vector: u8, index: usize) -> Result<(), ioapic::RouteError> {
    let line = ioapic::Line::Isa(irq);
    let target = cpus().get(index).ok_or(ioapic::RouteError::NoSuchCpu(index))?;
    ioapic::route(line, vector, target.apic_id)?;
    ioapic::unmask(line)
}

/// Keeps the ISA interrupt `irq` from coming.
///
/// # Errors
/// No such line.
pub fn mask_isa(irq: u8) -> Result<(), ioapic::RouteError> {
    ioapic::mask(ioapic::Line::Isa(irq))
}

/// What is known of the CPUs that came up.
pub fn cpus() -> &'static [CpuInfo] {
    CPUS.get().map_or(&[], Vec::as_slice)
}

/// The fixed hardware that the firmware describes.
pub fn fixed_hardware() -> Option<&'static acpi::FixedHardware> {
    MACHINE.get().map(|machine| &machine.firmware.fixed)
}

/// By how much a reading of the clock may seem to go back between two CPUs.
pub fn clock_uncertainty_ns() -> u64 {
    // Either of the two may be off from the boot CPU by that much.
    2 * CLOCK_UNCERTAINTY_NS.load(Ordering::Relaxed)
}
