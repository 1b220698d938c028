//! The standard image: every program of this folder, linked with the kernel.
//!
//! The programs are in the library beside this file, where the host can test them, too. Each
//! is in the image because [`runnext::main!`] marks it as used.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate programs as _;

const _: () = assert!(
    !runnext::__private::HAS_INTERNALS,
    "built together with a crate that needs the kernel's internals: build the image by itself"
);
