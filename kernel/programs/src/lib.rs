//! The programs of the standard image, one file or folder each.
//!
//! Each is registered by [`runnext::main!`]; `program=` on the command line chooses. No
//! program may be unsafe: a program is trusted with the machine's memory because the compiler
//! has checked it.
//!
//! `main.rs` makes an image of them. On the host, where threads stand in for Gs, `cargo test
//! -p programs` tests the parts that need no machine.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod blocking;
mod deadlock;
mod disk;
mod echo;
mod echo_loop;
mod false_share;
mod fanout;
mod hello;
mod hog;
mod million;
mod pingpong;
mod pipeline;
mod placing;
mod primes;
mod shell;
mod skynet;
mod tickets;
mod tour;
mod upkeep;

#[cfg(not(target_os = "none"))]
pub use shell::hostile;
