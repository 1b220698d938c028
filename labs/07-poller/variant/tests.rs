//! The variant of lab 7.
#![cfg(loom)]
#![allow(missing_docs, reason = "the doors are those of the lab's tests")]

#[path = "lab.rs"]
mod lab;
pub use lab::{arch, lock, poller, run};

use lab::Event::{Close, Ready, Reset, Runs, Wait};
use lab::{Event, Gave, Sequence};
use poller::PollError::{Busy, Closed};

#[test]
fn a_remembered_edge_outlives_the_close() {
    let wait = Gave::Wait;
    let cases: [(&[Event], &[Gave]); 6] = [
        (&[Ready, Close, Wait, Wait], &[wait(Ok(())), wait(Err(Closed))]),
        (&[Close, Wait], &[wait(Err(Closed))]),
        (&[Close, Ready, Wait], &[wait(Err(Closed))]),
        (&[Wait, Close, Runs, Wait], &[wait(Err(Closed)), wait(Err(Closed))]),
        (&[Wait, Ready, Close, Runs, Wait], &[wait(Err(Closed)), wait(Err(Closed))]),
        (&[Wait, Close, Reset, Runs], &[Gave::Reset(Err(Busy)), wait(Err(Closed))]),
    ];
    for (events, wanted) in cases {
        assert_eq!(Sequence::of(events), wanted, "after {events:?}");
    }
}
