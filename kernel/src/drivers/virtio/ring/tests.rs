//! The ring against a device in memory: a correct one, and a faulty one.
//!
//! The device sees what a real one would: the addresses that it was given for its rings, and
//! the buffers that descriptors name. It answers when told to, in any order, and violates the
//! protocol when told to.

use super::*;
use crate::drivers::virtio_blk::{self, Command, SLOT_BYTES, SLOT_PAGES};
use crate::mem::{PAGE_SIZE, dma};
use core::sync::atomic::AtomicU16;
use std::alloc::{Layout, alloc_zeroed};
use std::cell::RefCell;
use std::collections::BTreeMap;
use virtio_drivers::transport::{DeviceStatus, DeviceType, InterruptStatus};
use virtio_drivers::{BufferDirection, PhysAddr, Result as VirtioResult};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const QUEUE: u16 = 0;

/// Memory of the host; device and driver use the same addresses.
struct HostMemory;

fn host_pages(pages: usize) -> NonNull<u8> {
    let layout = Layout::from_size_align(pages * PAGE_SIZE, PAGE_SIZE).expect("a good layout");
    // SAFETY: the size is not 0. Never freed: as on the machine.
    let start = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
    SHARED.with_borrow_mut(|shared| shared.insert(start.addr().get(), start));
    start
}

std::thread_local! {
    /// The memory that a test has shared with its device, by address.
    static SHARED: RefCell<BTreeMap<usize, NonNull<u8>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The memory at a device address.
fn at<T>(address: u64) -> *mut T {
    let address = address as usize;
    let below = SHARED.with_borrow(|shared| shared.range(..=address).next_back().map(|(_, &p)| p));
    below.expect("an address that the driver gave").as_ptr().with_addr(address).cast()
}

// SAFETY: zeroed pages that have no other user, at addresses that device and driver share.
unsafe impl Hal for HostMemory {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let start = host_pages(pages);
        (start.addr().get() as u64, start)
    }
    unsafe fn dma_dealloc(_: PhysAddr, _: NonNull<u8>, _: usize) -> i32 {
        0
    }
    unsafe fn mmio_phys_to_virt(_: PhysAddr, _: usize) -> NonNull<u8> {
        unreachable!("the ring maps nothing")
    }
    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        buffer.cast::<u8>().addr().get() as u64
    }
    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

/// A device: the addresses of its rings, and how often it was notified.
#[derive(Default)]
struct Device {
    descriptors: u64,
    available: u64,
    used: u64,
    bells: usize,
    /// How many requests it has seen, and answers it has given.
    seen: u16,
    given: u16,
}

/// A request as the device reads it.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    first: u16,
    kind: u32,
    sector: u64,
    /// Address and length of the data, and whether the device writes there.
    data: Option<(u64, u32, bool)>,
    status: u64,
}

fn read<T: Copy>(address: u64) -> T {
    // SAFETY: addresses come from the driver, which gives those of memory that stays; no code
    // writes there at this instant, as the driver has this thread.
    unsafe { at::<T>(address).read() }
}

fn write<T>(address: u64, value: T) {
    // SAFETY: as in `read`.
    unsafe { at::<T>(address).write(value) };
}

impl Device {
    /// The next request that it has not seen.
    fn next(&mut self) -> Option<Asked> {
        if read::<u16>(self.available + 2) == self.seen {
            return None;
        }
        let place = u64::from(self.seen % RING as u16);
        self.seen = self.seen.wrapping_add(1);
        let first = read::<u16>(self.available + 4 + 2 * place);
        let (mut pieces, mut next) = (Vec::new(), Some(first));
        while let Some(index) = next {
            let at = self.descriptors + 16 * u64::from(index);
            let (address, bytes) = (read::<u64>(at), read::<u32>(at + 8));
            let flags = read::<u16>(at + 12);
            pieces.push((address, bytes, flags & 2 != 0));
            next = (flags & 1 != 0).then(|| read::<u16>(at + 14));
        }
        let (head, status) = (pieces.remove(0), pieces.pop().expect("a status"));
        assert_eq!((head.1, head.2, status.1, status.2), (16, false, 1, true));
        let (kind, sector) = (read(head.0), read(head.0 + 8));
        Some(Asked { first, kind, sector, data: pieces.pop(), status: status.0 })
    }

    fn answer(&mut self, asked: &Asked, status: u8) {
        write(asked.status, status);
        self.claim(u32::from(asked.first));
    }

    /// Reports the chain at `first` as done, truly or not.
    fn claim(&mut self, first: u32) {
        let place = u64::from(self.given % RING as u16);
        self.given = self.given.wrapping_add(1);
        write(self.used + 4 + 8 * place, first);
        write(self.used + 2, self.given);
    }

    /// Asks not to be notified.
    fn sleep_not(&mut self) {
        write::<u16>(self.used, 1);
    }
}

impl Transport for Device {
    fn device_type(&self) -> DeviceType {
        DeviceType::Block
    }
    fn read_device_features(&mut self) -> u64 {
        0
    }
    fn write_driver_features(&mut self, _: u64) {}
    fn max_queue_size(&mut self, _: u16) -> u32 {
        RING as u32
    }
    fn notify(&mut self, queue: u16) {
        assert_eq!(queue, QUEUE);
        self.bells += 1;
    }
    fn get_status(&self) -> DeviceStatus {
        DeviceStatus::empty()
    }
    fn set_status(&mut self, _: DeviceStatus) {}
    fn set_guest_page_size(&mut self, _: u32) {}
    fn requires_legacy_layout(&self) -> bool {
        false
    }
    fn queue_set(&mut self, _: u16, size: u32, descriptors: u64, available: u64, used: u64) {
        assert_eq!(size, RING as u32);
        (self.descriptors, self.available, self.used) = (descriptors, available, used);
    }
    fn queue_unset(&mut self, _: u16) {}
    fn queue_used(&mut self, _: u16) -> bool {
        false
    }
    fn ack_interrupt(&mut self) -> InterruptStatus {
        InterruptStatus::empty()
    }
    fn read_config_generation(&self) -> u32 {
        0
    }
    fn read_config_space<T: FromBytes + IntoBytes>(&self, _: usize) -> VirtioResult<T> {
        Err(virtio_drivers::Error::ConfigSpaceMissing)
    }
    fn write_config_space<T: IntoBytes + Immutable>(&mut self, _: usize, _: T) -> VirtioResult<()> {
        Err(virtio_drivers::Error::ConfigSpaceMissing)
    }
}

/// A ring, and memory for each slot.
fn ring() -> (Ring<HostMemory, Device>, Vec<NonNull<u8>>) {
    let mut device = Device::default();
    let queue = VirtQueue::new(&mut device, QUEUE, false, false).expect("a ring");
    (Ring::new(device, QUEUE, queue), (0..SLOTS).map(|_| host_pages(SLOT_PAGES)).collect())
}

/// Takes a slot and sends it.
fn send(ring: &mut Ring<HostMemory, Device>, data: &[NonNull<u8>], command: Command) -> usize {
    let slot = ring.slots.first_idle().expect("a free slot");
    // SAFETY: the slot is the driver's, and `data` is its memory.
    let chain = unsafe { virtio_blk::chain(command, data[slot]) };
    // SAFETY: the same.
    unsafe { ring.send(slot, chain) }.expect("not broken");
    slot
}

/// The status in the memory of a slot.
fn status(data: &[NonNull<u8>], slot: usize) -> u8 {
    read(data[slot].addr().get() as u64 + SLOT_BYTES as u64 + 16)
}

#[test]
fn the_device_sees_what_was_asked() {
    let (mut ring, data) = ring();
    let read_slot = send(&mut ring, &data, Command::Read(7, 1024));
    let write_slot = send(&mut ring, &data, Command::Write(9, 512));
    send(&mut ring, &data, Command::Flush);
    let address = |slot: usize| data[slot].addr().get() as u64;
    let asked: Vec<_> = core::iter::from_fn(|| ring.transport.next()).collect();
    assert_eq!((asked[0].kind, asked[0].sector), (0, 7));
    assert_eq!(asked[0].data, Some((address(read_slot), 1024, true)));
    assert_eq!((asked[1].kind, asked[1].sector), (1, 9));
    assert_eq!(asked[1].data, Some((address(write_slot), 512, false)));
    assert_eq!((asked[2].kind, asked[2].data), (4, None));
    assert_eq!(asked.len(), 3);
    assert_eq!(ring.transport.bells, 3);
}

#[test]
fn a_device_that_is_awake_is_not_rung() {
    let (mut ring, data) = ring();
    ring.transport.sleep_not();
    send(&mut ring, &data, Command::Flush);
    assert_eq!(ring.transport.bells, 0);
}

/// A device that goes to sleep while a request is sent: it asks to be notified, has a fence,
/// and checks for requests once more. It sees the request, or is notified. Without the
/// driver's fence neither may be so. CPUs show that too rarely for a test; Miri, which picks
/// at random which stores of other threads a load sees, in the first rounds.
#[test]
fn a_device_that_is_going_to_sleep_sees_the_request_or_is_rung() {
    let rounds = if cfg!(miri) { 20 } else { 500 };
    let (mut ring, data) = ring();
    let word = |address: u64| {
        // SAFETY: part of the ring's memory, which stays; and all accesses to it are atomic
        // while the device has a thread of its own.
        unsafe { AtomicU16::from_ptr(at(address)) }
    };
    let (flags, available) = (word(ring.transport.used), word(ring.transport.available + 2));
    std::thread::scope(|s| {
        for round in 1..=rounds {
            flags.store(1, Ordering::Relaxed); // awake
            let device = s.spawn(|| {
                flags.store(0, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                available.load(Ordering::Acquire)
            });
            let slot = send(&mut ring, &data, Command::Flush);
            let is_rung = core::mem::take(&mut ring.transport.bells) > 0;
            let is_seen = device.join().expect("no panic") == round;
            assert!(is_rung || is_seen, "round {round}: the device sleeps beside a request");
            let asked = ring.transport.next().expect("a request");
            ring.transport.answer(&asked, 0);
            assert_eq!(ring.take_answer(), Ok(Some(Answer::Wake(slot))));
            assert!(ring.slots.collect(slot));
            assert_eq!(status(&data, slot), 0);
        }
    });
}

#[test]
fn all_slots_fit_and_answers_come_in_any_order_for_ever() {
    let (mut ring, data) = ring();
    // Long enough that all counters wrap around.
    for round in 0..if cfg!(miri) { 2 } else { 2000usize } {
        let sent: Vec<_> =
            (0..SLOTS).map(|i| send(&mut ring, &data, Command::Read(i as u64, 512))).collect();
        let mut asked: Vec<_> = core::iter::from_fn(|| ring.transport.next()).collect();
        assert_eq!(asked.len(), SLOTS);
        asked.rotate_left(round % SLOTS);
        asked.iter().for_each(|asked| ring.transport.answer(asked, asked.sector as u8 % 3));
        for asked in &asked {
            let slot = sent[asked.sector as usize];
            assert_eq!(ring.take_answer(), Ok(Some(Answer::Wake(slot))));
            assert!(ring.slots.collect(slot));
            assert_eq!(status(&data, slot), asked.sector as u8 % 3);
        }
        assert_eq!(ring.take_answer(), Ok(None));
    }
}

#[test]
fn an_abandoned_request_is_answered_to_nobody() {
    let (mut ring, data) = ring();
    let slot = send(&mut ring, &data, Command::Read(0, 512));
    let asked = ring.transport.next().expect("a request");
    assert!(!ring.slots.abandon(slot));
    assert_ne!(ring.slots.first_idle(), Some(slot));
    ring.transport.answer(&asked, 0);
    assert_eq!(ring.take_answer(), Ok(Some(Answer::Returned(slot))));
    assert_eq!(ring.slots.first_idle(), Some(slot));
}

#[test]
fn a_device_that_answers_nonsense_is_not_used_again() {
    for lie in [5, RING as u32, 0xffff, 0xdead_beef] {
        let (mut ring, data) = ring();
        let slot = send(&mut ring, &data, Command::Read(0, 512));
        let asked = ring.transport.next().expect("a request");
        ring.transport.claim(lie);
        ring.transport.answer(&asked, 0);
        assert_eq!(ring.take_answer(), Err(Bogus(lie as u16)));
        assert_eq!(ring.take_answer(), Ok(None), "not even what is right");
        assert!(!ring.slots.collect(slot));
        let other = ring.slots.first_idle().expect("a slot");
        // SAFETY: the slot is the driver's, and `data` is its memory.
        let chain = unsafe { virtio_blk::chain(Command::Flush, data[other]) };
        // SAFETY: the same.
        assert_eq!(unsafe { ring.send(other, chain) }, Err(Broken));
    }
}

#[test]
fn an_answer_given_twice_breaks_the_ring() {
    let (mut ring, data) = ring();
    let slot = send(&mut ring, &data, Command::Read(0, 512));
    let asked = ring.transport.next().expect("a request");
    ring.transport.answer(&asked, 0);
    ring.transport.answer(&asked, 0);
    assert_eq!(ring.take_answer(), Ok(Some(Answer::Wake(slot))));
    assert_eq!(ring.take_answer(), Err(Bogus(asked.first)));
}

#[test]
fn without_frames_there_is_no_memory_for_a_device() {
    assert!(dma::alloc(1).is_none(), "the host has no frames");
}
