//! Segments and the TSS of each CPU: where faults find a good stack.
//!
//! Long mode leaves one use for segmentation: the TSS, whose interrupt stack table says on which
//! stack a vector's handler runs. Every CPU has a table of its own, with its own stacks.

use super::MAX_CPUS;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
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

/// How many stacks [`Ist`] names.
pub const IST_STACKS: usize = 5;

struct Tables {
    gdt: GlobalDescriptorTable,
    tss: TaskStateSegment,
}

struct PerCpu([UnsafeCell<MaybeUninit<Tables>>; MAX_CPUS]);

// SAFETY: entry i is written by CPU i alone, once, in `init_cpu`.
unsafe impl Sync for PerCpu {}

static TABLES: PerCpu = PerCpu([const { UnsafeCell::new(MaybeUninit::uninit()) }; MAX_CPUS]);

/// Gives CPU `index` its GDT and a TSS with these stack tops.
///
/// # Safety
/// Once per CPU, by that CPU; the stacks are its own and live for ever.
pub unsafe fn init_cpu(index: usize, stack_tops: [u64; IST_STACKS]) {
    let mut tss = TaskStateSegment::new();
    fill(&mut tss, stack_tops);
    // SAFETY: this CPU is the only one that touches its entry, and only here.
    let tables: &'static mut Tables = unsafe { &mut *TABLES.0[index].get() }
        .write(Tables { gdt: GlobalDescriptorTable::new(), tss });
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

/// Gives this CPU other stacks for its handlers. For the boot CPU, whose first ones are older than
/// the memory to allocate from and have no guards between them.
///
/// # Safety
/// By CPU `index` itself after [`init_cpu`], with interrupts off and in no
/// handler; the stacks are its own and live for ever.
pub unsafe fn set_stacks(index: usize, stack_tops: [u64; IST_STACKS]) {
    // SAFETY: this CPU alone touches its entry, and has no other reference to it now.
    let tables = unsafe { &mut *TABLES.0[index].get() };
    // SAFETY: `init_cpu` has written it.
    let tables = unsafe { tables.assume_init_mut() };
    fill(&mut tables.tss, stack_tops);
    // The CPU reads it at each interrupt.
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
}

fn fill(tss: &mut TaskStateSegment, stack_tops: [u64; IST_STACKS]) {
    // The struct is packed: its fields are written whole, not through references.
    let mut table = tss.interrupt_stack_table;
    for (entry, top) in table.iter_mut().zip(stack_tops) {
        *entry = VirtAddr::new(top);
    }
    tss.interrupt_stack_table = table;
}
