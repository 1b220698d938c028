//! What no program may lend: each marked line is an error.
//!
//! Beside `methods.rs`; in a file of its own, as borrows are checked only where all types
//! are right. What Gs of a scope borrow must be older than the scope, and neither they nor
//! their handles and results may leave it.
#![forbid(unsafe_code)]

use runnext::prelude::*;
use runnext::scope::{join, par_for_each};

fn younger_than_the_scope() {
    scope(|s| {
        let young = String::new();
        s.go(|| young.len()); //~ E0373
        let lent = &young; //~ E0597
        s.go(move || lent.len());
    });
}

fn out_of_the_scope() {
    let mut escaped = None;
    scope(|s| {
        escaped = Some(s.go(|| 1)); //~ E0521
    });
    drop(escaped);
}

fn the_scope_itself() {
    let mut escaped = None;
    scope(|s| escaped = Some(s)); //~ E0521
    drop(escaped);
}

fn into_a_g_without_a_scope() {
    scope(|s| {
        drop(go(move || drop(s.go(|| 1)))); //~ E0521
    });
}

fn twice_to_change() {
    let mut n = 0;
    scope(|s| {
        s.go(|| n += 1);
        s.go(|| n += 1); //~ E0499
    });
    let mut numbers = [1, 2, 3];
    join(|| numbers[0] = 2, || numbers[1] = 3); //~ E0499
    let mut sum = 0;
    par_for_each(&mut numbers, |n| sum += *n); //~ E0594
}

fn while_a_member_changes_it() {
    let mut n = 0;
    scope(|s| {
        let g = s.go(|| n += 1);
        drop(n == 1); //~ E0503
        drop(g);
    });
}

fn main() {
    younger_than_the_scope();
    out_of_the_scope();
    the_scope_itself();
    into_a_g_without_a_scope();
    twice_to_change();
    while_a_member_changes_it();
}
