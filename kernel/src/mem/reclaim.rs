//! Reclaim: memory that is only cached becomes free frames again.
//!
//! Free memory is cached where it is quick to reach: small blocks in the caches of CPUs, pages in
//! the heap, stacks with their pages. A request that finds none may be on the wrong CPU, or need
//! frames that the heap has. So before it fails ([`wait_for`]), its G lets the M of its CPU do what
//! only an M can do, wait for all other CPUs, and then tries once more. The M interrupts all CPUs,
//! and each empties its cache in the handler ([`trim_if_asked`]): interrupts were on there, so it
//! was not in use. Then the pages of unused stacks and of the heap become frames. If the request
//! fails after that, only the dead Gs that each P keeps still hold memory, a frame each.
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
use crate::mem::{frames, heap, heap::HEAP, stack::POOL};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The fewest pages to reclaim on request.
const LEAST: usize = 256;
/// Unused stacks of each size that are trimmed: on request, and without one.
const STACKS: usize = 4096;
const FEW_STACKS: usize = 64;
/// Memory is short below this many free frames.
const FEW_FRAMES: usize = 512;
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
    WANTED[cpu].store(pages.max(LEAST), Ordering::Relaxed);
    Asked { cpu, before: DONE[cpu].load(Ordering::Relaxed) }
}

/// Whether a G of this CPU must leave it so that the M can reclaim memory. For interrupts.
pub fn is_wanted(cpu: usize) -> bool {
    WANTED[cpu].load(Ordering::Relaxed) != 0
}

/// Whether memory can be reclaimed: from the heap, or from unused stacks. Called by a page
/// fault, which interrupted code that holds no lock.
pub fn would_help() -> bool {
    HEAP.free_pages() > 0 || POOL.idle_pages() > 0
}

/// A request: the G that waits for it may run on another CPU before it is done.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    cpu: usize,
    before: usize,
}

impl Asked {
    /// Whether all caches were emptied.
    pub fn is_done(self) -> bool {
        DONE[self.cpu].load(Ordering::Acquire) != self.before // pairs with `maintain`
    }
}

/// Periodic work of every CPU outside interrupts: carries out the request of this CPU, or frees
/// pages of unused stacks and of the heap where they are many or memory is short. On the stack of
/// an M, which stays on its CPU; no lock held and interrupts on, as it waits for other CPUs.
pub fn maintain() {
    let cpu = Here::enter().index();
    let wanted = WANTED[cpu].swap(0, Ordering::Relaxed);
    if wanted > 0 {
        while RECLAIMING.swap(true, Ordering::Acquire) {
            arch::relax();
        }
        // Before the interrupts are sent; pairs with the load in the handler.
        ASKING.store(true, Ordering::SeqCst);
        HEAP.trim(&Here::enter());
        arch::shootdown();
        ASKING.store(false, Ordering::Relaxed);
        POOL.trim(STACKS);
        heap::uncommit(wanted);
        RECLAIMING.store(false, Ordering::Release); // pairs with the swap
        DONE[cpu].fetch_add(1, Ordering::Release); // pairs with `is_done`
        return;
    }
    let (pages, open) = (POOL.idle_pages(), POOL.open_slots());
    let is_due = pages > MANY_PAGES
        || open > MANY_OPEN
        || is_short() && (pages + open > 0 || HEAP.free_pages() > KEPT_PAGES);
    // Only if no other M does: CPUs that queue for a shootdown do no other work.
    if is_due && !RECLAIMING.swap(true, Ordering::Acquire) {
        POOL.trim(FEW_STACKS);
        if is_short() && HEAP.free_pages() > KEPT_PAGES {
            heap::uncommit(2 * FEW_FRAMES);
        }
        RECLAIMING.store(false, Ordering::Release); // pairs with the swap
    }
}

/// Whether free frames are few.
pub fn is_short() -> bool {
    frames::free_estimate() < FEW_FRAMES
}

/// Called on every CPU that is interrupted to flush its TLB: if an M asks for it, empties
/// this CPU's cache of the heap. Interrupts were on until now.
pub fn trim_if_asked() {
    if ASKING.load(Ordering::SeqCst) {
        HEAP.trim(&Here::enter());
    }
}
