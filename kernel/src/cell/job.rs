//! A piece of work that one does and another may wait for.
//!
//! What a G and its join handle share (`go`): the closure on its way to the G,
//! the outcome on its way back, and whoever waits for it. It has two owners, and
//! each is a value that can be used up but not copied: [`Work`] is run, once;
//! [`Joiner`] waits for the outcome, or is dropped and so detaches. Who is there
//! last frees the block. Its loom model is `tests/loom_job.rs`.
//!
//! # The word
//!
//! ```text
//!               the outcome is there
//!        OPEN ────────────────────────▶ DONE       the block is the joiner's
//!         │ │ the joiner waits            ▲
//!         │ └──────────────────▶ AWAITED ─┘ and the waiter is readied
//!         │ the joiner is gone      │
//!         └──────────▶ DETACHED ◀───┘              the block is the worker's
//! ```
//!
//! > The work is the worker's until it is taken. The outcome is the worker's
//! > until DONE, then the joiner's. The waiter is the joiner's until AWAITED, then
//! > the worker's.
//!
//! Each arrow is one read-modify-write. So of AWAITED and DONE one comes first:
//! if AWAITED, who sets DONE sees the waiter and readies it, which had begun to
//! park before; if DONE, who wants to set AWAITED sees that it need not wait. A
//! G that nobody waits for costs one arrow in all: who comes second only looks.
//!
//! # Work that comes to nothing
//!
//! Who does the work may be stopped for good wherever it is (`schedule::full`).
//! Then another makes an outcome that says so, in its name ([`Work::give_up`]), and
//! is the worker from there on. It finds the work where the worker had it
//! ([`Work::run_from`]) until the moment at which the worker begins to tell the
//! outcome. From that moment on the worker is not stopped: it calls nobody before
//! the end but who wakes the joiner, and has seen to the stack for that.
//!
//! # Where it is
//!
//! On the heap, or in a [`Place`] that somebody has for one block after another:
//! a G has one, for the small closures that most are. One on the heap knows whose work
//! it is, for those who ask for whom its joiner waits. No memory is a value
//! (house rule), so nothing here panics for want of it.

use crate::cell::held::watch_wait;
use crate::cell::sys::{
    AtomicU32, GHandle, JoinError, Reason, UnsafeCell, Wait, begin_park, cancel_park, const_fn,
    die, is_killed, park, probe_stack, ready,
};
use alloc::alloc::{Layout, alloc, dealloc};
use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit, forget};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

const OPEN: u32 = 0;
const AWAITED: u32 = 1;
const DONE: u32 = 2;
const DETACHED: u32 = 3;

/// Something that can be done, and what comes of it.
pub trait Labour: Send + 'static {
    /// What comes of it.
    type Outcome: Send;

    /// Does it. If this unwinds, whoever waits for the outcome waits for ever.
    fn perform(self) -> Self::Outcome;

    /// The outcome of work that was not done, or not to its end.
    fn failed(why: JoinError) -> Self::Outcome;

    /// Drops an outcome that nobody wants. The same goes for unwinding.
    fn discard(outcome: Self::Outcome) {
        drop(outcome);
    }
}

/// Makes the two owners of a piece of work, on the heap.
///
/// # Errors
/// There is no memory; gives the work back.
pub fn pair<L: Labour>(labour: L) -> Result<(Work, Joiner<L::Outcome>), L> {
    // SAFETY: a job has a word, so its size is not zero.
    let block = unsafe { alloc(Layout::new::<Job<L>>()) };
    match NonNull::new(block.cast::<Job<L>>()) {
        // SAFETY: fresh memory of that layout, nobody else's.
        Some(job) => Ok(unsafe { set_up(job, Home::heap(0), labour) }),
        None => Err(labour),
    }
}

/// As [`pair`], in a place, if the work fits in and the place is free.
///
/// # Errors
/// It does not, or is not; gives the work back.
///
/// # Safety
/// Nobody else puts anything there meanwhile.
#[inline(always)]
pub unsafe fn pair_in<L: Labour>(
    place: &'static Place,
    labour: L,
) -> Result<(Work, Joiner<L::Outcome>), L> {
    if !const { Place::fits::<L>() } || !place.is_free() {
        return Err(labour);
    }
    place.taken.store(1, Relaxed); // the caller's alone until it is freed
    let job = place.bytes.with_mut(|bytes| bytes.cast::<Job<L>>());
    // SAFETY: not null, as it is from a reference.
    let job = unsafe { NonNull::new_unchecked(job) };
    // SAFETY: large and aligned enough, says `fits`; nobody else's, as it was
    // free, and the caller is alone.
    Ok(unsafe { set_up(job, Home::place(place), labour) })
}

/// Room for one job after another.
pub struct Place {
    taken: AtomicU32,
    bytes: UnsafeCell<MaybeUninit<Bytes>>,
}

#[repr(align(16))]
struct Bytes(#[expect(dead_code, reason = "only its size counts")] [u8; Place::BYTES]);

// SAFETY: the bytes belong to whoever has set `taken`, and what is put there may
// go to another CPU (`Labour: Send`).
unsafe impl Sync for Place {}
// SAFETY: as above.
unsafe impl Send for Place {}

impl Place {
    /// Room for the job, the closure or what comes of it included.
    pub const BYTES: usize = 112;

    const_fn! {
        /// A free one.
        pub fn new() -> Self {
            Place { taken: AtomicU32::new(0), bytes: UnsafeCell::new(MaybeUninit::uninit()) }
        }
    }

    /// Whether that work fits into any.
    pub const fn fits<L: Labour>() -> bool {
        size_of::<Job<L>>() <= size_of::<Bytes>() && align_of::<Job<L>>() <= align_of::<Bytes>()
    }

    /// Whether nothing is here.
    #[inline(always)]
    pub fn is_free(&self) -> bool {
        self.taken.load(Acquire) == 0 // pairs with `free`
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

/// What is the same for all work.
struct Head {
    table: &'static Table,
    home: Cell<Home>,
    word: AtomicU32,
    waiter: UnsafeCell<Option<GHandle>>,
}

/// Where a job is: in a place; or on the heap, and then whose work it is, so that one
/// can find out from outside whom its joiner waits for ([`worker_in`]). In one word, and
/// for a place nothing but its address, so that the short way does not pay.
#[derive(Clone, Copy)]
struct Home(*const Place);

/// In a home: on the heap. The rest is the worker's address, 0 if it has none.
const ON_HEAP: usize = 1;

impl Home {
    /// In that place, which is aligned.
    #[inline(always)]
    fn place(place: &'static Place) -> Self {
        Home(place)
    }

    /// On the heap, as the work of what is at that address.
    fn heap(worker: usize) -> Self {
        Home(core::ptr::without_provenance(worker | ON_HEAP))
    }

    /// The place; `None` on the heap.
    #[inline(always)]
    fn get(self) -> Option<&'static Place> {
        // SAFETY: if the bit is clear, it was made from such a reference.
        (self.0.addr() & ON_HEAP == 0).then(|| unsafe { &*self.0 })
    }
}

/// Where the word that says whose work it is is in a job.
pub const WORKER_WORD: usize = core::mem::offset_of!(Head, home);

/// The address of the worker in that word of a job on the heap, if it has one.
pub fn worker_in(word: usize) -> Option<usize> {
    (word & ON_HEAP != 0).then_some(word & !ON_HEAP).filter(|&worker| worker != 0)
}

/// What differs. Each is called with a job of the type that it was made for.
struct Table {
    /// The worker's: does the work, and empties where it had it when it is about to
    /// tell the outcome. The head may be gone afterwards.
    run: unsafe fn(NonNull<Head>, &Cell<Option<Work>>),
    /// The worker's, if who has begun with the work never goes on: leaves an outcome
    /// that says why. The head may be gone afterwards.
    give_up: unsafe fn(NonNull<Head>, JoinError),
    /// The worker's, if it has not begun: the same, and drops the work.
    decline: unsafe fn(NonNull<Head>),
    /// The joiner's, after DONE: moves the outcome out and frees the block.
    take: unsafe fn(NonNull<Head>, *mut ()),
    /// The joiner's, after DONE: drops the outcome and frees the block.
    drop: unsafe fn(NonNull<Head>),
}

#[repr(C)] // the head first, so that a pointer to one is a pointer to the other
struct Job<L: Labour> {
    head: Head,
    body: UnsafeCell<Body<L>>,
}

/// First the one, then the other.
#[repr(C)] // both at its beginning
union Body<L: Labour> {
    labour: ManuallyDrop<L>,
    outcome: ManuallyDrop<L::Outcome>,
}

/// # Safety
/// `job` is memory of this layout and nobody else's.
#[inline(always)]
unsafe fn set_up<L: Labour>(
    job: NonNull<Job<L>>,
    home: Home,
    labour: L,
) -> (Work, Joiner<L::Outcome>) {
    let table = const {
        &Table {
            run: run::<L>,
            give_up: give_up::<L>,
            decline: decline::<L>,
            take: take::<L>,
            drop: drop_outcome::<L>,
        }
    };
    let waiter = UnsafeCell::new(None);
    let head = Head { table, home: Cell::new(home), word: AtomicU32::new(OPEN), waiter };
    let body = UnsafeCell::new(Body { labour: ManuallyDrop::new(labour) });
    // SAFETY: the caller's promise.
    unsafe { job.write(Job { head, body }) };
    let head = job.cast();
    (Work { head }, Joiner { head, outcome: PhantomData })
}

/// The right to do the work. Dropped, it is not done, and its outcome says so.
#[must_use = "work that is dropped is not done"]
pub struct Work {
    head: NonNull<Head>,
}

// SAFETY: the work is Send, and what else is touched is atomic or handed over by
// the word.
unsafe impl Send for Work {}

impl Work {
    /// Says whose work it is, by the address of something that is aligned and is there
    /// for ever; for those who look from outside. In a place it is known already.
    pub fn is_of(&self, worker: usize) {
        // SAFETY: the block is there, as we are the worker.
        let home = unsafe { &self.head.as_ref().home };
        // Before anybody else reads it: only who frees the block does, later.
        if home.get().get().is_none() {
            home.set(Home::heap(worker));
        }
    }

    /// Does it, and wakes who waits for the outcome.
    #[cfg(not(target_os = "none"))]
    pub fn run(self) {
        // Never dropped: if the work unwinds after all, it has begun.
        Self::run_from(&ManuallyDrop::new(Cell::new(Some(self))));
    }

    /// Does what is in `place`, if anything is. It stays there until nothing can
    /// come between it and its outcome; until then [`Self::give_up`] may be called by
    /// whoever knows that this will never go on.
    #[inline(always)]
    pub fn run_from(place: &Cell<Option<Work>>) {
        // SAFETY: a look, and nobody changes it meanwhile: it is this CPU's alone.
        let Some(head) = (unsafe { &*place.as_ptr() }).as_ref().map(|work| work.head) else {
            return;
        };
        // SAFETY: there until `run` has come to its end, as we are the worker.
        let table = unsafe { head.as_ref() }.table;
        // SAFETY: the table came with this job, and this is the one worker.
        unsafe { (table.run)(head, place) };
    }

    /// Lets `why` be what has come of it, and wakes who waits for the outcome.
    ///
    /// # Safety
    /// [`Self::run_from`] was called with the place that this was taken from, and
    /// whoever has called it never runs again.
    pub unsafe fn give_up(self, why: JoinError) {
        let head = ManuallyDrop::new(self).head;
        // SAFETY: there until we give it up, as we are the worker now.
        let table = unsafe { head.as_ref() }.table;
        // SAFETY: the table came with this job; the rest is the caller's promise.
        unsafe { (table.give_up)(head, why) };
    }
}

impl Drop for Work {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: there until we give it up, as we are the worker.
        let table = unsafe { self.head.as_ref() }.table;
        // SAFETY: the table came with this job, and nobody has begun with it: who
        // does forgets the right to it.
        unsafe { (table.decline)(self.head) };
    }
}

/// The right to what comes of the work. Dropping it detaches.
#[must_use = "dropping a joiner detaches"]
pub struct Joiner<T> {
    head: NonNull<Head>,
    outcome: PhantomData<T>,
}

// SAFETY: the outcome is Send, and what else is touched is atomic or handed over
// by the word.
unsafe impl<T: Send> Send for Joiner<T> {}
// SAFETY: nothing can be done with a reference to one.
unsafe impl<T: Send> Sync for Joiner<T> {}

impl<T> Joiner<T> {
    /// Waits for the outcome and takes it. Blocks this G only.
    pub fn join(self) -> T {
        if self.head().word.load(Acquire) != DONE {
            self.wait(); // if this is unwound, `drop` detaches
        }
        let this = ManuallyDrop::new(self);
        let mut outcome = MaybeUninit::<T>::uninit();
        // SAFETY: the table came with this job; we are the joiner, have seen DONE,
        // and `T` is the outcome, as `set_up` says.
        unsafe { (this.head().table.take)(this.head, outcome.as_mut_ptr().cast()) };
        // SAFETY: `take` has written it.
        unsafe { outcome.assume_init() }
    }

    /// Returns when DONE is set.
    fn wait(&self) {
        let Head { word, waiter, .. } = self.head();
        // Whose work it is, is known by where it is, or is in its head.
        let wait = Wait::at(Reason::Join, self.head());
        let handle = begin_park(wait);
        // SAFETY: AWAITED is not set.
        waiter.with_mut(|waiter| unsafe { *waiter = Some(handle) });
        // Release: the waiter, and that we are parking. Acquire: the outcome. The
        // second time it changes nothing, but comes before or after DONE too.
        let mut before = OPEN;
        while word.compare_exchange(before, AWAITED, AcqRel, Acquire).is_ok() {
            before = AWAITED;
            watch_wait(false, || 0); // a join has no lock to be taken over
            park();
            if word.load(Acquire) == DONE {
                return;
            }
            if is_killed() {
                die(); // the handle that is left behind harms nobody
            }
            begin_park(wait); // woken by somebody with an old handle
        }
        cancel_park();
    }

    #[inline(always)]
    fn head(&self) -> &Head {
        // SAFETY: the worker leaves the block to us unless we detach.
        unsafe { self.head.as_ref() }
    }
}

impl<T> Drop for Joiner<T> {
    #[inline(always)]
    fn drop(&mut self) {
        let Head { word, table, .. } = self.head();
        let (before, table) = (word.load(Acquire), *table);
        // OPEN, or AWAITED if a wait is unwound.
        if before == DONE || word.compare_exchange(before, DETACHED, AcqRel, Acquire).is_err() {
            // SAFETY: the table came with this job; we are the joiner, and DONE is
            // set: nothing else can have been in our way.
            unsafe { (table.drop)(self.head) };
        }
    }
}

/// # Safety
/// As [`Table::run`] has it.
unsafe fn run<L: Labour>(head: NonNull<Head>, place: &Cell<Option<Work>>) {
    let job = head.cast::<Job<L>>();
    // SAFETY: ours until DONE.
    let Job { body, .. } = unsafe { job.as_ref() };
    // SAFETY: the work is the worker's, and there until now.
    let labour = body.with_mut(|body| unsafe { body.cast::<L>().read() });
    let outcome = labour.perform();
    // What comes now must come to its end: the last moment to have no room for it.
    probe_stack();
    forget(place.take());
    // SAFETY: the work was taken, and DONE is not set.
    unsafe { tell(job, outcome) };
}

/// # Safety
/// As [`Table::give_up`] has it.
unsafe fn give_up<L: Labour>(head: NonNull<Head>, why: JoinError) {
    // SAFETY: the work was taken, and who has it never tells: so we do, once.
    unsafe { tell(head.cast::<Job<L>>(), L::failed(why)) };
}

/// # Safety
/// As [`Table::decline`] has it.
unsafe fn decline<L: Labour>(head: NonNull<Head>) {
    // SAFETY: ours until DONE.
    let Job { body, .. } = unsafe { head.cast::<Job<L>>().as_ref() };
    // SAFETY: the work is the worker's, and there until now.
    drop(body.with_mut(|body| unsafe { body.cast::<L>().read() }));
    // SAFETY: it was taken, and nobody else is the worker.
    unsafe { give_up::<L>(head, JoinError::Killed) };
}

/// Leaves the outcome for the joiner and wakes it; or drops it if that is gone.
///
/// # Safety
/// Once, by the worker, when the work is no longer in the body.
#[inline(always)]
unsafe fn tell<L: Labour>(job: NonNull<Job<L>>, outcome: L::Outcome) {
    // SAFETY: ours until DONE.
    let Job { head, body } = unsafe { job.as_ref() };
    let mut before = head.word.load(Acquire);
    if before != DETACHED {
        // SAFETY: the work was taken, and DONE is not set.
        body.with_mut(|body| unsafe { body.cast::<L::Outcome>().write(outcome) });
        // Release: the outcome. Acquire: the waiter, and that it parks.
        if before == OPEN {
            match head.word.compare_exchange(OPEN, DONE, AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
        if before == AWAITED {
            // SAFETY: its writer is done with it, as AWAITED is set. Before DONE,
            // after which the block may be gone.
            let waiter = head.waiter.with_mut(|waiter| unsafe { (*waiter).take() });
            if head.word.swap(DONE, AcqRel) == AWAITED {
                return waiter.into_iter().for_each(ready);
            }
        }
        // The joiner has gone meanwhile.
        // SAFETY: written above, and nobody else's.
        let outcome = body.with_mut(|body| unsafe { body.cast::<L::Outcome>().read() });
        // SAFETY: the joiner is gone.
        unsafe { free(job) };
        return L::discard(outcome);
    }
    // SAFETY: the joiner is gone.
    unsafe { free(job) };
    L::discard(outcome);
}

/// # Safety
/// As [`Table::take`] has it; `to` has room for an `L::Outcome`.
unsafe fn take<L: Labour>(head: NonNull<Head>, to: *mut ()) {
    let job = head.cast::<Job<L>>();
    // SAFETY: the joiner's since DONE, which it has seen.
    let body = unsafe { &job.as_ref().body };
    // SAFETY: as above, and taken once, as `to` takes the joiner's place.
    let outcome = body.with_mut(|body| unsafe { body.cast::<L::Outcome>().read() });
    // SAFETY: the caller's promise.
    unsafe { to.cast::<L::Outcome>().write(outcome) };
    // SAFETY: the worker is gone.
    unsafe { free(job) };
}

/// # Safety
/// As [`Table::drop`] has it.
unsafe fn drop_outcome<L: Labour>(head: NonNull<Head>) {
    let mut outcome = MaybeUninit::<L::Outcome>::uninit();
    // SAFETY: the caller's promise, and there is room.
    unsafe { take::<L>(head, outcome.as_mut_ptr().cast()) };
    // SAFETY: `take` has written it.
    drop(unsafe { outcome.assume_init() });
}

/// # Safety
/// `job` is set up, its body was taken, and nobody else uses it any more.
#[inline(always)]
unsafe fn free<L: Labour>(job: NonNull<Job<L>>) {
    // SAFETY: the caller's promise.
    let place = unsafe { job.as_ref() }.head.home.get().get();
    // SAFETY: the caller's promise. It may have a waiter that was not needed.
    unsafe { job.cast::<Head>().drop_in_place() };
    match place {
        Some(place) => place.taken.store(0, Release), // pairs with `is_free`
        // SAFETY: allocated in `pair` with this layout.
        None => unsafe { dealloc(job.as_ptr().cast(), Layout::new::<Job<L>>()) },
    }
}

#[cfg(all(test, not(loom)))]
#[path = "job/tests.rs"] // also for who takes this file from elsewhere: the models
mod tests;
