//! What a page fault violated, in words.
//!
//! The CPU gives an address and a few bits (Intel SDM vol. 3, 4.7); with what the
//! page tables say of the address, and where in the kernel's map it lies, that
//! becomes the sentence that ends the first line of a report. Called by `trap`
//! for faults that no handler can repair.

use crate::arch::x86_64::paging::{self, Flags, PAGE_SIZE};
use core::fmt;

/// Bits of the error code: the page is there; write; the tables are broken;
/// instruction fetch.
const PRESENT: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
const RESERVED_BIT: u64 = 1 << 3;
const FETCH: u64 = 1 << 4;

/// An access that is not allowed. Prints as a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    address: u64,
    error: u64,
    /// What the tables allow there now.
    flags: Option<Flags>,
}

impl Violation {
    /// What the fault at `address` with this error code violated.
    pub fn of(address: u64, error: u64) -> Violation {
        Violation { address, error, flags: paging::translate(address).map(|found| found.flags) }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, has) = (self.address, |bit| self.error & bit != 0);
        if has(RESERVED_BIT) {
            return f.write_str("a page table has a reserved bit set");
        }
        if !has(PRESENT) {
            let access = match (has(FETCH), has(WRITE)) {
                (true, _) => "execution",
                (_, true) => "write",
                _ => "read",
            };
            return match address < PAGE_SIZE as u64 {
                true => write!(f, "{access} through a null pointer"),
                false => write!(f, "{access} where nothing is mapped, in {}", place(address)),
            };
        }
        match (has(FETCH), self.flags) {
            (true, _) => write!(f, "execution of a no-execute page, in {}", place(address)),
            (_, Some(Flags { executable: true, .. })) => f.write_str("write to read-only code"),
            (_, Some(Flags { writable: false, .. })) => f.write_str("write to read-only data"),
            // Another CPU has changed the tables meanwhile, or never told this one.
            _ => f.write_str("the page tables allow it now"),
        }
    }
}

/// What lies around `address`: see the drawing in `paging::layout`.
fn place(address: u64) -> &'static str {
    match address {
        paging::KERNEL_IMAGE.. => "the kernel's image",
        paging::MMIO_WINDOW.. => "the window of devices",
        paging::HEAP_WINDOW.. => "the heap",
        paging::STACK_WINDOW.. => "the window of stacks",
        paging::PHYS_OFFSET.. => "the window of physical memory",
        _ => "the lower half",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(address: u64, error: u64, flags: Option<Flags>) -> String {
        Violation { address, error, flags }.to_string()
    }

    #[test]
    fn small_numbers_taken_for_pointers_are_called_null() {
        assert_eq!(said(8, 0, None), "read through a null pointer");
        assert_eq!(said(0xfff, 2, None), "write through a null pointer");
        assert_eq!(said(0, 0x10, None), "execution through a null pointer");
        let beyond = "read where nothing is mapped, in the lower half";
        assert_eq!(said(0x1000, 0, None), beyond);
    }

    #[test]
    fn what_is_not_allowed_is_named_with_its_place() {
        let code = Some(Flags::CODE);
        assert_eq!(said(paging::KERNEL_IMAGE, 3, code), "write to read-only code");
        let constant = Some(Flags::default());
        assert_eq!(said(paging::KERNEL_IMAGE, 3, constant), "write to read-only data");
        for (address, place) in [
            (paging::PHYS_OFFSET + 5, "the window of physical memory"),
            (paging::STACK_WINDOW, "the window of stacks"),
            (paging::HEAP_WINDOW, "the heap"),
            (paging::MMIO_WINDOW - 1, "the heap"),
            (u64::MAX, "the kernel's image"),
        ] {
            let sentence = format!("execution of a no-execute page, in {place}");
            assert_eq!(said(address, 0x11, Some(Flags::DATA)), sentence);
        }
        assert_eq!(said(5, 9, None), "a page table has a reserved bit set");
    }
}
