//! All interleavings of a G's end and of who waits for it, on small models.
//!
//! The file under test is the kernel's own; how it gets here is said in
//! `loom/run.rs`. A lost wake-up is a deadlock; work and result are cells of
//! loom's, so that two sides that touch one at a time are found.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p runnext --profile loom --test loom_job`
#![cfg(loom)]
#![allow(dead_code, missing_docs, reason = "the sources are written for another crate")]

extern crate alloc;

#[path = "loom/run.rs"]
pub mod run;
#[path = "loom/wait.rs"]
pub mod wait;

use loom::{sync::Arc, thread};
use run::door::model;
use run::job::{InlineCell, Job, Joiner, Work, pair, pair_in};
use run::sys::JoinError;

/// Six times seven; and says when it is dropped.
struct Six(Arc<()>);

impl Job for Six {
    type Outcome = (u32, Arc<()>);
    type Ticket = ();

    fn ticket(&self) {}

    fn run(self) -> Self::Outcome {
        (6 * 7, self.0)
    }

    fn failed(_: JoinError, (): &()) -> Self::Outcome {
        (0, Arc::new(()))
    }
}

/// What somebody had begun with who never goes on.
struct Lost;

impl Job for Lost {
    type Outcome = Result<(), JoinError>;
    type Ticket = ();

    fn ticket(&self) {}

    fn run(self) -> Self::Outcome {
        unreachable!("it was begun")
    }

    fn failed(why: JoinError, (): &()) -> Self::Outcome {
        Err(why)
    }
}

fn six(value: &Arc<()>) -> (Work, Joiner<(u32, Arc<()>)>) {
    pair(Six(value.clone())).ok().unwrap()
}

#[test]
fn the_outcome_is_there_whoever_comes_first() {
    model(|| {
        let (work, joiner) = six(&Arc::new(()));
        let other = thread::spawn(move || work.run());
        assert_eq!(joiner.join().0, 42);
        other.join().unwrap();
    });
}

#[test]
fn an_outcome_that_nobody_wants_is_dropped_whoever_goes_first() {
    model(|| {
        let value = Arc::new(());
        let (work, joiner) = six(&value);
        let other = thread::spawn(move || work.run());
        drop(joiner);
        other.join().unwrap();
        assert_eq!(Arc::strong_count(&value), 1);
    });
}

#[test]
fn a_place_is_free_only_when_both_are_done_with_it() {
    model(|| {
        let value = Arc::new(());
        let place: &'static InlineCell = Box::leak(Box::new(InlineCell::new()));
        // SAFETY: we alone put anything there.
        let made = unsafe { pair_in(Some(place), Six(value.clone())) };
        let (work, joiner) = made.ok().unwrap();
        let other = thread::spawn(move || work.run());
        drop(joiner);
        if place.is_free() {
            // SAFETY: as above. Loom finds whoever is not done with the first.
            let (work, joiner) = unsafe { pair_in(Some(place), Six(value.clone())) }.ok().unwrap();
            work.run();
            assert_eq!(joiner.join().0, 42);
        }
        other.join().unwrap();
        assert_eq!(Arc::strong_count(&value), 1);
    });
}

#[test]
fn an_old_wake_up_neither_ends_nor_loses_the_wait() {
    model(|| {
        let old = run::door::begin_park(run::door::Wait::default());
        assert!(!run::door::cancel_park());
        let (work, joiner) = six(&Arc::new(()));
        let waker = thread::spawn(move || run::door::ready(old));
        let other = thread::spawn(move || work.run());
        assert_eq!(joiner.join().0, 42);
        other.join().unwrap();
        waker.join().unwrap();
    });
}

#[test]
fn work_that_is_given_up_has_an_outcome_whoever_comes_first() {
    model(|| {
        let (work, joiner) = pair(Lost).ok().unwrap();
        // SAFETY: nobody does it.
        let other = thread::spawn(move || unsafe { work.give_up(JoinError::Killed) });
        assert!(joiner.join() == Err(JoinError::Killed));
        other.join().unwrap();
    });
}

#[test]
fn work_that_is_dropped_is_told_or_not_wanted_and_freed_once() {
    model(|| {
        let value = Arc::new(());
        let place: &'static InlineCell = Box::leak(Box::new(InlineCell::new()));
        // SAFETY: we alone put anything there.
        let (work, joiner) = unsafe { pair_in(Some(place), Six(value.clone())) }.ok().unwrap();
        let other = thread::spawn(move || drop(work));
        drop(joiner);
        other.join().unwrap();
        assert!(place.is_free());
        assert_eq!(Arc::strong_count(&value), 1);
    });
}

/// The time of the first joiner comes at once; then another G joins.
#[test]
fn a_joiner_whose_time_is_up_leaves_the_outcome_to_the_next() {
    model(|| {
        let value = Arc::new(());
        let (work, joiner) = six(&value);
        let other = thread::spawn(move || work.run());
        match joiner.join_by(1) {
            Ok((outcome, _)) => assert_eq!(outcome, 42),
            Err(joiner) => {
                let next = thread::spawn(move || joiner.join().0);
                assert_eq!(next.join().unwrap(), 42);
            }
        }
        other.join().unwrap();
        assert_eq!(Arc::strong_count(&value), 1);
    });
}

#[test]
fn a_joiner_whose_time_is_up_can_go() {
    model(|| {
        let value = Arc::new(());
        let (work, joiner) = six(&value);
        let other = thread::spawn(move || work.run());
        drop(joiner.join_by(1));
        other.join().unwrap();
        assert_eq!(Arc::strong_count(&value), 1);
    });
}

/// As `select!` does: the handle is left in the cell while the G waits, and taken back. Either the
/// outcome wakes it, or it is there; and whatever comes first, a join has it afterwards.
#[test]
fn a_joiner_that_selects_is_woken_and_leaves_the_outcome() {
    for waits in [false, true] {
        model(move || {
            let (work, mut joiner) = six(&Arc::new(()));
            let other = thread::spawn(move || work.run());
            let is_waiting = joiner.enlist(run::door::begin_park(run::door::Wait::default()));
            match is_waiting && waits {
                true => run::door::park(),
                false => _ = run::door::cancel_park(),
            }
            joiner.withdraw();
            assert!(!(is_waiting && waits) || joiner.is_done(), "woken for nothing");
            assert_eq!(joiner.join().0, 42);
            other.join().unwrap();
        });
    }
}

/// In time, too late, or in the middle of the end.
#[test]
fn an_urgent_joiner_lends_its_rank_while_it_waits_and_no_longer() {
    for deadline in [None, Some(1)] {
        model(move || {
            let (work, joiner) = six(&Arc::new(()));
            let worker = thread::spawn(move || work.run());
            run::door::be_urgent(1 << 6);
            match deadline {
                None => assert_eq!(joiner.join().0, 42),
                Some(at) => drop(joiner.join_by(at)),
            }
            assert!(!run::door::is_lent());
            worker.join().unwrap();
        });
    }
}
