//! From one stack to another: the context switch proper.
//!
//! A context is one word, the saved stack pointer. On that stack lie the address to go on at and
//! the two registers that only the code that leaves can restore. All others the compiler has saved
//! already: [`mcall`] is inlined where a G leaves, and says that it changes every register, so what
//! is live there, often little or nothing, is in the frame of the code that leaves. A switch that is
//! called like any other function would save and restore six. The target is soft-float.
//!
//! Only a G has a context. An M has none: a function that a G calls by [`mcall`] begins at the end
//! of the M's stack and never returns, so there is nothing of the M to save or to restore.

use core::arch::{asm, naked_asm};
use core::marker::PhantomData;
use core::mem::MaybeUninit;

/// What an M runs for a G that has left, from the end of the M's stack: it never returns.
pub struct OnM<C: 'static, G: 'static> {
    code: *const (),
    gets: PhantomData<fn(&'static C, &'static G)>,
}

impl<C, G> OnM<C, G> {
    #[inline(always)]
    pub fn new(f: extern "C" fn(&'static C, &'static G) -> !) -> Self {
        OnM { code: f as *const (), gets: PhantomData }
    }

    /// For a function that gets two words as well, by [`mcall`]. The third argument is in the register
    /// that `rdtsc` changes, and is of no use.
    #[inline(always)]
    pub fn with_words(f: extern "C" fn(&'static C, &'static G, usize, usize, u32) -> !) -> Self {
        OnM { code: f as *const (), gets: PhantomData }
    }
}

impl<C, G> OnM<C, G> {
    /// Where the function is.
    #[inline(always)]
    pub fn code(self) -> *const () {
        self.code
    }
}

/// What [`mcall`] passes to a function with words; nothing to another, at no cost.
pub type Words = (MaybeUninit<usize>, MaybeUninit<u32>);

/// Leaves this stack, whose pointer is stored in the word at `SP` in `g`, and calls `f(cpu, g)` on
/// the stack of an M, whose bottom is in the word at `BOTTOM` in `cpu` (Go: mcall). Returns when a
/// CPU calls [`gogo`] with `g`. Two records and two constants, so that each is in the register in
/// which `f` gets it, and no address is computed.
///
/// ```text
///     the stack that is left           the stack of the M
///   | frame that leaves   |          | 0: no caller        | <- bottom
///   | rbp                 |          | frames of f         |
///   | rbx                 |
///   | return address      |
///   +---------------------+ <- the word in g
/// ```
///
/// # Safety
/// 1. At `SP` and `BOTTOM` are a `Cell<usize>` each. The bottom was made by [`bottom_of`], and no
///    CPU runs on that stack.
/// 2. No CPU enters the stack that is left before its pointer is stored.
/// 3. Interrupts are off, or what happens on the way may be interrupted on
///    either stack.
/// 4. A function [with words](OnM::with_words) gets both.
#[inline(always)]
pub unsafe fn mcall<C, G, const SP: usize, const BOTTOM: usize>(
    cpu: &'static C,
    g: &'static G,
    f: OnM<C, G>,
    words: Words,
) {
    // The frame pointer, and rbx, which the compiler keeps for itself: neither can
    // be named below. Memory and flags are changed, as nothing says otherwise.
    // What is called stores the stack pointer, on which its return address is: there the G goes on.
    // It is out of the way, so that nothing jumps over it. Backtraces end at `f`, to which the bottom
    // of the stack is a return address: none.
    // SAFETY: `gogo` finds the stack as it was, so all is as if the call had returned; the rest is
    // the caller's promise.
    unsafe {
        asm!(
            // lab 1 begin: leave
            "push rbp",
            "push rbx",
            "call 2f",
            "pop rbx",
            "pop rbp",
            ".subsection 1",
            "2:",
            "mov [rsi + {sp}], rsp",
            "mov rsp, [rdi + {bottom}]",
            "jmp rdx",
            ".previous",
            // lab 1 end
            sp = const SP,
            bottom = const BOTTOM,
            inout("rdi") cpu => _,
            inout("rsi") g => _,
            inout("rdx") f.code => _,
            inout("rcx") words.0 => _,
            inout("r8") words.1 => _,
            lateout("r12") _,
            lateout("r13") _,
            lateout("r14") _,
            lateout("r15") _,
            clobber_abi("C"),
        );
    }
}

/// As [`mcall`], for code that leaves its stack for good: nothing is saved.
///
/// # Safety
/// As for [`mcall`]; and no CPU goes back to the stack that is left.
#[inline(always)]
pub unsafe fn mcall_for_good<C, G, const BOTTOM: usize>(
    cpu: &'static C,
    g: &'static G,
    f: OnM<C, G>,
) -> ! {
    // SAFETY: as in `mcall`; nothing comes back here, says the caller.
    unsafe {
        asm!("mov rsp, [rdi + {}]", "jmp {}", const BOTTOM, in(reg) f.code,
            in("rdi") cpu, in("rsi") g, options(noreturn))
    }
}

/// Goes on with the context of `g` (Go: gogo). The stack that is left is free from then on. In the
/// register of a second argument: a function that [`prepare`] has made a context for gets `g` so.
///
/// # Safety
/// 1. At `SP` in `g` is what [`mcall`] or `preempt::leave` stored or [`prepare`] made, and it is used
///    once.
/// 2. No other CPU runs on that stack.
/// 3. As for [`mcall`].
#[inline(always)]
pub unsafe fn gogo<G, const SP: usize>(g: &G) -> ! {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            // lab 1 begin: enter
            "mov rsp, [rsi + {sp}]",
            "ret",
            // lab 1 end
            sp = const SP,
            in("rsi") g,
            options(noreturn)
        )
    }
}

/// Where the frames of an M begin on a fresh stack: as if its first function had just been called,
/// with no caller above it.
///
/// # Safety
/// `top` is the 16-byte aligned end of a stack whose highest 8 bytes can be written.
pub unsafe fn bottom_of(top: usize) -> usize {
    let bottom = top - size_of::<usize>();
    // SAFETY: the caller's promise.
    unsafe { (bottom as *mut usize).write(0) };
    bottom
}

/// What [`call_on`] calls, by its type: an address in a register would take an instruction more.
pub trait OnStack {
    /// The root of the call, which gets the address of this.
    extern "C" fn in_call(this: usize);
}

/// Calls [`OnStack::in_call`] on another stack, from `bottom` downwards.
///
/// # Safety
/// 1. `bottom` was made by [`bottom_of`], and below it is room for it that nothing else uses until
///    this returns.
/// 2. It does not unwind.
#[inline(always)]
pub unsafe fn call_on<T: OnStack>(bottom: usize, this: &mut T) {
    let this = (&raw mut *this).expose_provenance();
    // The frame pointer stays: its frame leads to the caller's, on the other stack.
    // SAFETY: it is called as a C function is, on the stack that the caller promises, and aligned
    // by the one word below the bottom, by which this stack is found again.
    unsafe {
        asm!(
            "xchg rsp, rax",
            "push rax",
            "call {f}",
            "pop rsp",
            f = sym T::in_call,
            inout("rax") bottom => _,
            inout("rdi") this => _,
            clobber_abi("C"),
        );
    }
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

/// Makes a context on a fresh stack: [`gogo`] to it, with a `g`, calls `entry(_, g)`.
///
/// # Safety
/// `top` is the 16-byte aligned end of a stack of which at least the highest
/// 128 bytes can be written, and which nothing else uses.
#[inline(always)]
pub unsafe fn prepare<G>(top: usize, entry: extern "C" fn(usize, &'static G) -> !) -> usize {
    // lab 1 begin: prepare
    // As `mcall` saves it, but that `entry` finds the stack as after a call: aligned, and on top of
    // it the address to return to, which is none. There and at rbp backtraces end.
    const WORD: usize = size_of::<usize>();
    let words = [entry as *const () as usize, 0, 0];
    let sp = top - 4 * WORD;
    // SAFETY: the caller's promise about the highest 128 bytes.
    unsafe { (sp as *mut [usize; 3]).write(words) };
    sp
    // lab 1 end
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    thread_local! {
        static OTHER: Cell<usize> = const { Cell::new(0) };
        static SEEN: Cell<usize> = const { Cell::new(0) };
    }

    /// A G: a stack pointer, and the G that is next.
    #[derive(Default)]
    struct TestG {
        next: Cell<Option<&'static TestG>>,
        cpu: Cell<Option<&'static TestCpu>>,
        sp: Cell<usize>,
    }

    #[derive(Default)]
    struct TestCpu {
        bottom: Cell<usize>,
    }

    const SP: usize = core::mem::offset_of!(TestG, sp);
    const BOTTOM: usize = core::mem::offset_of!(TestCpu, bottom);
    const WORDS: Words = (MaybeUninit::new(7), MaybeUninit::new(8));

    /// Two Gs by turns: the test itself and `other`, each of which names the other for the M.
    extern "C" fn other(_: usize, g: &'static TestG) -> ! {
        let cpu = g.cpu.get().expect("the test has set it");
        let frame = core::hint::black_box(0u128);
        assert!((&raw const frame).addr().is_multiple_of(16));
        SEEN.set(40);
        loop {
            // SAFETY: the M's stack is the test's own, and nothing is on it.
            unsafe { mcall::<_, _, SP, BOTTOM>(cpu, g, OnM::with_words(next), WORDS) };
            SEEN.set(SEEN.get() + 1);
        }
    }

    /// What the M does: goes on with the G that is named. An unaligned stack would fault here.
    extern "C" fn next(cpu: &'static TestCpu, g: &'static TestG, _: usize, a: usize, b: u32) -> ! {
        assert_eq!((a, b), (7, 8));
        let frame = core::hint::black_box(0u128);
        let at = (&raw const frame).addr();
        assert!(at.is_multiple_of(16) && at < cpu.bottom.get());
        let next = g.next.get().expect("the test has set it");
        // SAFETY: it holds a prepared or saved context, used once.
        unsafe { gogo::<_, SP>(next) }
    }

    impl OnStack for usize {
        extern "C" fn in_call(this: usize) {
            let here = core::hint::black_box(0u8);
            // SAFETY: from `call_on`.
            SEEN.set(unsafe { *core::ptr::with_exposed_provenance(this) });
            OTHER.set((&raw const here).addr());
        }
    }

    #[test]
    fn a_call_runs_on_the_other_stack_and_comes_back() {
        let mut stack = vec![0u128; 16384];
        let range = stack.as_mut_ptr_range();
        // SAFETY: `stack` is this test's own and 16-byte aligned.
        let bottom = unsafe { bottom_of(range.end as usize) };
        // SAFETY: as above; the function does not unwind.
        unsafe { call_on(bottom, &mut 7usize) };
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
        let cpu: &TestCpu = Box::leak(Box::default());
        let [main, second]: &[TestG; 2] = Box::leak(Box::default());
        main.next.set(Some(second));
        second.next.set(Some(main));
        second.cpu.set(Some(cpu));
        // SAFETY: `stack` is this test's own and 16-byte aligned.
        second.sp.set(unsafe { prepare(top, other) });
        let mut of_m = vec![0u128; 16384];
        // SAFETY: as above.
        cpu.bottom.set(unsafe { bottom_of(of_m.as_mut_ptr_range().end as usize) });
        for expected in 40..45 {
            // SAFETY: the M's stack is this test's own, and nothing is on it.
            unsafe { mcall::<_, _, SP, BOTTOM>(cpu, main, OnM::with_words(next), WORDS) };
            assert_eq!(SEEN.get(), expected);
        }
    }
}
