//! What no program may do with what it can name: each marked line is an error.
//!
//! Beside `paths.rs`, which says how this is used. A type can be reached without its path,
//! by what a function returns: so what is not for programs must be private by itself. And
//! what belongs to one G, or to one life of a guard, must not leave it.
#![forbid(unsafe_code)]

use core::pin::pin;
use runnext::__private::{Case, Selection, recv_case};
use runnext::prelude::*;
use runnext::sync::{Mutex, RwLock};

fn sends<T: Send>(_: T) {}

fn main() {
    // Half of a wait: the G would count as parked, and run.
    let selection = pin!(Selection::new());
    let selection = selection.into_ref();
    selection.begin(); //~ E0624
    selection.wait(None); //~ E0624
    selection.call_off(); //~ E0624

    // Closures that would run with interrupts off, in the middle of a queue.
    let (_tx, rx) = chan::bounded::<u32>(1);
    let case = recv_case(&rx);
    let place = pin!(case.in_line(selection));
    place.as_ref().enlist_unless(0, |_| false, || None); //~ E0599
    place.withdraw(); //~ E0599
    rx.chan(); //~ E0624

    // Not the program's to decide.
    Go::new().of(unimplemented!()); //~ E0624
    scope(|s| drop(s.start(unimplemented!(), || 1))); //~ E0624
    runnext::tasks::Frame::new(0, 1); //~ E0624

    // A lock is freed by the G that took it, and a selection is of the G that waits.
    sends(Mutex::new(0).lock()); //~ E0277
    sends(RwLock::new(0).read()); //~ E0277
    sends(RwLock::new(0).write()); //~ E0277
    sends(Selection::new()); //~ E0277
}
