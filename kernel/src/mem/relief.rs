//! A second look: what is only kept is given up before anybody is refused.
//!
//! Free memory lies about where it is quick to reach: frames in the magazines of CPUs,
//! small blocks in their caches, stacks with their pages, pages in the heap. Who finds
//! none where it looked may be on the wrong CPU, or need frames that the heap has.
//!
//! So a G that is about to be refused ([`wait_for`]) lets its CPU's M do what only an M
//! can do, wait for all other CPUs, and then looks once more. The M interrupts all CPUs,
//! and each gives up what it keeps in the handler ([`shed_if_asked`]): interrupts were
//! on there, so nothing of it was in use. Then the pages of unused stacks and those of
//! the heap become frames. Only after that "no memory" is said, and it is true but for
//! the dead Gs that each P keeps, a frame each.
//!
//! Who cannot wait (interrupts off, a G that is about to park, no G at all) is refused
//! at the first look. A page fault of a stack cannot wait either: if there is memory to be
//! given up ([`would_help`]), the page comes from what is set aside, and the G is made to
//! leave at once, as at the end of its slice, so that its M can look ([`is_wanted`]). A G in a
//! blocking call leaves together with its M, and the spare M that takes over looks.
//!
//! Rejected: that the G itself asks the other CPUs. It may be taken off its CPU while it
//! has the turn to ask, and an M that waits for its turn keeps it from coming back.

use crate::arch::MAX_CPUS;
use crate::mem::percpu::Here;
use crate::mem::{frames, heap, stack};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Pages that are looked for at least.
const LEAST: usize = 256;
/// Unused stacks of a size whose pages are given back.
const STACKS: usize = 4096;

/// Lets the M of this CPU relieve it, for that many pages; false if the caller cannot
/// wait for that.
pub type Wait = fn(usize) -> bool;

static WAIT: spin::Once<Wait> = spin::Once::new();
/// Pages that are asked for on a CPU.
static WANTED: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];
/// How often that was done.
static DONE: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];
/// How many ask all CPUs to give up what they keep.
static ASKING: AtomicUsize = AtomicUsize::new(0);

/// Says how a G waits for its M. Set once, by `schedule`.
pub fn set_wait(wait: Wait) {
    WAIT.call_once(|| wait);
}

/// Memory for `pages` pages was not found: sees to it that all that is kept is given up.
/// True: look again. False: there cannot be so many, or the caller cannot wait.
pub fn wait_for(pages: usize) -> bool {
    pages <= frames::total() && WAIT.get().is_some_and(|wait| wait(pages))
}

/// The next [`relieve`] on this CPU is for that many pages. The caller leaves the CPU
/// before it turns interrupts on: so nobody else asks here before that is done.
pub fn want(here: &Here, pages: usize) -> Asked {
    let cpu = here.index();
    WANTED[cpu].store(pages.max(LEAST), Ordering::Relaxed);
    Asked { cpu, before: DONE[cpu].load(Ordering::Relaxed) }
}

/// Whether a G of this CPU must leave so that the M can look for memory. For interrupts.
pub fn is_wanted(cpu: usize) -> bool {
    WANTED[cpu].load(Ordering::Relaxed) != 0
}

/// Whether there is memory that is only kept: in the heap, or on stacks that are not in use.
/// A page fault asks, with no lock held where it came.
pub fn would_help() -> bool {
    heap::has_some() || stack::has_idle()
}

/// What was asked for: a G that left to wait for it may run elsewhere before it is done.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    cpu: usize,
    before: usize,
}

impl Asked {
    /// Whether all was given up.
    pub fn is_done(self) -> bool {
        DONE[self.cpu].load(Ordering::Acquire) != self.before // pairs with `relieve`
    }
}

/// Does what was asked for on this CPU. On the stack of an M, interrupts on.
pub(super) fn relieve() {
    let cpu = Here::enter().index(); // an M stays where it is
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

/// What every CPU does when it is interrupted to forget pages: if somebody needs it,
/// it also gives up what it keeps. Interrupts were on until now.
pub fn shed_if_asked() {
    if ASKING.load(Ordering::SeqCst) > 0 {
        shed(&Here::enter());
    }
}

/// Gives up what this CPU keeps: blocks first, as they make pages.
#[cold]
fn shed(here: &Here) {
    heap::shed(here);
    stack::shed(here);
    frames::shed(here);
}
