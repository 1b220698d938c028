//! The standard image: every program of this folder, linked with the kernel.
//!
//! One file a program, each registered by [`runnext::main!`]; `program=` on the
//! command line chooses. Nothing here may be unsafe: a program is trusted with
//! the machine's memory because the compiler has checked it.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

mod blocking;
mod disk;
mod echo;
mod fanout;
mod hello;
mod hog;
mod million;
mod pingpong;
mod pipeline;
mod primes;
mod skynet;
