//! The backtrace of a G that another CPU may run at any moment.
//!
//! Reading the stack of a G that waits does not stop the G: it may be readied, run and end, and its
//! stack may be freed or reused by another G in the middle of the walk. So no word that is read
//! there is trusted, and no address of the stack window is touched: so a packed stack stays packed.
//! Each word is looked up in the page tables and read through the window of physical memory, with
//! interrupts off: a page that is unmapped meanwhile is not reused before this CPU has answered the
//! shootdown, which it does not while interrupts are off (`mem::stack`, "TLB shootdown"). The words
//! count only if the G has not run meanwhile.

use super::backtrace::{self, MAX_FRAMES};
use super::snapshot::TRIES;
use crate::arch::{self, text_enum};
use crate::mem::PHYS_OFFSET;
use crate::mem::stack::{pack, slot};
use crate::run::roster;
use arrayvec::ArrayVec;
use sched::Status;

text_enum! {
    /// Why there is no backtrace of a G.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub error NoBacktrace {
        NoSuchG => "there is no such G",
        Running => "it runs, so its frames change during the walk",
    }
}

/// The return addresses of the G of this number, innermost first; `Running` also if it ran during
/// every attempt. Does not allocate.
pub fn calls(id: u64) -> Result<impl Iterator<Item = usize>, NoBacktrace> {
    let g = roster::find(id).ok_or(NoBacktrace::NoSuchG)?;
    for _ in 0..TRIES {
        let (handle, status) = g.handle_and_status();
        if status == Status::Dead || g.id() != id {
            return Err(NoBacktrace::NoSuchG);
        }
        if !is_at_rest(status) {
            continue;
        }
        let switches = g.kernel.account.switches();
        // SAFETY: the record lives for ever; one instruction writes the word.
        let calls = read_calls(unsafe { g.kernel.sp.as_ptr().read_volatile() });
        // If the G has run since, its switch count has changed, or it is on a CPU now.
        let is_at_rest = handle.get().is_some() && is_at_rest(g.handle_and_status().1);
        if is_at_rest && g.kernel.account.switches() == switches {
            return Ok(calls.into_iter());
        }
    }
    Err(NoBacktrace::Running)
}

fn is_at_rest(status: Status) -> bool {
    matches!(status, Status::Runnable | Status::Parked)
}

/// The return addresses from a context that was saved at `sp` once.
fn read_calls(sp: usize) -> ArrayVec<usize, MAX_FRAMES> {
    let mut calls = ArrayVec::new();
    arch::probe_stack();
    let irqs = arch::irq::disable();
    if let Some((rip, rbp)) = arch::saved(sp, read_stack) {
        // From the stack of an M, where a call is, to that of the G, once.
        let mut may_hop = true;
        let leads_on = |frame, caller| match (slot_of(frame), slot_of(caller)) {
            (Some(here), Some(there)) if here == there => caller > frame,
            (Some(_), Some(_)) => core::mem::take(&mut may_hop),
            _ => false,
        };
        backtrace::follow(rip, rbp, read_stack, leads_on, |address| calls.push(address));
    }
    arch::irq::restore(irqs);
    calls
}

fn slot_of(address: usize) -> Option<slot::Slot> {
    slot::locate(address as u64).map(|(slot, _)| slot)
}

/// A word of a stack, if there is one at this address. Interrupts off.
fn read_stack(address: usize) -> Option<usize> {
    pack::peek(address as u64).map(|word| word as usize)
}

/// A word of the kernel's memory, if there is any at this address. Interrupts off.
pub(crate) fn read_word(address: usize) -> Option<usize> {
    if !address.is_multiple_of(size_of::<usize>()) {
        return None;
    }
    let phys = arch::paging::translate(address as u64)?.phys;
    let at = core::ptr::with_exposed_provenance::<usize>((PHYS_OFFSET + phys) as usize);
    // SAFETY: 1. aligned, and a page is a frame, so the word is in one. 2. All frames are mapped
    // there. 3. This frame is not reused before interrupts are on again. It may be written
    // meanwhile: any value will do.
    Some(unsafe { at.read_volatile() })
}
