//! The table of 256 entries by which the CPU finds its stub and its stack.

use super::{DOUBLE_FAULT, MACHINE_CHECK, NMI, PAGE_FAULT, STUB_SIZE, stubs};
use crate::arch::x86_64::cpu::gdt::Ist;
use x86_64::VirtAddr;
use x86_64::structures::idt::InterruptDescriptorTable;

/// One for all CPUs; the stacks that it names are each CPU's own.
pub(super) fn build() -> InterruptDescriptorTable {
    let mut idt = InterruptDescriptorTable::new();
    let base = stubs as *const () as u64;
    for vector in 0..256u64 {
        let ist = match vector {
            DOUBLE_FAULT => Ist::DoubleFault,
            NMI => Ist::Nmi,
            MACHINE_CHECK => Ist::MachineCheck,
            PAGE_FAULT => Ist::PageFault,
            _ => Ist::Interrupt,
        };
        set_entry(&mut idt, vector as u8, base + vector * STUB_SIZE, ist);
    }
    idt
}

/// Points `vector` at `address`, on the stack `ist`, with interrupts off.
fn set_entry(idt: &mut InterruptDescriptorTable, vector: u8, address: u64, ist: Ist) {
    let address = VirtAddr::new(address);
    let ist = ist as u16;
    // The crate gives the exceptions types of their own; all that is wanted
    // here is an address and a stack, the same way for each.
    macro_rules! set {
        ($entry:expr) => {{
            // SAFETY: `address` is the stub of this vector, which pushes a
            // number, saves all registers and ends in `iretq`.
            let options = unsafe { $entry.set_handler_addr(address) };
            // SAFETY: `gdt::init_cpu` has given every CPU a stack for `ist`.
            unsafe { options.set_stack_index(ist) };
        }};
    }
    match vector {
        0 => set!(idt.divide_error),
        1 => set!(idt.debug),
        2 => set!(idt.non_maskable_interrupt),
        3 => set!(idt.breakpoint),
        4 => set!(idt.overflow),
        5 => set!(idt.bound_range_exceeded),
        6 => set!(idt.invalid_opcode),
        7 => set!(idt.device_not_available),
        8 => set!(idt.double_fault),
        10 => set!(idt.invalid_tss),
        11 => set!(idt.segment_not_present),
        12 => set!(idt.stack_segment_fault),
        13 => set!(idt.general_protection_fault),
        14 => set!(idt.page_fault),
        16 => set!(idt.x87_floating_point),
        17 => set!(idt.alignment_check),
        18 => set!(idt.machine_check),
        19 => set!(idt.simd_floating_point),
        20 => set!(idt.virtualization),
        21 => set!(idt.cp_protection_exception),
        28 => set!(idt.hv_injection_exception),
        29 => set!(idt.vmm_communication_exception),
        30 => set!(idt.security_exception),
        9 | 15 | 22..=27 | 31 => {} // reserved: the crate has no entry, the CPU no cause
        32..=255 => set!(idt[vector]),
    }
}
