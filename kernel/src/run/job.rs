//! The result cell of a G: its closure on the way in, its outcome on the way out.
//!
//! A G and its join handle (`go`) share one. It has two owners, and each is a value that can be
//! used up but not copied: [`Work`], the worker's, is run once; [`Joiner`] waits for the outcome,
//! or is dropped, which detaches. The last owner frees the cell. Its loom model is
//! `tests/loom_job.rs`.
//!
//! # The word
//!
//! ```text
//!               the outcome is there
//!        OPEN ────────────────────────▶ DONE       the cell is the joiner's
//!         │ ▲│ the joiner waits           ▲
//!         │ │└─────────────────▶ AWAITED ─┴─ by WAKING: the waiter is readied
//!         │ └──────────────────── │  │
//!         │  its time is up          │
//!         │ the joiner is gone       │
//!         └──────────▶ DETACHED ◀────┘             the cell is the worker's
//! ```
//!
//! > The job is the worker's until it is taken. The outcome is the worker's until DONE, then the
//! > joiner's. The waiter is the worker's in WAKING, in AWAITED it does not change, else it is the
//! > joiner's.
//!
//! Each arrow is one read-modify-write, but that from WAKING, in which the word is the worker's. So
//! of AWAITED and DONE one comes first: if AWAITED, the worker sees the waiter and readies it,
//! which had begun to park before; if DONE, the joiner fails to set AWAITED and does not wait.
//! WAKING lasts for a few instructions with interrupts off, in which the worker takes the waiter
//! out: after DONE the cell may be gone. A joiner that wants to leave meanwhile spins until DONE. A
//! G that is not waited for costs one arrow in all: the second owner only loads the word.
//!
//! # Jobs that fail
//!
//! A G may be stopped for good while it runs its job (`run::full`). Then another G completes
//! the cell with a failure in its place ([`Work::give_up`]), and is the worker from there on. It
//! finds the work where the worker had it ([`Work::run_from`]) until the moment at which the worker
//! begins to complete the cell. From that moment on the worker is not stopped: it calls only what
//! wakes the joiner, and has probed the stack for that.
//!
//! # The ticket
//!
//! What a job has borrowed is in use until its outcome is in the cell, or dropped. So a job can
//! leave a [`Job::Ticket`] in its cell, which the worker drops last, whichever way the job ended:
//! done, given up, or never begun. (`scope` counts its Gs by it.) Others have none, of no size.
//!
//! # Where it is
//!
//! On the heap, or in an [`InlineCell`], which is used for one cell after another: a G's record has
//! one, for the small closures that most are. A cell on the heap has the address of its G, for the
//! deadlock scan, which follows a joiner to the G that it waits for. Want of memory is an error
//! here, never a panic.

use super::sys::{
    AtomicU32, GHandle, JoinError, Reason, UnsafeCell, Wait, begin_park, cancel_park, const_fn,
    die, fence, irq, is_killed, look_for_cycle, park, park_until, probe_stack, ready_from, relax,
    stop_lending,
};
use alloc::alloc::{Layout, alloc, dealloc};
use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit, forget, offset_of};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

const OPEN: u32 = 0;
const AWAITED: u32 = 1;
const DONE: u32 = 2;
const DETACHED: u32 = 3;
const WAKING: u32 = 4;

/// A closure to run, and its outcome.
pub trait Job: Send {
    type Outcome: Send;

    /// What the worker drops when it is done with all that the job may have borrowed.
    type Ticket: Send;

    /// Called once, when the cell is made.
    fn ticket(&self) -> Self::Ticket;

    /// Runs it. If this unwinds, the joiner waits for ever.
    fn run(self) -> Self::Outcome;

    /// The outcome of a job that was not run, or not to its end.
    fn failed(why: JoinError, ticket: &Self::Ticket) -> Self::Outcome;

    /// Drops the outcome of a detached job. If this unwinds, the G does not end.
    fn discard(outcome: Self::Outcome) {
        drop(outcome);
    }
}

/// Makes the two owners of a result cell, on the heap.
///
/// # Errors
/// There is no memory; returns the job.
#[cfg(not(target_os = "none"))]
pub fn pair<J: Job + 'static>(job: J) -> Result<(Work, Joiner<J::Outcome>), J> {
    // SAFETY: no inline cell, and the job borrows nothing.
    unsafe { pair_in(None, job) }
}

/// As [`pair`], in an inline cell if there is one.
///
/// # Errors
/// There is no memory, the job does not fit in the inline cell, or that is not free; returns the
/// job.
///
/// # Safety
/// 1. No other call for this inline cell runs meanwhile. 2. What the job has borrowed is there
///    until its ticket is dropped, and for the outcome until that is.
#[inline(always)]
pub unsafe fn pair_in<J: Job>(
    space: Option<&'static InlineCell>,
    job: J,
) -> Result<(Work, Joiner<J::Outcome>), J> {
    let (cell, storage) = match space {
        Some(space) if const { InlineCell::fits::<J>() } && space.is_free() => {
            space.taken.store(1, Relaxed); // the caller's alone until it is freed
            (space.bytes.with_mut(|bytes| bytes.cast()), Storage(space))
        }
        Some(_) => return Err(job),
        // SAFETY: a cell has a header, so its size is not zero.
        None => (unsafe { alloc(Layout::new::<ResultCell<J>>()) }, Storage::heap(0)),
    };
    let Some(cell) = NonNull::new(cell.cast::<ResultCell<J>>()) else { return Err(job) };
    let table = const {
        &Table {
            run: run::<J>,
            fail: fail::<J>,
            layout: Layout::new::<ResultCell<J>>(),
            body: offset_of!(ResultCell<J>, body),
        }
    };
    let header = Header {
        table,
        storage: Cell::new(storage),
        word: AtomicU32::new(OPEN),
        waiter: UnsafeCell::new(None),
        body: UnsafeCell::new(()),
    };
    let ticket = MaybeUninit::new(job.ticket());
    let body = MaybeUninit::new(Body { job: ManuallyDrop::new(job) });
    // SAFETY: memory of that layout, or large and aligned enough, says `fits`; no other owner, as
    // it is fresh or was free, and no other call runs.
    unsafe { cell.write(ResultCell { header, body, ticket }) };
    let header = cell.cast();
    Ok((Work { header }, Joiner { header, outcome: PhantomData }))
}

/// Space for one result cell after another.
pub struct InlineCell {
    taken: AtomicU32,
    bytes: UnsafeCell<MaybeUninit<Bytes>>,
}

#[repr(align(16))]
struct Bytes(#[expect(dead_code, reason = "only its size counts")] [u8; InlineCell::BYTES]);

// SAFETY: the bytes belong to the call that has set `taken`, and what is put there may go to
// another CPU (`Job: Send`).
unsafe impl Sync for InlineCell {}
// SAFETY: as above.
unsafe impl Send for InlineCell {}

impl InlineCell {
    /// Space for the cell, the closure or its outcome included.
    pub const BYTES: usize = 112;

    const_fn! {
        pub fn new() -> Self {
            InlineCell { taken: AtomicU32::new(0), bytes: UnsafeCell::new(MaybeUninit::uninit()) }
        }
    }

    pub const fn fits<J: Job>() -> bool {
        size_of::<ResultCell<J>>() <= size_of::<Bytes>()
            && align_of::<ResultCell<J>>() <= align_of::<Bytes>()
    }

    #[inline(always)]
    pub fn is_free(&self) -> bool {
        self.taken.load(Acquire) == 0 // pairs with `free`
    }
}

/// The part of a result cell that is the same for all jobs.
struct Header {
    table: &'static Table,
    storage: Cell<Storage>,
    word: AtomicU32,
    waiter: UnsafeCell<Option<GHandle>>,
    /// Of no size; accesses to the body go through it, so that loom sees them.
    body: UnsafeCell<()>,
}

/// Where a cell is: the address of its inline cell; or on the heap, and then the address of the G
/// that runs the job ([`worker_in`]). In one word, so that the common case does not pay.
#[derive(Clone, Copy)]
struct Storage(*const InlineCell);

/// In a storage word: on the heap. The rest is the worker's address, 0 if it has none.
const ON_HEAP: usize = 1;

impl Storage {
    fn heap(worker: usize) -> Self {
        Storage(core::ptr::without_provenance(worker | ON_HEAP))
    }

    #[inline(always)]
    fn get(self) -> Option<&'static InlineCell> {
        // SAFETY: if the bit is clear, it was made from such a reference.
        (self.0.addr() & ON_HEAP == 0).then(|| unsafe { &*self.0 })
    }
}

pub const WORKER_WORD: usize = offset_of!(Header, storage);

/// The address of the worker in the storage word of a cell on the heap, if it has one.
pub fn worker_in(word: usize) -> Option<usize> {
    (word & ON_HEAP != 0).then_some(word & !ON_HEAP).filter(|&worker| worker != 0)
}

/// What differs from job to job. The functions are called with a cell of that job.
struct Table {
    /// The worker's: runs the job, empties the slot that its [`Work`] is in, and completes the
    /// cell, which may be gone afterwards.
    run: unsafe fn(NonNull<Header>, &Cell<Option<Work>>),
    /// The worker's: completes the cell with a failure; it may be gone afterwards. Drops the job
    /// first if it was not begun.
    fail: unsafe fn(NonNull<Header>, JoinError, Begun),
    layout: Layout,
    /// Where the body is in it: the job, then the outcome.
    body: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    No,
    Yes,
}

#[repr(C)] // the header first, so that a pointer to one is a pointer to the other
struct ResultCell<J: Job> {
    header: Header,
    body: MaybeUninit<Body<J>>,
    /// The worker's.
    ticket: MaybeUninit<J::Ticket>,
}

#[repr(C)] // both at its beginning
union Body<J: Job> {
    job: ManuallyDrop<J>,
    outcome: ManuallyDrop<J::Outcome>,
}

/// Moves the body out: the job, or the outcome.
///
/// # Safety
/// The cell is set up, its body is the caller's, and is a `V`.
#[inline(always)]
unsafe fn read_body<V>(cell: NonNull<Header>) -> V {
    // SAFETY: the caller's promise.
    let Header { table, body, .. } = unsafe { cell.as_ref() };
    // SAFETY: in the cell, says its table.
    let at = unsafe { cell.byte_add(table.body) };
    // SAFETY: the caller's promise.
    body.with_mut(|_| unsafe { at.cast::<V>().read() })
}

/// Moves the ticket out.
///
/// # Safety
/// The cell is set up, of that job, and the caller is the worker. Once.
#[inline(always)]
unsafe fn read_ticket<J: Job>(cell: NonNull<Header>) -> J::Ticket {
    // SAFETY: in the cell, which is of that job.
    let at = unsafe { cell.byte_add(offset_of!(ResultCell<J>, ticket)) }.cast::<J::Ticket>();
    // SAFETY: the caller's promise.
    unsafe { at.read() }
}

/// The right to run the job. Dropped, it is not run, and its outcome says so.
#[must_use = "work that is dropped is not done"]
pub struct Work {
    header: NonNull<Header>,
}

// SAFETY: the job is Send, and what else is touched is atomic or handed over by the word.
unsafe impl Send for Work {}

impl Work {
    /// Stores which G is the worker, by an address that is valid for ever, for the deadlock scan.
    /// In an inline cell it is known already.
    pub fn set_owner(&self, worker: usize) {
        let storage = &self.header().storage;
        // Before any other access: only the owner that frees the cell reads it, later.
        if storage.get().get().is_none() {
            storage.set(Storage::heap(worker));
        }
    }

    #[cfg(not(target_os = "none"))]
    pub fn run(self) {
        // Never dropped: if the job unwinds after all, it has begun.
        Self::run_from(&ManuallyDrop::new(Cell::new(Some(self))));
    }

    /// Runs the job of the work in `slot`, if there is one. The work stays in `slot` until the
    /// outcome is certain; until then a G that knows that this one never continues may call
    /// [`Self::give_up`].
    #[inline(always)]
    pub fn run_from(slot: &Cell<Option<Work>>) {
        // SAFETY: read once, and unchanged meanwhile: it is this CPU's alone.
        let Some(work) = (unsafe { &*slot.as_ptr() }) else { return };
        let (header, table) = (work.header, work.header().table);
        // SAFETY: the table came with this cell, and this is the one worker.
        unsafe { (table.run)(header, slot) };
    }

    /// Completes the cell with a failure, and wakes the joiner.
    ///
    /// # Safety
    /// [`Self::run_from`] was called with the slot that this was taken from, and its caller never
    /// runs again; or is not called, and the job is leaked.
    pub unsafe fn give_up(self, why: JoinError) {
        let work = ManuallyDrop::new(self);
        // SAFETY: the table came with this cell; the rest is the caller's promise.
        unsafe { (work.header().table.fail)(work.header, why, Begun::Yes) };
    }

    #[inline(always)]
    fn header(&self) -> &Header {
        // SAFETY: the cell is there until the worker completes it.
        unsafe { self.header.as_ref() }
    }
}

impl Drop for Work {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: the table came with this cell, and the job was not begun: the G that begins it
        // forgets the work.
        unsafe { (self.header().table.fail)(self.header, JoinError::Killed, Begun::No) };
    }
}

/// The right to the outcome. Dropping it detaches.
#[must_use = "dropping a joiner detaches"]
pub struct Joiner<T> {
    header: NonNull<Header>,
    outcome: PhantomData<T>,
}

// SAFETY: the outcome is Send, and what else is touched is atomic or handed over by the word.
unsafe impl<T: Send> Send for Joiner<T> {}
// SAFETY: a reference to one only loads the word.
unsafe impl<T: Send> Sync for Joiner<T> {}

impl<T> Joiner<T> {
    /// Waits for the outcome and takes it. Blocks this G only.
    pub fn join(self) -> T {
        if !self.is_done() {
            self.wait(None); // if this is unwound, `drop` detaches
        }
        // SAFETY: we are the joiner, and have seen DONE.
        unsafe { ManuallyDrop::new(self).take() }
    }

    /// As [`join`](Self::join), until `deadline_ns` at most: then it is there as before.
    pub fn join_by(self, deadline_ns: u64) -> Result<T, Self> {
        if !self.is_done() && !self.wait(Some(deadline_ns)) {
            return Err(self);
        }
        // SAFETY: we are the joiner, and have seen DONE.
        Ok(unsafe { ManuallyDrop::new(self).take() })
    }

    pub fn is_done(&self) -> bool {
        self.header().word.load(Acquire) == DONE
    }

    /// Has `waiter`, the running G, which has begun to park, readied when the outcome is there.
    /// False if it is. [`withdraw`](Self::withdraw) follows.
    pub fn enlist(&mut self, handle: GHandle) -> bool {
        let Header { word, waiter, .. } = self.header();
        let is_open = word.load(Acquire) == OPEN;
        if is_open {
            // SAFETY: from OPEN only the joiner leads on to AWAITED, and it is borrowed.
            waiter.with_mut(|waiter| unsafe { *waiter = Some(handle) });
        }
        is_open && word.compare_exchange(OPEN, AWAITED, AcqRel, Acquire).is_ok()
    }

    /// The running G waits no longer, or did not begin to.
    pub fn withdraw(&mut self) {
        let word = &self.header().word;
        if word.load(Acquire) == OPEN {
            return;
        }
        // Relaxed, as at a deadline: the waiter is the joiner's again.
        if word.compare_exchange(AWAITED, OPEN, Relaxed, Relaxed).is_err() {
            self.wait_for_done();
        }
    }

    /// The cell's address, and its storage word ([`worker_in`]): they lead to the worker's G.
    pub fn cell(&self) -> (usize, usize) {
        (self.header.addr().get(), self.header().storage.get().0.addr())
    }

    /// Moves the outcome out, and frees the cell.
    ///
    /// # Safety
    /// DONE is set, and this joiner is not used again.
    #[inline(always)]
    unsafe fn take(&self) -> T {
        // SAFETY: the outcome is a `T`, as `pair_in` says, and the joiner's since DONE.
        let outcome = unsafe { read_body(self.header) };
        // SAFETY: the worker has completed it.
        unsafe { free(self.header) };
        outcome
    }

    /// Waits until DONE (true), or `deadline_ns` has come, and the word is OPEN again.
    fn wait(&self, deadline_ns: Option<u64>) -> bool {
        let Header { word, waiter, .. } = self.header();
        // The deadlock scan finds the worker by the address of the cell, or in its header.
        let wait = Wait::at(Reason::Join, self.header()).by(deadline_ns);
        let handle = begin_park(wait);
        // SAFETY: the word is OPEN or DONE, so the waiter is the joiner's.
        waiter.with_mut(|waiter| unsafe { *waiter = Some(handle) });
        // Release: the waiter, and that we are parking. Acquire: the outcome. The second time it
        // changes nothing, but comes before or after the worker's too.
        let mut before = OPEN;
        while word.compare_exchange(before, AWAITED, AcqRel, Acquire).is_ok() {
            before = AWAITED;
            // The wait is stored before other waits are read: pairs with the same fence of a G that
            // closes a cycle (`fail::deadlock::cycle`).
            fence(SeqCst);
            look_for_cycle(false);
            let in_time = match deadline_ns {
                Some(deadline_ns) => park_until(deadline_ns),
                None => {
                    park();
                    true
                }
            };
            if word.load(Acquire) == DONE {
                stop_lending();
                return true;
            }
            if is_killed() {
                stop_lending();
                die(); // the handle that stays in the cell does no harm
            }
            // Relaxed: the waiter is the joiner's again, which is this G.
            if !in_time && word.compare_exchange(AWAITED, OPEN, Relaxed, Relaxed).is_ok() {
                stop_lending();
                return false;
            }
            begin_park(wait); // woken by an old handle, or the worker is about to
        }
        cancel_park();
        stop_lending();
        self.wait_for_done();
        true
    }

    /// The worker is in WAKING, or past it.
    fn wait_for_done(&self) {
        while self.header().word.load(Acquire) != DONE {
            relax();
        }
    }

    #[inline(always)]
    fn header(&self) -> &Header {
        // SAFETY: the worker leaves the cell to us unless we detach.
        unsafe { self.header.as_ref() }
    }
}

impl<T> Drop for Joiner<T> {
    #[inline(always)]
    fn drop(&mut self) {
        let word = &self.header().word;
        let before = word.load(Acquire);
        // OPEN, or AWAITED if a wait is unwound.
        if before >= DONE || word.compare_exchange(before, DETACHED, AcqRel, Acquire).is_err() {
            self.wait_for_done();
            // SAFETY: we are the joiner, and DONE is set: no other change is possible.
            drop(unsafe { self.take() });
        }
    }
}

/// # Safety
/// As [`Table::run`] has it.
unsafe fn run<J: Job>(cell: NonNull<Header>, slot: &Cell<Option<Work>>) {
    // SAFETY: the job is the worker's, and in the body until now.
    let outcome = unsafe { read_body::<J>(cell) }.run();
    // What comes now must come to its end: the last moment to find that the stack is full.
    probe_stack();
    forget(slot.take());
    // SAFETY: this is the worker, from here to the end.
    let ticket = unsafe { read_ticket::<J>(cell) };
    // SAFETY: the job was taken, and this is the worker.
    unsafe { complete::<J>(cell, outcome) };
    drop(ticket);
}

/// # Safety
/// As [`Table::fail`] has it.
unsafe fn fail<J: Job>(cell: NonNull<Header>, why: JoinError, begun: Begun) {
    if begun == Begun::No {
        // SAFETY: the job is the worker's, and in the body until now.
        drop(unsafe { read_body::<J>(cell) });
    }
    // SAFETY: no other G is the worker.
    let ticket = unsafe { read_ticket::<J>(cell) };
    // SAFETY: the job was taken, and no other G is the worker.
    unsafe { complete::<J>(cell, J::failed(why, &ticket)) };
    drop(ticket);
}

/// Leaves the outcome for the joiner and wakes it; or drops it if the joiner is gone.
///
/// # Safety
/// Once, by the worker, when the job is no longer in the body.
#[inline(always)]
unsafe fn complete<J: Job>(cell: NonNull<Header>, outcome: J::Outcome) {
    // SAFETY: the worker's until DONE.
    let Header { word, waiter, body, table, .. } = unsafe { cell.as_ref() };
    let mut before = word.load(Acquire);
    if before == DETACHED {
        // SAFETY: the joiner is gone.
        unsafe { free(cell) };
        return J::discard(outcome);
    }
    // SAFETY: in the cell, says its table.
    let at = unsafe { cell.byte_add(table.body) }.cast::<J::Outcome>();
    // SAFETY: the job was taken, and DONE is not set.
    body.with_mut(|_| unsafe { at.write(outcome) });
    // Release: the outcome. Acquire: the waiter, and that it parks.
    if before == OPEN {
        match word.compare_exchange(OPEN, DONE, AcqRel, Acquire) {
            Ok(_) => return,
            Err(now) => before = now,
        }
    }
    while before != DETACHED {
        let irqs = irq::disable(); // on the whole way: see "The word"
        let next = if before == AWAITED { WAKING } else { DONE };
        match word.compare_exchange(before, next, AcqRel, Acquire) {
            Err(now) => before = now, // a joiner whose time is up, or that is gone
            Ok(OPEN) => return irq::restore(irqs),
            Ok(_) => {
                // SAFETY: its writer is done with it, and does not come back before DONE.
                let waiter = waiter.with_mut(|waiter| unsafe { (*waiter).take() });
                word.store(DONE, Release);
                return ready_from(irqs, waiter.expect("AWAITED comes after it"));
            }
        }
        irq::restore(irqs);
    }
    // The joiner has gone meanwhile. SAFETY: written above, and there is no other owner.
    let outcome = unsafe { read_body(cell) };
    // SAFETY: the joiner is gone.
    unsafe { free(cell) };
    J::discard(outcome);
}

/// # Safety
/// The cell is set up, its body was taken, and there is no other owner.
#[inline(always)]
unsafe fn free(cell: NonNull<Header>) {
    // SAFETY: the caller's promise.
    let Header { storage, table, .. } = unsafe { cell.as_ref() };
    let (space, layout) = (storage.get().get(), table.layout);
    // SAFETY: the caller's promise. It may have a waiter that was not needed.
    unsafe { cell.drop_in_place() };
    match space {
        Some(space) => space.taken.store(0, Release), // pairs with `is_free`
        // SAFETY: allocated in `pair_in` with this layout.
        None => unsafe { dealloc(cell.as_ptr().cast(), layout) },
    }
}

#[cfg(all(test, not(loom)))]
#[path = "job/tests.rs"] // also where models take this file from elsewhere
mod tests;
