//! From an interrupt to the G it interrupted: a call that the G never made.
//!
//! A handler that wants the interrupted G to leave its CPU cannot switch stacks itself: it runs on
//! the CPU's interrupt stack, which the next interrupt will use again. So it makes the G do it.
//! [`inject`] pushes the interrupted instruction's address on the G's own stack, like a call, and
//! sends the return of the interrupt to [`call_preempt`], which saves every register, calls the
//! kernel, restores them, and returns. The G's whole state is on its own stack.
//!
//! ```text
//!      the G's stack           after inject             in call_preempt
//!   | ...              |    | ...              |     | ...              |
//!   |                  |    | interrupted rip  |     | interrupted rip  |
//!   +------------------+    +------------------+     | rbp              |
//!                                                    | rflags           |
//!                                                    | 14 registers     |
//!                                                    +------------------+
//! ```
//!
//! The first two words are those of any call, so that a walk along the frames goes through.
//!
//! There is no red zone on this target, so the word below the stack pointer is free. Its page may
//! not be there yet, and the G may be near the end of its stack: so the handler asks for room first
//! (`Handlers::room_to_preempt`), [`ROOM`] bytes of it.
//!
//! # Not inside the unwinder
//!
//! To resume in a landing pad, crate `unwinding` 0.2.10 sets the stack pointer first and then
//! reads the other registers from its record, which lies *below* the stack pointer by then.
//! Interrupt handlers leave the record alone, as every vector has a stack of its own
//! (`trap::init_cpu`). The injected call would be written over it, and the G would resume with
//! wrong registers. So the linker script gathers the unwinder's functions between two symbols,
//! and a G that is interrupted between them is preempted by a later tick
//! ([`is_in_unwinder`], `Handlers::preempt_later`). The sequence stands nowhere else in the
//! image: the machine test `unwinding` searches the ELF file for it.
//!
//! What was rejected: interrupts off, or no preemption, for as long as a G unwinds (it runs
//! destructors in between, which may wait or compute for long); a gap below the stack pointer
//! as a red zone is (the distance to the record is as large as any function's frame);
//! replacing the sequence at boot by one in the right order (code that changes itself).

use super::trap::{self, Frame, Handlers, pop_registers, push_registers};
use crate::arch::x86_64::cpu;
use core::arch::naked_asm;

/// Bytes that a preempted G needs below its stack pointer: what is pushed here, the scheduler's
/// frames, and its stack probe. The machine test `overflow` preempts at every distance from the
/// end.
pub const ROOM: u64 = cpu::PROBE_BYTES as u64 + 1024;

/// Makes the interrupted G call `Handlers::preempt` before it goes on, or asks for another tick
/// where it cannot: inside the unwinder, and near the end of its stack.
///
/// # Safety
/// `frame` is that of a G which was interrupted with interrupts on, and will be
/// returned to by `iretq`.
pub unsafe fn inject(frame: &mut Frame, handlers: &Handlers) {
    if is_in_unwinder(frame.rip) || !(handlers.room_to_preempt)(frame.rsp) {
        return (handlers.preempt_later)();
    }
    frame.rsp -= 8;
    // SAFETY: the word below a G's stack pointer, which need not be aligned, is its own, and there.
    unsafe { (frame.rsp as *mut u64).write_unaligned(frame.rip) };
    frame.rip = call_preempt as *const () as u64;
}

/// Whether this instruction is the unwinder's. On the host no G is interrupted.
fn is_in_unwinder(rip: u64) -> bool {
    #[cfg(target_os = "none")]
    {
        unsafe extern "C" {
            safe static __unwinder_start: u8;
            safe static __unwinder_end: u8;
        }
        let start = (&raw const __unwinder_start).addr() as u64;
        let end = (&raw const __unwinder_end).addr() as u64;
        (start..end).contains(&rip)
    }
    #[cfg(not(target_os = "none"))]
    {
        let _ = rip;
        false
    }
}

/// Saves all, calls, restores all, returns. The stack may be aligned to 8 only,
/// so it is aligned for the call and put back by RBX.
#[unsafe(naked)]
extern "C" fn call_preempt() {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "pushfq",
        push_registers!(),
        "mov rbx, rsp",
        "and rsp, -16",
        "cld",
        "call {on_g}",
        "mov rsp, rbx",
        pop_registers!(),
        "popfq",
        "pop rbp",
        "ret",
        on_g = sym on_g,
    )
}

extern "C" fn on_g() {
    if let Some(handlers) = trap::handlers() {
        (handlers.preempt)();
    }
}
