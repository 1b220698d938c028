//! Backtraces: the walk along the frame pointers, with names.
//!
//! It trusts nothing: the stack may be the very thing that is broken. The kernel is built with
//! frame pointers: every function saves its caller's `rbp` and points its own at it, so that frames
//! form a list:
//!
//! ```text
//!     rbp ──▶ │ caller's rbp │ ──▶ next frame, higher up
//!             │ return into  │
//! ```
//!
//! An interrupt handler runs on its own stack. The first function there saves the interrupted `rbp`
//! like that of a caller, and returns to the entry code, above which the saved registers are: so
//! the walk continues in the interrupted code, on whatever stack that was.

use super::symbols;
use crate::arch;
use arrayvec::{ArrayString, ArrayVec};
use core::fmt::{self, Write};

/// Maximum number of frames that are followed.
pub const MAX_FRAMES: usize = 64;

const WORD: usize = size_of::<usize>();

/// Prints the calls that led to `rip`, a line each: `  #0 0xffff… name+0x12`. `rbp` is the frame
/// pointer there. A frame that repeats the one before is left out, but counted.
pub fn print(out: &mut dyn Write, at: (u64, u64)) -> fmt::Result {
    print_all(out, frames(at).into_iter())
}

/// As [`print()`], without the innermost frames that only report a failure, or belong to the
/// function of `core` or `alloc` that found it.
pub fn print_callers(out: &mut dyn Write, at: (u64, u64)) -> fmt::Result {
    let frames = frames(at);
    let is_caller = |(number, address)| !Frame::new(number, address).is_reporter();
    let first = frames.iter().copied().enumerate().position(is_caller).unwrap_or(0);
    print_from(out, first, frames.into_iter())
}

/// Prints these frames, innermost first, as [`print()`] does.
pub fn print_all(out: &mut dyn Write, frames: impl Iterator<Item = usize>) -> fmt::Result {
    print_from(out, 0, frames)
}

fn print_from(out: &mut dyn Write, first: usize, all: impl Iterator<Item = usize>) -> fmt::Result {
    let mut last = None;
    for (number, address) in all.enumerate().skip(first) {
        // A stack that overflowed repeats one frame over and over.
        if last != Some(address) {
            writeln!(out, "  #{number} {}", Frame::new(number, address))?;
        }
        last = Some(address);
    }
    Ok(())
}

fn frames(at: (u64, u64)) -> ArrayVec<usize, MAX_FRAMES> {
    let mut frames = ArrayVec::new();
    walk(at, |address| frames.push(address));
    frames
}

/// Calls `f` with `rip` and then with each return address, innermost first, at most [`MAX_FRAMES`]
/// in all. The walk ends at the first invalid frame: not aligned, not mapped, or not above the one
/// before.
pub fn walk((rip, rbp): (u64, u64), f: impl FnMut(usize)) {
    let read = |address: usize| {
        let is_mapped = arch::paging::translate(address as u64).is_some();
        // SAFETY: `follow` gives aligned addresses, and the page tables have a page there.
        is_mapped.then(|| unsafe { (address as *const usize).read_volatile() })
    };
    // Stacks grow down, so callers are above. This also ends loops.
    follow(rip as usize, rbp as usize, read, |frame, caller| caller > frame, f);
}

/// As [`walk`], for frames that are not read in place: `read` gives the word at an aligned address,
/// if there is one; `leads_on` says whether a frame may link to that other one as its caller's.
pub fn follow(
    rip: usize,
    mut rbp: usize,
    read: impl Fn(usize) -> Option<usize>,
    mut leads_on: impl FnMut(usize, usize) -> bool,
    mut f: impl FnMut(usize),
) {
    f(rip);
    let mut left = MAX_FRAMES - 1;
    while left > 0 {
        let Some(return_at) = rbp.checked_add(WORD) else { return };
        if rbp == 0 || !rbp.is_multiple_of(WORD) {
            return;
        }
        let (Some(caller_rbp), Some(return_address)) = (read(rbp), read(return_at)) else { return };
        if return_address == 0 {
            return;
        }
        f(return_address);
        left -= 1;
        if arch::is_trap_return(return_address) {
            let interrupted = rbp.checked_add(arch::TRAPPED_RIP).and_then(&read);
            let Some(interrupted) = interrupted.filter(|_| left > 0) else { return };
            f(interrupted);
            left -= 1;
        } else if !leads_on(rbp, caller_rbp) {
            return;
        }
        rbp = caller_rbp;
    }
}

/// An address in the code, and its function. Prints as `0xffff… name+0x12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// The address; for every frame but the innermost, that of the instruction after the call.
    pub address: usize,
    /// The function that it is in; its offset is that of `address`.
    pub symbol: Option<symbols::Symbol<'static>>,
}

impl Frame {
    /// Frame `number` of a walk, from 0 for the innermost, at `address`.
    pub(crate) fn new(number: usize, address: usize) -> Self {
        // A return address is the instruction after the call. After the call of a function that
        // never returns that can be the first instruction of another function.
        let inside = if number == 0 { address } else { address.saturating_sub(1) };
        let mut symbol = symbols::lookup(inside);
        symbol.iter_mut().for_each(|symbol| symbol.offset += address - inside);
        Frame { address, symbol }
    }

    /// Whether its function only reports failures, or is one of `core` or `alloc`.
    fn is_reporter(&self) -> bool {
        let mut name = ArrayString::<32>::new();
        // The rest of a longer name does not matter.
        let mut start = symbols::Clipped { room: name.capacity(), out: &mut name };
        let _ = self.symbol.map(|symbol| write!(start, "{symbol}"));
        let path = name.trim_start_matches(['<', '&']);
        REPORTERS.iter().any(|reporter| path.starts_with(reporter))
    }
}

/// What the names of reporters begin with.
const REPORTERS: [&str; 5] =
    ["core::", "alloc::", "__rustc", "rust_begin_unwind", "runnext::fail::panic::"];

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x} ", self.address)?;
        match self.symbol {
            Some(symbol) => write!(f, "{symbol}+{:#x}", symbol.offset),
            None => f.write_str("?"),
        }
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
            let read = |a: usize| {
                let is_in = a >= range.start.addr() && a < range.end.addr();
                is_in.then(|| self.0[(a - range.start.addr()) / WORD])
            };
            follow(1, rbp, read, |frame, caller| caller > frame, |address| seen.push(address));
            seen
        }
    }

    #[test]
    fn an_address_without_a_name_is_shown_as_one() {
        let mut text = String::new();
        print(&mut text, (0x1234, 0)).expect("a string takes everything");
        assert_eq!(text, "  #0 0x0000000000001234 ?\n");
        assert_eq!(Frame::new(1, 0x1234).to_string(), "0x0000000000001234 ?");
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
    fn walk_goes_on_in_what_was_interrupted_on_another_stack() {
        // The handler's frames are above those of the interrupted code.
        let entry = arch::trap_return();
        let mut stack = Stack::new(&[(10, 0, 100), (200, 210, 300), (210, 10, entry)]);
        stack.0[10] = 0;
        let rip = 210 + arch::TRAPPED_RIP / WORD;
        stack.0[rip] = 77;
        assert_eq!(stack.walk(stack.address(200)), [1, 300, entry, 77, 100]);
    }

    #[test]
    fn circle_of_interrupts_is_cut() {
        let stack = Stack::new(&[(10, 10, arch::trap_return())]);
        assert_eq!(stack.walk(stack.address(10)).len(), MAX_FRAMES);
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
