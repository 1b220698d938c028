//! One hardware thread: its number, its own words, its stack probe.
//!
//! The GS base of every CPU points at its [`Cpu`] record, so that "which CPU is this" is one load.
//! Upper rooms get a few words there ([`slot`]) for what they must reach as fast: the running G,
//! the M, the P. The records are static: their addresses never change.

pub mod features;
pub mod gdt;
pub mod mmio;
pub mod msr;
pub mod pci;
pub mod ports;
pub mod switch;
pub mod topology;

use crate::arch::x86_64::irq::sections;
use core::cell::Cell;
pub use core::hint::spin_loop as relax;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The most hardware threads this kernel keeps books for.
pub const MAX_CPUS: usize = 256;

pub const SLOTS: usize = 4;

/// What a CPU reaches through its GS base. On cache lines of its own, in pairs as CPUs fetch them,
/// because it writes `slots` twice for each switch; and what a CPU reads that wakes this one is on
/// other lines than these.
#[repr(C, align(128))]
pub struct Cpu {
    // This CPU only, constant after `init_cpu`.
    index: Cell<u32>,
    // Written by this CPU at every switch, read by all; before it is up, by the boot CPU.
    slots: [AtomicUsize; SLOTS],
    // Constant after its bring-up, read by all.
    fixed: Fixed,
}

#[repr(align(128))]
struct Fixed {
    apic_id: AtomicU32,
}

// SAFETY: the `Cell` is read and written by their own CPU only, through GS,
// after the boot CPU wrote `index` before the CPU was started.
unsafe impl Sync for Cpu {}

impl Cpu {
    const fn new() -> Self {
        Cpu {
            index: Cell::new(0),
            slots: [const { AtomicUsize::new(0) }; SLOTS],
            fixed: Fixed { apic_id: AtomicU32::new(u32::MAX) },
        }
    }
}

static CPUS: [Cpu; MAX_CPUS] = [const { Cpu::new() }; MAX_CPUS];

static COUNT: AtomicU32 = AtomicU32::new(1);

/// Makes this hardware thread CPU `index`: GS base and control registers.
///
/// # Safety
/// Once per CPU, as its first act, with an `index` below [`MAX_CPUS`] that no
/// other CPU has.
pub unsafe fn init_cpu(index: usize, apic_id: u32) {
    use x86_64::VirtAddr;
    use x86_64::registers::control::{Cr0, Cr0Flags, Cr4, Cr4Flags, Efer, EferFlags};
    use x86_64::registers::model_specific::GsBase;

    let cpu = &CPUS[index];
    cpu.index.set(index as u32);
    cpu.fixed.apic_id.store(apic_id, Ordering::Relaxed);
    GsBase::write(VirtAddr::from_ptr(cpu));
    // The unwinder saves the SSE and x87 control words, so they must be
    // reachable; nothing else in the kernel uses either.
    // SAFETY: clears emulation and sets write protection; both only restrict.
    unsafe {
        Cr0::update(|f| {
            f.remove(Cr0Flags::EMULATE_COPROCESSOR);
            f.insert(Cr0Flags::MONITOR_COPROCESSOR | Cr0Flags::WRITE_PROTECT);
        })
    };
    // A boot CPU that lacks one of these two comes as far as saying so (`features`).
    if features::has_sse() {
        // SAFETY: the CPU has FXSR and SSE.
        unsafe { Cr4::update(|f| f.insert(Cr4Flags::OSFXSR | Cr4Flags::OSXMMEXCPT_ENABLE)) };
    }
    if features::has_nx() {
        // SAFETY: the CPU has NX; every table of ours that uses it is made later.
        unsafe { Efer::update(|f| f.insert(EferFlags::NO_EXECUTE_ENABLE)) };
    }
}

/// The dense number of this CPU, 0 for the boot CPU.
#[inline(always)]
pub fn cpu_index() -> usize {
    #[cfg(target_os = "none")]
    {
        let index: u32;
        // SAFETY: GS points at this CPU's record since `init_cpu`.
        unsafe {
            core::arch::asm!("mov {:e}, gs:[{}]", out(reg) index,
                const core::mem::offset_of!(Cpu, index),
                options(nostack, preserves_flags, readonly));
        }
        index as usize
    }
    // In host tests every thread is CPU 0.
    #[cfg(not(target_os = "none"))]
    0
}

#[inline(always)]
pub fn slot<const I: usize>() -> usize {
    let value: usize;
    // SAFETY: GS points at this CPU's record since `init_cpu`.
    unsafe {
        core::arch::asm!("mov {}, gs:[{}]", out(reg) value,
            const slot_offset::<I>(),
            options(nostack, preserves_flags, readonly));
    }
    value
}

#[inline(always)]
pub fn set_slot<const I: usize>(value: usize) {
    // SAFETY: GS points at this CPU's record, and the word is this CPU's own.
    unsafe {
        core::arch::asm!("mov gs:[{}], {}",
            const slot_offset::<I>(), in(reg) value,
            options(nostack, preserves_flags));
    }
}

/// Where word `I` is, from this CPU's GS base.
pub const fn slot_offset<const I: usize>() -> usize {
    const { assert!(I < SLOTS) }
    core::mem::offset_of!(Cpu, slots) + 8 * I
}

/// As [`set_slot`], of the address of a static, without a register. (No function takes a symbol.)
macro_rules! point_slot {
    ($slot:ident, $target:path) => {
        // SAFETY: GS points at this CPU's record, and the word is this CPU's own.
        unsafe {
            core::arch::asm!("mov qword ptr gs:[{}], offset {}",
                const $crate::arch::slot_offset::<$slot>(), sym $target,
                options(nostack, preserves_flags));
        }
    };
}
pub(crate) use point_slot;

/// Writes word `I` of every CPU. For the boot CPU, before there is any other.
pub fn set_all_slots<const I: usize>(value: usize) {
    const { assert!(I < SLOTS) }
    CPUS.iter().for_each(|cpu| cpu.slots[I].store(value, Ordering::Relaxed));
}

/// Reads word `I` of any CPU, which may write it at any time.
pub fn slot_of<const I: usize>(cpu: usize) -> usize {
    const { assert!(I < SLOTS) }
    CPUS[cpu].slots[I].load(Ordering::Relaxed)
}

/// The number of CPUs that came up: 1 until all have.
pub fn num_cpus() -> usize {
    COUNT.load(Ordering::Acquire) as usize
}

pub fn set_num_cpus(n: usize) {
    COUNT.store(n as u32, Ordering::Release);
}

pub fn apic_id_of(index: usize) -> u32 {
    CPUS[index].fixed.apic_id.load(Ordering::Relaxed)
}

/// Turns interrupts on and halts, as one step: an interrupt that came since
/// they were turned off ends the halt at once. Returns with them off.
#[inline]
pub fn wait_for_interrupt() {
    // `sti` takes effect after the next instruction, so nothing can come
    // between the two (Intel SDM vol. 2, STI).
    sections::end();
    x86_64::instructions::interrupts::enable_and_hlt();
    x86_64::instructions::interrupts::disable();
    sections::begin();
}

pub fn halt_forever() -> ! {
    loop {
        x86_64::instructions::interrupts::disable();
        x86_64::instructions::hlt();
    }
}

/// An address inside the caller, and its frame pointer: where its backtrace starts.
#[inline(always)]
pub fn here() -> (u64, u64) {
    let (rip, rbp): (u64, u64);
    // SAFETY: reads two registers.
    unsafe {
        core::arch::asm!("lea {}, [rip]", "mov {}, rbp", out(reg) rip, out(reg) rbp,
            options(nomem, nostack, preserves_flags));
    }
    (rip, rbp)
}

/// Bytes of stack that code with interrupts off may count on.
///
/// Half a page, so that the frames of a parked G fit into one page together with this: a million
/// Gs that wait have a page each. The deepest that runs so is a heap that must grow (pages, frames,
/// page tables: about 900 bytes), then the screen (about 700). A commit that comes too late is
/// mended nevertheless, and counted (`mem::stack`): the machine test `probes` does everything there
/// is at every distance from a page's end.
pub const PROBE_BYTES: usize = 2048;

/// Touches the stack [`PROBE_BYTES`] down, so that the page fault that commits it happens now and
/// not under a lock. What is between has the same page or that of the stack pointer.
#[inline(always)]
pub fn probe_stack() {
    const { assert!(PROBE_BYTES <= super::paging::PAGE_SIZE) }
    probe::<PROBE_BYTES>();
}

/// As [`probe_stack`], half as far. A lock that was held has probed the stack already; this is for
/// the code right after it, which has taken another G from a list and must be able to ready it.
#[inline(always)]
pub fn probe_stack_again() {
    probe::<{ PROBE_BYTES / 2 }>();
}

#[inline(always)]
fn probe<const BYTES: usize>() {
    #[cfg(target_os = "none")]
    // SAFETY: reads one byte below the stack pointer; the page is this G's own
    // or its guard, and in both cases the fault belongs here.
    unsafe {
        core::arch::asm!("test byte ptr [rsp - {}], 0", const BYTES, options(nostack, readonly));
    }
}

pub fn is_probe(code: &[u8]) -> bool {
    // test byte ptr [rsp + distance], 0
    matches!(code, [0xf6, 0x84, 0x24, _, _, _, _, 0, ..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn two_cpus_and_two_writers_share_no_cache_line() {
        assert_eq!((align_of::<Cpu>(), offset_of!(Cpu, fixed) % 128), (128, 0));
        assert!(offset_of!(Cpu, fixed) >= offset_of!(Cpu, slots) + 8 * SLOTS);
    }
}
