//! M: an execution context of the kernel, a stack and the call that is on it.
//!
//! An M schedules on its own stack, and lends it to the Gs that make blocking calls under it. In
//! the steady state there is one on each CPU. There are more only while calls wait: the M whose
//! stack a call is on leaves with it, and a spare M continues in its place.
//!
//! ```text
//!                      a call waits (leave)
//!        ┌────────────┐ ────────────────▶ ┌──────────────────┐
//!        │ on a CPU   │                   │ away, with the G │
//!        └─┬────────▲─┘ ◀──────────────── └──────────────────┘
//!          │        │     the G runs again (execute)
//!  another │        │ the M here leaves
//!  comes in│        │ with a call
//!          │      ┌─┴─────┐
//!          └─────▶│ spare │◀── created
//!                 └───────┘
//! ```
//!
//! Each CPU keeps at most one spare M; the others are on the common list. **A G that is in a call
//! runs only on a CPU that has a spare M**: so at the instant at which the call must wait, one is
//! there, and nothing can fail. `call` ensures it when a call begins, and `execute` when it
//! continues: the M that is displaced becomes the spare one.
//!
//! # An M whose stack was full
//!
//! A call may fill the stack of its M. Then its G ends, as one whose own stack is full
//! (`overflow`), on pages of that stack that are normally closed. The M must not serve another call
//! before they are closed again, and that takes all CPUs, so it is done in batches (`mem::stack`).
//! Until then the M is *retired*. A caller that needs a spare M checks whether the stack of a retired M
//! is closed again ([`M::take_spare`]); if many are not, it waits for them rather than create one
//! more, so that there are never more Ms than these and what calls need at once.
//!
//! Ms are never freed, only used again; except under `system=1to1` ([`M::free`]).

use super::task::Task;
use super::{Link, system};
use crate::arch;
use crate::arch::lock::IrqLock;
use crate::mem::stack::{self, Stack, slot, slot::Slot};
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use sched::{G, Owner};

/// Maximum number of Ms. Go's limit; here as there a program that comes near it waits in ten
/// thousand calls at once, which is more often a mistake than a plan.
const MAX_MS: usize = 10_000;

/// With so many retired Ms, a caller that needs an M waits for one of them.
const MANY_RETIRED: usize = 16;

/// Minimum size of an M's stack in bytes: calls are made on it. With the guard that is more than
/// fits into a slot of 256 KiB, so it gets one of 512 KiB.
const STACK_SIZE: usize = 256 * 1024;

/// Pages of it that are committed from the start: scheduling must not fault.
const STACK_PAGES: usize = 4;

/// See the head of this file.
pub struct M {
    // Constant.
    id: usize,
    older: Option<&'static M>,

    // Constant while it has a stack.
    /// The addresses of its stack, from and to.
    stack: [AtomicU64; 2],
    /// Where its frames begin.
    bottom: AtomicUsize,

    // Owned by the CPU or list that keeps it, while it schedules on no CPU.
    next_spare: Cell<Option<&'static M>>,
    /// Its stack: until `free`.
    owned: Cell<Option<Stack>>,
    /// Its ring, while it is on no CPU, where rings go with Ms.
    pub(crate) ring: Cell<Option<Owner<Task>>>,
    /// A call has filled its stack, which was not closed since. Written in the page fault of that
    /// call, on the CPU that runs it.
    pub(crate) was_full: Cell<bool>,

    // For reports: written by its CPU, read by any CPU.
    state: AtomicU8,
    /// The G that has left its CPU with it, in a call, or did so last.
    pub(crate) g: Link<G<Task>>,
}

// SAFETY: the cells are touched by the owner of the M only: the CPU that runs on it, or the holder
// of the list or CPU that keeps it as a spare. Ownership moves through `MS` and its lock, through
// the cells of one CPU, or along with the G that is bound to it, by the queues of `sched`.
unsafe impl Sync for M {}

struct Ms {
    newest: Option<&'static M>,
    created: usize,
    /// As `created`, and those that took the record of one that was freed.
    made: u64,
    spare: Option<&'static M>,
    retired: Option<&'static M>,
    count_retired: usize,
    /// Records of Ms that were freed.
    free: Option<&'static M>,
}

static MS: IrqLock<Ms> = IrqLock::new(Ms {
    newest: None,
    created: 0,
    made: 0,
    spare: None,
    retired: None,
    count_retired: 0,
    free: None,
});

impl Ms {
    /// Moves the Ms whose stacks are closed again to the spare list.
    #[cold]
    fn reuse_retired(&mut self) {
        let mut rest = self.retired.take();
        while let Some(m) = rest {
            rest = m.next_spare.take();
            let is_closed = stack::POOL.is_closed(m.slot());
            m.was_full.set(!is_closed);
            self.count_retired -= usize::from(is_closed);
            let list = if is_closed { &mut self.spare } else { &mut self.retired };
            m.next_spare.set(list.replace(m));
        }
    }
}

/// Why a blocking call was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockingError {
    /// As many calls wait already as there may be Ms.
    TooMany,
    /// There is no memory for another M.
    NoMemory,
}

impl fmt::Display for BlockingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockingError::TooMany => {
                write!(f, "there are {MAX_MS} Ms, and a call waits on each of them")
            }
            BlockingError::NoMemory => f.write_str("no memory for another M"),
        }
    }
}

impl core::error::Error for BlockingError {}

impl M {
    /// A new M, a spare one. Allocates.
    pub(crate) fn create() -> Result<&'static M, BlockingError> {
        let mut place = Vec::new();
        place.try_reserve_exact(1).map_err(|_| BlockingError::NoMemory)?;
        let stack = Stack::new(STACK_SIZE).map_err(|_| BlockingError::NoMemory)?;
        let (start, bounds) = (stack.start(), stack.bounds());
        stack.commit(STACK_PAGES).map_err(|_| BlockingError::NoMemory)?;
        // SAFETY: the top of a stack that is this M's alone.
        let bottom = unsafe { arch::bottom_of(start as usize) };
        let ring = system::new_ring()?;

        let mut ms = MS.lock();
        if let Some(m) = ms.free {
            ms.free = m.next_spare.take();
            m.set_stack(bounds, bottom);
            m.set_state(MState::Spare);
            m.owned.set(Some(stack));
            ms.made += 1;
            return Ok(m);
        }
        if ms.created == MAX_MS {
            return Err(BlockingError::TooMany);
        }
        place.push(M {
            id: ms.created,
            older: ms.newest,
            stack: [AtomicU64::new(bounds.start), AtomicU64::new(bounds.end)],
            bottom: AtomicUsize::new(bottom),
            next_spare: Cell::new(None),
            ring: Cell::new(ring),
            owned: Cell::new(Some(stack)),
            was_full: Cell::new(false),
            state: AtomicU8::new(MState::Spare as u8),
            g: Link::new(),
        });
        let m = &place.leak()[0];
        ms.created += 1;
        ms.made += 1;
        ms.newest = Some(m);
        Ok(m)
    }

    fn set_stack(&self, bounds: Range<u64>, bottom: usize) {
        self.stack[0].store(bounds.start, Relaxed);
        self.stack[1].store(bounds.end, Relaxed);
        self.bottom.store(bottom, Relaxed);
    }

    /// Frees a spare M, which is on no list, for a system that makes an M for each G: its stack goes
    /// back to the pool, and its record serves the next M.
    pub(crate) fn free(&'static self) {
        self.set_state(MState::Freed);
        drop(self.owned.take()); // nothing runs on it
        let mut ms = MS.lock();
        self.next_spare.set(ms.free.replace(self));
    }

    /// Takes a spare M from the common list (Go: mget).
    pub(crate) fn take_spare() -> Option<&'static M> {
        let mut ms = MS.lock();
        if ms.spare.is_none() && ms.retired.is_some() {
            ms.reuse_retired();
        }
        let m = ms.spare?;
        ms.spare = m.next_spare.take();
        Some(m)
    }

    /// Puts it on the common list of spare Ms (Go: mput).
    pub(crate) fn put_spare(&'static self) {
        let mut ms = MS.lock();
        self.next_spare.set(ms.spare.replace(self));
    }

    /// Puts it among the Ms whose stacks were full, until its own is closed again. It is on no CPU,
    /// and no call is on it.
    pub(crate) fn retire(&'static self) {
        self.set_state(MState::Spare);
        stack::POOL.close_later(self.slot(), STACK_PAGES); // first: it is never taken while open
        let mut ms = MS.lock();
        self.next_spare.set(ms.retired.replace(self));
        ms.count_retired += 1;
    }

    /// Whether no more should be created.
    pub(crate) fn are_many_retired() -> bool {
        MS.lock().count_retired >= MANY_RETIRED
    }

    /// Records that its stack is full. True if that is new.
    pub(crate) fn fill(&self) -> bool {
        !self.was_full.replace(true)
    }

    pub(crate) fn slot(&self) -> Slot {
        slot::locate(self.stack().start).expect("made from a stack").0
    }

    /// Where its frames begin.
    pub(crate) fn bottom(&self) -> usize {
        self.bottom.load(Relaxed)
    }

    pub(crate) fn stack(&self) -> Range<u64> {
        self.stack[0].load(Relaxed)..self.stack[1].load(Relaxed)
    }

    pub(crate) fn set_state(&self, state: MState) {
        self.state.store(state as u8, Relaxed);
    }

    pub fn id(&self) -> usize {
        self.id
    }

    pub(crate) fn state(&self) -> MState {
        match self.state.load(Relaxed) {
            0 => MState::OnCpu,
            1 => MState::InCall,
            2 => MState::Spare,
            _ => MState::Freed,
        }
    }
}

/// What an M does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MState {
    /// It schedules on a CPU, or a G runs there.
    OnCpu = 0,
    /// It is away from all CPUs with a G whose call waits (or waits to continue).
    InCall = 1,
    /// It waits to be used again.
    Spare = 2,
    /// It was freed, and is in no report.
    Freed = 3,
}

/// How many Ms there are, how many of them are spare and how many are away in a call.
pub fn count() -> (u64, u64, u64) {
    all().fold((0, 0, 0), |(all, spare, away), m| match m.state() {
        MState::OnCpu => (all + 1, spare, away),
        MState::Spare => (all + 1, spare + 1, away),
        MState::InCall => (all + 1, spare, away + 1),
        MState::Freed => (all, spare, away),
    })
}

/// How many Ms were ever made.
pub fn made() -> u64 {
    MS.lock().made
}

/// The number of an M whose stack was overwritten at the top.
#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub(crate) fn overrun() -> Option<usize> {
    all().find(|m| !stack::is_whole(m.slot())).map(M::id)
}

/// All Ms, newest first.
pub(crate) fn all() -> impl Iterator<Item = &'static M> {
    let ms = core::iter::successors(MS.lock().newest, |m| m.older);
    ms.filter(|m| m.state() != MState::Freed)
}
