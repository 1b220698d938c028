//! Goes wrong on purpose: `program=fault -- <how>`.

use core::arch::asm;
use core::hint::black_box;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use runnext::internals::drivers::irq;
use runnext::internals::lock::IrqLock;
use runnext::internals::park;
use runnext::prelude::*;
use runnext::tasks;

runnext::main!(fault, main);

fn main() {
    let how = args().first().map(String::as_str).unwrap_or("");
    println!("going wrong by {how:?}");
    match how {
        "exit" => exit(7),
        "panic-main" => panic!("main gives up"),
        "kill-main" => kill_main(),
        "panic-irqs-off" => panic_under_lock(),
        "panic-interrupt" => panic_in_interrupt(),
        "panic-scheduler" => panic_in_scheduler(),
        "panic-everywhere" => panic_everywhere(),
        "panic-report" => panic_in_report(),
        "fault-report" => fault_in_report(),
        "stuck" => stuck(),
        "lock-order" => lock_order(),
        "might-park" => might_park(),
        "hang" => hang(),
        // On a G of its own, with a name to be found in the report.
        _ => {
            let how = String::from(how);
            let g = Go::new().name("victim").spawn(move || go_wrong(&how)).expect("memory for a G");
            println!("the victim came back: {:?}", g.join());
        }
    }
}

fn kill_main() {
    let main = current().id();
    drop(go(move || tasks::kill(main)));
    loop {
        yield_now();
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
    static LOCK: runnext::internals::lock::IrqLock<usize> =
        runnext::internals::lock::IrqLock::new(0);
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
    static LOCK: runnext::internals::lock::IrqLock<u32> = runnext::internals::lock::IrqLock::new(0);
    let _held = LOCK.lock();
    panic!("with interrupts off");
}

/// In the handler of a device's interrupt, on the interrupt stack.
fn panic_in_interrupt() {
    let vector = irq::claim("clumsy", || panic!("in a handler")).expect("a vector");
    keep_all_busy();
    interrupted_here(vector);
}

/// What the report must say was interrupted.
#[inline(never)]
fn interrupted_here(vector: u8) {
    macro_rules! interrupt {
        ($($number:literal)+) => {
            match vector {
                // SAFETY: none; its handler panics.
                $($number => unsafe { asm!("int {}", const $number) },)+
                _ => println!("vector {vector:#x} is too high"),
            }
        };
    }
    interrupt!(0x50 0x51 0x52 0x53 0x54 0x55 0x56 0x57);
}

/// On the stack of an M, which is told that a G waits that has never begun to.
fn panic_in_scheduler() {
    keep_all_busy();
    park::park();
}

/// On all CPUs, as near to the same instant as can be.
fn panic_everywhere() {
    static READY: AtomicUsize = AtomicUsize::new(0);
    let start = || {
        READY.fetch_add(1, Relaxed);
        while READY.load(Relaxed) < num_cpus() {
            core::hint::spin_loop();
        }
        runnext::internals::arch::irq::disable();
        panic!("one of many");
    };
    let gs: Vec<_> = (0..num_cpus()).map(|cpu| Go::new().pin(cpu).spawn(start)).collect();
    wait_for_ever_with(gs);
}

/// The message of a panic that itself panics when it is printed.
fn panic_in_report() {
    struct Bomb;
    impl core::fmt::Display for Bomb {
        fn fmt(&self, _: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            panic!("as it was printed");
        }
    }
    runnext::internals::arch::irq::disable();
    panic!("a bomb: {Bomb}");
}

/// The same with an exception, and a console that is locked by whoever faults.
fn fault_in_report() {
    struct Bomb;
    impl core::fmt::Display for Bomb {
        fn fmt(&self, _: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            crate::protection::null_read();
            Ok(())
        }
    }
    runnext::internals::arch::irq::disable();
    panic!("a bomb: {Bomb}");
}

/// Interrupts off for ever, on the last CPU.
fn stuck() {
    let g = Go::new().pin(num_cpus() - 1).spawn(|| {
        runnext::internals::arch::irq::disable();
        wait_for_ever();
    });
    wait_for_ever_with(g);
}

/// A lock under another one, which the order of locks forbids.
fn lock_order() {
    struct First;
    struct Second;
    let (first, second) = (IrqLock::new(First), IrqLock::new(Second));
    let _held = first.lock();
    drop(second.lock());
}

/// A call that may wait, and need not this time, under a lock.
fn might_park() {
    struct Held;
    let (lock, (tx, _rx)) = (IrqLock::new(Held), chan::bounded(1));
    let _held = lock.lock();
    let _ = tx.send(());
}

/// A G that computes on every other CPU, to be found in the report.
fn keep_all_busy() {
    static BUSY: AtomicUsize = AtomicUsize::new(0);
    for cpu in (0..num_cpus()).filter(|&cpu| cpu != current_cpu()) {
        let hog = || {
            BUSY.fetch_add(1, Relaxed);
            wait_for_ever();
        };
        drop(Go::new().name("hog").pin(cpu).spawn(hog).expect("memory for a G"));
    }
    while BUSY.load(Relaxed) + 1 < num_cpus() {
        core::hint::spin_loop();
    }
}

#[inline(never)]
fn wait_for_ever() {
    loop {
        core::hint::spin_loop();
    }
}

fn wait_for_ever_with<T>(_: T) {
    loop {
        yield_now();
    }
}

/// For the harness's own test: a guest that never ends.
#[inline(never)]
fn hang() {
    println!("hanging");
    loop {
        core::hint::spin_loop();
    }
}
