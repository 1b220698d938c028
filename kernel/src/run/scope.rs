//! Scopes: Gs that borrow from the G that starts them, and have ended before it goes on.
//!
//! The public side is `api::scope`, which has no unsafe code; what makes a scope sound is here.
//!
//! > What a member of a scope has borrowed is there until its G has dropped its
//! > [`Member`], whichever way that G, and whichever way the owner ends.
//!
//! The compiler checks one half: a member borrows only what outlives the call of [`scope`], and its
//! handle and result cannot leave the closure that the owner runs. The other half is that this call
//! is not over before all members are.
//!
//! # When a member has ended
//!
//! Its place in the scope, a [`Member`], is the ticket of its job (`job`, "The ticket"): dropped
//! when the closure was run and dropped and its outcome is in the cell, or dropped too if the
//! handle is gone. That is so of a member that returns, panics, is killed or overflows its stack,
//! which all end at the catch at its root; of one that is abandoned, whose cell is completed by the
//! G's last CPU; and of one that never ran. A handle that is leaked leaks an outcome, which is
//! never looked at again. (One place is never dropped, and the owner waits for ever: that of a
//! member which is abandoned in the destructor of its own result, whose handle is gone.)
//!
//! # The ways in which the owner may end
//!
//! | the owner | what keeps its frames |
//! |---|---|
//! | returns from the closure | it waits; a kill makes it unwind |
//! | unwinds through [`scope`] | a destructor waits ([`Open`]) |
//! | unwinds from above [`scope`] | it waits before that ([`wait_for_lost`]) |
//! | is abandoned | its stack is never used again |
//!
//! **In the destructor** the G counts as one that unwinds, so a kill does not wake it again and
//! again.
//!
//! **Frames are lost** where a caller may not unwind: the compiler proves that a function never
//! panics, or an allocation fails, and the unwinding begins above it (`fail::overflow`, `unwind`).
//! Destructors in between do not run, and that of a scope must. The G is on the full stack then, on
//! its spare pages, but it can park there like elsewhere. It waits for no other scope: members may
//! end only because the unwinding drops something, such as the sender that they receive from. If
//! members of a lost scope wait for such a thing, they never end, and the owner never goes on.
//!
//! **An abandoned owner** leaves its frames as they are: its stack, and that of its M in a call, is
//! not reused, and what it owned elsewhere is never freed. So its members can use that for as long
//! as they live. But what *it* had borrowed, as a member of a scope itself, may be borrowed by its
//! members in turn. So its own place in that scope is kept for each of its open scopes, until no
//! member is left there ([`orphan`]); then its owner, which may have been abandoned as well, and so
//! on. Its join says at once that it has ended; only the scope around it waits.
//!
//! To find them, all open scopes of a G are in the list of what it has attached, and so is the
//! scope that it is a member of (`attached`). A call that blocks runs on another stack, with the
//! same list.
//!
//! A packed stack needs nothing: a member that touches what is on it unpacks it
//! (`mem::stack::pack`), and so does one that leaves.
//!
//! # Kills
//!
//! A kill is for one G. The owner unwinds as far as the scope and waits there; its members are not
//! killed with it, as they may hold what others need. They end by themselves, because what they
//! wait for is dropped, or because a [`Context`](crate::context::Context) is cancelled that they
//! were given. When a program ends, all of its Gs are killed, and each ends for itself.
//!
//! # What was rejected
//!
//! - **The record on the heap, owned by both sides**, as `std` has it: an allocation a scope, for a
//!   member that touches the record after it has left. Here it has copied the owner's handle.
//! - **A list of members**, to kill them with their owner, or to show them: a lock and two links
//!   for each birth and each end. A count does, and the members are in `ps`.
//! - **Aborting where the frame would be lost**, as threads of `std` do: that ends all other Gs.
//! - **Waiting for all scopes before every unwinding**: see above.

use super::attached::{Attachment, Kind};
use super::door::{self, SpawnOptions};
use super::error::{JoinError, SpawnError};
use super::members::{Member, Members};
use super::task::Task;
use super::{Job, Joiner, attached, unwind};
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;
use sched::G;

/// A scope to start Gs in, which may borrow what is older than the scope (`'env`), and the scope
/// itself (`'scope`). See [`scope`](crate::scope()).
pub struct Scope<'scope, 'env: 'scope> {
    members: Members,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// Runs `f` with a scope, and waits until all Gs that were started in it have ended. Then panics if
/// one has failed whose handle was not joined.
#[inline]
pub fn scope<'env, T, F>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    door::might_park();
    let members = Members::new(door::this());
    let scope = Scope { members, scope: PhantomData, env: PhantomData };
    let open = Open::new(&scope.members);
    let result = f(&scope);
    scope.members.wait(|| {
        if door::is_killed() {
            door::die();
        }
    });
    drop(open);
    scope.members.take_failure().map_or_else(|| result, |why| fail(why))
}

/// Continues the panic of a member in the owner.
#[cold]
pub(crate) fn fail(why: JoinError) -> ! {
    match why {
        JoinError::Panicked(_) => unwind::resume(why), // it was reported
        why => panic!("a G of a scope has no result: {why}"),
    }
}

/// A scope that is open, in the list of its owner. Its frame is not left before its members are
/// gone, also when it is unwound.
struct Open<'a>(&'a Members);

impl<'a> Open<'a> {
    fn new(members: &'a Members) -> Self {
        // SAFETY: 1. This G's list, and a new node. 2. `drop` takes it out; without it, the frame
        // is lost, and `wait_for_lost` does, or it stays for ever.
        door::attached(|list| unsafe { list.push(members.node()) });
        Open(members)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.wait(|| ()); // no member is left, unless this is unwound
        door::attached(|list| list.remove(self.0.node()));
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a G in this scope.
    #[inline(always)]
    pub(crate) fn start<T, F>(
        &'scope self,
        options: SpawnOptions,
        f: F,
    ) -> Result<Joiner<Ended<T>>, SpawnError>
    where
        T: Send + 'scope,
        F: FnOnce() -> T + Send + 'scope,
    {
        let job = Scoped { members: NonNull::from(&self.members), f };
        // SAFETY: 1. What `f` has borrowed is there for `'scope`, so until the call of `scope`
        // returns or is unwound, which is after the ticket was dropped: see the head of this file.
        // 2. What the outcome has borrowed too; and a joiner of it does not outlive `'scope`.
        unsafe { door::spawn_borrowing(options, job) }
    }
}

/// The job of a member.
struct Scoped<F> {
    members: NonNull<Members>,
    f: F,
}

// SAFETY: the closure is `Send`, and the scope is `Sync`.
unsafe impl<F: Send> Send for Scoped<F> {}

impl<T: Send, F: FnOnce() -> T + Send> Job for Scoped<F> {
    type Outcome = Ended<T>;
    type Ticket = Member;

    #[inline(always)]
    fn ticket(&self) -> Member {
        // SAFETY: the scope is there: its owner or a member of it starts this one.
        unsafe { self.members.as_ref() }.join()
    }

    #[inline(always)]
    fn run(self) -> Ended<T> {
        let Scoped { members, f } = self;
        let place = Membership { node: Attachment::new(Kind::Member), members };
        let node = NonNull::from(&place).cast();
        // SAFETY: 1. This G's list, and a new node. 2. Taken out below: nothing unwinds from here,
        // and an abandoned G keeps its frames.
        door::attached(|list| unsafe { list.push(node) });
        let result = unwind::catch(f);
        door::attached(|list| list.remove(node));
        let result = match result {
            Ok(value) if !door::has_attached() => Ok(value),
            // SAFETY: in no list now, and this frame stays.
            result => unsafe { at_root_of(node, result) },
        };
        Ended { result: Some(result), members }
    }

    fn failed(why: JoinError, place: &Member) -> Ended<T> {
        Ended { result: Some(Err(why)), members: NonNull::from(place.scope()) }
    }

    #[inline(always)]
    fn discard(outcome: Ended<T>) {
        // A destructor of the program may panic as well; that was reported. A failure may be
        // discarded where no G runs (`fail::abandon`).
        match outcome.result {
            Some(Ok(_)) => drop(unwind::catch_at_root(|| drop(outcome))),
            _ => drop(outcome),
        }
    }
}

/// As [`unwind::at_root`], for a member whose place has that node, which stays in the list until
/// then: if the destructor of a local fails, the result is dropped here, and what *its* destructor
/// starts may borrow what the result has borrowed.
///
/// # Safety
/// The node is in no list, and stays where it is until this returns, or for ever.
#[cold]
unsafe fn at_root_of<T>(
    node: NonNull<Attachment>,
    result: Result<T, JoinError>,
) -> Result<T, JoinError> {
    // SAFETY: 1. This G's list; the caller's promise. 2. Taken out below, as in `run`.
    door::attached(|list| unsafe { list.push(node) });
    let result = unwind::at_root(result);
    door::attached(|list| list.remove(node));
    result
}

/// In the list of a member: the scope that it is a member of.
#[repr(C)] // the node first
struct Membership {
    node: Attachment,
    members: NonNull<Members>,
}

/// How a member has ended. Dropped before it was looked at, it tells the owner of a failure.
pub struct Ended<T> {
    result: Option<Result<T, JoinError>>,
    members: NonNull<Members>,
}

// SAFETY: the result is `Send`, and the scope is `Sync`.
unsafe impl<T: Send> Send for Ended<T> {}

impl<T> Ended<T> {
    pub fn into_result(mut self) -> Result<T, JoinError> {
        self.result.take().expect("taken once")
    }
}

impl<T> Drop for Ended<T> {
    fn drop(&mut self) {
        if let Some(Err(why)) = self.result.take() {
            // SAFETY: the scope is there. The outcome is dropped by its member, before that leaves;
            // or by the handle, which ends within `'scope`: in the closure of the owner, or in what
            // another member owns, before that leaves. Nothing else drops an outcome.
            unsafe { self.members.as_ref() }.fail(why);
        }
    }
}

/// The running G is about to lose its frames at these addresses: waits for the scopes among them,
/// and takes all that is there out of its list.
pub fn wait_for_lost(frames: Range<u64>) {
    let is_lost = |node: &NonNull<Attachment>| frames.contains(&(node.addr().get() as u64));
    attached(|list| {
        for node in list.of_kind(Kind::Scope).filter(is_lost) {
            // SAFETY: a scope that is open, in a frame that is still there.
            unsafe { node.cast::<Members>().as_ref() }.wait(|| ());
            list.remove(node);
        }
        list.of_kind(Kind::Member).filter(is_lost).for_each(|node| list.remove(node));
    });
}

/// `g` was abandoned, and its job is not yet given up: keeps its place in the scope that it is a
/// member of until no member of its own scopes is left. For its holder.
pub(crate) fn orphan(g: &'static G<Task>) {
    let list = &g.kernel.attached;
    // SAFETY: attached by `run`, whose frame stays.
    let place =
        list.of_kind(Kind::Member).map(|node| unsafe { node.cast::<Membership>().as_ref() });
    let scope = place.last().map(|place| place.members);
    for node in list.of_kind(Kind::Scope) {
        // SAFETY: its job was not given up, so it still has a place in its scope, which is there.
        let heir = scope.map(|scope| unsafe { scope.as_ref() }.join());
        // SAFETY: a scope that is open, in a frame that stays.
        unsafe { node.cast::<Members>().as_ref() }.orphan(heir);
    }
}
