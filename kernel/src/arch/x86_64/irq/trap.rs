//! Exceptions and interrupts: one entry for all 256 vectors, one way out.
//!
//! Every vector has a stub of a few bytes in [`entries`]; it pushes its number and goes on to what
//! all have in common, which saves the registers as a [`Frame`] and calls [`dispatch`]. What a
//! vector means to the kernel goes up by one door, [`Handlers`], set once. The IDT is the same for
//! all CPUs; the stacks that it names are each CPU's own (see `gdt`).

mod fault;

pub use fault::{Fault, PageFault};

use super::{apic, nmi, sections, shootdown};
use crate::arch::x86_64::cpu::gdt::Ist;
use crate::arch::x86_64::cpu::msr;
use crate::arch::x86_64::unwind::rescue::{self, FullStack, INTERRUPTS_ON, Registers, Rescue};
use core::arch::naked_asm;
use core::fmt;
use core::mem::offset_of;
use core::ops::Range;
use fault::HAS_ERROR;
use x86_64::VirtAddr;
use x86_64::instructions::tables::lidt;
use x86_64::structures::DescriptorTablePointer;
use x86_64::structures::idt::Entry;

/// The one upward door for interrupts: what the kernel does about them.
///
/// All are called with interrupts off, on the CPU's interrupt stack, and must
/// neither allocate nor wait. `fatal` may do as it likes: it does not return. Nor need those
/// return that get the frame: they may [`leave`](super::preempt::leave) it.
pub struct Handlers {
    /// This CPU's timer has fired.
    pub tick: fn(&Frame),
    /// Another CPU wants this one to look for work.
    pub wake: fn(&Frame),
    /// A device interrupt with this vector: its driver.
    pub device: fn(u8),
    /// The end of a device interrupt, which is acknowledged.
    pub device_end: fn(&Frame),
    /// Another CPU has called [`ask`](super::nmi::ask), or this one has taken an unexpected NMI.
    pub liveness_ipi: fn(),
    /// Another CPU has called [`sample`](super::nmi::sample): instruction and frame
    /// pointer, and whether interrupts were off there. In an NMI, which may have interrupted
    /// any code: it may only store the sample in a place of its own.
    pub nmi_sample: fn(u64, u64, bool),
    /// This CPU is flushing its TLB, for a [`shootdown`](super::shootdown::shootdown) of another.
    pub shootdown: fn(),
    /// A page fault at an address, and with which stack pointer if interrupts were off there.
    pub page_fault: fn(u64, Option<u64>) -> PageFault,
    /// A stack that was in use with interrupts on is full, or has no memory.
    pub stack_full: fn(&FullStack) -> Rescue,
    /// Commits the stack below this stack pointer, for the frame of the interrupted G; false if
    /// there is no room.
    pub room_to_preempt: fn(Range<u64>) -> bool,
    /// A G that an interrupt made leave while it was in a blocking call runs again.
    pub resumed_in_call: fn(),
    /// An exception that no handler can repair.
    pub fatal: fn(&Fault) -> !,
}

/// The registers of what was interrupted, as [`entries`] pushes them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Frame {
    r15: u64,
    r14: u64,
    r13: u64,
    r12: u64,
    r11: u64,
    r10: u64,
    r9: u64,
    r8: u64,
    rdi: u64,
    rsi: u64,
    rdx: u64,
    rcx: u64,
    rbx: u64,
    rax: u64,
    /// The frame pointer, where a backtrace starts.
    pub rbp: u64,
    vector: u64,
    error: u64,
    pub rip: u64,
    cs: u64,
    pub(in crate::arch) rflags: u64,
    pub rsp: u64,
    pub(super) ss: u64,
}

impl Frame {
    pub fn irqs_enabled(&self) -> bool {
        self.rflags & INTERRUPTS_ON != 0
    }

    /// The registers that a call keeps.
    pub(in crate::arch) fn kept(&self) -> Registers {
        let Frame { rbx, rbp, r12, r13, r14, r15, rsp, rip, .. } = *self;
        Registers { rbx, rbp, r12, r13, r14, r15, rsp, rip }
    }

    /// Makes the interrupt return to `rip` on another stack, with an argument.
    pub(in crate::arch) fn go_to(&mut self, rip: u64, rsp: u64, argument: u64) {
        (self.rip, self.rsp, self.rdi) = (rip, rsp, argument);
    }

    /// What [`go_to`](Self::go_to) has set.
    #[cfg(test)]
    pub(in crate::arch) fn target(&self) -> (u64, u64, u64) {
        (self.rip, self.rsp, self.rdi)
    }

    /// A frame of which nothing but this is known.
    #[cfg(test)]
    pub(in crate::arch) fn for_test(rip: u64, rsp: u64) -> Frame {
        // SAFETY: all numbers.
        Frame { rip, rsp, ..unsafe { core::mem::zeroed() } }
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Frame { rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, .. } = self;
        let Frame { r8, r9, r10, r11, r12, r13, r14, r15, .. } = self;
        writeln!(f, "  rax {rax:016x} rbx {rbx:016x} rcx {rcx:016x} rdx {rdx:016x}")?;
        writeln!(f, "  rsi {rsi:016x} rdi {rdi:016x} rbp {rbp:016x} rsp {rsp:016x}")?;
        writeln!(f, "  r8  {r8:016x} r9  {r9:016x} r10 {r10:016x} r11 {r11:016x}")?;
        writeln!(f, "  r12 {r12:016x} r13 {r13:016x} r14 {r14:016x} r15 {r15:016x}")?;
        write!(
            f,
            "  rip {:016x} cs {:02x} ss {:02x} rflags {:08x}",
            self.rip, self.cs, self.ss, self.rflags
        )
    }
}

const NMI: u8 = 2;
const DOUBLE_FAULT: u8 = 8;
const GENERAL_PROTECTION: u8 = 13;
const PAGE_FAULT: u8 = 14;
const MACHINE_CHECK: u8 = 18;
/// Those below are exceptions.
const FIRST_INTERRUPT: u8 = 32;

static HANDLERS: spin::Once<Handlers> = spin::Once::new();

/// Opens the upward door. Before it is open, every fault is fatal by itself.
pub fn set_handlers(handlers: Handlers) {
    HANDLERS.call_once(|| handlers);
}

pub(super) fn handlers() -> Option<&'static Handlers> {
    HANDLERS.get()
}

/// The table by which the CPU finds a vector's stub and stack. The crate's own type gives the
/// exceptions entries of different types; here all are served the same way.
type Idt = [Entry<()>; 256];

static IDT: spin::Once<Idt> = spin::Once::new();

/// Loads the IDT on this CPU; after `gdt::init_cpu`, whose stacks it names.
pub fn init_cpu() {
    let idt = IDT.call_once(|| {
        core::array::from_fn(|vector| {
            let ist = match vector as u8 {
                DOUBLE_FAULT => Ist::DoubleFault,
                NMI => Ist::Nmi,
                MACHINE_CHECK => Ist::MachineCheck,
                PAGE_FAULT => Ist::PageFault,
                _ => Ist::Interrupt,
            };
            let stub = entries as *const () as u64 + vector as u64 * STUB_SIZE;
            let mut entry = Entry::missing();
            // SAFETY: the stub of this vector pushes a number, saves all registers and ends in
            // `iretq`.
            let options = unsafe { entry.set_handler_addr(VirtAddr::new(stub)) };
            // SAFETY: `gdt::init_cpu` has given every CPU a stack for `ist`.
            unsafe { options.set_stack_index(ist as u16) };
            entry
        })
    });
    let base = VirtAddr::from_ptr(idt);
    // SAFETY: a table of 256 good entries that lives for ever.
    unsafe { lidt(&DescriptorTablePointer { limit: size_of::<Idt>() as u16 - 1, base }) };
}

/// Bytes from one stub to the next.
const STUB_SIZE: u64 = 16;

/// The entries of all vectors, [`STUB_SIZE`] bytes apart, and what they have in common. Each pushes
/// its number, and a 0 where the CPU pushes no error code, so that all frames look alike:
///
/// ```text
///     before            after the stub
///   | ss           |  | ss           |
///   | rsp          |  | rsp          |
///   | rflags       |  | rflags       |
///   | cs           |  | cs           |
///   | rip          |  | rip          |
///   | error code ? |  | error or 0   |
///                     | vector       | <- rsp
/// ```
///
/// Then all save the registers as a [`Frame`], call [`dispatch`] and put them back. A G that an
/// interrupt made leave goes on at the second half, with the frame on its own stack (`preempt`).
///
/// The CPU aligned the stack to 16 before its five words; with two words of the stub and fifteen
/// registers it is aligned at the call.
#[unsafe(naked)]
extern "C" fn entries() {
    naked_asm!(
        ".set vector, 0",
        ".rept 256",
        "  .balign {size}",
        "  .if (vector > 31) || ((({has_error} >> vector) & 1) == 0)",
        "    pushq $0",
        "  .endif",
        "  pushq $vector",
        "  jmp 2f",
        "  .set vector, vector + 1",
        ".endr",
        "2:",
        "push %rbp; push %rax; push %rbx; push %rcx; push %rdx; push %rsi; push %rdi
         push %r8; push %r9; push %r10; push %r11; push %r12; push %r13; push %r14; push %r15",
        "cld",
        "mov %rsp, %rdi",
        "call {dispatch}",
        ".globl runnext_trap_return",
        "runnext_trap_return:",
        "pop %r15; pop %r14; pop %r13; pop %r12; pop %r11; pop %r10; pop %r9; pop %r8
         pop %rdi; pop %rsi; pop %rdx; pop %rcx; pop %rbx; pop %rax; pop %rbp",
        "add $16, %rsp", // vector and error code
        "iretq",
        ".globl runnext_trap_resume_call",
        "runnext_trap_resume_call:", // of a G in a blocking call
        "call {resumed_in_call}",
        "jmp runnext_trap_return",
        size = const STUB_SIZE,
        has_error = const HAS_ERROR,
        dispatch = sym dispatch,
        resumed_in_call = sym resumed_in_call,
        options(att_syntax),
    )
}

/// A G that an interrupt made leave in a blocking call goes on: its M comes with it.
extern "C" fn resumed_in_call() {
    if let Some(handlers) = handlers() {
        (handlers.resumed_in_call)();
    }
    sections::end();
}

/// On the host nothing calls [`entries`], but [`trap_return`] needs the label in it.
#[cfg(not(target_os = "none"))]
#[used]
static ENTRIES: extern "C" fn() = entries;

unsafe extern "C" {
    /// In [`entries`], where [`dispatch`] returns to.
    safe static runnext_trap_return: u8;
    /// In [`entries`], where a G goes on that an interrupt made leave in a blocking call.
    safe static runnext_trap_resume_call: u8;
}

/// Whether it is [`trap_return`]: then the interrupted registers are above the frame.
pub fn is_trap_return(address: usize) -> bool {
    address == trap_return()
}

/// Where the first function of a handler returns to.
pub fn trap_return() -> usize {
    (&raw const runnext_trap_return).addr()
}

/// How far above the frame pointer of that function the interrupted address is: above its frame of
/// two words there is a [`Frame`].
pub const TRAPPED_RIP: usize = 2 * 8 + offset_of!(Frame, rip);

/// Where a G goes on that an interrupt made leave, `in_call` if it was in a blocking call.
pub(super) fn resumes_at(in_call: bool) -> usize {
    let at =
        if in_call { &raw const runnext_trap_resume_call } else { &raw const runnext_trap_return };
    at.addr()
}

/// Where a G that is not on a CPU goes on, instruction and frame pointer, from its context at `sp`:
/// what `mcall` has saved, or the frame that `preempt::leave` has moved there. `read` gives the
/// word at an address.
pub fn saved(sp: usize, read: impl Fn(usize) -> Option<usize>) -> Option<(usize, usize)> {
    const WORD: usize = size_of::<usize>();
    let rip = read(sp)?;
    if ![false, true].map(resumes_at).contains(&rip) {
        return Some((rip, read(sp.checked_add(2 * WORD)?)?));
    }
    let at = |field| read(sp.checked_add(WORD + field)?);
    Some((at(offset_of!(Frame, rip))?, at(offset_of!(Frame, rbp))?))
}

/// Serves the vector, as a section with interrupts off if they were on before.
extern "C" fn dispatch(frame: &mut Frame) {
    if sections::ARE_MEASURED && frame.irqs_enabled() {
        sections::begin();
    }
    serve(frame);
    if sections::ARE_MEASURED && frame.irqs_enabled() {
        sections::end();
    }
}

/// What each vector means.
#[inline(always)]
fn serve(frame: &mut Frame) {
    let vector = frame.vector as u8;
    if vector < FIRST_INTERRUPT {
        return exception(frame, vector);
    }
    // Interrupts are off until the handlers are set.
    let Some(handlers) = HANDLERS.get() else { return };
    match vector {
        apic::TIMER_VECTOR => {
            apic::eoi();
            (handlers.tick)(frame);
        }
        apic::WAKE_VECTOR => {
            apic::eoi();
            (handlers.wake)(frame);
        }
        apic::ASK_VECTOR => {
            apic::eoi();
            nmi::report_unasked();
            (handlers.liveness_ipi)();
        }
        shootdown::VECTOR => {
            shootdown::answer(handlers.shootdown);
            apic::eoi();
        }
        // A spurious interrupt must not be acknowledged (SDM vol. 3, 11.9).
        apic::SPURIOUS_VECTOR => {}
        apic::ERROR_VECTOR => {
            apic::current().inspect(|apic| _ = apic.take_errors());
            apic::eoi();
        }
        _ => {
            // Its driver first: a level-triggered line is quiet by then.
            (handlers.device)(vector);
            apic::eoi();
            (handlers.device_end)(frame);
        }
    }
}

#[inline(never)]
fn exception(frame: &mut Frame, vector: u8) {
    match vector {
        NMI => nmi::on_nmi(frame, HANDLERS.get().map(|handlers| handlers.nmi_sample)),
        GENERAL_PROTECTION => match msr::fixup(frame.rip) {
            Some(next) => frame.rip = next,
            None => fatal(frame, None),
        },
        PAGE_FAULT => page_fault(frame),
        _ => fatal(frame, None),
    }
}

fn page_fault(frame: &mut Frame) {
    let address = x86_64::registers::control::Cr2::read_raw();
    let irqs_enabled = frame.irqs_enabled();
    let mut found = PageFault::Stray;
    if let Some(handlers) = HANDLERS.get() {
        // A protection violation is nothing that a page could mend.
        if frame.error & 1 == 0 {
            found = (handlers.page_fault)(address, (!irqs_enabled).then_some(frame.rsp));
        }
        let is_full = matches!(found, PageFault::StackOverflow | PageFault::NoMemory);
        if irqs_enabled && is_full || found == PageFault::StillPacked {
            let is_probe = rescue::is_probe(frame.rip);
            match (handlers.stack_full)(&FullStack { found, address, sp: frame.rsp, is_probe }) {
                Rescue::None => {}
                Rescue::Retry => return,
                // SAFETY: it faulted with interrupts on, and the handler has seen to room.
                Rescue::Call(f) => return unsafe { rescue::divert(frame, address, f) },
                // SAFETY: the handler names the stack of this CPU's M, and will not run this G
                // again; or the G was being switched to, and its context is as it was.
                Rescue::Leave(bottom, f) => return unsafe { rescue::leave(frame, bottom, f) },
            }
        }
    }
    if found != PageFault::Mended {
        fatal(frame, Some((address, found)));
    }
}

fn fatal(frame: &Frame, page_fault: Option<(u64, PageFault)>) -> ! {
    let fault = Fault { frame, page_fault };
    match HANDLERS.get() {
        Some(handlers) => (handlers.fatal)(&fault),
        None => panic!("{fault}\n{frame}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stubs_are_evenly_spaced_and_push_their_number() {
        let base = entries as *const () as *const u8;
        for vector in 0..256usize {
            let stub = base.wrapping_add(vector * STUB_SIZE as usize);
            // SAFETY: reads the code of `entries`, 256 stubs of STUB_SIZE bytes.
            let stub = unsafe { core::slice::from_raw_parts(stub, 7) };
            let own_error = vector < 32 && HAS_ERROR >> vector & 1 != 0;
            let push = if own_error { stub } else { &stub[2..] };
            if !own_error {
                assert_eq!(stub[..2], [0x6a, 0], "vector {vector} pushes no 0");
            }
            match push[0] {
                0x6a => assert_eq!(push[1] as usize, vector),
                0x68 => assert_eq!(push[1..5], (vector as u32).to_le_bytes()),
                other => panic!("vector {vector} starts with {other:#x}"),
            }
        }
    }

    #[test]
    fn frame_is_what_the_entries_push() {
        assert_eq!(size_of::<Frame>(), 22 * 8);
        assert_eq!(offset_of!(Frame, rbp), 14 * 8);
        assert_eq!(offset_of!(Frame, vector), 15 * 8);
        assert_eq!(offset_of!(Frame, rip), 17 * 8);
    }
}
