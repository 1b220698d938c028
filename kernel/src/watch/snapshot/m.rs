//! A snapshot of one M.
//!
//! Ms are never freed. State and G are one word each, which the CPU of the M writes: the two may be
//! of two moments. Where the G of an M in a call waits is in its backtrace (`calls`), which goes
//! over the stack of the M.

use crate::run::m;
use crate::run::m::MState;
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
}

/// All Ms, newest first.
pub fn ms() -> Vec<MInfo> {
    let info = |m: &'static m::M| MInfo {
        id: m.id(),
        state: m.state(),
        stack: m.stack.clone(),
        g: m.g.get().map_or(0, G::id),
    };
    m::all().map(info).collect()
}
