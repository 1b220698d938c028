//! Lab 1 on the host: two stacks, and what is left of the registers.
#![cfg(loom)]
#![allow(dead_code, missing_docs, reason = "the source is written for another crate")]

#[path = "../src/arch/x86_64/cpu/switch.rs"]
pub mod switch;

use std::arch::naked_asm;
use std::cell::Cell;
use std::mem::{MaybeUninit, offset_of};
use switch::{OnM, Words, bottom_of, gogo, mcall, prepare};

/// A G: the word that `mcall` stores to, not the first one; and the G that is next.
#[repr(C)]
#[derive(Default)]
struct TestG {
    pad: [usize; 3],
    sp: Cell<usize>,
    next: Cell<Option<&'static TestG>>,
    cpu: Cell<Option<&'static TestCpu>>,
    log: Cell<Vec<usize>>,
}

#[repr(C)]
#[derive(Default)]
struct TestCpu {
    pad: [usize; 5],
    bottom: Cell<usize>,
}

const SP: usize = offset_of!(TestG, sp);
const BOTTOM: usize = offset_of!(TestCpu, bottom);
const WORDS: Words = (MaybeUninit::new(7), MaybeUninit::new(8));

/// The end of a stack of 64 KiB.
fn stack() -> usize {
    vec![0u128; 4096].leak().as_mut_ptr_range().end as usize
}

/// A CPU with the stack of an M.
fn cpu() -> &'static TestCpu {
    let cpu: &TestCpu = Box::leak(Box::default());
    // SAFETY: the stack is new, and nothing else uses it.
    cpu.bottom.set(unsafe { bottom_of(stack()) });
    cpu
}

fn g(cpu: &'static TestCpu) -> &'static TestG {
    let g: &TestG = Box::leak(Box::default());
    g.cpu.set(Some(cpu));
    g
}

/// What the M does: goes on with the next G.
extern "C" fn next(cpu: &'static TestCpu, g: &'static TestG, _: usize, a: usize, b: u32) -> ! {
    assert_eq!((a, b), (7, 8), "the words that the G that left passed on");
    let here = std::hint::black_box(0u128);
    let here = (&raw const here).addr();
    assert!(here < cpu.bottom.get() && here + 4096 > cpu.bottom.get(), "not on the M's stack");
    let next = g.next.get().expect("the test has set it");
    // SAFETY: it holds a prepared or a saved context, used once.
    unsafe { gogo::<_, SP>(next) }
}

/// The G of the thread of the test.
fn leave(g: &'static TestG) {
    let cpu = g.cpu.get().expect("set");
    // SAFETY: the M's stack is the test's own, and nothing is on it.
    unsafe { mcall::<_, _, SP, BOTTOM>(cpu, g, OnM::with_words(next), WORDS) };
}

extern "C" fn first_run(_: usize, g: &'static TestG) -> ! {
    let frame = std::hint::black_box(0u128);
    g.log.set(vec![1, (&raw const frame).addr() % 16]);
    leave(g);
    unreachable!("no G goes on with this one")
}

/// The words that a function finds on its stack when it begins.
#[unsafe(naked)]
extern "C" fn at_entry(_: usize, _: &'static TestG) -> ! {
    naked_asm!(
        "mov rdi, rsp",
        "mov rdx, [rsp]",
        "jmp {entered}",
        entered = sym entered,
    )
}

extern "C" fn entered(rsp: usize, g: &'static TestG, top_word: usize) -> ! {
    g.log.set(vec![rsp % 16, top_word]);
    // SAFETY: a stack of its own: this one is not used again, and was left where a call would.
    unsafe { on_aligned_stack(g) }
}

/// Leaves from a frame of its own, wherever the stack is.
///
/// # Safety
/// Below it is room.
#[unsafe(naked)]
unsafe extern "C" fn on_aligned_stack(_: &'static TestG) -> ! {
    naked_asm!("and rsp, -16", "call {gone}", "ud2", gone = sym gone)
}

extern "C" fn gone(g: &'static TestG) -> ! {
    leave(g);
    unreachable!("no G goes on with this one")
}

#[test]
fn a_first_run_gets_its_g_on_an_aligned_stack() {
    let cpu = cpu();
    let (main, new) = (g(cpu), g(cpu));
    main.next.set(Some(new));
    new.next.set(Some(main));
    let top = stack();
    // SAFETY: the stack is new, and nothing else uses it.
    new.sp.set(unsafe { prepare(top, at_entry) });
    let sp = new.sp.get();
    assert!(sp < top && sp + 128 >= top, "the context lies at {sp:#x}, the stack ends at {top:#x}");
    spoil_and_leave(main, &mut [0; 6]); // it relies on no register of this function's
    let log = new.log.take();
    assert_eq!(log[0], 8, "rsp mod 16 at the entry; as after a call it is 8");
    assert_eq!(log[1], 0, "the return address of the entry: 0, where backtraces end");
}

const KEPT: [usize; 6] = [0x1b, 0x2b, 0x3c, 0x4d, 0x5e, 0x6f];

/// Sets rbx, rbp and r12 to r15, leaves, and stores what they are then.
#[unsafe(naked)]
extern "C" fn with_registers(_: &'static TestG, _: &mut [usize; 6]) {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rsi",
        "mov ebx, 0x1b",
        "mov ebp, 0x2b",
        "mov r12d, 0x3c",
        "mov r13d, 0x4d",
        "mov r14d, 0x5e",
        "mov r15d, 0x6f",
        "call {leaves}",
        "pop rsi",
        "mov [rsi], rbx",
        "mov [rsi + 8], rbp",
        "mov [rsi + 16], r12",
        "mov [rsi + 24], r13",
        "mov [rsi + 32], r14",
        "mov [rsi + 40], r15",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
        leaves = sym leaves,
    )
}

extern "C" fn leaves(g: &'static TestG) {
    leave(g);
}

/// A G that changes them all, and leaves again.
extern "C" fn spoils(_: usize, g: &'static TestG) -> ! {
    loop {
        let mut seen = [0; 6];
        spoil_and_leave(g, &mut seen);
    }
}

/// Keeps what its caller has in registers on its stack, changes them, and leaves.
#[unsafe(naked)]
extern "C" fn spoil_and_leave(_: &'static TestG, _: &mut [usize; 6]) {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rsi",
        "xor ebx, ebx",
        "xor ebp, ebp",
        "xor r12d, r12d",
        "xor r13d, r13d",
        "xor r14d, r14d",
        "xor r15d, r15d",
        "call {leaves}",
        "pop rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
        leaves = sym leaves,
    )
}

#[test]
fn a_g_comes_back_with_its_registers() {
    let cpu = cpu();
    let (main, other) = (g(cpu), g(cpu));
    main.next.set(Some(other));
    other.next.set(Some(main));
    // SAFETY: the stack is new, and nothing else uses it.
    other.sp.set(unsafe { prepare(stack(), spoils) });
    for round in 0..3 {
        let mut seen = [0; 6];
        with_registers(main, &mut seen);
        assert_eq!(seen, KEPT, "round {round}: rbx, rbp, r12, r13, r14, r15 after the switch");
    }
}

extern "C" fn counts(_: usize, g: &'static TestG) -> ! {
    for n in 0.. {
        let mut log = g.log.take();
        log.push(n);
        g.log.set(log);
        leave(g);
    }
    unreachable!()
}

/// Three Gs in a ring: each goes on where it was.
#[test]
fn two_gs_take_turns() {
    let cpu = cpu();
    let (main, a, b) = (g(cpu), g(cpu), g(cpu));
    main.next.set(Some(a));
    a.next.set(Some(b));
    b.next.set(Some(main));
    for g in [a, b] {
        // SAFETY: the stack is new, and nothing else uses it.
        g.sp.set(unsafe { prepare(stack(), counts) });
    }
    for _ in 0..4 {
        leave(main);
    }
    assert_eq!((a.log.take(), b.log.take()), (vec![0, 1, 2, 3], vec![0, 1, 2, 3]));
}
