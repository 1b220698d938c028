//! From one stack to another: the context switch proper.
//!
//! A context is one word, the saved stack pointer. On that stack lie the
//! registers that a called function must keep, and the address to go on at.
//! There is no floating-point state: the target is soft-float.

use core::arch::naked_asm;

/// Leaves this stack, whose pointer is stored in `*save`, and goes on with the
/// stack `to`. Returns when somebody switches back to what was saved.
///
/// ```text
///     the stack that is left          the stack that is entered
///   | return address      |         | return address      |
///   | rbp                 |         | rbp                 |
///   | rbx, r12 .. r15     |         | rbx, r12 .. r15     |
///   +---------------------+ <- *save +---------------------+ <- to
/// ```
///
/// # Safety
/// 1. `to` was stored by `switch` or made by [`prepare`], and is used once.
/// 2. Nobody else runs on that stack, and nobody enters the stack that is left
///    before the store to `*save`.
/// 3. Interrupts are off, or what happens on the way may be interrupted on
///    either stack.
#[unsafe(naked)]
pub unsafe extern "C" fn switch(save: *mut usize, to: usize) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// As [`switch`], for one who leaves its stack for good: nothing is saved.
///
/// # Safety
/// As for [`switch`]; and nobody comes back to the stack that is left.
#[unsafe(naked)]
pub unsafe extern "C" fn switch_for_good(to: usize) -> ! {
    naked_asm!(
        "mov rsp, rdi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Where in a context that `switch` saved at `sp` the return address and the
/// frame pointer are.
pub fn saved_at(sp: usize) -> (usize, usize) {
    const WORD: usize = size_of::<usize>();
    (sp.wrapping_add(6 * WORD), sp.wrapping_add(5 * WORD))
}

/// Calls `f(arg)` on another stack, from `top` downwards, and returns when it
/// has returned.
///
/// # Safety
/// 1. `top` is 16-byte aligned, and below it is room for `f` that nobody else
///    uses until this returns.
/// 2. `f` does not unwind.
#[unsafe(naked)]
pub unsafe extern "C" fn call_on(top: usize, f: extern "C" fn(usize), arg: usize) {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    )
}

/// Makes a context on a fresh stack: switching to it calls `entry(arg)`.
///
/// # Safety
/// `top` is the 16-byte aligned end of a stack of which at least the highest
/// 128 bytes can be written, and which nobody else uses.
pub unsafe fn prepare(top: usize, entry: extern "C" fn(usize) -> !, arg: usize) -> usize {
    // What `switch` pops, then where it returns to, and two words for the
    // alignment. `first` moves rbx and r12 to where they belong; nobody looks at
    // r13 to r15, which are whatever was there.
    const WORD: usize = size_of::<usize>();
    let sp = top - 9 * WORD;
    let words = [
        entry as *const () as usize, // r12
        arg,                         // rbx
        0,                           // rbp: a backtrace ends here
        first as *const () as usize, // return address
    ];
    // SAFETY: the caller's promise about the highest 128 bytes.
    unsafe { ((sp + 3 * WORD) as *mut [usize; 4]).write(words) };
    sp
}

/// The first instructions on a new stack. `rsp` is 16-byte aligned here, as it
/// must be before a call.
#[unsafe(naked)]
extern "C" fn first() {
    naked_asm!("mov rdi, rbx", "call r12", "ud2")
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    thread_local! {
        static MAIN: Cell<usize> = const { Cell::new(0) };
        static OTHER: Cell<usize> = const { Cell::new(0) };
        static SEEN: Cell<usize> = const { Cell::new(0) };
    }

    extern "C" fn other(arg: usize) -> ! {
        let mut i = arg;
        loop {
            SEEN.set(i);
            i += 1;
            // SAFETY: MAIN holds what the test's own switch saved.
            unsafe { switch(OTHER.with(Cell::as_ptr), MAIN.get()) };
        }
    }

    extern "C" fn on_the_other(arg: usize) {
        let here = core::hint::black_box(0u8);
        SEEN.set(arg);
        OTHER.set((&raw const here).addr());
    }

    #[test]
    fn a_call_runs_on_the_other_stack_and_comes_back() {
        let mut stack = vec![0u128; 16384];
        let range = stack.as_mut_ptr_range();
        // SAFETY: `stack` is this test's own and 16-byte aligned.
        unsafe { call_on(range.end as usize, on_the_other, 7) };
        assert_eq!(SEEN.get(), 7);
        assert!((range.start as usize..range.end as usize).contains(&OTHER.get()));
    }

    #[test]
    fn a_switch_goes_there_and_back_with_its_argument() {
        let mut stack = vec![0u128; 16384];
        let top = stack.as_mut_ptr_range().end as usize;
        // SAFETY: `stack` is this test's own and 16-byte aligned.
        OTHER.set(unsafe { prepare(top, other, 40) });
        for expected in 40..45 {
            // SAFETY: OTHER holds a prepared or saved context, used once.
            unsafe { switch(MAIN.with(Cell::as_ptr), OTHER.get()) };
            assert_eq!(SEEN.get(), expected);
        }
    }
}
