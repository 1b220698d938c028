//! G: a task, and the one word that holds its state.
//!
//! Holds the record and its state machine. The kernel's own data (saved stack
//! pointer, stack, entry, name, spawn site) is in [`G::kernel`]; this crate never
//! reads it. The queues are in other files; the value that a transition returns
//! says what its caller must do.

use crate::Wake;
use crate::list::Link;
use crate::priority;
use crate::share::LANE_MASK;
use crate::sync::{
    AcqRel, Acquire, AtomicBool, AtomicU32, AtomicU64, Relaxed, Release, const_fn, fence, planted,
    spin_loop,
};

/// A task. Made once, never freed, recycled for one life after another.
///
/// `K` is the kernel's data for each G.
///
/// ```
/// use sched::{G, Status};
/// static MAIN: G<&str> = G::new("main");
/// assert_eq!(MAIN.status(), Status::Dead); // not started yet
/// assert_eq!(MAIN.kernel, "main");
/// ```
pub struct G<K: 'static> {
    // Atomic: any CPU, but only by the transitions below.
    /// Generation (high half), the CPU that halts until this G is readied (plus
    /// one; second 16 bits), [`Status`] (low byte).
    word: AtomicU64,

    // Holder of the G only (a queue under its lock, or the CPU that runs it).
    pub(crate) next: Link<K>,
    /// From one pile of dead Gs to the next: `p`.
    pub(crate) pile: Link<K>,
    /// Its slice ran out: it is taken alone, never in a batch. See `list::GlobalQueue`. Cleared by
    /// the CPU that takes it from there, or from the pinned Gs of its P.
    expired: AtomicBool,

    // Constant from `start` to `exited`.
    pub(crate) id: AtomicU64,

    /// In the low half the CPU that it is pinned to and its ranks (`priority`), in the high half the CPU
    /// that it has left in a call, its lane (`share`) and [`GUIDED`]; CPUs plus one: 0 if it is a normal
    /// G that may run anywhere. Holder only, but for the ranks, which any CPU changes: so all changes in the middle
    /// of a life are locked.
    pub(crate) home: AtomicU32,

    /// The kernel's data.
    pub kernel: K,
}

impl<K: 'static> G<K> {
    const_fn! {
        /// A dead G.
        #[must_use]
        pub fn new(kernel: K) -> Self {
            G {
                word: AtomicU64::new(Status::Dead as u64),
                next: Link::null(),
                pile: Link::null(),
                expired: AtomicBool::new(false),
                id: AtomicU64::new(0),
                home: AtomicU32::new(0),
                kernel,
            }
        }
    }

    /// The number of this life, unique over all Gs; 0 before the first.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id.load(Relaxed)
    }

    /// Its state at this instant. For diagnosis: it may be stale before the caller
    /// reads it.
    #[must_use]
    pub fn status(&self) -> Status {
        status_of(self.word.load(Relaxed))
    }

    /// Reads generation and status in one load, from any CPU. A caller that sees a
    /// life started sees all that was set up for it.
    #[must_use]
    pub fn handle_and_status(&'static self) -> (Handle<K>, Status) {
        let word = self.word.load(Acquire); // pairs with `start`
        (Handle { g: self, parked: settled(word, Status::Parked) }, status_of(word))
    }

    /// Names this life of the G, not a later one.
    #[must_use]
    pub fn handle(&'static self) -> Handle<K> {
        self.handle_and_status().0
    }

    /// The CPU that this G is pinned to.
    #[must_use]
    #[inline(always)]
    pub fn pin(&self) -> Option<usize> {
        (self.home.load(Relaxed) & PIN_MASK).checked_sub(1).map(|cpu| cpu as usize)
    }

    /// Whether it is pinned, ranked, guided, in a lane, or in a call.
    #[inline(always)]
    pub(crate) fn has_home(&self) -> bool {
        self.home.load(Relaxed) != 0
    }

    /// Whether the system is asked where it waits (`system`).
    pub(crate) fn is_guided(&self) -> bool {
        self.home.load(Relaxed) & GUIDED != 0
    }

    /// Whether it does not go to any ring: it is pinned, ranked, guided, or in a lane.
    #[inline(always)]
    pub(crate) fn is_placed(&self) -> bool {
        self.home.load(Relaxed) & PLACED_MASK != 0
    }

    /// The CPU that it has left in a call.
    pub(crate) fn left_in_call(&self) -> Option<usize> {
        let left = self.home.load(Relaxed) >> CALL_SHIFT & PIN_MASK;
        left.checked_sub(1).map(|cpu| cpu as usize)
    }

    /// From here on it is kept so; returns how it was until now. It goes there when it is queued
    /// next. Caller: the running G.
    pub fn keep(&self, kept: Kept) -> Kept {
        let mut home = self.home.load(Relaxed);
        // Locked, as any CPU may change the ranks.
        while let Err(now) =
            self.home.compare_exchange_weak(home, home & !HOME_MASK | kept.0, Relaxed, Relaxed)
        {
            home = now;
            spin_loop();
        }
        Kept(home & HOME_MASK)
    }

    /// The G leaves that CPU in a call, on the stack of the M there. A call that does not leave its
    /// CPU need not be marked. Caller: the running G.
    pub fn enter_call(&self, cpu: usize) {
        self.exit_call();
        self.home.fetch_or((cpu as u32 + 1) << CALL_SHIFT, Relaxed);
    }

    /// The G runs again. Caller: the running G.
    pub fn exit_call(&self) {
        self.home.fetch_and(KEPT_MASK, Relaxed);
    }

    /// Holder only.
    pub(crate) fn set_expired(&self, expired: bool) {
        self.expired.store(expired, Relaxed);
    }

    /// Holder only.
    pub(crate) fn is_expired(&self) -> bool {
        self.expired.load(Relaxed)
    }
}

/// Where a G is kept: on one CPU, where its system says, or nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept(u32);

impl Kept {
    /// On that CPU.
    #[must_use]
    pub const fn on(cpu: usize) -> Self {
        Kept(cpu as u32 + 1)
    }

    /// The CPU, if it is kept on one.
    #[must_use]
    pub const fn cpu(self) -> Option<usize> {
        match self.0 & PIN_MASK {
            0 => None,
            cpu => Some(cpu as usize - 1),
        }
    }
}

/// Names one life of a G: a stale handle never hits the G's next life. Not `Copy`,
/// so that code written for it also works with reference-counted handles.
pub struct Handle<K: 'static> {
    g: &'static G<K>,
    /// The word of that life while it is parked and no CPU halts for it: the value
    /// that `ready` most often finds, computed in advance.
    parked: u64,
}

impl<K: 'static> Clone for Handle<K> {
    fn clone(&self) -> Self {
        Handle { ..*self }
    }
}

impl<K: 'static> Handle<K> {
    /// The G, if that life is not over. It may end at any time: a caller to which
    /// that matters acts through the handle.
    #[must_use]
    pub fn get(&self) -> Option<&'static G<K>> {
        let now = self.g.word.load(Acquire); // pairs with `exit`
        (generation_of(now) == generation_of(self.parked)).then_some(self.g)
    }

    /// The record, and the generation of its life.
    #[must_use]
    pub fn parts(&self) -> (&'static G<K>, u32) {
        (self.g, generation_of(self.parked))
    }

    /// (7) in the common case: the G of that life is parked. The caller then holds
    /// it. If not, call [`Handle::ready`].
    #[inline(always)]
    pub(crate) fn ready_parked(&self) -> Option<&'static G<K>> {
        let runnable = self.parked ^ (Status::Parked as u64 ^ Status::Runnable as u64);
        // Orderings as in `ready`.
        let now = self.g.word.compare_exchange(self.parked, runnable, AcqRel, Relaxed);
        now.is_ok().then_some(self.g)
    }

    /// (6), (7) Readies that life of the G. Any caller, in any context. Calls `note` if it
    /// did wait, with its old state. Returns the G if the caller holds it now and must put it into
    /// a queue.
    ///
    /// # Errors
    /// There is no G to queue: it did not wait, or the CPU that parks it will see
    /// [`Status::Woken`]. If that CPU halts for the G, it must be woken to see that.
    pub(crate) fn ready(
        &self,
        note: impl FnOnce(&'static G<K>, Status),
    ) -> Result<&'static G<K>, Wake> {
        let mut word = self.g.word.load(Relaxed);
        while generation_of(word) == generation_of(self.parked) {
            let (from, to) = match status_of(word) {
                Status::Parking => (Status::Parking, Status::Woken),
                Status::Parked => (Status::Parked, Status::Runnable),
                Status::Runnable if planted!(ReadyTwice) => return Ok(self.g),
                // Readied before, or never parked: the first readier has pushed it.
                // A G that is twice in a queue corrupts it.
                Status::Dead | Status::Runnable | Status::Running | Status::Woken => break,
            };
            // Acquire pairs with `finish_park` (the saved context), Release
            // with the load there and in `cancel_park` (what the G waited for).
            let to = settled(word, to);
            if let Err(now) = self.g.word.compare_exchange_weak(word, to, AcqRel, Relaxed) {
                word = now;
                spin_loop();
                continue;
            }
            note(self.g, from);
            // The halted CPU is in the same word as the state, so it is never missed.
            return match (word & HALTED_MASK) >> HALTED_SHIFT {
                _ if from == Status::Parked => Ok(self.g),
                0 => Err(Wake::Nobody),
                _ if planted!(ForgetHalted) => Err(Wake::Nobody),
                cpu => Err(Wake::Cpu(cpu as usize - 1)),
            };
        }
        Err(Wake::Nobody)
    }
}

/// The state of a G. Each state names the holder of the G, the owner of its stack,
/// and the CPU that may change the state.
///
/// ```text
///                 (1) start               (2) execute
///       ┌──────┐           ┌──────────┐              ┌─────────┐
///       │ Dead ├──────────▶│ Runnable ├─────────────▶│ Running │
///       └──▲───┘           └─▲─▲────▲─┘◀─────────────┴┬───┬──┬─┘◀──┐
///          │                 │ │    │      (3) stop   │   │  │     │
///          │             (7) │ │(8) │                 │   │  │(4)  │
///          │           ready │ │    └ yield, expire,  │   │  │begin│
///          │                 │ │      displace        │   │  │park │
///          │       ┌────────┐│ │┌───────┐   (6) ready │ ┌─▼──┴────┐│(5)
///          │       │ Parked ├┘ └┤ Woken │◀────────────┼─┤ Parking ├┤cancel
///          │       └───▲────┘   └───┬───┘             │ └────┬────┘│park
///          │           │            └─────────────────┼──────┼─────┘
///          │           └──────(8) finish_park─────────┼──────┘
///          └────────────────(9) exit──────────────────┘
/// ```
///
/// (10), not drawn: from `Running` to `Parked` in one step, for a G that waits under a lock
/// which its CPU frees only after that. So no wake-up can come between, and the state that
/// would remember it is not needed ([`G::begin_park`] is for Gs that wait otherwise).
///
/// (8) is one function, called when the context is saved and no CPU is on the stack
/// any more: `Parking → Parked`, or `Woken → Runnable`. So a G is runnable only
/// with its context saved, no CPU ever waits for another CPU to leave a stack, and
/// no wake-up is lost.
///
/// In `Dead`, `Runnable` and `Running` the holder is the sole writer, so (1),
/// (2), (3), (4), (9) and (10) are a load and a store, not a locked operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// No life: on a free list, or being set up by the CPU that took it there.
    /// Holder and sole writer: that CPU. The stack has no owner.
    Dead = 0,
    /// Waits for a CPU in exactly one queue, or is being moved by a CPU. Holder and
    /// sole writer: the CPU that takes it from that queue. Its context is saved,
    /// its stack unused.
    Runnable = 1,
    /// Runs on one CPU, which is holder and sole writer; the stack is in use.
    Running = 2,
    /// Has decided to wait but is still on its CPU and its stack: must not be run
    /// elsewhere. Two writers: its CPU, and the CPU that readies it.
    Parking = 3,
    /// As `Parking`, and was readied meanwhile: its CPU will put it back in a
    /// queue. Writer: its CPU.
    Woken = 4,
    /// Waits, off every CPU, in no queue of this crate. Context saved, stack
    /// unused. Writer: the CPU that readies it, which becomes holder.
    Parked = 5,
}

const PIN_MASK: u32 = 0x1ff;
const _: () = assert!(crate::MAX_P <= PIN_MASK as usize);
const CALL_SHIFT: u32 = 16;
/// In `G::home`: another system than Go's says where it waits. Not with a pin.
pub(crate) const GUIDED: u32 = 1 << 31;
/// What says where a G is kept ([`Kept`]).
const HOME_MASK: u32 = PIN_MASK | GUIDED;
/// What stays when a G enters a call, or leaves it.
const KEPT_MASK: u32 = 0xffff | LANE_MASK | GUIDED;
/// What keeps a G out of the rings.
const PLACED_MASK: u32 = PIN_MASK | priority::RANKED | LANE_MASK | GUIDED;
const _: () = assert!((PIN_MASK << CALL_SHIFT | GUIDED) & LANE_MASK == 0);

const STATUS_MASK: u64 = 0xff;
const HALTED_SHIFT: u32 = 16;
const HALTED_MASK: u64 = 0xffff << HALTED_SHIFT;
const GENERATION_SHIFT: u32 = 32;

/// The transitions: no other code writes the word.
impl<K: 'static> G<K> {
    /// (1) Holder only: a life begins (`Sched::start`).
    #[inline(always)]
    pub(crate) fn start(&self) {
        self.step(Status::Dead, Status::Runnable, "not dead");
    }

    /// (2) Holder only: the CPU that took the G out of its queue.
    #[inline(always)]
    pub(crate) fn execute(&self) {
        self.step(Status::Runnable, Status::Running, "not runnable");
    }

    /// (3) Holder only: the CPU that ran the G, which is off its stack.
    pub(crate) fn stop(&self) {
        self.step(Status::Running, Status::Runnable, "not running");
    }

    /// (4) Caller: the running G itself, before another G can ready it (that is,
    /// before it unlocks the lock of the object it waits for). From here on
    /// [`Sched::ready`](crate::Sched::ready) is not lost. `ready` takes the handle of
    /// [`G::to_park`].
    #[inline(always)]
    pub fn begin_park(&self) {
        self.step(Status::Running, Status::Parking, "not running");
    }

    /// The handle by which the running G is readied once it parks. Caller: the G itself, before
    /// [`G::begin_park`] if it calls that.
    #[inline(always)]
    pub fn to_park(&'static self) -> Handle<K> {
        let running = self.word.load(Relaxed); // the halted-CPU field is zero
        Handle { g: self, parked: running ^ (Status::Running as u64 ^ Status::Parked as u64) }
    }

    /// (10) The G waits under a lock, and its handle is [`G::to_park`]'s: parks it, where
    /// [`G::begin_park`] and [`G::finish_park`] take two steps.
    ///
    /// Caller: the CPU that ran the G, context saved, off its stack, which has held the lock since
    /// before the handle was stored, and frees it then (Go: parkunlock_c). No other CPU readies the
    /// G by that handle before the lock is free; one that has an older handle leaves it alone until
    /// here.
    #[inline(always)]
    pub fn park_locked(&self) {
        fence(Release); // the saved context, for `ready` by an older handle
        self.step(Status::Running, Status::Parked, "not running");
    }

    /// (5) Caller: the running G itself, after `begin_park`, when it need not
    /// wait after all. True if it was readied meanwhile; that wake-up is
    /// consumed.
    pub fn cancel_park(&self) -> bool {
        // A plain store will do: a `ready` that has not happened yet finds Running
        // and leaves it. Acquire, for what the readier wrote before.
        let word = self.word.load(Acquire);
        self.word.store(settled(word, Status::Running), Relaxed);
        let was = status_of(word);
        assert!(matches!(was, Status::Parking | Status::Woken), "not parking");
        was == Status::Woken
    }

    /// The G parks, but its CPU keeps it and halts until it is readied: `ready`
    /// then interrupts `cpu`. False if the G is readied already: then do not halt.
    /// Ends with (5) or (8).
    ///
    /// Caller: the CPU of the G, after `begin_park`, interrupts off from before
    /// until the halt.
    #[must_use = "halt only if it is true"]
    pub fn halt_on(&self, cpu: usize) -> bool {
        let parking = self.word.load(Relaxed) & !STATUS_MASK | Status::Parking as u64;
        let halted = (parking & !HALTED_MASK) | (cpu as u64 + 1) << HALTED_SHIFT;
        // Races with `ready`: one is first. Acquire as in `cancel_park`.
        let now = self.word.compare_exchange(parking, halted, AcqRel, Acquire);
        assert!(now.is_ok() || self.is_woken(), "not parking");
        now.is_ok()
    }

    /// Whether the G was readied since `begin_park`. Caller: the CPU of the G.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        self.status() == Status::Woken
    }

    /// (8) Parks the G (Go: park_m). Caller: the CPU that ran it, interrupts off, context saved,
    /// off its stack. False if the G was readied since [`G::begin_park`]: the caller then calls
    /// [`Sched::put_back`](crate::Sched::put_back). Else the CPU that readies it holds it from here
    /// on.
    #[inline(always)]
    #[must_use = "if false, the G must be put back"]
    pub fn finish_park(&self) -> bool {
        let word = self.word.load(Relaxed);
        let parked = word ^ (Status::Parking as u64 ^ Status::Parked as u64);
        word & STATUS_MASK == Status::Parking as u64
            // Release: the saved context, for `ready`. Acquire: see `Handle::ready`.
            && self.word.compare_exchange(word, parked, Release, Acquire).is_ok()
    }

    /// The rest of (8): the G was readied while it parked. The caller holds it, and must queue
    /// it.
    pub(crate) fn unpark(&self) {
        let now = self.word.load(Acquire);
        assert!(status_of(now) == Status::Woken, "not parking");
        self.word.store(settled(now, Status::Runnable), Relaxed);
    }

    /// (9) The CPU that ran the G, off its stack. Ends all handles. Of a G that the kernel keeps
    /// until it starts it again, or gives to [`Sched::keep_dead`](crate::Sched::keep_dead); else
    /// [`Sched::exited`](crate::Sched::exited).
    pub fn exit(&self) {
        debug_assert!(self.status() == Status::Running, "not running");
        let word = self.word.load(Relaxed);
        // In one addition: from running to dead, and the next generation.
        const ENDS: u64 = (1 << GENERATION_SHIFT) + Status::Dead as u64 - Status::Running as u64;
        self.word.store(word.wrapping_add(ENDS), Release); // pairs with `Handle::get`
    }

    /// The holder's transition, not locked: nothing else writes the word then. That the G was in
    /// the state `from` is checked in checked builds only: it is the callers' promise, and the
    /// simulator and the models test it.
    #[inline(always)]
    fn step(&self, from: Status, to: Status, otherwise: &'static str) {
        debug_assert!(self.status() == from, "{otherwise}");
        self.word.store(self.word.load(Relaxed) ^ (from as u64 ^ to as u64), Relaxed);
    }
}

fn status_of(word: u64) -> Status {
    match word & STATUS_MASK {
        0 => Status::Dead,
        1 => Status::Runnable,
        2 => Status::Running,
        3 => Status::Parking,
        4 => Status::Woken,
        _ => Status::Parked,
    }
}

fn generation_of(word: u64) -> u32 {
    (word >> GENERATION_SHIFT) as u32
}

/// Sets the status and clears the halted CPU.
fn settled(word: u64, status: Status) -> u64 {
    word & !(STATUS_MASK | HALTED_MASK) | status as u64
}
