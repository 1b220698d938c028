//! A second try: caches are given up before a request for memory fails.
//!
//! Free memory is cached where it is quick to reach: frames in the magazines of CPUs, small
//! blocks in their caches, stacks with their pages, pages in the heap. A request that finds
//! none may be on the wrong CPU, or need frames that the heap has.
//!
//! So before a request of a G fails ([`wait_for`]), the G lets its CPU's M do what only an
//! M can do, wait for all other CPUs, and then tries once more. The M interrupts all CPUs,
//! and each gives up its caches in the handler ([`shed_if_asked`]): interrupts were on
//! there, so no cache was in use. Then the pages of unused stacks and of the heap become
//! frames. Only after that the request fails, and then only the dead Gs that each P keeps
//! still hold memory, a frame each.
//!
//! A caller that cannot wait (interrupts off, a G that is about to park, no G at all) fails
//! at the first try. A page fault of a stack cannot wait either: if there is memory to
//! reclaim ([`would_help`]), the page comes from the frames set aside, and the G is made to
//! leave its CPU at once, as at the end of its slice, so that its M can reclaim
//! ([`is_wanted`]). A G in a blocking call leaves together with its M, and the spare M that
//! replaces it reclaims.
//!
//! Rejected: that the G itself interrupts the other CPUs. It may be taken off its CPU while
//! it has the turn to do so, and an M that waits for its turn keeps the G from coming back.

use crate::arch::MAX_CPUS;
use crate::mem::percpu::Here;
use crate::mem::{frames, heap, stack};
use core::sync::atomic::{AtomicUsize, Ordering};

/// The fewest pages to reclaim.
const LEAST: usize = 256;
/// Unused stacks of each size that are trimmed.
const STACKS: usize = 4096;

/// Lets the M of this CPU reclaim that many pages; false if the caller cannot wait for
/// that.
pub type Wait = fn(usize) -> bool;

static WAIT: spin::Once<Wait> = spin::Once::new();
/// Pages that are requested on a CPU.
static WANTED: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];
/// How many requests are done.
static DONE: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];
/// How many Ms ask all CPUs to give up their caches.
static ASKING: AtomicUsize = AtomicUsize::new(0);

/// Sets how a G waits for its M. Once, by `schedule`.
pub fn set_wait(wait: Wait) {
    WAIT.call_once(|| wait);
}

/// Memory for `pages` pages was not found: has all caches given up. True: try again. False:
/// there cannot be so many, or the caller cannot wait.
pub fn wait_for(pages: usize) -> bool {
    pages <= frames::total() && WAIT.get().is_some_and(|wait| wait(pages))
}

/// The next [`relieve`] on this CPU is for that many pages. The caller leaves the CPU
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
    heap::has_some() || stack::has_idle()
}

/// A request: a G that left its CPU to wait for it may run elsewhere before it is done.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    cpu: usize,
    before: usize,
}

impl Asked {
    /// Whether all caches were given up.
    pub fn is_done(self) -> bool {
        DONE[self.cpu].load(Ordering::Acquire) != self.before // pairs with `relieve`
    }
}

/// Carries out the request of this CPU. On the stack of an M, interrupts on.
pub(super) fn relieve() {
    let cpu = Here::enter().index(); // an M stays on its CPU
    let pages = WANTED[cpu].swap(0, Ordering::Relaxed);
    if pages == 0 {
        return;
    }
    // Before the interrupts are sent; pairs with the load in the handler.
    ASKING.fetch_add(1, Ordering::SeqCst);
    shed(&Here::enter());
    stack::shoot_down(&[]);
    ASKING.fetch_sub(1, Ordering::Relaxed);
    stack::trim(STACKS);
    heap::give_back(pages);
    DONE[cpu].fetch_add(1, Ordering::Release); // pairs with `is_done`
}

/// Called on every CPU that is interrupted to flush its TLB: if an M asks for it, gives up
/// the caches of this CPU. Interrupts were on until now.
pub fn shed_if_asked() {
    if ASKING.load(Ordering::SeqCst) > 0 {
        shed(&Here::enter());
    }
}

/// Gives up the caches of this CPU: blocks first, as they free pages.
#[cold]
fn shed(here: &Here) {
    heap::shed(here);
    stack::shed(here);
    frames::shed(here);
}
