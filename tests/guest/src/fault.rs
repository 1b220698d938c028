//! Goes wrong on purpose: `program=fault -- <how>`.

use core::arch::asm;
use core::hint::black_box;
use runnext::prelude::*;

runnext::main!(fault, main);

fn main() {
    let how = args().first().map(String::as_str).unwrap_or("");
    println!("going wrong by {how:?}");
    match how {
        "exit" => exit(7),
        "panic-main" => panic!("main gives up"),
        "panic-irqs-off" => panic_under_lock(),
        "hang" => hang(),
        // On a G of its own, with a name to be found in the report.
        _ => {
            let how = String::from(how);
            let g = Go::new().name("victim").spawn(move || go_wrong(&how)).expect("memory for a G");
            println!("the victim came back: {:?}", g.join());
        }
    }
}

fn go_wrong(how: &str) {
    match how {
        "non-canonical" => non_canonical(),
        "invalid-opcode" => invalid_opcode(),
        "divide" => divide(),
        "breakpoint" => breakpoint(),
        "stack-overflow" => println!("{}", overflow(0)),
        "overflow-in-call" => println!("{}", blocking(|| overflow(0))),
        "overflow-irqs-off" => overflow_with_interrupts_off(),
        "double-fault" => double_fault(),
        other => panic!("no such fault: {other:?}"),
    }
}

#[inline(never)]
fn non_canonical() {
    // SAFETY: none; that is the point. No address has bit 62 alone set.
    unsafe { asm!("mov {0}, [{0}]", inout(reg) 1usize << 62 => _) };
}

#[inline(never)]
fn invalid_opcode() {
    // SAFETY: none; that is the point.
    unsafe { asm!("ud2") };
}

#[inline(never)]
fn breakpoint() {
    // SAFETY: none; that is the point.
    unsafe { asm!("int3") };
}

#[inline(never)]
fn divide() {
    // By hand: the compiler's own division checks for zero and panics.
    // SAFETY: none; that is the point.
    unsafe { asm!("xor ecx, ecx", "div ecx", out("rcx") _, out("rax") _, out("rdx") _) };
}

#[inline(never)]
#[expect(unconditional_recursion, reason = "the stack is to overflow")]
fn overflow(depth: usize) -> usize {
    let frame = black_box([depth; 64]);
    overflow(depth + 1) + frame[0]
}

/// Under a lock of the kernel's.
#[inline(never)]
fn overflow_with_interrupts_off() {
    static LOCK: runnext::lock::IrqLock<usize> = runnext::lock::IrqLock::new(0);
    let mut held = LOCK.lock();
    *held = overflow(0);
}

/// An exception whose own delivery fails: a copy of the IDT in which the gate
/// of the divide error is missing, and then a division by zero.
#[inline(never)]
fn double_fault() {
    let mut pointer = [0u8; 10];
    // SAFETY: stores limit and base of the IDT, ten bytes.
    unsafe { asm!("sidt [{}]", in(reg) &raw mut pointer) };
    let base = usize::from_le_bytes(pointer[2..].try_into().expect("eight bytes"));
    // SAFETY: the IDT is 256 gates of 16 bytes, and never written again.
    let gates = unsafe { *(base as *const [u128; 256]) };
    let broken = Box::leak(Box::new(gates));
    broken[0] = 0;
    pointer[2..].copy_from_slice(&(broken.as_ptr() as usize).to_le_bytes());
    // SAFETY: the copy has all gates but one, and lives for ever.
    unsafe { asm!("lidt [{}]", in(reg) &raw const pointer) };
    divide();
}

fn panic_under_lock() {
    static LOCK: runnext::lock::IrqLock<u32> = runnext::lock::IrqLock::new(0);
    let _held = LOCK.lock();
    panic!("with interrupts off");
}

/// For the harness's own test: a guest that never ends.
#[inline(never)]
fn hang() {
    println!("hanging");
    loop {
        core::hint::spin_loop();
    }
}
