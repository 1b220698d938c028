//! From one stack to another: the context switch proper.
//!
//! A context is one word, the saved stack pointer. On that stack lie the address to go on at and
//! the two registers that only the code that leaves can restore. All others the compiler has saved
//! already: [`switch`] is inlined where a G or an M leaves, and says that it changes every
//! register, so what is live there, often little or nothing, is in the frame of the code that
//! leaves. A switch that is called like any other function would save and restore six. The target
//! is soft-float.

use core::arch::{asm, naked_asm};

/// Leaves this stack, whose pointer is stored in `*save`, and goes on with the
/// stack `to`. Returns when a CPU switches back to what was saved.
///
/// ```text
///     the stack that is left          the stack that is entered
///   | frame that leaves   |         | frame that left     |
///   | rbp                 |         | rbp                 |
///   | rbx                 |         | rbx                 |
///   | return address      |         | return address      |
///   +---------------------+ <- *save +---------------------+ <- to
/// ```
///
/// # Safety
/// 1. `to` was stored by `switch` or made by [`prepare`], and is used once.
/// 2. No other CPU runs on that stack, and none enters the stack that is left
///    before the store to `*save`.
/// 3. Interrupts are off, or what happens on the way may be interrupted on
///    either stack.
#[inline(always)]
pub unsafe fn switch(save: *mut usize, to: usize) {
    // The frame pointer, and rbx, which the compiler keeps for itself: neither can
    // be named below. Memory and flags are changed, as nothing says otherwise.
    // SAFETY: a switch back to what `hop` saved finds the stack as it was, so
    // all is as if `hop` had returned; the rest is the caller's promise.
    unsafe {
        asm!(
            "push rbp",
            "push rbx",
            "call {hop}",
            "pop rbx",
            "pop rbp",
            hop = sym hop,
            inout("rdi") save => _,
            inout("rsi") to => _,
            lateout("r12") _,
            lateout("r13") _,
            lateout("r14") _,
            lateout("r15") _,
            clobber_abi("C"),
        );
    }
}

/// What is left of [`switch`]: its return address is where the other goes on.
#[unsafe(naked)]
extern "C" fn hop() {
    naked_asm!("mov [rdi], rsp", "mov rsp, rsi", "ret")
}

/// As [`switch`], for code that leaves its stack for good: nothing is saved.
///
/// # Safety
/// As for [`switch`]; and no switch goes back to the stack that is left.
#[inline(always)]
pub unsafe fn switch_for_good(to: usize) -> ! {
    // SAFETY: as in `switch`; no switch comes back here, says the caller.
    unsafe { asm!("mov rsp, {}", "ret", in(reg) to, options(noreturn)) }
}

/// Where in a context that `switch` saved at `sp` the return address and the frame pointer are.
pub fn saved_at(sp: usize) -> (usize, usize) {
    const WORD: usize = size_of::<usize>();
    (sp, sp.wrapping_add(2 * WORD))
}

/// Calls `f(arg)` on another stack, from `top` downwards.
///
/// # Safety
/// 1. `top` is 16-byte aligned, and below it is room for `f` that nothing else
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

/// Calls `f(a, b)`, which is rare and does not unwind, and keeps all registers: so the caller saves
/// none for it, also not at its own beginning, where the common path would pay for the rare call.
#[inline(always)]
pub fn call_rarely(f: extern "C" fn(*const (), *const ()), a: *const (), b: *const ()) {
    core::hint::cold_path();
    // SAFETY: `keeping` calls `f` as a C function is called, and restores all that
    // such a one may change but rax. Memory is changed, as nothing says otherwise.
    #[cfg(target_os = "none")]
    unsafe {
        asm!("call {keeping}", keeping = sym keeping, inout("rax") f => _, in("rdi") a, in("rsi") b);
    }
    // On the host there are more registers than these, of SSE.
    #[cfg(not(target_os = "none"))]
    f(a, b);
}

/// Calls rax, with all registers saved that a C function may change. In a frame, for backtraces.
#[cfg(any(target_os = "none", test))]
#[unsafe(naked)]
extern "C" fn keeping() {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "and rsp, -16", // around assembly the compiler does not see to it
        "call rax",
        "lea rsp, [rbp - 8 * 8]",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop rbp",
        "ret",
    )
}

/// Makes a context on a fresh stack: switching to it calls `entry(arg)`.
///
/// # Safety
/// `top` is the 16-byte aligned end of a stack of which at least the highest
/// 128 bytes can be written, and which nothing else uses.
pub unsafe fn prepare(top: usize, entry: extern "C" fn(usize) -> !, arg: usize) -> usize {
    // As `switch` saves it, with the argument in the place of rbx, and one word more, for `first`.
    const WORD: usize = size_of::<usize>();
    let words = [
        first as *const () as usize, // return address
        arg,                         // rbx
        0,                           // rbp: a backtrace ends here
        entry as *const () as usize,
    ];
    let sp = top - words.len() * WORD;
    // SAFETY: the caller's promise about the highest 128 bytes.
    unsafe { (sp as *mut [usize; 4]).write(words) };
    sp
}

/// The first instructions on a new stack, whose end is 16-byte aligned, as it must be at a call.
#[unsafe(naked)]
extern "C" fn first() {
    naked_asm!("pop rdi", "pop rbp", "pop rax", "call rax", "ud2")
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

    /// Changes all that a C function may change.
    extern "C" fn spoil(a: *const (), b: *const ()) {
        SEEN.set(a.addr() + b.addr());
        // SAFETY: what it changes it says.
        unsafe {
            asm!(
                "mov rcx, -1",
                "mov rdx, -1",
                "mov rsi, -1",
                "mov rdi, -1",
                "mov r8, -1",
                "mov r9, -1",
                "mov r10, -1",
                "mov r11, -1",
                clobber_abi("C"),
            );
        }
    }

    #[test]
    fn a_rare_call_keeps_registers() {
        let [mut c, mut d, mut si, mut di, mut r8, mut r9, mut r10, mut r11] =
            [1, 2, 3, 4, 5, 6, 7, 8];
        let f: extern "C" fn(*const (), *const ()) = spoil;
        // SAFETY: as in `call_rarely`; on the host those of SSE are changed, too.
        unsafe {
            asm!(
                "call {keeping}",
                keeping = sym keeping,
                inout("rax") f => _,
                inout("rcx") c,
                inout("rdx") d,
                inout("rsi") si,
                inout("rdi") di,
                inout("r8") r8,
                inout("r9") r9,
                inout("r10") r10,
                inout("r11") r11,
                clobber_abi("C"),
            );
        }
        assert_eq!(SEEN.get(), 3 + 4, "it got its arguments");
        assert_eq!([c, d, si, di, r8, r9, r10, r11], [1, 2, 3, 4, 5, 6, 7, 8]);
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
