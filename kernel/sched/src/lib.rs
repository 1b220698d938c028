//! Who runs next.
#![no_std]
