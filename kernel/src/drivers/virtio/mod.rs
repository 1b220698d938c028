//! What all virtio devices share: bring-up, rings, and memory for them.
//!
//! [`probe`] brings a device up, up to its own configuration; [`ring`] hands requests to it and
//! takes them back; [`slots`] knows the owner of each request's memory; [`hal`] has the memory.
//! The driver of a kind of device (`virtio_blk`) knows its requests, and the Gs that wait.
//!
//! Of `virtio-drivers` the ring (`VirtQueue`) and the transport are used. Not its drivers: its
//! `VirtIOBlk` has a ring of 16, waits for a flush in an endless loop, and checks whether the
//! device sleeps without a barrier after it has written its request, so that on x86 the check may
//! come first and the device sleep on.

pub mod hal;
pub mod probe;
pub mod ring;
pub mod slots;
