//! An exception that no handler could repair: what the report says about it.
//!
//! [`super::dispatch`] finds out; the kernel's handler prints.

use super::Frame;
use crate::arch::x86_64::paging::{self, Flags, PAGE_SIZE};
use core::fmt;

/// What [`Handlers::page_fault`](super::Handlers::page_fault) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum PageFault {
    /// The page is there now: try the instruction again.
    Mended,
    /// The address is the guard of a stack.
    StackOverflow,
    /// The page could be had, but there is no memory for it.
    NoMemory,
    /// A G is switched to, and there is no frame to unpack its stack.
    StillPacked,
    /// The address belongs to no stack.
    Stray,
}

/// An exception that could not be mended, for the report.
pub struct Fault<'a> {
    /// The registers at that instruction.
    pub frame: &'a Frame,
    /// The address of a page fault, and what the kernel made of it.
    pub(super) page_fault: Option<(u64, PageFault)>,
}

/// Bits of the error code: the page is there; write; the tables are broken; instruction fetch.
const PRESENT: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
const RESERVED_BIT: u64 = 1 << 3;
const FETCH: u64 = 1 << 4;

impl Fault<'_> {
    /// The address to which a call was to return, if what it called cannot be
    /// executed: the callee has no frame yet, so a backtrace would miss the caller.
    pub fn called_from(&self) -> Option<u64> {
        let is_fetch = self.page_fault.is_some() && self.frame.error & FETCH != 0;
        let top = self.frame.rsp;
        let is_readable = top.is_multiple_of(8) && paging::translate(top).is_some();
        let word = core::ptr::with_exposed_provenance::<u64>(top as usize);
        // SAFETY: aligned and mapped. It may be no return address at all.
        (is_fetch && is_readable).then(|| unsafe { word.read_volatile() })
    }
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (vector, error) = (self.frame.vector as usize & 31, self.frame.error);
        f.write_str(NAMES[vector])?;
        if let Some((address, _)) = self.page_fault {
            write!(f, " at address {address:#x}")?;
        }
        if HAS_ERROR >> vector & 1 != 0 {
            write!(f, ", error code {error:#x}")?;
        }
        let Some((address, found)) = self.page_fault else { return Ok(()) };
        match found {
            PageFault::Mended => Ok(()),
            PageFault::StackOverflow if self.frame.irqs_enabled() => {
                f.write_str(": stack overflow")
            }
            PageFault::StackOverflow => f.write_str(": stack overflow with interrupts off"),
            PageFault::NoMemory | PageFault::StillPacked => {
                f.write_str(": no memory for this page")
            }
            PageFault::Stray => {
                let flags = paging::translate(address).map(|found| found.flags);
                write!(f, ": {}", violation(address, error, flags))
            }
        }
    }
}

/// What a page fault violated (Intel SDM vol. 3, 4.7), for the first line of a report. `flags` is
/// what the tables allow there now.
fn violation(address: u64, error: u64, flags: Option<Flags>) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let has = |bit| error & bit != 0;
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
        match (has(FETCH), flags) {
            (true, _) => write!(f, "execution of a no-execute page, in {}", place(address)),
            (_, Some(Flags { executable: true, .. })) => f.write_str("write to read-only code"),
            (_, Some(Flags { writable: false, .. })) => f.write_str("write to read-only data"),
            // Another CPU has changed the tables meanwhile, or never told this one.
            _ => f.write_str("the page tables allow it now"),
        }
    })
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

/// The names of the 32 exceptions (Intel SDM vol. 3, table 6-1).
const NAMES: [&str; 32] = [
    "divide error",
    "debug exception",
    "non-maskable interrupt",
    "breakpoint",
    "overflow",
    "bound range exceeded",
    "invalid opcode",
    "device not available",
    "double fault",
    "coprocessor segment overrun",
    "invalid TSS",
    "segment not present",
    "stack-segment fault",
    "general protection",
    "page fault",
    "reserved exception 15",
    "x87 floating-point error",
    "alignment check",
    "machine check",
    "SIMD floating-point error",
    "virtualization exception",
    "control protection",
    "reserved exception 22",
    "reserved exception 23",
    "reserved exception 24",
    "reserved exception 25",
    "reserved exception 26",
    "reserved exception 27",
    "hypervisor injection",
    "VMM communication",
    "security exception",
    "reserved exception 31",
];

/// The vectors for which the CPU pushes an error code, a bit each: 8, 10 to 14, 17, 21, 29, 30.
pub(super) const HAS_ERROR: u32 = 1 << 8 | 0b1_1111 << 10 | 1 << 17 | 1 << 21 | 0b11 << 29;

#[cfg(test)]
mod tests {
    use super::*;

    fn said(address: u64, error: u64, flags: Option<Flags>) -> String {
        violation(address, error, flags).to_string()
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
