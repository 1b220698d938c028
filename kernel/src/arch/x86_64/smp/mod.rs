//! The other CPUs: started one after the other, and let go together.
//!
//! How one is started is in `apstart`; here is what is to happen to it on the way,
//! and what is said of one that does not come. [`start_cpus`] runs on the boot CPU,
//! [`ap_main`] on each of the others.

mod apstart;

use super::acpi::CpuEntry;
use super::cpu::{self, gdt, topology};
use super::irq::apic::{self, Message};
use super::irq::trap;
use super::machine::report;
use super::machine::{CPUS, CpuInfo, MACHINE, STACK_PAGES};
use super::machine::{handler_stacks, wake};
use super::paging;
use super::time::{clock, timer};
use alloc::boxed::Box;
use alloc::vec::Vec;
use apstart::{ApParams, Arrival, ControlRegisters, Limits, Outcome, Trampoline};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Starts all other CPUs, each of which ends in `entry`, and says of each what
/// became of it. Returns when all have come or been given up.
pub fn start_cpus(entry: fn() -> !) {
    let machine = MACHINE.get().expect("init comes first");
    let wanted = &machine.firmware.cpus[1..];
    let others = machine.config.max_cpus.clamp(1, cpu::MAX_CPUS) - 1;
    let wanted = &wanted[..wanted.len().min(others)];
    let mut online = Vec::with_capacity(1 + wanted.len());
    report_cpu(&machine.boot_cpu, &"boot CPU");
    online.push(machine.boot_cpu);
    if !wanted.is_empty() {
        match install_trampoline(machine.config.alloc_low) {
            Ok(mut trampoline) => match start_each(&mut trampoline, wanted, &mut online) {
                0 => paging::unmap_identity_low(trampoline.page()),
                given_up => keep(trampoline, given_up),
            },
            Err(why) => log::error!("smp: {why}; going on with the boot CPU alone"),
        }
    }
    let missing = wanted.len() + 1 - online.len();
    let skipped = machine.firmware.cpus.len() - wanted.len() - 1;
    cpu::set_num_cpus(online.len());
    let came = online.len();
    report::note("cpus", format_args!("{came} online, {missing} failed, {skipped} beyond maxcpus"));
    CPUS.call_once(|| online);
    GO.store(entry as *const () as u64, Ordering::Release); // pairs with `wait_for_go`
    (1..cpu::num_cpus()).for_each(wake);
}

/// So many that do not answer, one after the other, are a list of CPUs that are
/// not there: each would be waited for for seconds, and there may be hundreds.
const MAX_SILENT: usize = 4;

/// Leaves the trampoline and its mapping in place: an AP that was given up may still
/// come, and without the mapping it would reset the machine.
fn keep(trampoline: Trampoline, given_up: usize) {
    let page = trampoline.page();
    log::warn!("smp: {given_up} CPUs given up; the start page {page:#x} stays, should one come");
    // SAFETY: physical memory is mapped for good, and the frame is never given back.
    let late = unsafe { trampoline.keep() };
    LATE.call_once(|| late);
}

/// Counts the APs that came after they had been given up, and parked themselves.
static LATE: spin::Once<&AtomicU32> = spin::Once::new();
/// How many of them have been reported.
static REPORTED: AtomicU32 = AtomicU32::new(0);

/// Says how many CPUs came after they had been given up, if that has changed.
pub fn report_late_cpus() {
    let late = LATE.get().map_or(0, |late| late.load(Ordering::Relaxed));
    if REPORTED.fetch_max(late, Ordering::Relaxed) < late {
        log::warn!("smp: {late} CPUs came after they were given up; they have parked themselves");
    }
}

/// Starts one after the other; those that come are added to `online`. Gives how many
/// were sent for and did not come.
fn start_each(
    trampoline: &mut Trampoline,
    wanted: &[CpuEntry],
    online: &mut Vec<CpuInfo>,
) -> usize {
    let (mut silent, mut given_up) = (0, 0);
    for (tried, cpu) in wanted.iter().enumerate() {
        if silent == MAX_SILENT {
            let rest = wanted.len() - tried;
            log::error!("smp: {silent} CPUs in a row gave no answer; {rest} more are not tried");
            break;
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
            None => {
                silent += 1;
                given_up += 1;
            }
        }
    }
    given_up
}

/// Where the APs go when all have come: 0 until then.
static GO: AtomicU64 = AtomicU64::new(0);

fn install_trampoline(alloc_low: fn() -> Option<u64>) -> Result<Trampoline, &'static str> {
    let frame = alloc_low().ok_or("no free page below 1 MiB for the trampoline")?;
    let page = u32::try_from(frame).map_err(|_| "trampoline page not below 1 MiB")?;
    paging::map_identity_low(frame).map_err(|_| "trampoline page cannot be mapped")?;
    // SAFETY: 1. Physical memory is mapped there for good, in the one set of
    // tables that all CPUs use. 2. The frame was allocated for this.
    unsafe { Trampoline::install(paging::phys_to_virt(frame), page) }
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
    let machine = MACHINE.get().expect("init comes first");
    let Some((ap, stack_top)) = new_ap(cpu, index, machine.config.new_stack) else {
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
    let info = wait_for_info(ap);
    match info {
        Some(info) => report_cpu(&info, &sync),
        None => {
            log::error!("smp: APIC id {apic_id}: stuck in its bring-up, left out");
            say_if_stuck(apic_id, apic::send(apic_id, Message::Init)); // its number is given to the next
        }
    }
    info
}

/// Generous: it is for hangs, and on an emulator with fewer cores than CPUs a
/// start has been seen to take 300 ms.
const LIMITS: Limits = Limits { claim_us: 5_000_000, arrival_us: 5_000_000 };

fn new_ap(
    entry: &CpuEntry,
    index: usize,
    new_stack: fn(usize) -> Option<u64>,
) -> Option<(&'static Ap, u64)> {
    let ist = handler_stacks(new_stack)?;
    let own = new_stack(2 * STACK_PAGES)?;
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
        say_if_stuck(apic_id, apic::send(apic_id, Message::Init));
    }
    fn send_sipi(&self, apic_id: u32, vector: u8) {
        say_if_stuck(apic_id, apic::send(apic_id, Message::Startup(vector)));
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
    let nmis: Vec<_> = machine.firmware.local_nmis_of(&ap.entry).collect();
    if let Err(error) = apic::init_cpu(&nmis) {
        log::error!("apic: CPU {}: {error}", ap.index);
    }
    clock::init_cpu(ap.index);
    let timer = timer::init_cpu(machine.config.timer).mode;
    let topology = topology::read_this_cpu(ap.entry.node);
    let (index, apic_id) = (ap.index, ap.entry.apic_id);
    ap.info.call_once(|| CpuInfo { index, apic_id, topology, timer });
    cpu::set_online();
    wait_for_go()()
}

/// Waits, halted, until the boot CPU has brought up all others.
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

/// The line of the boot report for one CPU, and what was found of its clock.
fn report_cpu(info: &CpuInfo, clock: &dyn core::fmt::Display) {
    let CpuInfo { index, apic_id, topology, timer } = info;
    let timer = timer.map_or("no timer", timer::Mode::name);
    log::debug!("smp: CPU {index} online: APIC id {apic_id}, {topology}, {timer}, {clock}");
}
