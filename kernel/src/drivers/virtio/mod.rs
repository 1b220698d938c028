//! What all virtio devices share: bring-up, rings, and memory for them.
//!
//! [`probe`] brings a device up, up to its own configuration; [`ring`] hands requests to it and
//! takes them back; [`slots`] knows the owner of each request's memory; [`Dma`] has the memory.
//! The driver of a kind of device (`virtio_blk`) knows its requests, and the Gs that wait.
//!
//! Of `virtio-drivers` the ring (`VirtQueue`) and the transport are used. Not its drivers: its
//! `VirtIOBlk` has a ring of 16, waits for a flush in an endless loop, and checks whether the
//! device sleeps without a barrier after it has written its request, so that on x86 the check may
//! come first and the device sleep on.

pub mod probe;
pub mod ring;
pub mod slots;

use super::pci::Region;
use crate::mem::{PHYS_OFFSET, dma};
use core::ptr::NonNull;
use virtio_drivers::{BufferDirection, Hal, PhysAddr};

/// Memory that a device reads and writes, for `virtio-drivers`.
///
/// All of it comes from `mem::dma`, in one piece, and is accessed through the window of physical
/// memory: so the device's address and the kernel's differ by a constant, and no lookup or copy is
/// needed when a buffer is handed to the device. Buffers from the heap or from a stack are never
/// handed over: they need not be in one piece, and their owner could free them.
pub struct Dma;

/// The physical address of a byte of [`dma::alloc`].
fn phys_of(address: NonNull<u8>) -> PhysAddr {
    (address.as_ptr().expose_provenance() as u64).wrapping_sub(PHYS_OFFSET)
}

// SAFETY: `dma_alloc` gives zeroed pages in one piece that have no other user; `mmio_phys_to_virt`
// gives mappings that stay; `share` the address at which the device finds a buffer.
unsafe impl Hal for Dma {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        match dma::alloc(pages) {
            Some(start) => (phys_of(start), start),
            // For the crate address 0 means "no memory".
            None => (0, NonNull::dangling()),
        }
    }

    unsafe fn dma_dealloc(_: PhysAddr, start: NonNull<u8>, pages: usize) -> i32 {
        // SAFETY: the caller got it from `dma_alloc`, and the device does not use it any more.
        unsafe { dma::free(start, pages) };
        0
    }

    /// Cannot fail: `probe` has mapped the same region before, and gets the same address again.
    unsafe fn mmio_phys_to_virt(address: PhysAddr, bytes: usize) -> NonNull<u8> {
        let region = Region { address, bytes: bytes as u64 };
        region.map().expect("mapped by `probe` before").base()
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        phys_of(buffer.cast())
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {
        // Device and CPU see the same memory; x86 keeps the caches coherent.
    }
}
