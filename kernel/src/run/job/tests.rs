//! Promises of work and its outcome, with threads for Gs.

use super::*;
use alloc::sync::Arc;
use std::thread;

/// Work on a value that counts its owners.
struct Adds(Arc<()>, usize);

impl Job for Adds {
    type Outcome = (Arc<()>, usize);
    type Ticket = ();

    fn ticket(&self) {}

    fn run(self) -> Self::Outcome {
        (self.0, self.1 + 1)
    }

    fn failed(why: JoinError, (): &()) -> Self::Outcome {
        assert_eq!(why, JoinError::Killed);
        (Arc::default(), 0)
    }
}

/// More than fits into a place.
struct Large([u64; 20]);

impl Job for Large {
    type Outcome = u64;
    type Ticket = ();

    fn ticket(&self) {}

    fn run(self) -> u64 {
        self.0.iter().sum()
    }

    fn failed(_: JoinError, (): &()) -> u64 {
        0
    }
}

fn adds(value: &Arc<()>) -> (Work, Joiner<(Arc<()>, usize)>) {
    pair(Adds(value.clone(), 41)).ok().expect("memory")
}

#[test]
fn the_outcome_is_there_whoever_comes_first() {
    let value = Arc::new(());
    for round in 0..if cfg!(miri) { 10 } else { 1000 } {
        let (work, joiner) = adds(&value);
        let worker = thread::spawn(move || work.run());
        if round % 2 == 0 {
            thread::yield_now();
        }
        assert_eq!(joiner.join().1, 42);
        worker.join().expect("no panic");
    }
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn an_outcome_that_nobody_wants_is_dropped_once_whoever_goes_first() {
    let value = Arc::new(());
    for round in 0..if cfg!(miri) { 10 } else { 1000 } {
        let (work, joiner) = adds(&value);
        match round % 3 {
            0 => {
                drop(joiner);
                work.run();
            }
            1 => {
                work.run();
                drop(joiner);
            }
            _ => {
                let worker = thread::spawn(move || work.run());
                drop(joiner);
                worker.join().expect("no panic");
            }
        }
        assert_eq!(Arc::strong_count(&value), 1, "round {round}");
    }
}

#[test]
fn a_place_is_used_again_when_both_sides_are_done_with_it() {
    static PLACE: InlineCell = InlineCell::new();
    let value = Arc::new(());
    for round in 0..3 {
        // SAFETY: this thread alone uses the place.
        let made = unsafe { pair_in(Some(&PLACE), Adds(value.clone(), round)) };
        let (work, joiner) = made.ok().expect("the place is free");
        // SAFETY: as above.
        assert!(unsafe { pair_in(Some(&PLACE), Adds(value.clone(), 0)) }.is_err(), "it is taken");
        work.run();
        assert!(!PLACE.is_free(), "the outcome is there");
        assert_eq!(joiner.join().1, round + 1);
        assert!(PLACE.is_free());
    }
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn what_does_not_fit_goes_to_the_heap() {
    static PLACE: InlineCell = InlineCell::new();
    // SAFETY: this thread alone uses the place.
    let Err(large) = (unsafe { pair_in(Some(&PLACE), Large([2; 20])) }) else { panic!("it fits") };
    assert!(PLACE.is_free());
    let (work, joiner) = pair(large).ok().expect("memory");
    work.run();
    assert_eq!(joiner.join(), 40);
}

/// Puts work where whoever gives it up finds it, and takes it as if it had begun.
fn begun(work: Work, value: &Arc<()>) -> Work {
    let place = Cell::new(Some(work));
    // What `run_from` does before it is stopped: the work is taken, and is lost.
    // SAFETY: nobody else counts meanwhile.
    unsafe { Arc::decrement_strong_count(Arc::as_ptr(value)) };
    place.take().expect("it was put there")
}

#[test]
fn work_that_is_given_up_has_an_outcome_whoever_comes_first() {
    let value = Arc::new(());
    for round in 0..if cfg!(miri) { 10 } else { 1000 } {
        let (work, joiner) = adds(&value);
        let work = begun(work, &value);
        // SAFETY: nobody runs it any more.
        let worker = thread::spawn(move || unsafe { work.give_up(JoinError::Killed) });
        if round % 3 == 0 {
            thread::yield_now();
        }
        if round % 2 == 0 {
            assert_eq!(joiner.join().1, 0);
        } else {
            drop(joiner);
        }
        worker.join().expect("no panic");
        assert_eq!(Arc::strong_count(&value), 1);
    }
}

#[test]
fn work_that_is_dropped_is_dropped_once_and_its_joiner_is_told() {
    let value = Arc::new(());
    for joins in [true, false] {
        let (work, joiner) = adds(&value);
        if joins {
            let worker = thread::spawn(move || drop(work));
            assert_eq!(joiner.join().1, 0);
            worker.join().expect("no panic");
        } else {
            drop(joiner);
            drop(work);
        }
        assert_eq!(Arc::strong_count(&value), 1);
    }
}

/// Looks, from within the work, whether it can still be given up.
struct Looks(&'static Cell<Option<Work>>);

// SAFETY: used by one thread.
unsafe impl Send for Looks {}

impl Job for Looks {
    type Outcome = bool;
    type Ticket = ();

    fn ticket(&self) {}

    fn run(self) -> bool {
        let work = self.0.take();
        let is_there = work.is_some();
        self.0.set(work);
        is_there
    }

    fn failed(_: JoinError, (): &()) -> bool {
        false
    }
}

#[test]
fn work_stays_where_it_is_found_until_its_outcome_is_told() {
    let place: &'static Cell<_> = Box::leak(Box::new(Cell::new(None)));
    let (work, joiner) = pair(Looks(place)).ok().expect("memory");
    place.set(Some(work));
    Work::run_from(place);
    assert!(place.take().is_none(), "it was told, and could be given up");
    assert!(joiner.join(), "it could not be given up while it was done");
}
