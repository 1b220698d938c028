//! The disk, from inside: good ones, bad ones, slow ones, none.
//!
//! The first argument says what kind the host has attached; each kind has checks
//! of its own. The contents are those of `boot::data`: this file knows the rule by
//! which `pattern.bin` is made, and the host knows the sums of all files.

use crate::check::{self, checks, join_all, wait_until};
use core::sync::atomic::Ordering::Relaxed;
use runnext::disk::{self, DeviceError, DiskError};
use runnext::fs::{self, FsError};
use runnext::internals::drivers::virtio::slots::SLOTS;
use runnext::internals::drivers::virtio_blk::{self, Command, SECTOR, SLOT_BYTES};
use runnext::prelude::*;

runnext::main!(disk, main);

fn main() {
    check::run(match args().first().map(String::as_str) {
        Some("missing") => checks!(missing: every_call_says_that_there_is_no_disk),
        Some("failing") => checks!(failing:
            a_sector_that_cannot_be_read_is_an_error,
            others_are_read_meanwhile,
            a_read_only_disk_refuses_writes,
        ),
        Some("silent") => checks!(silent:
            a_read_without_an_answer_times_out,
            nobody_else_waits_for_a_silent_disk,
            a_silent_disk_keeps_its_buffers,
        ),
        Some("late") => checks!(late: a_late_answer_gives_its_slot_back),
        _ => checks!(
            sums_are_those_of_the_image,
            contents_are_the_same_both_ways,
            a_blocking_read_hands_its_p_off_and_a_polled_one_does_not,
            a_hundred_gs_read_parts_of_their_own,
            odd_offsets_and_lengths_are_read,
            reads_past_the_end_are_refused,
            files_that_are_not_there_are_named,
            what_was_written_is_read,
            writes_between_sectors_are_refused,
            requests_wait_for_a_free_slot,
            the_device_does_not_know_everything,
            answers_come_by_interrupt,
        ),
    });
}

const PATTERN: &str = "pattern.bin";

/// The byte of `pattern.bin` at `offset`.
fn pattern(offset: usize) -> u8 {
    let word = (offset as u32 / 4).wrapping_mul(0x9e37_79b1);
    word.to_le_bytes()[offset % 4]
}

#[track_caller]
fn assert_pattern(bytes: &[u8], offset: usize) {
    let wrong = bytes.iter().enumerate().find(|&(i, byte)| *byte != pattern(offset + i));
    if let Some((i, byte)) = wrong {
        panic!("byte {} of the pattern is {byte:#x}", offset + i);
    }
}

/// Prints the sum of every file; the host compares.
fn sums_are_those_of_the_image() {
    for file in fs::list().expect("an archive") {
        let bytes = fs::read(&file.name).expect("a file");
        assert_eq!(bytes.len() as u64, file.size);
        println!("SUM {:08x} {}", sum(&bytes), file.name);
    }
}

/// FNV-1a.
fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn contents_are_the_same_both_ways() {
    let parked = fs::read(PATTERN).expect("by the poller");
    let blocked = blocking(|| fs::read(PATTERN)).expect("as a blocking call");
    assert_eq!(parked.len(), 1 << 20);
    assert_pattern(&parked, 0);
    assert_pattern(&blocked, 0);
}

fn a_blocking_read_hands_its_p_off_and_a_polled_one_does_not() {
    let handoffs = || stats().cpus.iter().map(|cpu| cpu.handoffs).sum::<u64>();
    let (before, mut bytes) = (handoffs(), [0; 512]);
    (0..20).for_each(|_| disk::read_at(0, &mut bytes).expect("by the poller"));
    assert_eq!(handoffs(), before, "a G that parks keeps no M");
    // Not for each: an answer may be there before the call has to wait.
    let is_handed_off = (0..5000).any(|_| {
        blocking(|| disk::read_at(0, &mut bytes)).expect("as a blocking call");
        handoffs() > before
    });
    assert!(is_handed_off, "an M that waits leaves its P");
    assert_eq!(stats().ms.blocked, 0);
}

fn a_hundred_gs_read_parts_of_their_own() {
    const GS: usize = 100;
    let start = fs::find(PATTERN).expect("the pattern").start;
    let part = (1 << 20) / GS;
    join_all((0..GS).map(|i| {
        go(move || {
            let mut bytes = vec![0; part];
            for round in 0..3 {
                let from = (i + round * 37) % GS * part;
                let at = start + from as u64;
                // Patient: a busy host may have two cores for eight CPUs.
                let mut read = || disk::read_at_timeout(at, &mut bytes, Duration::from_secs(60));
                match i % 2 {
                    0 => read().expect("by the poller"),
                    _ => blocking(read).expect("as a blocking call"),
                }
                assert_pattern(&bytes, from);
            }
        })
    }));
    assert_eq!(this_disk().in_flight(), 0);
}

fn odd_offsets_and_lengths_are_read() {
    let start = fs::find(PATTERN).expect("the pattern").start;
    for offset in [0, 1, 511, 512, 513, 70_001] {
        for length in [0, 1, 511, 512, 513, SLOT_BYTES - 1, SLOT_BYTES + 1, 100_003] {
            let mut bytes = vec![0xee; length];
            disk::read_at(start + offset as u64, &mut bytes).expect("inside");
            assert_pattern(&bytes, offset);
        }
    }
}

fn reads_past_the_end_are_refused() {
    let size = disk::size().expect("a disk");
    let mut bytes = [0; 512];
    disk::read_at(size - 512, &mut bytes).expect("the last sector");
    for offset in [size - 511, size, size + 1, u64::MAX - 5] {
        let error = DiskError::PastEnd { offset, bytes: 512, size };
        assert_eq!(disk::read_at(offset, &mut bytes), Err(error));
        assert_eq!(blocking(|| disk::read_at(offset, &mut bytes)), Err(error));
    }
    println!("{}", disk::read_at(size, &mut bytes).expect_err("past the end"));
}

fn files_that_are_not_there_are_named() {
    for path in ["nothing", "poems/x", "../welcome.txt", "", "/"] {
        assert_eq!(fs::read(path), Err(FsError::NotFound(path.into())));
    }
    let text = fs::read("/poems/./g.txt").expect("another way to write it");
    assert_eq!(text, blocking(|| fs::read("poems/g.txt")).expect("the plain way"));
}

fn what_was_written_is_read() {
    let block = disk::block().expect("a disk");
    let start = fs::find(PATTERN).expect("the pattern").start.next_multiple_of(block as u64);
    let length = SLOT_BYTES + 3 * block;
    let mut old = vec![0; length];
    disk::read_at(start, &mut old).expect("a read");
    let new: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
    disk::write_at(start, &new).expect("a write");
    disk::flush().expect("a flush");
    let mut read = vec![0; length];
    disk::read_at(start, &mut read).expect("a read");
    assert!(read == new, "what was written differs from what is read");
    blocking(|| disk::write_at(start, &old)).expect("a write");
    assert_pattern(&fs::read(PATTERN).expect("the pattern"), 0);
}

fn writes_between_sectors_are_refused() {
    let block = disk::block().expect("a disk");
    for (offset, bytes) in [(1, block), (block as u64, block - 1), (block as u64, 1)] {
        let error = DiskError::Unaligned { offset, bytes, block };
        assert_eq!(disk::write_at(offset, &vec![0; bytes]), Err(error));
    }
}

/// All slots are held; a read waits until one is given back.
fn requests_wait_for_a_free_slot() {
    let later = Instant::now() + Duration::from_secs(60);
    let disk = this_disk();
    let mut held: Vec<_> =
        (0..SLOTS).map(|_| disk.request(later.as_nanos()).expect("a slot")).collect();
    let now = Instant::now().as_nanos();
    assert!(disk.request(now).is_err(), "there are no more");
    let reader = go(|| disk::read_at(0, &mut [0; 512]));
    sleep(Duration::from_millis(10));
    held.pop();
    assert_eq!(reader.join(), Ok(Ok(())));
    drop(held);
    assert_eq!(disk.in_flight(), 0);
}

/// A sector that the device itself must refuse.
fn the_device_does_not_know_everything() {
    let deadline = (Instant::now() + Duration::from_secs(60)).as_nanos();
    let disk = this_disk();
    let mut request = disk.request(deadline).expect("a slot");
    let beyond = Command::Read(disk.sectors + 8, SECTOR);
    assert_eq!(request.run(beyond, deadline), Err(virtio_blk::Failure::Device(DeviceError::Io)));
}

/// Never by a look after a time-out.
fn answers_come_by_interrupt() {
    let disk = this_disk();
    let (before, _) = runnext::internals::drivers::irq::taken(disk.interrupt.vector);
    disk::read_at(0, &mut [0; 512]).expect("a read");
    let (after, cpu) = runnext::internals::drivers::irq::taken(disk.interrupt.vector);
    println!("{after} interrupts, the latest to CPU {cpu}");
    assert!(after > before, "no interrupt came");
    assert_eq!(disk.late.load(Relaxed), 0, "answers without an interrupt");
}

fn this_disk() -> &'static virtio_blk::Disk {
    virtio_blk::disk().expect("a disk")
}

fn every_call_says_that_there_is_no_disk() {
    let mut bytes = [0; 512];
    assert_eq!(disk::size(), Err(DiskError::NoDisk));
    assert_eq!(disk::read_at(0, &mut bytes), Err(DiskError::NoDisk));
    assert_eq!(blocking(|| disk::read_at(0, &mut bytes)), Err(DiskError::NoDisk));
    assert_eq!(disk::write_at(0, &bytes), Err(DiskError::NoDisk));
    assert_eq!(disk::flush(), Err(DiskError::NoDisk));
    assert_eq!(fs::list(), Err(FsError::Disk(DiskError::NoDisk)));
    assert_eq!(fs::read("welcome.txt"), Err(FsError::Disk(DiskError::NoDisk)));
    println!("{}", blocking(|| fs::read("welcome.txt")).expect_err("no disk"));
}

/// The sector that the host has made unreadable.
fn bad_sector() -> u64 {
    args().get(1).and_then(|word| word.parse().ok()).expect("the host says which")
}

fn a_sector_that_cannot_be_read_is_an_error() {
    let error = DiskError::Device(DeviceError::Io);
    let (at, mut bytes) = (bad_sector() * SECTOR as u64, [0; 512]);
    assert_eq!(disk::read_at(at, &mut bytes), Err(error));
    assert_eq!(blocking(|| disk::read_at(at, &mut bytes)), Err(error));
    assert_eq!(fs::read(PATTERN), Err(FsError::Disk(error)));
    println!("{error}");
}

fn others_are_read_meanwhile() {
    let bad = go(|| disk::read_at(bad_sector() * SECTOR as u64, &mut [0; 512]));
    let good = fs::read("welcome.txt").expect("a file in other sectors");
    assert!(good.starts_with(b"This is a file"));
    assert!(bad.join().expect("no panic").is_err());
    assert_eq!(this_disk().in_flight(), 0);
}

fn a_read_only_disk_refuses_writes() {
    assert_eq!(disk::write_at(0, &[0; 512]), Err(DiskError::ReadOnly));
}

const SOON: Duration = Duration::from_millis(100);

/// The first requests may still be answered: the host lets a few pass.
fn a_read_without_an_answer_times_out() {
    let mut bytes = vec![0xee; 3 * SLOT_BYTES];
    let answered = (0..10).find_map(|_| disk::read_at_timeout(0, &mut bytes, SOON).err());
    let error = answered.expect("the disk answers");
    assert_eq!(error, DiskError::TimedOut { waited: SOON });
    println!("{error}");
    let error = blocking(|| disk::read_at_timeout(0, &mut bytes, SOON));
    assert_eq!(error, Err(DiskError::TimedOut { waited: SOON }));
    let context = Context::new();
    let held = context.clone();
    let reader = go(move || disk::read_at_until(0, &mut [0; 512], &held));
    sleep(SOON);
    assert!(!reader.is_finished(), "it has no other limit");
    context.cancel();
    assert!(matches!(reader.join(), Ok(Err(DiskError::TimedOut { .. }))));
}

fn nobody_else_waits_for_a_silent_disk() {
    let reader = go(|| disk::read_at_timeout(0, &mut [0; 512], Duration::from_secs(1)));
    let counted = go(|| (0..1000).inspect(|_| yield_now()).count());
    assert_eq!(counted.join(), Ok(1000));
    assert!(reader.join().expect("no panic").is_err());
}

/// More requests than slots: none is given twice, and all time out.
fn a_silent_disk_keeps_its_buffers() {
    let readers = (0..2 * SLOTS).map(|_| go(|| disk::read_at_timeout(0, &mut [0; 512], SOON)));
    let ended = join_all(readers);
    assert!(ended.iter().all(Result::is_err), "a silent disk was read");
    let kept = this_disk().in_flight();
    assert!((2..=SLOTS).contains(&kept), "{kept} buffers are the device's");
    assert_eq!(this_disk().late.load(Relaxed), 0);
}

/// Each request takes the host longer than we wait.
fn a_late_answer_gives_its_slot_back() {
    let disk = this_disk();
    let timed_out = |_| disk::read_at_timeout(0, &mut [0; 512], Duration::from_millis(1)).is_err();
    let lost = (0..6).map(timed_out).filter(|&is_lost| is_lost).count();
    assert!(lost >= 2, "the host is too fast for this check");
    println!("{lost} timed out, {} still under way", disk.in_flight());
    wait_until(|| disk.in_flight() == 0);
    // All slots can be had again, and hold what was asked for.
    let later = (Instant::now() + Duration::from_secs(60)).as_nanos();
    let held: Vec<_> = (0..SLOTS).map(|_| disk.request(later).expect("a slot")).collect();
    drop(held);
    let start = fs::find(PATTERN).expect("the pattern").start;
    let mut bytes = [0; 512];
    disk::read_at_timeout(start + 1024, &mut bytes, Duration::from_secs(60)).expect("a read");
    assert_pattern(&bytes, 1024);
}
