//! Snapshots of all Ms, for reports.

use super::m::{self, M, MState};
use super::task::Task;
use crate::arch;
use crate::backtrace;
use alloc::vec::Vec;
use core::ops::Range;
use sched::G;

/// A snapshot of one M.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MInfo {
    /// Its number, from 0.
    pub id: usize,
    /// What it does.
    pub state: MState,
    /// The addresses of its stack.
    pub stack: Range<u64>,
    /// The number of the G whose call is on it, or was last.
    pub g: u64,
    /// While it is [`MState::InCall`]: the return addresses on its stack,
    /// innermost first; [`crate::symbols::lookup`] has their names.
    pub calls: Vec<usize>,
}

/// All Ms, newest first, as they were at one moment or another.
pub fn ms() -> Vec<MInfo> {
    m::all().map(info).collect()
}

fn info(m: &M) -> MInfo {
    let (state, g, stack) = (m.state(), m.g(), m.bounds());
    let calls = match g {
        Some(g) if state == MState::InCall => calls(g, stack),
        _ => Vec::new(),
    };
    MInfo { id: m.id(), state, stack: stack.clone(), g: g.map_or(0, G::id), calls }
}

/// The return addresses of a G that is away, or about to be. It may continue at any time, and then
/// the words read are nonsense; but the G is on this stack, which exists for ever (a page of it that
/// is decommitted meanwhile is committed again when it is read), and `walk` trusts nothing.
fn calls(g: &G<Task>, stack: &Range<u64>) -> Vec<usize> {
    let readable = |address: usize| {
        stack.contains(&(address as u64)) && arch::paging::translate(address as u64).is_some()
    };
    let mut calls = Vec::new();
    // SAFETY: the record lives for ever; only `arch::switch` writes it, with one instruction.
    let sp = unsafe { g.kernel.sp.as_ptr().read_volatile() };
    let (rip_at, rbp_at) = arch::saved_at(sp);
    if sp.is_multiple_of(8) && readable(rip_at) && readable(rbp_at) {
        // SAFETY: aligned and mapped.
        let rip = unsafe { (rip_at as *const usize).read_volatile() };
        // SAFETY: as above.
        let rbp = unsafe { (rbp_at as *const usize).read_volatile() };
        backtrace::walk(rip, rbp, readable, |address| calls.push(address));
    }
    calls
}
