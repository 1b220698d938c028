//! Who called whom: the walk along the frame pointers, with names.
//!
//! For the panic path and for fault reports, so it trusts nothing: the stack
//! may be the very thing that is broken. Names come from `symbols.rs`; whether
//! an address can be read is asked of the caller, who knows the page tables.
//!
//! The kernel is built with frame pointers. Every function starts by saving its
//! caller's `rbp` and pointing its own at it, so that frames form a list:
//!
//! ```text
//!     rbp ──▶ │ caller's rbp │ ──▶ next frame, higher up
//!             │ return into  │
//! ```

use crate::symbols;
use core::fmt::{self, Write};

/// Frames that are followed at most.
pub const MAX_FRAMES: usize = 64;

const WORD: usize = size_of::<usize>();

/// Prints the calls that led to `rip`, a line each: `  #0 0xffff… name+0x12`.
///
/// Frames that repeat the one before are left out, but counted. `rbp` is the
/// frame pointer at `rip`; `readable` says whether the word at an
/// address can be read without a fault.
///
/// ```
/// let mut text = String::new();
/// runnext::backtrace::print(&mut text, 0x1234, 0, |_| false).unwrap();
/// assert_eq!(text, "  #0 0x0000000000001234 ?\n");
/// ```
pub fn print(
    out: &mut dyn Write,
    rip: usize,
    rbp: usize,
    readable: impl Fn(usize) -> bool,
) -> fmt::Result {
    let mut number = 0;
    let mut last = None;
    let mut result = Ok(());
    walk(rip, rbp, readable, |address| {
        // A stack that overflowed is one frame over and over.
        if result.is_ok() && last != Some(address) {
            result = print_frame(out, number, address);
        }
        last = Some(address);
        number += 1;
    });
    result
}

/// Calls `f` with `rip` and then with each return address, innermost first, at
/// most [`MAX_FRAMES`] in all. The walk ends at the first frame that cannot be
/// one: not aligned, not readable, or not above the one before.
pub fn walk(
    rip: usize,
    mut rbp: usize,
    readable: impl Fn(usize) -> bool,
    mut f: impl FnMut(usize),
) {
    f(rip);
    for _ in 1..MAX_FRAMES {
        let Some(return_at) = rbp.checked_add(WORD) else { return };
        if rbp == 0 || !rbp.is_multiple_of(WORD) || !readable(rbp) || !readable(return_at) {
            return;
        }
        // SAFETY: aligned, and `readable` vouches for the word.
        let caller_rbp = unsafe { (rbp as *const usize).read_volatile() };
        // SAFETY: aligned, and `readable` vouches for the word.
        let return_address = unsafe { (return_at as *const usize).read_volatile() };
        if return_address == 0 {
            return;
        }
        f(return_address);
        // Stacks grow down, so callers are above. This also ends circles.
        if caller_rbp <= rbp {
            return;
        }
        rbp = caller_rbp;
    }
}

fn print_frame(out: &mut dyn Write, number: usize, address: usize) -> fmt::Result {
    // A return address is the instruction after the call. After the call of a
    // function that never returns that can be another function's first.
    let inside = if number == 0 { address } else { address.saturating_sub(1) };
    write!(out, "  #{number} {address:#018x} ")?;
    match symbols::lookup(inside) {
        Some(symbol) => writeln!(out, "{}+{:#x}", symbol, symbol.offset + (address - inside)),
        None => writeln!(out, "?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack of words, its frames given as (index, caller's index, return).
    struct Stack(Vec<usize>);

    impl Stack {
        fn new(frames: &[(usize, usize, usize)]) -> Self {
            let mut stack = Stack(vec![0; 4096]);
            for &(at, caller, returns) in frames {
                stack.0[at] = stack.address(caller);
                stack.0[at + 1] = returns;
            }
            stack
        }

        fn address(&self, index: usize) -> usize {
            self.0.as_ptr().wrapping_add(index).addr()
        }

        fn walk(&self, rbp: usize) -> Vec<usize> {
            let range = self.0.as_ptr_range();
            let mut seen = Vec::new();
            walk(
                1,
                rbp,
                |a| a >= range.start.addr() && a < range.end.addr(),
                |address| seen.push(address),
            );
            seen
        }
    }

    #[test]
    fn every_caller_is_found_innermost_first() {
        let mut stack = Stack::new(&[(10, 20, 100), (20, 50, 200), (50, 60, 300)]);
        stack.0[50] = 0;
        assert_eq!(stack.walk(stack.address(10)), [1, 100, 200, 300]);
    }

    #[test]
    fn walk_ends_where_it_does_not_go_up() {
        let circle = Stack::new(&[(10, 20, 100), (20, 10, 200)]);
        assert_eq!(circle.walk(circle.address(10)), [1, 100, 200]);
        let itself = Stack::new(&[(10, 10, 100)]);
        assert_eq!(itself.walk(itself.address(10)), [1, 100]);
    }

    #[test]
    fn unreadable_or_odd_frames_end_the_walk() {
        let mut stack = Stack::new(&[(10, 20, 100)]);
        for bad in [0, 1, 7, 8, stack.address(20) + 1, stack.address(4095), usize::MAX, !7] {
            stack.0[10] = bad;
            assert_eq!(stack.walk(stack.address(10)), [1, 100], "caller frame {bad:#x}");
            assert_eq!(stack.walk(bad), [1], "first frame {bad:#x}");
        }
    }

    #[test]
    fn endless_stack_is_cut() {
        let frames: Vec<_> = (0..2000).map(|i| (i * 2, i * 2 + 2, 100 + i)).collect();
        let stack = Stack::new(&frames);
        assert_eq!(stack.walk(stack.address(0)).len(), MAX_FRAMES);
    }
}
