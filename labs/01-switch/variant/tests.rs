//! The variant of lab 1.
#![cfg(loom)]
#![allow(dead_code, missing_docs, reason = "the source is written for another crate")]

#[path = "../src/arch/x86_64/cpu/switch.rs"]
pub mod switch;

extern "C" fn entry(_: usize, _: &'static usize) -> ! {
    unreachable!("it is not run")
}

#[test]
fn the_last_word_is_the_marker() {
    let stack: &mut [u128] = vec![0; 64].leak();
    let top = stack.as_mut_ptr_range().end as usize;
    // SAFETY: the stack is new, and nothing else uses it.
    let sp = unsafe { switch::prepare(top, entry) };
    let words: Vec<usize> = (sp..top)
        .step_by(8)
        .map(|at| {
            // SAFETY: within the stack.
            unsafe { (at as *const usize).read() }
        })
        .collect();
    assert_eq!(words[0], entry as *const () as usize, "the address to go on at");
    assert_eq!(words.last(), Some(&0x5eed), "the word at the end of the stack");
}
