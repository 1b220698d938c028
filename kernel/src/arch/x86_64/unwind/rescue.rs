//! The machine's part in unwinding a full stack; the plan is in `overflow`.
//!
//! The page-fault handler can return to another place than the one that faulted. So a G whose
//! stack is full can be made to end itself: [`divert`] leaves the registers of the faulting
//! instruction on the G's own stack, below all that is in use, and returns into [`entry`], which
//! calls the kernel. The unwind table of `entry` says where those registers are, as that of a
//! signal trampoline does, so the unwinder walks from there into the code that faulted like
//! through any other call. The kernel then has a function called ([`call_in_place`]) by the
//! innermost caller from which an unwinding gets through.
//!
//! ```text
//!   the G's stack        after divert           after call_in_place(f)
//!  │ caller         │   │ caller         │     │ caller         │
//!  │ return address │   │ return address │     │ return address │ ◀─ rsp, in f
//!  │ its callee     │   │ its callee     │
//!  └────────────────┘   │ Faulted        │
//!                       │ the kernel     │
//! ```
//!
//! A G can also be abandoned where it is ([`leave`]).

use crate::arch::x86_64::cpu;
use crate::arch::x86_64::irq::trap::{Frame, PageFault};
use core::arch::naked_asm;
use core::mem::offset_of;
use core::ops::Range;

/// A stack that is full, as `Handlers::stack_full` is told.
pub struct FullStack {
    /// Whether it may not grow, or cannot.
    pub found: PageFault,
    pub address: u64,
    pub sp: u64,
    /// The touch was a probe: by the kernel, for what it is about to do.
    pub is_probe: bool,
}

#[must_use]
pub enum Rescue {
    /// Nothing can be done: the machine stops.
    None,
    /// There is room now: the instruction is tried again.
    Retry,
    /// The G calls this function, on its own stack with interrupts on, and does not come back.
    Call(extern "C" fn(&Faulted) -> !),
    /// The G is abandoned: this function is called on the stack of its M, from there downwards, as
    /// by `mcall`.
    Leave(usize, extern "C" fn() -> !),
}

/// The registers that a called function keeps for its caller, instruction and stack pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Registers {
    pub rbx: u64,
    pub rbp: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rsp: u64,
    pub rip: u64,
}

/// An instruction that faulted because its stack was full.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Faulted {
    /// Where the unwinder goes on from here: the first field, which [`entry`]'s table counts on.
    registers: Registers,
    rip: u64,
    f: extern "C" fn(&Faulted) -> !,
}

impl Faulted {
    /// Where it was: instruction and frame pointer.
    pub fn at(&self) -> (u64, u64) {
        (self.rip, self.registers.rbp)
    }
}

/// In the flags register: interrupts are on; strings are walked backwards.
pub const INTERRUPTS_ON: u64 = 1 << 9;
const BACKWARDS: u64 = 1 << 10;

/// Makes the interrupt return into `f`.
///
/// A `call` that faulted, because of the return address that it pushes, is completed first: as far
/// as the unwinder can see, the function that it calls is at its first instruction. So the caller
/// loses nothing.
///
/// # Safety
/// `frame` is that of a G which faulted at `address` with interrupts on, and will be returned to by
/// `iretq`. A page below its stack pointer can be written.
pub unsafe fn divert(frame: &mut Frame, address: u64, f: extern "C" fn(&Faulted) -> !) {
    let (mut registers, rip) = (frame.kept(), frame.rip);
    if address == frame.rsp - 8
        && let Some(length) = code_at(rip).and_then(call_length)
    {
        registers.rsp -= 8;
        // SAFETY: in the page below the stack pointer, aligned like every return address.
        unsafe { (registers.rsp as *mut u64).write(rip + length as u64) };
        registers.rip = f as *const () as u64; // any function will do
    }
    let place = (registers.rsp & !15) - size_of::<Faulted>() as u64;
    // SAFETY: in the page below the stack pointer, aligned.
    unsafe { (place as *mut Faulted).write(Faulted { registers, rip, f }) };
    frame.go_to(entry as *const () as u64, place, place);
    frame.rbp = 0; // a backtrace by frame pointers ends there
    frame.rflags &= !BACKWARDS;
}

/// Calls the function in the [`Faulted`] that `rsp` and `rdi` point at. The registers are numbered
/// as in the System V ABI for x86-64, figure 3.36: 7 is `rsp`, 16 the return address.
#[unsafe(naked)]
unsafe extern "C" fn entry(_faulted: &Faulted) -> ! {
    naked_asm!(
        ".cfi_startproc simple",
        ".cfi_signal_frame",
        ".cfi_def_cfa 7, 0",
        ".cfi_offset 3, {rbx}",
        ".cfi_offset 6, {rbp}",
        ".cfi_offset 12, {r12}",
        ".cfi_offset 13, {r13}",
        ".cfi_offset 14, {r14}",
        ".cfi_offset 15, {r15}",
        ".cfi_offset 7, {rsp}",
        ".cfi_offset 16, {rip}",
        "call [rdi + {f}]",
        "ud2",
        ".cfi_endproc",
        rbx = const offset_of!(Registers, rbx),
        rbp = const offset_of!(Registers, rbp),
        r12 = const offset_of!(Registers, r12),
        r13 = const offset_of!(Registers, r13),
        r14 = const offset_of!(Registers, r14),
        r15 = const offset_of!(Registers, r15),
        rsp = const offset_of!(Registers, rsp),
        rip = const offset_of!(Registers, rip),
        f = const offset_of!(Faulted, f),
    )
}

/// Makes the interrupt return into `f` on the stack of an M, interrupts off.
///
/// # Safety
/// As for [`mcall_for_good`](crate::arch::x86_64::cpu::switch::mcall_for_good), at the time of the
/// return.
pub unsafe fn leave(frame: &mut Frame, bottom: usize, f: extern "C" fn() -> !) {
    frame.go_to(f as *const () as u64, bottom as u64, 0);
    frame.rbp = 0; // a backtrace ends there
    frame.rflags &= !(BACKWARDS | INTERRUPTS_ON);
}

/// Replaces the function that faulted by `f`, as called by its caller; or, if a caller further up
/// forbids an unwinding to pass, by the caller of that one. Returns only if there is no such place,
/// or no frame above, below the `end` of this stack, would catch the unwinding. Before that, `lose`
/// is called with the addresses of the frames that will be gone.
///
/// # Safety
/// 1. Called by the function that [`Rescue::Call`] named, with the argument it was given.
/// 2. Neither the function that faulted nor the calling one has anything to drop.
pub unsafe fn call_in_place(
    faulted: &Faulted,
    end: u64,
    lose: impl FnOnce(Range<u64>),
    f: extern "C-unwind" fn(usize) -> !,
) {
    if let Some(caller) = callers::find(faulted.registers.rsp + 1..end, true) {
        lose(faulted.registers.rsp..caller.rsp);
        // SAFETY: a call of it returns there, and the word below `rsp` has the return address or is
        // free for it; the caller's promise.
        unsafe { call_at(&caller, f, 0) }
    }
}

/// Calls `f(argument)` from above the last caller that forbids an unwinding to pass, so that `f`
/// can unwind. Returns only if no caller forbids it, or if none between that one and the `end` of
/// this stack catches it.
///
/// The compiler proved that the functions below such a caller do not unwind, so they have nothing
/// to clean up; what that caller itself owns is lost. Before that, `lose` is called with the
/// addresses of the frames that will be gone.
///
/// # Safety
/// `rbp` is the frame pointer of the caller, or of one above it; neither these nor the functions
/// below them have anything to drop.
pub unsafe fn call_above_forbidden(
    rbp: u64,
    end: u64,
    lose: impl FnOnce(Range<u64>),
    f: extern "C-unwind" fn(usize) -> !,
    argument: usize,
) {
    // Above the frame pointer are the caller's and the return address.
    if let Some(caller) = callers::find(rbp + 16..end, false) {
        lose(rbp..caller.rsp);
        // SAFETY: where a call that was made will return to; the caller's promise.
        unsafe { call_at(&caller, f, argument) }
    }
}

/// Whether an unwinding that begins in the function with the frame pointer `rbp` would be caught
/// before a caller forbids it to pass, on this stack, which ends at `end`.
pub fn is_caught(rbp: u64, end: u64) -> bool {
    callers::is_caught(rbp + 16..end)
}

/// Restores `registers` and calls `f(argument)` from there: pushes `rip` as return address.
///
/// # Safety
/// At `rip` is the return from a call, and these are the registers there.
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
        rbx = const offset_of!(Registers, rbx),
        rbp = const offset_of!(Registers, rbp),
        r12 = const offset_of!(Registers, r12),
        r13 = const offset_of!(Registers, r13),
        r14 = const offset_of!(Registers, r14),
        r15 = const offset_of!(Registers, r15),
        rip = const offset_of!(Registers, rip),
        rsp = const offset_of!(Registers, rsp),
    )
}

/// Whether the instruction at `rip` is the kernel's probe of its stack.
pub fn is_probe(rip: u64) -> bool {
    code_at(rip).is_some_and(cpu::is_probe)
}

#[cfg(target_os = "none")]
fn code_at(rip: u64) -> Option<&'static [u8]> {
    unsafe extern "C" {
        static __executable_start: u8;
        static __etext: u8;
    }
    let text = (&raw const __executable_start).addr() as u64..(&raw const __etext).addr() as u64;
    let length = text.end.checked_sub(rip).filter(|_| text.contains(&rip))?.min(16);
    // SAFETY: code of the kernel, which is never written.
    Some(unsafe { core::slice::from_raw_parts(rip as *const u8, length as usize) })
}

/// On the host nothing faults.
#[cfg(not(target_os = "none"))]
fn code_at(_: u64) -> Option<&'static [u8]> {
    None
}

/// The length of the instruction that `code` begins with, if it is a call: 5 for `e8` and a
/// distance, 3 for `41 ff d4`, which is `call r12`.
fn call_length(code: &[u8]) -> Option<usize> {
    // Intel SDM vol. 2: CALL near is E8 with a distance, or FF /2; a REX prefix may come first.
    let prefix = usize::from(code.first()? & 0xf0 == 0x40);
    let length = match (code.get(prefix)?, code.get(prefix + 1)) {
        (0xe8, _) => 5,
        (0xff, Some(&modrm)) if modrm >> 3 & 7 == 2 => 2 + operand_length(modrm, code, prefix)?,
        _ => return None,
    };
    Some(prefix + length).filter(|&length| length <= code.len())
}

/// How many bytes after ModRM say where the operand is: table 2-2 of the manual.
fn operand_length(modrm: u8, code: &[u8], prefix: usize) -> Option<usize> {
    let (mode, register) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return Some(0);
    }
    let has_sib = register == 4;
    let base = if has_sib { code.get(prefix + 2)? & 7 } else { register };
    let displacement = match mode {
        0 if base == 5 => 4,
        0 => 0,
        1 => 1,
        _ => 4,
    };
    Some(usize::from(has_sib) + displacement)
}

#[cfg(target_os = "none")]
mod callers {
    use super::super::lsda::{self, Answer};
    use super::Registers;
    use core::ffi::c_void;
    use core::ops::Range;
    use unwinding::abi::{
        _Unwind_Backtrace, _Unwind_GetCFA, _Unwind_GetGR, _Unwind_GetIP,
        _Unwind_GetLanguageSpecificData, _Unwind_GetRegionStart, UnwindContext, UnwindReasonCode,
    };

    struct Found {
        /// Frames with a lower stack pointer are skipped. No frame of this stack is at its end or
        /// above.
        stack: Range<u64>,
        /// The next frame may be the one to call from.
        is_next: bool,
        caller: Option<Registers>,
        is_caught: bool,
    }

    /// The innermost caller with a stack pointer in `stack` above which no caller forbids an
    /// unwinding to pass, if one there catches it. Unless `is_any`, a caller below must forbid it.
    ///
    /// A blocking call is on the stack of an M, and was called from another stack, by code that has
    /// no tables, so what the tables say of that caller is meaningless.
    pub fn find(stack: Range<u64>, is_any: bool) -> Option<Registers> {
        let mut found = Found { stack, is_next: is_any, caller: None, is_caught: false };
        _Unwind_Backtrace(visit, (&raw mut found).cast());
        found.caller.filter(|_| found.is_caught)
    }

    extern "C" fn visit(context: &UnwindContext<'_>, found: *mut c_void) -> UnwindReasonCode {
        // SAFETY: from `find`, which does not touch it meanwhile.
        let found = unsafe { &mut *found.cast::<Found>() };
        let sp = _Unwind_GetCFA(context) as u64;
        if sp >= found.stack.end {
            return UnwindReasonCode::END_OF_STACK;
        }
        if sp < found.stack.start {
            return UnwindReasonCode::NO_REASON;
        }
        if core::mem::take(&mut found.is_next) {
            found.caller = Some(registers(context));
        }
        match answer(context) {
            Answer::Passes => {}
            Answer::Forbidden => found.is_next = true,
            Answer::Caught => {
                found.is_caught = true;
                return UnwindReasonCode::END_OF_STACK; // anything but "go on"
            }
        }
        UnwindReasonCode::NO_REASON
    }

    struct First {
        /// As in [`Found`].
        stack: Range<u64>,
        is_caught: bool,
    }

    /// Whether the first caller that does not let an unwinding pass catches it.
    pub fn is_caught(stack: Range<u64>) -> bool {
        let mut first = First { stack, is_caught: false };
        _Unwind_Backtrace(visit_first, (&raw mut first).cast());
        first.is_caught
    }

    extern "C" fn visit_first(context: &UnwindContext<'_>, first: *mut c_void) -> UnwindReasonCode {
        // SAFETY: from `is_caught`, which does not touch it meanwhile.
        let first = unsafe { &mut *first.cast::<First>() };
        let sp = _Unwind_GetCFA(context) as u64;
        if sp >= first.stack.end {
            return UnwindReasonCode::END_OF_STACK;
        }
        let answer = if sp < first.stack.start { Answer::Passes } else { answer(context) };
        first.is_caught = matches!(answer, Answer::Caught);
        match answer {
            Answer::Passes => UnwindReasonCode::NO_REASON,
            Answer::Caught | Answer::Forbidden => UnwindReasonCode::END_OF_STACK,
        }
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
    pub fn find(_: core::ops::Range<u64>, _: bool) -> Option<super::Registers> {
        None
    }

    pub fn is_caught(_: core::ops::Range<u64>) -> bool {
        false
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
        SEEN.set([faulted.registers.rsp as usize, faulted.at().0 as usize]);
        // SAFETY: BACK holds what the test's own switch saved, used once.
        BACK.with(|back| unsafe { cpu::switch::gogo::<_, 0>(back) })
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
        // SAFETY: below `overflow` is half of this test's own stack.
        unsafe { divert(&mut frame, 0x5678, diverted) };
        let (rip, rsp, rdi) = frame.target();
        assert_eq!(rsp % 16, 0, "not as before a call");
        // SAFETY: as the interrupt would return.
        unsafe { go(BACK.with(Cell::as_ptr), rip, rsp, rdi) };
        assert_eq!(SEEN.get(), [full as usize, 0x1234]);
        assert!(stack[8193..].iter().all(|&word| word == 0xaa), "above was in use");
        stack.clear();
    }

    #[test]
    fn calls_are_told_from_other_instructions() {
        for (code, length) in [
            (&[0xe8, 0, 0, 0, 0][..], Some(5)),         // call next
            (&[0xff, 0xd0], Some(2)),                   // call rax
            (&[0x41, 0xff, 0xd7], Some(3)),             // call r15
            (&[0xff, 0x13], Some(2)),                   // call [rbx]
            (&[0xff, 0x50, 0x18], Some(3)),             // call [rax + 24]
            (&[0xff, 0x90, 0, 1, 0, 0], Some(6)),       // call [rax + 256]
            (&[0xff, 0x15, 0, 1, 0, 0], Some(6)),       // call [rip + 256]
            (&[0xff, 0x14, 0x24], Some(3)),             // call [rsp]
            (&[0xff, 0x54, 0x24, 8], Some(4)),          // call [rsp + 8]
            (&[0xff, 0x14, 0xc5, 0, 0, 0, 0], Some(7)), // call [8 * rax + 0]
            (&[0x43, 0xff, 0x54, 0xc5, 0], Some(5)),    // call [r13 + 8 * r8]
            (&[0xff, 0x30], None),                      // push [rax]
            (&[0xff, 0xe0], None),                      // jmp rax
            (&[0x41, 0x57], None),                      // push r15
            (&[0x48, 0x89, 0x45, 0xf8], None),          // mov [rbp - 8], rax
            (&[0xe8, 0, 0], None),                      // cut
            (&[0xff], None),
            (&[0x41], None),
            (&[], None),
        ] {
            assert_eq!(call_length(code), length, "{code:x?}");
        }
    }
}
