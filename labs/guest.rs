//! Runs the check that the grader names, and gives its verdict.
//!
//! The first argument is a number that the grader drew: a line without it is no verdict. A check is
//! a function that panics if its promise does not hold.

use runnext::prelude::*;

/// A promise, and the function that checks it.
pub type Check = (&'static str, fn());

/// Runs the one of `checks` that the second argument names.
pub fn run(checks: &[Check]) {
    let [nonce, name] = args() else { panic!("the arguments are a number and a check") };
    let check = checks.iter().find(|(known, _)| known == name).expect("a check of that name").1;
    match go(check).join() {
        Ok(()) => println!("VERDICT {nonce} ok"),
        Err(error) => println!("VERDICT {nonce} {error}"),
    }
}
