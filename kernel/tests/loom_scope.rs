//! All interleavings of the ends of a scope's members and of its owner, on small models.
//!
//! The file under test is the kernel's own; how it gets here is said in `loom/run.rs`. A lost
//! wake-up is a deadlock; what members have borrowed is a cell of loom's, so that an owner that
//! goes on too early, or does not see what they did, is found.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p runnext --profile loom --test loom_scope`
#![cfg(loom)]
#![allow(dead_code, missing_docs, reason = "the sources are written for another crate")]

extern crate alloc;

#[path = "loom/run.rs"]
pub mod run;
#[path = "loom/wait.rs"]
pub mod wait;

use loom::cell::UnsafeCell;
use loom::{sync::Arc, thread};
use run::door::{self, model};
use run::members::{Member, Members};
use run::sys::JoinError;

/// What a member borrows, and changes.
#[derive(Default)]
struct Lent(UnsafeCell<u32>);

// SAFETY: loom finds accesses at a time.
unsafe impl Sync for Lent {}
// SAFETY: as above.
unsafe impl Send for Lent {}

impl Lent {
    fn add(&self, n: u32) {
        // SAFETY: loom finds accesses at a time.
        self.0.with_mut(|lent| unsafe { *lent += n });
    }

    fn get(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|lent| unsafe { *lent })
    }
}

/// Starts a member that changes what it has borrowed, and leaves.
fn start(place: Member, lent: &Arc<Lent>) -> thread::JoinHandle<()> {
    let lent = lent.clone();
    thread::spawn(move || {
        lent.add(1);
        drop(place);
    })
}

#[test]
fn the_owner_goes_on_when_all_have_left_and_sees_what_they_did() {
    model(|| {
        let lent = [(); 2].map(|()| Arc::new(Lent::default()));
        // Gone when the owner goes on.
        let members = Box::new(Members::new(door::this()));
        let gs = [0, 1].map(|n| start(members.join(), &lent[n]));
        members.wait(|| ());
        drop(members);
        assert_eq!(lent.each_ref().map(|lent| lent.get()), [1, 1]);
        gs.into_iter().for_each(|g| g.join().unwrap());
    });
}

#[test]
fn a_member_that_starts_another_is_waited_for_with_it() {
    model(|| {
        let lent = Arc::new(Lent::default());
        let members = Box::new(Members::new(door::this()));
        let place = members.join();
        let other = lent.clone();
        let g = thread::spawn(move || {
            let next = place.scope().join();
            drop(place);
            start(next, &other).join().unwrap();
        });
        members.wait(|| ());
        drop(members);
        assert_eq!(lent.get(), 1);
        g.join().unwrap();
    });
}

#[test]
fn an_old_wake_up_neither_ends_nor_loses_the_wait() {
    model(|| {
        let lent = Arc::new(Lent::default());
        let members = Box::new(Members::new(door::this()));
        let old = door::this();
        let waker = thread::spawn(move || door::ready(old));
        let g = start(members.join(), &lent);
        members.wait(|| ());
        drop(members);
        assert_eq!(lent.get(), 1);
        g.join().unwrap();
        waker.join().unwrap();
    });
}

#[test]
fn of_two_failures_one_is_told() {
    model(|| {
        let members = Box::new(Members::new(door::this()));
        let gs = [0, 1].map(|_| {
            let place = members.join();
            thread::spawn(move || place.scope().fail(JoinError::Killed))
        });
        members.wait(|| ());
        assert!(members.take_failure() == Some(JoinError::Killed));
        assert!(members.take_failure().is_none());
        gs.into_iter().for_each(|g| g.join().unwrap());
    });
}

/// A member of the outer scope is abandoned, with a scope of its own that has two members.
#[test]
fn the_place_of_an_abandoned_owner_is_kept_until_its_members_have_left() {
    model(|| {
        let lent = [(); 2].map(|()| Arc::new(Lent::default()));
        let outer = Box::new(Members::new(door::this()));
        // Its frames stay.
        let inner: &'static Members = Box::leak(Box::new(Members::new(door::this())));
        let gs = [0, 1].map(|n| start(inner.join(), &lent[n]));
        let place = outer.join();
        inner.orphan(Some(place.scope().join()));
        drop(place); // its own: the job is given up
        outer.wait(|| ());
        drop(outer);
        assert_eq!(lent.each_ref().map(|lent| lent.get()), [1, 1]);
        gs.into_iter().for_each(|g| g.join().unwrap());
        // Leaked on the machine, but loom counts.
        // SAFETY: from `leak`, and no other G has it any more.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(inner).cast_mut()) });
    });
}
