//! An exception that no handler could repair: what the report says about it.
//!
//! The names of the exceptions, which of them have an error code, and the words for
//! what a page fault was. [`super::dispatch`] finds out; the kernel's handler prints.

use super::Frame;
use crate::arch::x86_64::irq::violation::Violation;
use crate::arch::x86_64::paging;
use core::fmt;

/// What [`Handlers::page_fault`](super::Handlers::page_fault) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageFault {
    /// The page is there now: try the instruction again.
    Mended,
    /// The address is the guard of a stack.
    StackOverflow,
    /// The page could be had, but there is no memory for it.
    NoMemory,
    /// The address belongs to no stack.
    Stray,
}

/// An exception that could not be mended, for the report.
pub struct Fault<'a> {
    /// The vector's name in the manual.
    pub name: &'static str,
    /// The error code that the CPU pushed, if this vector has one.
    pub error: Option<u64>,
    /// The address of a page fault.
    pub address: Option<u64>,
    /// What the kernel made of a page fault.
    pub page_fault: Option<PageFault>,
    /// The registers at that instruction.
    pub frame: &'a Frame,
}

impl<'a> Fault<'a> {
    /// The exception that `frame` was saved for.
    pub(super) fn new(
        frame: &'a Frame,
        address: Option<u64>,
        page_fault: Option<PageFault>,
    ) -> Self {
        let name = NAMES[frame.vector as usize & 31];
        let has_error = HAS_ERROR >> (frame.vector & 31) & 1 != 0;
        let error = has_error.then_some(frame.error);
        Fault { name, error, address, page_fault, frame }
    }

    /// The address to which a call was to return, if what it called cannot be
    /// executed: the callee has no frame yet, so a backtrace would miss the caller.
    pub fn called_from(&self) -> Option<u64> {
        const FETCH: u64 = 1 << 4;
        let is_fetch = self.address.is_some() && self.error? & FETCH != 0;
        let top = self.frame.rsp;
        let is_readable = top.is_multiple_of(8) && paging::translate(top).is_some();
        let word = core::ptr::with_exposed_provenance::<u64>(top as usize);
        // SAFETY: aligned and mapped. It may be no return address at all, but that
        // is for the reader of the report to see.
        (is_fetch && is_readable).then(|| unsafe { word.read_volatile() })
    }
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if let Some(address) = self.address {
            write!(f, " at address {address:#x}")?;
        }
        if let Some(error) = self.error {
            write!(f, ", error code {error:#x}")?;
            if self.address.is_some() {
                let access = match (error & 0x10 != 0, error & 2 != 0) {
                    (true, _) => "execute",
                    (_, true) => "write",
                    _ => "read",
                };
                let why = if error & 1 != 0 { "not allowed" } else { "not mapped" };
                write!(f, " ({access}, {why})")?;
            }
        }
        match self.page_fault {
            Some(PageFault::StackOverflow) => {
                let how = if self.frame.irqs_enabled() { "" } else { " with interrupts off" };
                write!(f, ": stack overflow{how}")
            }
            Some(PageFault::NoMemory) => f.write_str(": no memory for this page"),
            Some(PageFault::Stray) => match (self.address, self.error) {
                (Some(address), Some(error)) => write!(f, ": {}", Violation::of(address, error)),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
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

/// The vectors for which the CPU pushes an error code, a bit each.
pub(super) const HAS_ERROR: u32 = 1 << 8
    | 1 << 10
    | 1 << 11
    | 1 << 12
    | 1 << 13
    | 1 << 14
    | 1 << 17
    | 1 << 21
    | 1 << 29
    | 1 << 30;
