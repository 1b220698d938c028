//! What the whole-machine tests boot.
//!
//! `selftest` checks the machine from inside and reports each promise on a line
//! of its own; `fault` goes wrong on purpose, in the way that its argument
//! names. Unlike the programs of the standard image these may be unsafe: that
//! is what they are for.
#![no_std]
#![no_main]

mod fault;
mod lines;
mod selftest;
