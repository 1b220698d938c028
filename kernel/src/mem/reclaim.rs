//! Reclaim: memory that is only cached becomes free frames again.
//!
//! Free memory is cached where it is quick to reach: small blocks in the caches of CPUs, pages in
//! the heap, stacks with their pages. A request that finds none may be on the wrong CPU, or need
//! frames that the heap has, or that stacks of parked Gs are in (`stack::pack`). So before it fails
//! ([`wait_for`]), its G lets the M of its CPU do what only an M can do, wait for all other CPUs,
//! and then tries once more. The M interrupts all CPUs, and each empties its cache in the handler
//! ([`trim_if_asked`]): interrupts were on there, so it was not in use. Then the pages of unused
//! stacks and of the heap become frames. If the request fails after that, only the dead Gs that
//! each P keeps still hold memory, a frame each.
//!
//! A caller that cannot wait (interrupts off, a G that is about to park, no G at all) fails at the
//! first try. A page fault of a stack cannot wait either: if there is memory to reclaim
//! ([`would_help`]), the page comes from the last frames, and the G must leave its CPU at once, as
//! at the end of its slice, so that its M can reclaim ([`is_wanted`]). A G in a blocking call
//! leaves together with its M, and the spare M that replaces it reclaims.
//!
//! **One M reclaims at a time** ([`RECLAIMING`]). Pages that another M has unmapped and not freed
//! yet are counted nowhere: an M that did not wait for them would fail although there is memory.
//!
//! Rejected: that the G itself interrupts the other CPUs. It may be taken off its CPU while
//! it has the turn to do so, and an M that waits for its turn keeps the G from coming back.

use crate::arch::{self, MAX_CPUS};
use crate::mem::percpu::Here;
use crate::mem::stack::{POOL, pack};
use crate::mem::{frames, heap, heap::HEAP};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The fewest pages to reclaim on request.
const LEAST: usize = 256;
/// Unused stacks of each size that are trimmed: on request, and without one.
const STACKS: usize = 4096;
const FEW_STACKS: usize = 64;
/// Memory is short below this many free frames: the part of all, and the fewest and the most.
/// Filled up to twice that, so that one shootdown serves many Gs.
const FEW_PART: usize = 1024;
const FEW_FRAMES: Range<usize> = 512..4096;
/// Unused stacks are trimmed without a request beyond this many pages, or this many open ones.
const MANY_PAGES: usize = 1024;
const MANY_OPEN: usize = 8;
/// Free pages that the heap keeps if there is no request.
const KEPT_PAGES: usize = 256;

/// Lets the M of this CPU reclaim that many pages; false if the caller cannot wait for that.
pub type Wait = fn(usize) -> bool;

static WAIT: spin::Once<Wait> = spin::Once::new();
/// Pages that are requested on a CPU.
static WANTED: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];
static DONE: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];
static RECLAIMING: AtomicBool = AtomicBool::new(false);
/// Ms that wait for their turn, and come before those that need not reclaim.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Whether that M asks all CPUs to empty their caches.
static ASKING: AtomicBool = AtomicBool::new(false);

/// Sets how a G waits for its M. Once, at boot.
pub fn set_wait(wait: Wait) {
    WAIT.call_once(|| wait);
}

/// Memory for `pages` pages was not found: has all caches emptied. True: try again. False:
/// there cannot be so many, or the caller cannot wait.
pub fn wait_for(pages: usize) -> bool {
    pages <= frames::total() && WAIT.get().is_some_and(|wait| wait(pages))
}

/// The next [`maintain`] on this CPU is for that many pages. The caller leaves the CPU
/// before it turns interrupts on: so no other G asks here before that is done.
pub fn want(here: &Here, pages: usize) -> Asked {
    let cpu = here.index();
    WANTED[cpu].store(pages.max(1), Ordering::Relaxed);
    Asked { cpu, before: DONE[cpu].load(Ordering::Relaxed) }
}

/// Whether a G of this CPU must leave it so that the M can reclaim memory. For interrupts.
pub fn is_wanted(cpu: usize) -> bool {
    WANTED[cpu].load(Ordering::Relaxed) != 0 || frames::is_low()
}

/// Whether memory can be reclaimed: from the heap, or from unused stacks. Called by a page
/// fault, which interrupted code that holds no lock.
pub fn would_help() -> bool {
    HEAP.free_pages() > 0 || POOL.idle_pages() + POOL.bare_slots() > 0 || pack::would_help()
}

/// A request: the G that waits for it may run on another CPU before it is done.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    cpu: usize,
    before: usize,
}

impl Asked {
    pub fn is_done(self) -> bool {
        DONE[self.cpu].load(Ordering::Acquire) != self.before // pairs with `maintain`
    }
}

/// Periodic work of every CPU outside interrupts: carries out the request of this CPU, or frees
/// pages of unused stacks and of the heap where they are many or memory is short. On the stack of
/// an M, which stays on its CPU; no lock held and interrupts on, as it waits for other CPUs. True
/// if there is more to pack: for a CPU that has nothing else to do.
pub fn maintain() -> bool {
    let cpu = Here::enter().index();
    let wanted = WANTED[cpu].swap(0, Ordering::Relaxed);
    if wanted > 0 || frames::is_low() {
        WAITING.fetch_add(1, Ordering::Relaxed);
        while RECLAIMING.swap(true, Ordering::Acquire) {
            arch::relax();
        }
        WAITING.fetch_sub(1, Ordering::Relaxed);
        if wanted == 0 {
            free_stacks(); // none if another M has done it meanwhile
        }
        if wanted > 0 || frames::is_low() && would_help() {
            reclaim(wanted.max(LEAST));
        }
        RECLAIMING.store(false, Ordering::Release); // pairs with the swap
        if wanted > 0 {
            DONE[cpu].fetch_add(1, Ordering::Release); // pairs with `is_done`
        }
        return false;
    }
    let (pages, open) = (POOL.idle_pages(), POOL.open_slots());
    let is_due = pages > MANY_PAGES
        || open > MANY_OPEN
        || pack::is_due()
        || is_short()
            && (pages + open + POOL.bare_slots() > 0
                || HEAP.free_pages() > KEPT_PAGES
                || pack::would_help());
    // Only if no other M does, or is about to: CPUs that queue for a shootdown do no other work.
    let has_turn =
        is_due && WAITING.load(Ordering::Relaxed) == 0 && !RECLAIMING.swap(true, Ordering::Acquire);
    if has_turn {
        POOL.trim(FEW_STACKS);
        if is_short() && HEAP.free_pages() > KEPT_PAGES {
            heap::uncommit(2 * few_frames());
        }
        if is_short() {
            free_stacks();
        } else {
            pack::maintain();
        }
        RECLAIMING.store(false, Ordering::Release); // pairs with the swap
    }
    has_turn && pack::is_due()
}

/// Frees memory for `wanted` pages wherever it is. The M that has [`RECLAIMING`].
fn reclaim(wanted: usize) {
    // Before the interrupts are sent; pairs with the load in the handler.
    ASKING.store(true, Ordering::SeqCst);
    HEAP.trim(&Here::enter());
    arch::shootdown();
    ASKING.store(false, Ordering::Relaxed);
    POOL.trim(STACKS);
    heap::uncommit(wanted);
    POOL.strip(wanted);
    free_stacks();
    pack::free(wanted.saturating_sub(frames::free_estimate()), true);
}

/// Frees pages of stacks until memory is not short: first of unused ones, then of parked Gs.
fn free_stacks() {
    POOL.strip(lacking());
    pack::free(lacking(), false);
}

pub fn is_short() -> bool {
    frames::free_estimate() < few_frames()
}

fn few_frames() -> usize {
    (frames::total() / FEW_PART).clamp(FEW_FRAMES.start, FEW_FRAMES.end)
}

/// Frames to free if memory is short.
fn lacking() -> usize {
    (2 * few_frames()).saturating_sub(frames::free_estimate())
}

/// Called on every CPU that is interrupted to flush its TLB: if an M asks for it, empties
/// this CPU's cache of the heap. Interrupts were on until now.
pub fn trim_if_asked() {
    if ASKING.load(Ordering::SeqCst) {
        HEAP.trim(&Here::enter());
    }
}
