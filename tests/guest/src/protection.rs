//! Memory that defends itself: what the tables say, and what happens on a try.
//!
//! `program=protection` checks what can be looked at; `program=protection -- try
//! <how>` tries one thing that must not work, on a G called `victim`, and the host
//! reads the report.

use crate::check::{checks, go_on, join_all, run};
use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::hint::black_box;
use runnext::internals::arch::paging::{self, Flags};
use runnext::internals::mem::stack::slot::{self, GUARD_PAGES};
use runnext::internals::mem::{PAGE_SIZE, PHYS_OFFSET, dma, frames, phys_to_virt};
use runnext::{inspect, prelude::*};

runnext::main!(protection, main);

fn main() {
    match args() {
        [what, how] if what == "try" => try_it(how),
        _ => run(checks![
            every_kind_of_memory_has_the_rights_it_needs_and_no_others,
            no_page_is_writable_and_executable_or_for_ring_3,
            every_cpu_honours_the_tables,
            every_handler_of_every_cpu_has_a_stack_with_a_guard,
            stacks_of_gs_and_of_ms_have_guards,
            frames_are_zeroed_whoever_had_them_before,
        ]),
    }
}

/// In the kernel's image: constants, and data.
static CONSTANT: [u64; 8] = [0xc3c3_c3c3_c3c3_c3c3; 8];
static mut DATA: [u64; 8] = [0xc3c3_c3c3_c3c3_c3c3; 8];

fn rights(address: usize) -> Flags {
    paging::translate(address as u64).expect("it is mapped").flags
}

fn every_kind_of_memory_has_the_rights_it_needs_and_no_others() {
    let (on_heap, on_stack) = (black_box(Box::new(1u64)), black_box(1u64));
    let heap = &raw const *on_heap as usize;
    let window = phys_to_virt(paging::translate(heap as u64).expect("mapped").phys) as usize;
    assert_eq!(rights(main as *const () as usize), Flags::CODE);
    assert_eq!(rights((&raw const CONSTANT) as usize), Flags::default(), "constants");
    for (what, address) in [
        ("data", (&raw const DATA) as usize),
        ("the heap", heap),
        ("a stack", (&raw const on_stack) as usize),
        ("physical memory", window),
        ("code, as physical memory", code_as_data()),
    ] {
        assert_eq!(rights(address), Flags::DATA, "{what}");
    }
}

fn no_page_is_writable_and_executable_or_for_ring_3() {
    let audit = inspect::page_tables();
    assert!(audit.executable_pages > 0, "the walk saw no code at all: {audit:?}");
    assert_eq!((audit.writable_and_executable, audit.user_pages), (0, 0), "{audit:?}");
    assert!(!audit.page0_mapped && audit.lower_half_pages == 0, "{audit:?}");
}

/// Write protection and no-execute always; what keeps the kernel from pages of
/// ring 3 where the CPU has it.
fn every_cpu_honours_the_tables() {
    const WP: usize = 1 << 16;
    const NXE: u32 = 1 << 11;
    let look = || {
        let (cr0, cr4, efer): (usize, usize, u32);
        // SAFETY: reads a register.
        unsafe { asm!("mov {}, cr0", out(reg) cr0) };
        // SAFETY: as above.
        unsafe { asm!("mov {}, cr4", out(reg) cr4) };
        // SAFETY: reads a register that every x86-64 CPU has.
        unsafe { asm!("rdmsr", in("ecx") 0xc000_0080u32, out("eax") efer, out("edx") _) };
        assert!(cr0 & WP != 0 && efer & NXE != 0, "cr0 {cr0:#x}, efer {efer:#x}");
        let has = |register: u32, bit: u32| register >> bit & 1 != 0;
        if __cpuid(0).eax < 7 {
            return 0;
        }
        let leaf = __cpuid_count(7, 0);
        let bits = [(has(leaf.ebx, 7), 20), (has(leaf.ebx, 20), 21), (has(leaf.ecx, 2), 11)];
        for (is_there, bit) in bits {
            assert_eq!(is_there, cr4 >> bit & 1 != 0, "bit {bit} of cr4 {cr4:#x}");
        }
        bits.iter().filter(|(is_there, _)| *is_there).count()
    };
    let found = join_all((0..num_cpus()).map(|cpu| go_on(cpu, look)));
    println!("SMEP, SMAP, UMIP: {} of 3", found[0]);
}

fn every_handler_of_every_cpu_has_a_stack_with_a_guard() {
    join_all((0..num_cpus()).map(|cpu| go_on(cpu, handler_stacks_have_guards)));
}

/// Of this CPU: the TSS says where they are (Intel SDM vol. 3, 8.7).
fn handler_stacks_have_guards() {
    const FIRST_STACK: usize = 36;
    const STACKS: usize = 5;
    const MOST_PAGES: usize = 8;
    let tss = tss();
    for number in 0..STACKS {
        let at = tss + FIRST_STACK + 8 * number;
        // SAFETY: the table has seven such words; it lives for ever, and is not
        // written any more.
        let top = unsafe { (at as *const usize).read_unaligned() };
        let last = (top - 1) & !(PAGE_SIZE - 1);
        let is_mapped =
            |pages: &usize| paging::translate((last - pages * PAGE_SIZE) as u64).is_some();
        let pages = (0..2 * MOST_PAGES).take_while(is_mapped).count();
        assert!((1..=MOST_PAGES).contains(&pages), "stack {number} below {top:#x}: {pages} pages");
    }
}

/// Where this CPU's TSS is, from its descriptor.
fn tss() -> usize {
    let mut pointer = [0u8; 10];
    // SAFETY: stores limit and base of the GDT, ten bytes.
    unsafe { asm!("sgdt [{}]", in(reg) &raw mut pointer) };
    let gdt = usize::from_le_bytes(pointer[2..].try_into().expect("eight bytes"));
    let selector: usize;
    // SAFETY: stores a register in another.
    unsafe { asm!("str {0:x}", "movzx {0:e}, {0:x}", out(reg) selector) };
    // SAFETY: the descriptor that the CPU itself uses, 16 bytes.
    let parts = unsafe { ((gdt + (selector & !7)) as *const [u64; 2]).read() };
    let base = parts[0] >> 16 & 0xff_ffff | (parts[0] >> 56) << 24 | parts[1] << 32;
    base as usize
}

fn stacks_of_gs_and_of_ms_have_guards() {
    let here = || {
        let local = black_box(0u8);
        slot::locate((&raw const local) as u64).expect("a stack").0
    };
    // A blocking call is made on the stack of an M.
    let (g, m) = (here(), blocking(here));
    assert_ne!(g, m);
    for slot in [g, m] {
        let guard = |page: u64| slot.base() + page * PAGE_SIZE as u64;
        assert!((0..GUARD_PAGES as u64).all(|page| paging::translate(guard(page)).is_none()));
        // And above it the stack of a neighbour ends, or nothing is.
        assert!(slot.bounds().start >= guard(GUARD_PAGES as u64));
    }
}

/// Fills memory with dirt, gives it back and takes some again, which is mostly the same: one
/// frame (the CPU's search begins where one was freed), and pages in a row for a device (the first that fit).
fn frames_are_zeroed_whoever_had_them_before() {
    let on_one_cpu = || {
        let one = || phys_to_virt(frames::alloc().expect("memory").addr());
        let free_one = |at: *mut u8| {
            let frame = frames::Frame::containing(at.addr() as u64 - PHYS_OFFSET);
            // SAFETY: ours, from the allocator; mapped in the window of physical memory
            // alone, and not touched any more.
            unsafe { frames::free(frame) }
        };
        assert!(rounds_with_the_same(1, one, free_one) > 0, "no frame came again");
        let row = || dma::alloc(4).expect("memory").as_ptr();
        let free_row = |at| {
            let at = core::ptr::NonNull::new(at).expect("it is not null");
            // SAFETY: from the line above, and not touched any more.
            unsafe { dma::free(at, 4) }
        };
        assert!(rounds_with_the_same(4, row, free_row) > 0, "no row came again");
    };
    go_on(num_cpus() - 1, on_one_cpu).join().expect("frames are zero");
}

/// Takes, dirties and gives back; how often the same memory came twice.
fn rounds_with_the_same(
    pages: usize,
    take: impl Fn() -> *mut u8,
    give_back: impl Fn(*mut u8),
) -> usize {
    let mut before = core::ptr::null_mut();
    let mut round = || {
        let taken = take();
        // SAFETY: ours, and mapped in the window of physical memory.
        let bytes = unsafe { core::slice::from_raw_parts_mut(taken, pages * PAGE_SIZE) };
        assert!(bytes.iter().all(|&byte| byte == 0), "memory at {taken:?} is not zero");
        bytes.fill(0xa5);
        give_back(taken);
        let is_same = taken == before;
        before = taken;
        is_same
    };
    (0..200).filter(|_| round()).count()
}

fn try_it(how: &str) {
    let attempt = match how {
        "null-read" => null_read,
        "null-write" => null_write,
        "null-call" => null_call,
        "write-code" => write_code,
        "write-constant" => write_constant,
        "execute-heap" => execute_heap,
        "execute-stack" => execute_stack,
        "execute-data" => execute_data,
        "execute-physical" => execute_physical,
        other => panic!("no such try: {other:?}"),
    };
    let victim = Go::new().name("victim").spawn(attempt).expect("memory for a G");
    println!("nothing happened: {:?}", victim.join());
}

#[inline(never)]
pub fn null_read() {
    // SAFETY: none; that is the point. Page 0 is not mapped.
    unsafe { asm!("mov {0}, [{0}]", inout(reg) 8usize => _) };
}

#[inline(never)]
fn null_write() {
    // SAFETY: none; that is the point. Page 0 is not mapped.
    unsafe { asm!("mov [{0}], {0}", in(reg) 8usize) };
}

#[inline(never)]
fn null_call() {
    call(0);
}

#[inline(never)]
fn write_code() {
    let code = write_code as *const () as *mut u8;
    // SAFETY: none; that is the point. Code is mapped read-only.
    unsafe { code.write_volatile(0x90) };
}

#[inline(never)]
fn write_constant() {
    let constant = (&raw const CONSTANT).cast_mut().cast::<u8>();
    // SAFETY: none; that is the point. Constants are mapped read-only.
    unsafe { constant.write_volatile(0x90) };
}

#[inline(never)]
fn execute_heap() {
    let code = black_box(Box::new([0xc3u8; 16])); // ret
    call(code.as_ptr() as usize);
}

#[inline(never)]
fn execute_stack() {
    let code = black_box([0xc3u8; 16]); // ret
    call(code.as_ptr() as usize);
}

#[inline(never)]
fn execute_data() {
    call((&raw const DATA) as usize);
}

/// Good code, but by its address in the window of all memory, where it could be
/// written.
#[inline(never)]
fn execute_physical() {
    call(code_as_data());
}

#[inline(never)]
fn returns() {
    black_box(());
}

/// The code of `returns` in the window of physical memory.
fn code_as_data() -> usize {
    let code = paging::translate(returns as *const () as u64).expect("code is mapped");
    (PHYS_OFFSET + code.phys) as usize
}

#[inline(always)]
fn call(address: usize) {
    // SAFETY: none; that is the point.
    unsafe { asm!("call {}", in(reg) address, clobber_abi("C")) };
}
