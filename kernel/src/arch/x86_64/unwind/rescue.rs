//! A fault that nobody can mend: its G goes on elsewhere, or not at all.
//!
//! The page-fault handler can return to another place than the one that faulted.
//! So a G whose stack is full can be made to end itself: [`divert`] leaves the
//! registers of the instruction that faulted on the G's own stack, below all that
//! is in use, and returns into a function that was told where they are. With them
//! that function can have itself replaced ([`call_in_place`]): one frame up, by
//! the unwind tables, is a caller that waits for its callee, and to that caller it
//! looks as if it had called another.
//!
//! ```text
//!   the G's stack        after divert           after call_in_place(f)
//!  │ caller         │   │ caller         │     │ caller         │
//!  │ return address │   │ return address │     │ return address │ ◀─ rsp, in f
//!  │ its callee     │   │ its callee     │
//!  └────────────────┘   │ Faulted        │
//!                       │ who was told   │
//! ```
//!
//! What the callee was doing is lost; what that may be is said in `overflow`, with
//! the rest of the plan. A G can also be left where it is, for good ([`leave`]).

use super::step::{self, NoStep, Registers, Section, Tables};
use super::trap::{Frame, PageFault};
use super::{cpu, switch};
use core::arch::naked_asm;

/// A stack that is full, as [`super::trap::Handlers::stack_full`] is told.
pub struct FullStack {
    /// Whether it may not grow, or cannot.
    pub found: PageFault,
    /// What was touched.
    pub address: u64,
    /// The stack pointer then.
    pub sp: u64,
    /// The touch was a probe: by the kernel, for what it is about to do.
    pub is_probe: bool,
}

/// What [`super::trap::Handlers::stack_full`] wants done.
#[must_use]
pub enum Rescue {
    /// There is nothing to be done: the machine stops.
    None,
    /// There is room now: the instruction is tried again.
    Retry,
    /// The G calls this with what is known of the fault, on its own stack with
    /// interrupts on, and does not come back.
    Call(extern "C" fn(&Faulted) -> !),
    /// The G is left for good, and the context that `switch` has saved at this
    /// stack pointer goes on.
    Leave(usize),
}

/// An instruction that faulted because its stack was full.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Faulted {
    registers: Registers,
    address: u64,
}

impl Faulted {
    /// Where it was: instruction and frame pointer.
    pub fn at(&self) -> (u64, u64) {
        (self.registers.rip, self.registers.rbp)
    }
}

/// In the flags register: interrupts are on; strings are walked backwards.
pub const INTERRUPTS_ON: u64 = 1 << 9;
const BACKWARDS: u64 = 1 << 10;

/// Makes the interrupt return into `f`.
///
/// # Safety
/// `frame` is that of a G which faulted at `address` with interrupts on, and will be
/// returned to by `iretq`. A page below its stack pointer can be written.
pub unsafe fn divert(frame: &mut Frame, address: u64, f: extern "C" fn(&Faulted) -> !) {
    let place = (frame.rsp & !15) - size_of::<Faulted>() as u64;
    // SAFETY: in the page below the stack pointer, aligned.
    unsafe { (place as *mut Faulted).write(Faulted { registers: frame.kept(), address }) };
    // The return address of a function that does not return; a backtrace ends there.
    let end = place - 8;
    // SAFETY: as above.
    unsafe { (end as *mut u64).write(0) };
    frame.go_to(f as *const () as u64, end, place);
    frame.rbp = 0;
    frame.rflags &= !BACKWARDS;
}

/// Makes the interrupt return into the context saved at `sp`, interrupts off.
///
/// # Safety
/// As for [`switch::switch_for_good`], at the time of the return.
pub unsafe fn leave(frame: &mut Frame, sp: usize) {
    let (at, _) = switch::saved_at(sp);
    // SAFETY: the return address of a saved context, which is nobody else's.
    let back = unsafe { (at as *const u64).read() };
    // As if `switch` had just returned there, which has nothing in rdi.
    frame.go_to(back, at as u64 + 8, 0);
    frame.rflags &= !(BACKWARDS | INTERRUPTS_ON);
}

/// Replaces the function that faulted by `f`: its caller is where it called, and
/// `f` is what it called. Returns only if there is no such place.
///
/// # Safety
/// 1. Called by what [`Rescue::Call`] named, with what it was given, on that stack.
/// 2. Nothing above is needed: neither what the function had that faulted, nor what
///    the calling one has, is ever dropped.
pub unsafe fn call_in_place(
    faulted: &Faulted,
    stack_top: u64,
    f: extern "C-unwind" fn(usize) -> !,
) -> NoStep {
    let at = faulted.registers;
    let readable = at.rsp..stack_top;
    let read = |address: u64| {
        let is_there = address.is_multiple_of(8) && readable.contains(&address);
        // SAFETY: aligned, and in the part of this stack that is in use. What of it
        // has no memory yet is given some.
        is_there.then(|| unsafe { (address as *const u64).read_volatile() })
    };
    let caller = match call_that_faulted(faulted) {
        Some(caller) => Ok(caller),
        None => step::caller(&tables(), &at, read),
    };
    match caller {
        // SAFETY: 1. Where a call of the caller would return to. 2. The word below
        // `rsp` has the return address, or is free for it. 3. The caller's promise.
        Ok(caller) => unsafe { call_at(&caller, f, 0) },
        Err(none) => none,
    }
}

/// Calls `f(argument)` as [`call_in_place`] does, further up: above the last caller
/// that forbids what unwinds to pass, so that it does. Returns only if nobody above
/// catches, or nobody forbids.
///
/// Below such a caller everybody was proved not to unwind, so there is nobody who
/// would have cleaned up; what that caller itself has is lost.
///
/// # Safety
/// `rbp` is the frame pointer of the caller, or of one above it; neither these nor
/// anybody below who it is called from has anything to drop.
pub unsafe fn call_above_forbidden(rbp: u64, f: extern "C-unwind" fn(usize) -> !, argument: usize) {
    // Above the frame pointer are the caller's and the return address.
    if let Some(caller) = callers::above_forbidden(rbp + 16) {
        // SAFETY: where a call that was made will return to; the caller's promise.
        unsafe { call_at(&caller, f, argument) }
    }
}

/// If what faulted is a call, because of the return address that it pushes: the
/// registers as they would be when it returns. Nothing is lost then.
fn call_that_faulted(faulted: &Faulted) -> Option<Registers> {
    let Faulted { registers: at, address } = *faulted;
    if address != at.rsp - 8 {
        return None;
    }
    let length = step::call_length(code_at(at.rip)?)? as u64;
    Some(Registers { rip: at.rip + length, ..at })
}

/// Whether the instruction at `rip` is the kernel's probe of its stack.
pub fn is_probe(rip: u64) -> bool {
    code_at(rip).is_some_and(cpu::is_probe)
}

/// The code of the kernel at `rip`, an instruction of it at least.
fn code_at(rip: u64) -> Option<&'static [u8]> {
    let text = tables().text;
    let length = text.end.checked_sub(rip).filter(|_| text.contains(&rip))?.min(16);
    // SAFETY: code of the kernel, which is never written.
    Some(unsafe { core::slice::from_raw_parts(rip as *const u8, length as usize) })
}

/// Restores `registers` and calls `f(argument)` from there: pushes `rip` as return
/// address.
///
/// # Safety
/// Where these registers were in use there is somebody who expects `f` to be called.
#[unsafe(naked)]
unsafe extern "C" fn call_at(
    registers: &Registers,
    f: extern "C-unwind" fn(usize) -> !,
    argument: usize,
) -> ! {
    naked_asm!(
        "mov rbx, [rdi + {rbx}]",
        "mov rbp, [rdi + {rbp}]",
        "mov r12, [rdi + {r12}]",
        "mov r13, [rdi + {r13}]",
        "mov r14, [rdi + {r14}]",
        "mov r15, [rdi + {r15}]",
        "mov rax, [rdi + {rip}]",
        "mov rsp, [rdi + {rsp}]",
        "push rax",
        "mov rdi, rdx",
        "jmp rsi",
        rbx = const core::mem::offset_of!(Registers, rbx),
        rbp = const core::mem::offset_of!(Registers, rbp),
        r12 = const core::mem::offset_of!(Registers, r12),
        r13 = const core::mem::offset_of!(Registers, r13),
        r14 = const core::mem::offset_of!(Registers, r14),
        r15 = const core::mem::offset_of!(Registers, r15),
        rip = const core::mem::offset_of!(Registers, rip),
        rsp = const core::mem::offset_of!(Registers, rsp),
    )
}

/// Where the image's code is.
#[cfg(target_os = "none")]
pub(super) fn text() -> core::ops::Range<u64> {
    unsafe extern "C" {
        static __executable_start: u8;
        static __etext: u8;
    }
    (&raw const __executable_start).addr() as u64..(&raw const __etext).addr() as u64
}

/// The kernel's own tables.
#[cfg(target_os = "none")]
fn tables() -> Tables<'static> {
    unsafe extern "C" {
        static __GNU_EH_FRAME_HDR: u8;
        static __eh_frame_start: u8;
        static __eh_frame_end: u8;
    }
    let section = |start: *const u8, end: *const u8| Section {
        at: start.addr() as u64,
        // SAFETY: what lies between two symbols of the linker script: constants.
        bytes: unsafe { core::slice::from_raw_parts(start, end.addr() - start.addr()) },
    };
    let index = &raw const __GNU_EH_FRAME_HDR;
    let frames = &raw const __eh_frame_start;
    Tables {
        text: text(),
        index: section(index, frames),
        frames: section(frames, &raw const __eh_frame_end),
    }
}

/// On the host nothing faults.
#[cfg(not(target_os = "none"))]
fn tables() -> Tables<'static> {
    let none = Section { at: 0, bytes: &[] };
    Tables { text: 0..0, index: none, frames: none }
}

/// Walks the callers by the unwinder.
#[cfg(target_os = "none")]
mod callers {
    use super::super::lsda::{self, Answer};
    use super::Registers;
    use core::ffi::c_void;
    use unwinding::abi::{
        _Unwind_Backtrace, _Unwind_GetCFA, _Unwind_GetGR, _Unwind_GetIP,
        _Unwind_GetLanguageSpecificData, _Unwind_GetRegionStart, UnwindContext, UnwindReasonCode,
    };

    /// What a walk has found.
    struct Found {
        /// Who has a lower stack pointer is not asked.
        from: u64,
        /// The last caller seen forbids it.
        is_forbidden: bool,
        /// Who is above the last that forbids it.
        above: Option<Registers>,
        is_caught: bool,
    }

    /// The caller above the last that forbids what unwinds to pass, if one above
    /// that catches it. Callers below the stack pointer `from` are not asked.
    pub fn above_forbidden(from: u64) -> Option<Registers> {
        let mut found = Found { from, is_forbidden: false, above: None, is_caught: false };
        _Unwind_Backtrace(look, (&raw mut found).cast());
        found.above.filter(|_| found.is_caught)
    }

    extern "C" fn look(context: &UnwindContext<'_>, found: *mut c_void) -> UnwindReasonCode {
        // SAFETY: from `above_forbidden`, which does not touch it meanwhile.
        let found = unsafe { &mut *found.cast::<Found>() };
        if (_Unwind_GetCFA(context) as u64) < found.from {
            return UnwindReasonCode::NO_REASON;
        }
        if core::mem::take(&mut found.is_forbidden) {
            found.above = Some(registers(context));
        }
        match answer(context) {
            Answer::Passes => {}
            Answer::Forbidden => found.is_forbidden = true,
            Answer::Caught => {
                found.is_caught = true;
                return UnwindReasonCode::END_OF_STACK; // anything but "go on"
            }
        }
        UnwindReasonCode::NO_REASON
    }

    fn answer(context: &UnwindContext<'_>) -> Answer {
        unsafe extern "C" {
            static __except_end: u8;
        }
        let table = _Unwind_GetLanguageSpecificData(context).cast::<u8>().cast_const();
        let end = (&raw const __except_end).addr();
        if table.is_null() || table.addr() >= end {
            return Answer::Passes;
        }
        // SAFETY: from a table of a function to the end of all tables: constants.
        let bytes = unsafe { core::slice::from_raw_parts(table, end - table.addr()) };
        let start = _Unwind_GetRegionStart(context) as u64;
        lsda::answer(bytes, start, _Unwind_GetIP(context) as u64).unwrap_or(Answer::Forbidden)
    }

    fn registers(context: &UnwindContext<'_>) -> Registers {
        // By their numbers in the tables (System V ABI, x86-64, figure 3.36).
        let register = |number| _Unwind_GetGR(context, number) as u64;
        Registers {
            rbx: register(3),
            rbp: register(6),
            r12: register(12),
            r13: register(13),
            r14: register(14),
            r15: register(15),
            rsp: _Unwind_GetCFA(context) as u64,
            rip: _Unwind_GetIP(context) as u64,
        }
    }
}

/// On the host nothing faults.
#[cfg(not(target_os = "none"))]
mod callers {
    pub fn above_forbidden(_: u64) -> Option<super::Registers> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    thread_local! {
        static SEEN: Cell<[usize; 2]> = const { Cell::new([0; 2]) };
        static BACK: Cell<usize> = const { Cell::new(0) };
    }

    extern "C" fn diverted(faulted: &Faulted) -> ! {
        SEEN.set([faulted.address as usize, faulted.at().0 as usize]);
        // SAFETY: BACK holds what the test's own switch saved, used once.
        unsafe { switch::switch_for_good(BACK.get()) }
    }

    /// What `iretq` does, as far as it matters here, after it has saved a context
    /// to come back to.
    #[unsafe(naked)]
    unsafe extern "C" fn go(_save: *mut usize, _rip: u64, _rsp: u64, _rdi: u64) {
        naked_asm!(
            "push rbp",
            "push rbx",
            "push r12",
            "push r13",
            "push r14",
            "push r15",
            "lea rax, [rip + 2f]",
            "push rax",
            "mov [rdi], rsp",
            "mov rsp, rdx",
            "mov rdi, rcx",
            "jmp rsi",
            "2:",
            "pop r15",
            "pop r14",
            "pop r13",
            "pop r12",
            "pop rbx",
            "pop rbp",
            "ret",
        )
    }

    #[test]
    fn a_diverted_g_is_told_what_faulted_and_stays_below_its_stack() {
        let mut stack = vec![0xaau128; 16384];
        let full = (&raw const stack[8192]).addr() as u64 + 8; // not aligned to 16
        let mut frame = Frame::for_test(0x1234, full);
        // SAFETY: below `full` is half of this test's own stack.
        unsafe { divert(&mut frame, 0x5678, diverted) };
        let (rip, rsp, rdi) = frame.target();
        assert_eq!(rsp % 16, 8, "not as after a call");
        // SAFETY: as the interrupt would return.
        unsafe { go(BACK.with(Cell::as_ptr), rip, rsp, rdi) };
        assert_eq!(SEEN.get(), [0x5678, 0x1234]);
        assert!(stack[8193..].iter().all(|&word| word == 0xaa), "above was in use");
        stack.clear();
    }
}
