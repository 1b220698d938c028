//! From an interrupt to the next G: the interrupted one leaves its CPU, without a step of its own.
//!
//! A handler that wants the interrupted G to leave cannot simply call the scheduler: it runs on the
//! CPU's interrupt stack, which the next interrupt uses again, with the G's registers on it.
//! [`leave`] moves them, as the [`Frame`] that they are, to the G's own stack, and goes to the
//! stack of the M, as `mcall` does. What the G goes on with when it runs again is the second half
//! of the interrupt's entry (`trap::trap_return`): it pops that frame and returns from the
//! interrupt. So registers are saved and restored once, and the interrupt stack is empty. A G in a
//! blocking call goes on a step earlier: its M has left with it, and takes the place of the M
//! there.
//!
//! ```text
//!      the G's stack           after leave
//!   | ...              |    | ...              |
//!   |                  |    | Frame            |
//!   +------------------+    | trap_return      |
//!                           +------------------+ <- the word in g
//! ```
//!
//! Interrupts are off from the handler's decision to the next G, so it is made once. The frame's
//! flags have them on, as they were.
//!
//! # Room
//!
//! There is no red zone on this target, so the words below the stack pointer are free. Their page
//! may not be there yet, and the G may be near the end of its stack: so the handler asks for room
//! first ([`can_leave`], `Handlers::room_to_preempt`), [`ROOM`] bytes of it; in a blocking call
//! [`ROOM_IN_CALL`], for what its M does there before the call goes on. That walks the page tables,
//! and is not needed where the room ends in the page that the frame pointer is in: the G has pushed
//! the word that the frame pointer points at, so that page is there.
//!
//! # Not inside the unwinder
//!
//! To resume in a landing pad, crate `unwinding` 0.2.10 sets the stack pointer first and then
//! reads the other registers from its record, which lies *below* the stack pointer by then.
//! Interrupt handlers leave the record alone, as every vector has a stack of its own
//! (`trap::init_cpu`). The frame would be written over it, and the G would resume with wrong
//! registers. So the linker script gathers the unwinder's functions between two symbols,
//! and a G that is interrupted between them is preempted by a later tick
//! ([`is_in_unwinder`]). The sequence stands nowhere else in the
//! image: the machine test `unwinding` searches the ELF file for it.
//!
//! What was rejected: interrupts off, or no preemption, for as long as a G unwinds (it runs
//! destructors in between, which may wait or compute for long); a gap below the stack pointer
//! as a red zone is (the distance to the record is as large as any function's frame);
//! replacing the sequence at boot by one in the right order (code that changes itself).

use super::trap::{self, Frame};
use crate::arch::x86_64::cpu::PROBE_BYTES;
use crate::arch::x86_64::cpu::switch::OnM;
use crate::arch::x86_64::paging::PAGE_SIZE;
use core::arch::naked_asm;
use core::mem::offset_of;

/// Bytes that a preempted G needs below its stack pointer: a [`Frame`], aligned, and the address
/// that it goes on at. The machine test `overflow` preempts at every distance from the end.
pub const ROOM: u64 = 256;
/// The same in a blocking call, with the frames of `Handlers::resumed_in_call`.
pub const ROOM_IN_CALL: u64 = ROOM + PROBE_BYTES as u64 / 2;

/// Whether a G that was interrupted there, perhaps in a blocking call, can [`leave`]: not inside
/// the unwinder, and not near the end of its stack.
#[inline]
pub fn can_leave(frame: &Frame, in_call: bool) -> bool {
    !is_in_unwinder(frame.rip) && (!in_call && has_room(frame) || make_room(frame, in_call))
}

/// The same where it is not known.
#[cold]
fn make_room(frame: &Frame, in_call: bool) -> bool {
    let room = if in_call { ROOM_IN_CALL } else { ROOM };
    let range = frame.rsp.saturating_sub(room)..frame.rsp;
    trap::handlers().is_some_and(|handlers| (handlers.room_to_preempt)(range))
}

/// Leaves the interrupt and the G that it has interrupted: calls `f(cpu, g)` on the stack of an M,
/// as [`mcall`](crate::arch::x86_64::cpu::switch::mcall) does. `gogo` with `g` returns from the
/// interrupt; before that, if it is `in_call`, it calls `Handlers::resumed_in_call`.
///
/// # Safety
/// 1. `frame` is what a handler has got, for code that runs on the stack of `g`, and [`can_leave`].
/// 2. As for `mcall`.
#[inline(always)]
pub unsafe fn leave<C, G, const SP: usize, const BOTTOM: usize>(
    frame: &Frame,
    cpu: &'static C,
    g: &'static G,
    f: OnM<C, G>,
    in_call: bool,
) -> ! {
    let (cpu, g) = ((&raw const *cpu).cast(), (&raw const *g).cast());
    // SAFETY: the caller's promise. `f` is given the two as they are.
    unsafe { leave_for::<SP, BOTTOM>(cpu, g, f.code(), frame, trap::resumes_at(in_call)) }
}

/// [`leave`], with `f` as an address. The words of the frame in one go, as they lie there.
#[unsafe(naked)]
unsafe extern "C" fn leave_for<const SP: usize, const BOTTOM: usize>(
    _cpu: *const (),
    _g: *const (),
    _f: *const (),
    _frame: &Frame,
    _resumes_at: usize,
) -> ! {
    naked_asm!(
        "mov rsp, [rcx + {rsp}]",
        "and rsp, -16", // as on the interrupt stack; the frame has the pointer itself
        "push [rcx + {last}]; push [rcx + {last} - 8]; push [rcx + {last} - 16]",
        "push [rcx + {last} - 24]; push [rcx + {last} - 32]; push [rcx + {last} - 40]",
        "push [rcx + {last} - 48]; push [rcx + {last} - 56]; push [rcx + {last} - 64]",
        "push [rcx + {last} - 72]; push [rcx + {last} - 80]; push [rcx + {last} - 88]",
        "push [rcx + {last} - 96]; push [rcx + {last} - 104]; push [rcx + {last} - 112]",
        "push [rcx + {last} - 120]; push [rcx + {last} - 128]; push [rcx + {last} - 136]",
        "push [rcx + {last} - 144]; push [rcx + {last} - 152]; push [rcx + {last} - 160]",
        "push [rcx]",
        "push r8",
        "mov [rsi + {sp}], rsp",
        "mov rsp, [rdi + {bottom}]",
        "jmp rdx",
        rsp = const offset_of!(Frame, rsp),
        last = const offset_of!(Frame, ss),
        sp = const SP,
        bottom = const BOTTOM,
    )
}

/// Whether the room is known to be there: see the head of this file. Even if the register were no
/// frame pointer: a page of a stack that is missing is mended when it is written (`mem::stack`).
fn has_room(frame: &Frame) -> bool {
    (frame.rsp.wrapping_sub(ROOM) ^ frame.rbp) < PAGE_SIZE as u64
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::x86_64::cpu::switch;
    use core::cell::Cell;
    use core::mem::MaybeUninit;

    #[derive(Default)]
    struct Test {
        sp: Cell<usize>,
        /// Where the frames of `seen` begin.
        bottom: Cell<usize>,
        caller: Cell<usize>,
    }

    const SP: usize = offset_of!(Test, sp);
    const BOTTOM: usize = offset_of!(Test, bottom);
    const CALLER: usize = offset_of!(Test, caller);

    /// What the M does here: goes back to the test.
    extern "C" fn seen(cpu: &'static Test, _: &'static Test) -> ! {
        // SAFETY: `from_here` has saved it.
        unsafe { switch::gogo::<_, CALLER>(cpu) }
    }

    /// A handler, on the interrupt stack.
    extern "C" fn handler(both: &'static (Frame, Test), _: &'static Test) -> ! {
        // SAFETY: the stack below the frame's pointer and that of the M are the test's own.
        unsafe { leave::<_, _, SP, BOTTOM>(&both.0, &both.1, &both.1, OnM::new(seen), false) }
    }

    #[test]
    fn frame_is_moved_whole_and_gone_on_with_by_the_return() {
        const WORDS: usize = size_of::<Frame>() / 8;
        let mut stack = vec![0u128; 4096];
        let top = stack.as_mut_ptr_range().end as usize;
        let of_m = vec![0u128; 4096].leak();
        for odd in [0, 8, 1, 15] {
            let mut words: [u64; WORDS] = core::array::from_fn(|i| i as u64 + 1);
            words[offset_of!(Frame, rsp) / 8] = (top - odd) as u64;
            // SAFETY: all numbers.
            let frame: Frame = unsafe { core::mem::transmute(words) };
            let both: &(Frame, Test) = Box::leak(Box::new((frame, Test::default())));
            // SAFETY: this test's own.
            let bottom = unsafe { switch::bottom_of(of_m.as_mut_ptr_range().end as usize) };
            both.1.bottom.set(bottom);
            // SAFETY: as above; `seen` comes back here.
            unsafe {
                switch::mcall::<_, _, CALLER, BOTTOM_OF_BOTH>(
                    both,
                    &both.1,
                    OnM::new(handler),
                    NO_WORDS,
                )
            };
            let sp = both.1.sp.get();
            let word = |at: usize| {
                // SAFETY: in the test's own stack.
                unsafe { *(at as *const usize) }
            };
            assert_eq!(word(sp), trap::trap_return());
            assert!((0..WORDS).all(|i| word(sp + 8 + 8 * i) as u64 == words[i]));
            let end = sp + 8 + size_of::<Frame>();
            assert!(end.is_multiple_of(16) && end <= top - odd && top - odd - sp <= ROOM as usize);
            let (rip, rbp) = (frame.rip as usize, frame.rbp as usize);
            assert_eq!(trap::saved(sp, |at| Some(word(at))), Some((rip, rbp)));
        }
    }

    const NO_WORDS: switch::Words = (MaybeUninit::uninit(), MaybeUninit::uninit());
    const BOTTOM_OF_BOTH: usize = offset_of!((Frame, Test), 1) + BOTTOM;
}
