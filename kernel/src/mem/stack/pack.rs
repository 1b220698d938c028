//! Packing: a parked G keeps the used part of its stack, not the page that it is in.
//!
//! Most Gs that wait for long use a few hundred bytes of their stack, but page tables have no page
//! smaller than 4 KiB. So the used part is copied into a *block* of about its size ([`blocks`]),
//! the page-table entry, which is not present from then on, remembers the block, and the frame is
//! freed. A touch faults, and the handler copies the block back into a fresh frame at the same
//! address. No pointer changes, so data on the stack may be borrowed by other Gs, and wait nodes
//! there stay in their queues. Paths that do not touch a packed stack pay nothing.
//!
//! What a parked G takes:
//!
//! | | with its page | packed |
//! |---|---:|---:|
//! | stack | 4,096 | 291: a 14th of a page, for 280 bytes in use |
//! | record and header | 448 | 448 |
//! | page tables, 16 stacks each | 257 | 257 |
//!
//! That is 996 bytes; the row `million_packed_bytes` counts all memory in use: 1,077.
//!
//! # The states of an entry
//!
//! ```text
//!               unmap                    pack
//!   PRESENT(f) ───────▶ MOVING(f) ─────────────────▶ PACKED(block)
//!        ▲                  │  │                          │
//!        ├──────────────────┘  └──── drop ───▶ 0          │
//!        │      a touch                                   │
//!        └────────────────────────────────────────────────┘
//!          a touch: the block is copied to another frame
//! ```
//!
//! Each arrow is one compare-and-swap on the entry ([`entry`]), so no step waits for another CPU,
//! and the page-fault handler takes no lock.
//!
//! 1. The packer (one M at a time) makes the entries of many pages MOVING. Other CPUs may still
//!    have the translations in their TLBs, and write to the frames.
//! 2. One shootdown for all of them. From here on a touch of any of these pages faults, and the
//!    fault takes the frame back: MOVING → PRESENT.
//! 3. For each page: is the G at rest (parked, or runnable: its context is saved), and where is its
//!    stack pointer? That is read *now*, not before the shootdown: the G may have run meanwhile.
//!    Then the packer copies what is above the stack pointer, and makes the entry PACKED.
//! 4. That fails if the entry is no longer MOVING: there was a touch. Then the copy may be old and
//!    is discarded, and the page stays. If it succeeds, there was no touch since the shootdown: the
//!    copy is what the page held, the G did not run since it was seen at rest (it would have
//!    touched its stack), and no TLB has the translation. The frame is freed.
//!
//! So a stack in use is never packed, and the state of the G needs no bit for it: a waker readies a
//! packed G as any other, by its record, and the G unpacks when it is switched to. There is no
//! wake-up that packing could lose.
//!
//! **Two touches at once.** Each handler copies the block to a frame of its own; the one that makes
//! the entry PRESENT frees the block, the other its frame. The loser may read a block that is freed
//! and even filled again; it discards what it read, and all such copies are made of single words,
//! each read in one access. Its compare-and-swap cannot succeed by mistake: for that the page would
//! have to be packed again, into the same block, while the loser is in its handler. That takes a
//! shootdown, which the loser's CPU does not answer before it has left the handler. So code that
//! unpacks or reads a block elsewhere has interrupts off.
//!
//! **Pages below the stack pointer** hold nothing. They go the same way, MOVING → 0 instead of
//! PACKED. A G that uses more than [`MOST_USED`] bytes keeps the pages that it uses, and has
//! probed. The pages of unused stacks are the pool's (`Pool::strip`), and so are those of the
//! closed part. A G that unwinds, or whose stack was full, keeps all.
//!
//! # What is packed, and when
//!
//! - Every second, if there are many Gs ([`MANY`]): Gs that have been parked for a second
//!   ([`LONG_NS`]). A CPU without a G packs them. If there is none, a G leaves its CPU for one
//!   round of [`SMALL_ROUND`] pages, and again a slice later, until all are packed.
//! - When memory is short (`mem::reclaim`): any G at rest.
//! - `pack=always`: any G at rest, before each switch; for tests. `pack=off`: none.
//!
//! The packer goes around all slots of the smallest class, like the hand of a clock; when memory is
//! short it first looks at those that were unpacked last ([`note`]), which are the ones that can be
//! packed when all others are. Records, headers and timer nodes are not in stacks, so looking at Gs
//! unpacks none. Devices get no addresses of stacks: their buffers are in `mem::dma`.
//!
//! **To wake very many.** A G that closes a channel touches the wait node of each G that waits, so
//! each is unpacked before it runs. Its own page faults soon leave too few frames, and it goes to
//! the tail of the global queue, behind the Gs that it has readied. These have their frames, and
//! free them when they end: the pool's unused stacks give theirs back first, in one shootdown for
//! hundreds. So a runnable G that was just unpacked is packed again only if no unused stack and no
//! parked G has a frame: only [`SMALL_ROUND`] of them at a time, the last readied first.
//!
//! # Unpacking finds a frame
//!
//! A frame for each packed stack cannot be kept: then packing would save nothing. So the rule is
//! about progress. A reserve of frames, some for each CPU, is for unpacking only, and the heap, new
//! stacks and growing ones leave it alone ([`frames::Stock`]):
//!
//! | access | may take | if there is none |
//! |---|---|---|
//! | a CPU that switches to a packed G (`Run`) | a third | the M reclaims memory and tries again; then the G goes to the global queue |
//! | a G that touches another's stack (`Run`) | a third | it leaves; the M reclaims memory; it tries again |
//! | a G that must end (`Last`) | two thirds | it waits once more, and then is abandoned |
//! | code with interrupts off that touches the stack of a G (`Unpack`) | all | the machine stops |
//!
//! Code with interrupts off can neither wait nor fail. One such section ends the waits of eight Gs
//! at most, and touches two neighbours of their nodes. If it leaves less than two thirds, its G
//! leaves the CPU at the first instruction with interrupts on, and *no M runs a G before it has
//! reclaimed memory*. What was touched and has not run can be packed again, and packing takes one
//! frame at most, for blocks, before it frees one: so what such sections take comes back. What a G
//! takes that runs may not: it may park with more in use than is ever packed. That is why a switch
//! leaves two thirds; and with less than one third left after all was reclaimed, a G whose stack is
//! small waits even if it is unpacked already (it was touched, and would keep that page). So the
//! last third, twelve frames for each CPU, is always there for sections with interrupts off.
//!
//! **What is not bounded** is a walk over a queue under its lock. To give, take or grant skips the
//! nodes of selections that were won elsewhere and whose Gs have not run since; a search for one
//! node (`is_waited_for`, `take_out`, the log's `pass_from`) may reach all of a queue. If more of
//! them are packed than there are frames in the whole reserve, the machine stops.
//!
//! **A G that finds no frame waits while others may free one.** Frames that one M has reclaimed may
//! be taken by the Gs of other CPUs before this M tries again: that is no reason to give up a G.
//! And a G that has its frame may end, or park with little in use. It is another matter if all that
//! are runnable wait so: then nothing comes back. So there is a limit: when there were too few
//! frames for [`HOPELESS_NS`], although every M that tried has reclaimed all it could, and no stack
//! was unpacked for [`LATELY_NS`], the next G that finds none must end: it runs with some of the
//! last frames, which it needs to unwind, is killed, with a report, and its join says `NoMemory`.
//! [`AGAIN_NS`] later, if that has freed nothing, another one. Which G that is, is chance: all of
//! them want the same. One that finds no last frames either is abandoned the second time.
//!
//! No G is packed again before it has run: the M packs only others, and a fault at the switch, or
//! with interrupts on, does not make the G leave. Without this, one that had to leave at once was
//! packed again by its own M, for ever.
//!
//! # What was rejected
//!
//! - **A state of the G for packing**: all code that readies a G would have to know it. The entry
//!   is where every use of the stack comes by anyway.
//! - **A lock, or a third state while a copy is made**, for which other CPUs wait: a CPU that is
//!   held up there (an NMI, a hypervisor) holds up all others, with interrupts off.
//! - **A frame kept for each packed stack**: see above. **To abandon a G as soon as reclaiming did
//!   not help it**: on 8 CPUs the other CPUs took the frames, and one of ten million Gs was lost.
//! - **Packing at every park**: 600 instructions, and 850 more to wake.

mod blocks;
mod entry;

use super::pool::LIVE;
use super::slot::{self, Slot};
use super::{NoMemory, POOL};
use crate::arch::{self, paging};
use crate::mem::frames::{self, Frame, Stock};
use crate::mem::{PAGE_SIZE, phys_to_virt};
use arrayvec::ArrayVec;
use blocks::Blocks;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
use entry::{Entry, Found};

/// What `entry` and `blocks` need of the kernel; their model has a `sys` of its own.
mod sys {
    pub use crate::arch::paging::data_entry as present_entry;
    pub use core::sync::atomic::{AtomicU64, AtomicUsize};
}

/// The most bytes in use of a stack that is packed.
pub const MOST_USED: usize = blocks::LARGEST;
/// Pages that all CPUs forget together, when memory is short; and else.
const ROUND: usize = 1024;
const SMALL_ROUND: usize = 128;
/// Slots that are looked at in a round.
const LOOKS: usize = 4096;
/// Stacks that are remembered: see [`note`].
const RECENTS: usize = 4096;
/// Stacks from which on Gs are packed that have been parked for long.
pub const MANY: usize = 1024;
/// How long that is.
pub const LONG_NS: u64 = 1_000_000_000;

/// How long there may be too few frames until a G that found none must end; how long ago the last
/// one was unpacked by then; and when the next must end.
const HOPELESS_NS: u64 = 250_000_000;
const LATELY_NS: u64 = 25_000_000;
const AGAIN_NS: u64 = 1_000_000;

/// `pack=` on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PackChoice {
    Off = 0,
    /// Those of Gs that have been parked for long; of others when memory is short.
    On = 1,
    /// All that can be, before each switch: for tests.
    Always = 2,
}

/// A G at rest.
#[derive(Clone, Copy, Debug)]
pub struct AtRest {
    /// Its saved stack pointer.
    pub sp: u64,
    /// For how long it has been parked, ns; `None` if it is runnable.
    pub parked_ns: Option<u64>,
}

/// Whether the G whose record is at this address is at rest.
pub type FindAtRest = fn(usize) -> Option<AtRest>;

static AT_REST: spin::Once<FindAtRest> = spin::Once::new();
static CHOICE: AtomicU8 = AtomicU8::new(PackChoice::Off as u8);
static BLOCKS: Blocks = Blocks::new();
/// The next slot to look at. The packer's.
static HAND: AtomicU32 = AtomicU32::new(0);
/// Numbers, plus one, of slots that were noted; how many were, now and when the packer looked last.
static RECENT: [AtomicU32; RECENTS] = [const { AtomicU32::new(0) }; RECENTS];
static NOTED: AtomicU32 = AtomicU32::new(0);
static SEEN: AtomicU32 = AtomicU32::new(0);
/// The pages of a round. The packer's.
static PAGES: spin::Mutex<ArrayVec<Page, ROUND>> = spin::Mutex::new(ArrayVec::new_const());
/// Since when there are too few frames, or a later time ([`put_off`]); 0 if there are enough.
static STARVED_SINCE: AtomicU64 = AtomicU64::new(0);
/// How many slots [`free`] has not looked at since it found something there: 0 if all are packed.
static UNSEEN: AtomicUsize = AtomicUsize::new(0);
/// For how long a G must have been parked: [`LONG_NS`], or 0 for [`ask_for_all`].
static LEAST_NS: AtomicU64 = AtomicU64::new(LONG_NS);
/// A second is over: see [`maintain`].
static IS_DUE: AtomicBool = AtomicBool::new(false);
static PACKED: AtomicUsize = AtomicUsize::new(0);
static PACKS: AtomicU64 = AtomicU64::new(0);
static UNPACKS: AtomicU64 = AtomicU64::new(0);

/// What is packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackStats {
    /// Stacks that are packed now.
    pub packed: usize,
    /// Bytes of the pages of blocks.
    pub block_bytes: usize,
    /// Stacks packed since boot.
    pub packs: u64,
    /// Stacks unpacked since boot.
    pub unpacks: u64,
}

/// Sets what is packed, and how the packer looks at a G; and reserves the frames for unpacking.
/// Once, when all CPUs are up.
pub fn init(choice: PackChoice, at_rest: FindAtRest) {
    AT_REST.call_once(|| at_rest);
    CHOICE.store(choice as u8, Relaxed);
    if choice != PackChoice::Off {
        frames::reserve(arch::num_cpus());
    }
}

/// Whether Gs are packed before each switch.
pub fn is_always() -> bool {
    CHOICE.load(Relaxed) == PackChoice::Always as u8
}

fn is_off() -> bool {
    CHOICE.load(Relaxed) == PackChoice::Off as u8
}

/// Has the next [`maintain`] pack Gs that have been parked for long. Any context. False if there
/// are too few Gs for that.
pub fn ask() -> bool {
    let is_due = !is_off() && POOL.made(0) as usize >= MANY;
    IS_DUE.store(is_due, Relaxed);
    look_at_all();
    is_due
}

/// Has [`maintain`] pack all Gs that are parked, however few they are and however short they wait:
/// until [`is_due`] says no more. `all` is false when that is over.
pub fn ask_for_all(all: bool) {
    LEAST_NS.store(if all { 0 } else { LONG_NS }, Relaxed);
    HAND.store(0, Relaxed);
    IS_DUE.store(all && !is_off(), Relaxed);
}

pub fn stats() -> PackStats {
    PackStats {
        packed: PACKED.load(Relaxed),
        block_bytes: BLOCKS.pages() * PAGE_SIZE,
        packs: PACKS.load(Relaxed),
        unpacks: UNPACKS.load(Relaxed),
    }
}

/// Which stacks a round packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// Of Gs that have been parked for long.
    Old,
    /// Of all Gs at rest.
    Any,
}

/// Memory is short: packs until `wanted` frames are freed, those first that were unpacked last. Gs
/// that are queued come last, as they end or park soon, and only a few. All stacks are looked at
/// only for a request, and if Gs cannot run else. The packer only: an M that reclaims
/// (`mem::reclaim`), interrupts on.
pub fn free(wanted: usize, is_request: bool) {
    if is_off() || wanted == 0 {
        return;
    }
    let mut freed = BLOCKS.sweep(&Machine);
    let mut recent = recent().filter(|&slot| !is_queued(slot) || note_again(slot));
    while freed < wanted
        && let Some(frames) = round(&mut recent, Which::Any, ROUND)
    {
        freed += frames;
    }
    if frames::is_low() {
        freed += round(&mut self::recent(), Which::Any, SMALL_ROUND).unwrap_or(0);
    }
    if is_request {
        look_at_all();
    }
    while freed < wanted && UNSEEN.load(Relaxed) > 0 {
        let looks = UNSEEN.load(Relaxed).min(LOOKS);
        let frames = round(&mut hand().take(looks), Which::Any, ROUND).unwrap_or(0);
        freed += frames;
        match frames {
            0 => _ = UNSEEN.fetch_sub(looks, Relaxed),
            _ => look_at_all(),
        }
        if !is_request && !frames::is_low() {
            break;
        }
    }
}

/// [`free`] may find something wherever it looks.
fn look_at_all() {
    UNSEEN.store(POOL.made(0) as usize, Relaxed);
}

/// Remembers a stack that was unpacked: when memory is short, it is what can be packed, among very
/// many that are packed. Any context. The ring forgets the oldest.
fn note(slot: Slot) {
    if slot.class() == 0 {
        let at = NOTED.fetch_add(1, Relaxed);
        RECENT[at as usize % RECENTS].store(slot.index() + 1, Relaxed);
    }
}

fn note_again(slot: Slot) -> bool {
    note(slot);
    false
}

/// The slots that were noted, the last one first; if Gs can run, those since the last time only.
/// The packer only.
fn recent() -> impl Iterator<Item = Slot> {
    let last = NOTED.load(Relaxed);
    let fresh = last.wrapping_sub(SEEN.swap(last, Relaxed)) as usize;
    let most = if frames::is_low() { RECENTS } else { fresh.min(RECENTS) };
    let noted = (1..=most).map(move |n| &RECENT[(last as usize).wrapping_sub(n) % RECENTS]);
    let taken = noted.filter(|slot| slot.load(Relaxed) != 0).map(|slot| slot.swap(0, Relaxed));
    taken.filter_map(|slot| Some(Slot::new(0, slot.checked_sub(1)?)))
}

/// Whether the G of a slot is runnable.
fn is_queued(slot: Slot) -> bool {
    let is_live = POOL.state(slot) == LIVE && POOL.has_record(slot);
    let at_rest = AT_REST.get().filter(|_| is_live);
    at_rest
        .and_then(|at_rest| at_rest(slot.record() as usize))
        .is_some_and(|at| at.parked_ns.is_none())
}

/// All slots, for ever, from where the packer was last. The packer only.
fn hand() -> impl Iterator<Item = Slot> {
    core::iter::repeat_with(|| {
        let index = HAND.load(Relaxed);
        let index = if index < POOL.made(0) { index } else { 0 };
        HAND.store(index + 1, Relaxed);
        Slot::new(0, index)
    })
}

/// Whether [`free`] is likely to free a frame.
pub fn would_help() -> bool {
    let fresh = NOTED.load(Relaxed).wrapping_sub(SEEN.load(Relaxed)) as usize;
    !is_off() && (UNSEEN.load(Relaxed) > 0 || fresh >= SMALL_ROUND)
}

/// A G runs, and may park or end: then [`free`] may help again.
pub fn goes_on() {
    if frames::is_low() {
        look_at_all();
    } else {
        STARVED_SINCE.store(0, Relaxed);
    }
}

/// A G found no frame to run with, although memory was reclaimed. True if it has been so for
/// [`HOPELESS_NS`], and no stack was unpacked lately.
pub fn is_hopeless(now_ns: u64) -> bool {
    let since = STARVED_SINCE.compare_exchange(0, now_ns, Relaxed, Relaxed).unwrap_or_else(|at| at);
    let is_so = since != 0 && now_ns.saturating_sub(since) > HOPELESS_NS;
    if is_so {
        put_off(AGAIN_NS);
    }
    is_so
}

/// For so long it is not hopeless.
fn put_off(by_ns: u64) {
    STARVED_SINCE.fetch_max((arch::now_ns() + by_ns).saturating_sub(HOPELESS_NS), Relaxed);
}

/// The part of the periodic upkeep: one round, if it is due. The packer only, as [`free`].
pub fn maintain() {
    if !is_due() {
        return;
    }
    let which = if is_always() { Which::Any } else { Which::Old };
    let (made, before) = (POOL.made(0) as usize, HAND.load(Relaxed));
    let mut slots = hand().take(made.min(LOOKS));
    let _ = round(&mut slots, which, SMALL_ROUND);
    // Once around: that is all for this second.
    if HAND.load(Relaxed) < before || made <= LOOKS && slots.size_hint().0 == 0 {
        BLOCKS.sweep(&Machine);
        IS_DUE.store(false, Relaxed);
    }
}

/// Whether a round is due: see [`ask`].
pub fn is_due() -> bool {
    IS_DUE.load(Relaxed) || is_always()
}

/// A page that is MOVING.
struct Page {
    slot: Slot,
    page: u64,
    frame: u64,
}

/// Looks at these slots until `most` pages were found, and packs these; how many frames are freed.
/// `None`: no page was found.
fn round(slots: &mut impl Iterator<Item = Slot>, which: Which, most: usize) -> Option<usize> {
    let mut pages = PAGES.try_lock().expect("two packers");
    pages.clear();
    while most - pages.len() > Slot::new(0, 0).body_pages()
        && let Some(slot) = slots.next()
    {
        // With interrupts off, so that there is hardly time for the G to run, and to fill its
        // stack, between the look and the unmapping: the page-fault handler then writes to that
        // stack (`rescue`'s `divert`), and cannot fault once more.
        let irqs = arch::irq::disable();
        // A page of the closed part that was opened is for a G that must not fail.
        let body = POOL.deep(slot).min(slot.body_pages() - 1);
        for n in first_unused(slot, which).map_or(0..0, |first| first..body + 1) {
            let page = slot.page_from_top(n);
            if let Some(frame) = entry_of(page).and_then(|entry| entry.unmap()) {
                pages.push(Page { slot, page, frame });
            }
        }
        arch::irq::restore(irqs);
    }
    if pages.is_empty() {
        return None;
    }
    arch::shootdown(); // step 2
    let blocks = BLOCKS.pages();
    let frames = pages.iter().filter(|page| finish(page, which)).count();
    Some(frames.saturating_sub(BLOCKS.pages().saturating_sub(blocks)))
}

/// The number of the highest page of a slot that need not stay; the top one (0) if all it holds can
/// be packed.
fn first_unused(slot: Slot, which: Which) -> Option<usize> {
    match POOL.state(slot) {
        LIVE if POOL.has_record(slot) => {
            let at = AT_REST.get()?(slot.record() as usize)?;
            let is_old = at.parked_ns.is_some_and(|ns| ns >= LEAST_NS.load(Relaxed));
            if which == Which::Old && !is_old || slot::locate(at.sp)?.0 != slot {
                return None;
            }
            // What the G has probed stays: it goes on there, with guards that a fault would lose.
            let probed = at.sp - 2 * arch::PROBE_BYTES as u64;
            Some(if is_small(at.sp) { 0 } else { slot.depth_of(probed) + 1 })
        }
        _ => None,
    }
}

/// Whether so little is in use of a stack, up from that stack pointer, that it can be packed.
pub fn is_small(sp: u64) -> bool {
    let bytes = |(slot, _): (Slot, _)| slot.end() - sp;
    slot::locate(sp).is_some_and(|at| at.0.class() == 0 && bytes(at) <= MOST_USED as u64)
}

/// Steps 3 and 4 for one page, which all CPUs have forgotten; whether its frame was freed.
fn finish(&Page { slot, page, frame }: &Page, which: Which) -> bool {
    let Some(entry) = entry_of(page) else { return false };
    // As it is now. A G that was parked for long and has run since is left alone.
    let is_freed = match first_unused(slot, which) {
        Some(first) if slot.depth_of(page) < first => false,
        Some(0) if slot.depth_of(page) == 0 => pack(slot, page, &entry, frame),
        Some(_) => entry.drop_frame(frame),
        None => false,
    };
    if is_freed {
        // SAFETY: the entry was MOVING until just now, so no CPU has used the page since all have
        // forgotten it, and none maps it.
        unsafe { frames::free(Frame::containing(frame)) };
    } else {
        entry.take_back();
    }
    is_freed
}

/// Copies what is in use of a top page to a block, and makes the entry PACKED.
fn pack(slot: Slot, page: u64, entry: &Entry<'_>, frame: u64) -> bool {
    let Some(AtRest { sp, .. }) = AT_REST.get().and_then(|at_rest| at_rest(slot.record() as usize))
    else {
        return false;
    };
    let from = sp & !15;
    if from < page || from >= slot.end() || slot.end() - from > MOST_USED as u64 {
        return false;
    }
    let bytes = (slot.end() - from) as usize;
    let Some(block) = BLOCKS.take(bytes, &Machine) else { return false };
    copy(frame + (from - page), block.at, bytes);
    if !entry.pack(frame, block) {
        BLOCKS.put(block.at, &Machine);
        return false;
    }
    PACKED.fetch_add(1, Relaxed);
    PACKS.fetch_add(1, Relaxed);
    true
}

/// Makes the page of this address present if it is MOVING or PACKED. `None`: there is no page. The
/// error: there is no frame. It waits for nothing. With interrupts off, if the page may be PACKED:
/// see "Two touches at once".
pub fn restore(addr: u64, stock: Stock) -> Option<Result<(), NoMemory>> {
    let page = addr & !(PAGE_SIZE as u64 - 1);
    let entry = entry_of(page)?;
    loop {
        match entry.found() {
            Found::Nothing => return None,
            Found::Present(_) => return Some(Ok(())), // perhaps another touch was first
            Found::Moving => {
                if entry.take_back() {
                    return Some(Ok(()));
                }
            }
            Found::Packed(block) => {
                debug_assert!(!arch::irq::enabled(), "a shootdown may be answered here");
                let Some(frame) = frames::alloc_as_is(stock) else {
                    return Some(Err(NoMemory));
                };
                let offset = PAGE_SIZE - block.bytes;
                copy(block.at, frame.addr() + offset as u64, block.bytes);
                if entry.unpack(block, frame.addr()) {
                    BLOCKS.put(block.at, &Machine);
                    PACKED.fetch_sub(1, Relaxed);
                    UNPACKS.fetch_add(1, Relaxed);
                    slot::locate(page).inspect(|&(slot, _)| note(slot));
                    match STARVED_SINCE.load(Relaxed) {
                        0 => {}
                        _ if frames::is_low() => put_off(LATELY_NS),
                        _ => STARVED_SINCE.store(0, Relaxed),
                    }
                    return Some(Ok(()));
                }
                // SAFETY: allocated above, and not mapped.
                unsafe { frames::free(frame) };
            }
        }
    }
}

/// Reads a word of a stack from its frame or its block, and unpacks nothing. `None` if the address
/// is not aligned, has no page, or is below what is packed. Interrupts are off: so, as in
/// [`restore`], no entry changes and changes back meanwhile, and no frame that was PRESENT is
/// freed.
pub fn peek(addr: u64) -> Option<u64> {
    debug_assert!(!arch::irq::enabled(), "a shootdown may be answered here");
    let is_word = addr.is_multiple_of(size_of::<u64>() as u64);
    let entry = entry_of(addr & !(PAGE_SIZE as u64 - 1)).filter(|_| is_word)?;
    let offset = addr % PAGE_SIZE as u64;
    loop {
        match entry.found() {
            Found::Nothing => return None,
            Found::Present(frame) => return Some(word(frame + offset).load(Relaxed)),
            Found::Moving => _ = entry.take_back(),
            Found::Packed(block) => {
                let from = offset.checked_sub((PAGE_SIZE - block.bytes) as u64)?;
                let value = word(block.at + from).load(Relaxed);
                if entry.is_still(block) {
                    return Some(value);
                }
            }
        }
    }
}

/// The entry of a page of a stack, if there is a table for it.
fn entry_of(page: u64) -> Option<Entry<'static>> {
    slot::locate(page)?;
    // SAFETY: of a page of a stack, whose entries are changed here and by the pool, which knows the
    // states above: it maps a page only where the entry is 0, and unmaps present ones only.
    unsafe { paging::leaf_entry(page) }.map(Entry::new)
}

/// Copies so many bytes of physical memory, a multiple of 16; word by word, as another CPU may
/// write to either place. Then the copy is discarded.
fn copy(from: u64, to: u64, bytes: usize) {
    for at in (0..bytes as u64).step_by(8) {
        let (from, to) = (word(from + at), word(to + at));
        to.store(from.load(Relaxed), Relaxed);
    }
}

/// A word of physical memory.
fn word(phys: u64) -> &'static AtomicU64 {
    // SAFETY: callers pass aligned addresses in frames of stacks and blocks, which are mapped there
    // for ever; a CPU that still uses such a word otherwise makes the result one that is discarded.
    unsafe { &*phys_to_virt(phys).cast::<AtomicU64>() }
}

/// Where blocks come from.
struct Machine;

impl blocks::Memory for Machine {
    fn alloc(&self) -> Option<u64> {
        frames::alloc_as_is(Stock::Unpack).map(Frame::addr)
    }

    fn free(&self, page: u64) {
        // SAFETY: a page of blocks, none of which is in use.
        unsafe { frames::free(Frame::containing(page)) };
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        word(at)
    }
}

#[cfg(test)]
mod tests;
