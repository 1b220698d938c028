//! Segments and the TSS of each CPU: where faults find a good stack.
//!
//! Long mode leaves one use for segmentation: the TSS, whose interrupt stack table says on which
//! stack a vector's handler runs. Every CPU has a table of its own, with its own stacks.

use x86_64::VirtAddr;
use x86_64::instructions::tables;
use x86_64::registers::segmentation::{CS, DS, ES, SS, Segment};
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable};
use x86_64::structures::tss::TaskStateSegment;

/// The stacks of the interrupt stack table, by what runs on them. Interrupts have one because the
/// page below a G's stack pointer may not be committed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Ist {
    /// #DF: something went wrong while a fault was being delivered.
    DoubleFault = 0,
    /// NMI: comes at any instruction, also inside the other handlers.
    Nmi = 1,
    /// #MC: the hardware says that it is broken.
    MachineCheck = 2,
    /// #PF: commits stack pages, so it cannot run on one.
    PageFault = 3,
    /// Every other exception and every interrupt.
    Interrupt = 4,
}

pub const IST_STACKS: usize = 5;

/// What a CPU reads at each interrupt, for ever.
pub struct Tables {
    gdt: GlobalDescriptorTable,
    tss: TaskStateSegment,
}

impl Tables {
    pub const fn new() -> Tables {
        Tables { gdt: GlobalDescriptorTable::new(), tss: TaskStateSegment::new() }
    }
}

/// Gives this CPU these new tables, with a TSS that has these stack tops. The boot CPU does it
/// twice: its first stacks are older than the memory to allocate from, and have no guards.
///
/// # Safety
/// Interrupts are off, in no handler; the stacks are this CPU's own and live for ever.
pub unsafe fn init_cpu(tables: &'static mut Tables, stack_tops: [u64; IST_STACKS]) {
    let top_of = |i| stack_tops.get(i).map_or(VirtAddr::zero(), |top| VirtAddr::new(*top));
    tables.tss.interrupt_stack_table = core::array::from_fn(top_of);
    let code = tables.gdt.append(Descriptor::kernel_code_segment());
    let data = tables.gdt.append(Descriptor::kernel_data_segment());
    let tss = tables.gdt.append(Descriptor::tss_segment(&tables.tss));
    tables.gdt.load();
    // SAFETY: `code` is a 64-bit code segment of the table just loaded.
    unsafe { CS::set_reg(code) };
    // SAFETY: `data` is a writable data segment of that table.
    unsafe { SS::set_reg(data) };
    // SAFETY: as above.
    unsafe { DS::set_reg(data) };
    // SAFETY: as above.
    unsafe { ES::set_reg(data) };
    // SAFETY: `tss` names the available TSS of that table.
    unsafe { tables::load_tss(tss) };
}
