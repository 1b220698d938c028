//! Mends a moment in the unwinder at which a preemption would do harm.
//!
//! To go on in a landing pad, crate `unwinding` 0.2.10 sets the stack pointer first
//! and then reads the other registers from its record, which lies *below* the stack
//! pointer by then. Interrupt handlers do not touch the record: every vector has a
//! stack of its own (`trap/idt.rs`). A preemption does: it pushes its frame on the G's
//! own stack (`preempt`) and writes over that record, and the G goes on with wrong
//! registers. The moment is twenty instructions of the thousands that each frame
//! takes: one G in some hundreds that unwind for longer than a slice was hit.
//!
//! So each place of the image that does this, an inline assembly that is always the
//! same bytes, is made to jump to [`restore`], which does the same and needs
//! nothing that is below the stack pointer. The boot CPU does so before there are
//! interrupts, or anything to unwind.
//!
//! # What was rejected
//!
//! - **Interrupts off while a G unwinds**: it runs destructors in between, which may wait.
//! - **No preemption while a G unwinds**: the same.
//! - **Leaving a gap** below the stack pointer, as a red zone is: how far below the record
//!   lies is as large as a frame of any function.

#![cfg_attr(
    not(any(test, target_os = "none")),
    expect(dead_code, reason = "on the host there is nothing to mend")
)]

use core::arch::naked_asm;

/// The instructions, up to the push of the address to go on at: `mov rsp, [rdi + 0x38]`,
/// `ldmxcsr [rdi + 0x88]`, `fldcw [rdi + 0x90]`, `mov rax, [rdi + 0x80]`, `push rax`.
const PLACE: [u8; 25] = [
    0x48, 0x8b, 0x67, 0x38, //
    0x0f, 0xae, 0x97, 0x88, 0, 0, 0, //
    0xd9, 0xaf, 0x90, 0, 0, 0, //
    0x48, 0x8b, 0x87, 0x80, 0, 0, 0, //
    0x50,
];

/// On the host the unwinder is the host's.
#[cfg(not(target_os = "none"))]
pub fn mend_unwinder() -> usize {
    1
}

/// Bytes of a jump to anywhere in the image.
const JUMP: usize = 5;

/// Mends all such places of the image, and says how many there were. Before there
/// are other CPUs, with the page tables of our own.
#[cfg(target_os = "none")]
pub fn mend_unwinder() -> usize {
    let text = super::rescue::text();
    // SAFETY: the code of the image, which is there for ever. It is changed below
    // only after all places were found.
    let code = unsafe {
        core::slice::from_raw_parts(text.start as *const u8, (text.end - text.start) as usize)
    };
    let mut places = [0; 8];
    let mut count = 0;
    for offset in places_in(code).take(places.len()) {
        places[count] = text.start + offset as u64;
        count += 1;
    }
    for &place in &places[..count] {
        let target = restore as *const () as u64;
        for (at, byte) in (place..).zip(jump(place, target)) {
            let phys = super::paging::translate(at).expect("code has memory").phys;
            // SAFETY: the window of physical memory can be written; nobody runs
            // there: nothing unwinds before the first G.
            unsafe { crate::mem::phys_to_virt(phys).write_volatile(byte) };
        }
    }
    // What was fetched before is not what is there now.
    core::hint::black_box(core::arch::x86_64::__cpuid(0));
    count
}

/// Where in `code` such places are.
fn places_in(code: &[u8]) -> impl Iterator<Item = usize> {
    // The third byte is rarer than the first.
    let is_place = move |&at: &usize| code[at..].starts_with(&PLACE);
    let candidates = code.iter().enumerate().skip(2).filter(|(_, byte)| **byte == PLACE[2]);
    candidates.map(|(at, _)| at - 2).filter(is_place)
}

/// A jump at `from` to `to`.
fn jump(from: u64, to: u64) -> [u8; JUMP] {
    let distance = to.wrapping_sub(from + JUMP as u64) as u32;
    let [a, b, c, d] = distance.to_le_bytes();
    [0xe9, a, b, c, d]
}

/// Goes on with the registers of the unwinder's record at `rdi`.
///
/// What is needed last, rdi and the address to go on at, is put below where the
/// stack pointer will be: there are frames that were unwound. Then the stack pointer
/// is set by the last instruction that reads the record.
#[unsafe(naked)]
extern "C" fn restore() -> ! {
    naked_asm!(
        "mov rax, [rdi + 0x38]",
        "mov rcx, [rdi + 0x80]",
        "mov rdx, [rdi + 0x28]",
        "sub rax, 16",
        "mov [rax + 8], rcx",
        "mov [rax], rdx",
        "mov [rdi + 0x38], rax",
        "mov rax, [rdi + 0x00]",
        "mov rdx, [rdi + 0x08]",
        "mov rcx, [rdi + 0x10]",
        "mov rbx, [rdi + 0x18]",
        "mov rsi, [rdi + 0x20]",
        "mov rbp, [rdi + 0x30]",
        "mov r8, [rdi + 0x40]",
        "mov r9, [rdi + 0x48]",
        "mov r10, [rdi + 0x50]",
        "mov r11, [rdi + 0x58]",
        "mov r12, [rdi + 0x60]",
        "mov r13, [rdi + 0x68]",
        "mov r14, [rdi + 0x70]",
        "mov r15, [rdi + 0x78]",
        "mov rsp, [rdi + 0x38]",
        "pop rdi",
        "ret",
    )
}

#[cfg(test)]
mod tests {
    use super::super::switch;
    use super::*;
    use core::cell::Cell;

    #[test]
    fn every_place_is_found_and_nothing_else() {
        let mut code = vec![0x67; 300];
        for at in [3, 40, 300 - PLACE.len()] {
            code[at..at + PLACE.len()].copy_from_slice(&PLACE);
        }
        code[100..124].copy_from_slice(&PLACE[..24]);
        assert_eq!(places_in(&code).collect::<Vec<_>>(), [3, 40, 275]);
        assert_eq!(places_in(&[0x67]).count(), 0);
    }

    #[test]
    fn jump_counts_from_its_end_both_ways() {
        assert_eq!(jump(0x1000, 0x1105), [0xe9, 0, 1, 0, 0]);
        assert_eq!(jump(0x1000, 0x0f05), [0xe9, 0, 0xff, 0xff, 0xff]);
    }

    thread_local! {
        static SEEN: Cell<u64> = const { Cell::new(0) };
        static BACK: Cell<usize> = const { Cell::new(0) };
    }

    extern "C" fn landed(argument: u64) -> ! {
        SEEN.set(argument);
        // SAFETY: BACK holds what the test's own switch saved, used once.
        unsafe { switch::switch_for_good(BACK.get()) }
    }

    extern "C" fn restores(record: usize) -> ! {
        // SAFETY: `restore` takes it in rdi and does not return.
        unsafe { core::arch::asm!("jmp {}", sym restore, in("rdi") record, options(noreturn)) }
    }

    #[test]
    fn a_record_below_the_new_stack_pointer_is_read_before_that_is_set() {
        let mut stack = vec![0xaau128; 4096];
        let top = stack.as_mut_ptr_range().end as u64;
        let mut record = [0u64; 19];
        record[0x28 / 8] = 4711;
        record[0x38 / 8] = top - 8; // as after a call
        record[0x80 / 8] = landed as *const () as u64;
        let mut other = vec![0u128; 4096];
        let other_top = other.as_mut_ptr_range().end as usize;
        // SAFETY: `other` is this test's own and 16-byte aligned.
        let start = unsafe { switch::prepare(other_top, restores, record.as_mut_ptr().addr()) };
        // SAFETY: a prepared context, used once; `landed` comes back.
        unsafe { switch::switch(BACK.with(Cell::as_ptr), start) };
        assert_eq!(SEEN.get(), 4711);
    }
}
