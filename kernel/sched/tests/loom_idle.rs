//! All interleavings of the parking protocol by itself, without queues.
//!
//! `idle` uses nothing of the crate but the names below, so the model compiles that
//! very file. A whole scheduler (`loom_park`) has too many steps for three CPUs of
//! which one parks twice.
#![cfg(loom)]
#![allow(dead_code, unused_macros, unused_imports, reason = "the sources are for another crate")]

#[path = "../src/idle.rs"]
mod idle;
#[path = "../src/sync.rs"]
mod sync;
#[path = "../src/told.rs"]
mod told;

/// The generator is off in the model.
mod p {
    pub(crate) struct Random(pub(crate) u64);

    impl Random {
        pub(crate) const STEP: u64 = 0;

        pub(crate) fn next(&mut self) -> u32 {
            unreachable!("nothing is drawn")
        }
    }
}

/// All CPUs are equally far from one another.
mod near {
    pub(crate) struct Row;
    pub(crate) struct Cpus;

    impl Cpus {
        pub(crate) fn word(&self, _: usize) -> u64 {
            unreachable!("there are no rows")
        }
    }

    impl super::Idle {
        pub(crate) fn claim_near(&self, _: usize, _: &Row) -> Option<usize> {
            unreachable!("there are no rows")
        }
    }
}

use idle::Idle;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::thread;
use sched::{MAX_P, Wake};

const PS: usize = 3;

fn wake_p(idle: &Idle) -> Wake {
    idle.wake_p(PS, None)
}

/// P 0 wakes an idle P, for a G that is gone by now, and is about to claim P 1. But P 1
/// runs again by itself (a G came to its inbox), and parks once more. A CPU that
/// submits meanwhile sees a spinning P, which is P 0, and wakes none.
#[test]
fn waker_that_finds_nobody_to_claim_looks_again_for_those_who_relied_on_it() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let idle = Arc::new(Idle::new());
        let work = Arc::new(AtomicBool::new(false));
        (0..PS).for_each(|p| idle.bring_up(p));
        assert!(idle.park(1, PS, false, || false), "there is nothing");
        let waker = thread::spawn({
            let idle = Arc::clone(&idle);
            move || wake_p(&idle)
        });
        let submitter = thread::spawn({
            let (idle, work) = (Arc::clone(&idle), Arc::clone(&work));
            move || {
                work.store(true, Relaxed); // the fences order it
                wake_p(&idle)
            }
        });
        let spinning = !idle.claim(1);
        let halts = idle.park(1, PS, spinning, || work.load(Relaxed));
        let _ = (waker.join().unwrap(), submitter.join().unwrap());
        // A waker that clears the bit sends an interrupt.
        assert!(!halts || !idle.is_idle(1), "P 1 sleeps while a G waits");
    });
}
