//! A disk, read in two ways that give the same bytes and block different things.
//!
//! Lists the files of the disk, then reads each both ways and compares: by `fs::read`, where
//! the G parks until the disk's interrupt readies it, and by `blocking`, where the M
//! waits with its G and a spare M takes over the CPU, unless the disk has answered before the
//! M gets to wait. Then as many Gs as the argument says read parts of the largest file at
//! once, each a part of its own: the disk works on dozens of requests at a time.
//! `program=disk -- 100` starts 100 of them.
//!
//! Without a disk (`make run PROGRAM=disk DISK=none`) it says so and ends with 2.

use runnext::prelude::*;
use runnext::{disk, fs};

runnext::main!(disk, main);

const READERS: usize = 32;
/// The exit code of the machine if the disk cannot be read.
const EXIT_NO_DISK: u32 = 2;

fn main() {
    let readers = args().first().and_then(|word| word.parse().ok()).unwrap_or(READERS).max(1);
    if let Err(error) = tour(readers) {
        println!("disk: {error}");
        exit(EXIT_NO_DISK);
    }
}

fn tour(readers: usize) -> Result<(), fs::FsError> {
    println!("a disk of {} bytes, with these files:", disk::size()?);
    let files = fs::list()?;
    let (mut total, mut handoffs) = (0, [0; 2]);
    for file in files.iter().filter(|file| file.kind == fs::EntryKind::File) {
        let before = handed_off();
        let parked = fs::read(&file.name)?;
        let between = handed_off();
        let blocked = blocking(|| fs::read(&file.name))?;
        handoffs = [handoffs[0] + between - before, handoffs[1] + handed_off() - between];
        assert_eq!(parked, blocked, "{}: the two ways differ", file.name);
        println!("  {:8} bytes, sum {:08x}  {}", file.size, sum(&parked), file.name);
        total += file.size;
    }
    println!("{total} bytes, the same by the poller and by blocking calls");
    let [parked, blocked] = handoffs;
    println!("a P changed hands {parked} times for the poller, {blocked} times for blocking calls");
    match files.iter().max_by_key(|file| file.size) {
        Some(largest) => read_at_once(largest, readers),
        None => Ok(()),
    }
}

/// How often an M handed off its P because its G had to wait in a call.
fn handed_off() -> u64 {
    stats().cpus.iter().map(|cpu| cpu.handoffs).sum()
}

/// Reads a file by `readers` Gs at once, and compares with one read of the whole.
fn read_at_once(file: &fs::Entry, readers: usize) -> Result<(), fs::FsError> {
    let whole = fs::read(&file.name)?;
    let began = Instant::now();
    let part = whole.len().div_ceil(readers).max(1);
    let readings: Vec<_> = whole
        .chunks(part)
        .enumerate()
        .map(|(i, chunk)| {
            let (start, mut bytes) = (file.start + (i * part) as u64, vec![0; chunk.len()]);
            go(move || disk::read_at(start, &mut bytes).map(|()| bytes))
        })
        .collect();
    let gs = readings.len();
    for (reading, wanted) in readings.into_iter().zip(whole.chunks(part)) {
        let bytes = reading.join().expect("no panic")?;
        assert_eq!(bytes, wanted, "a part differs from the whole");
    }
    println!("{gs} Gs read {} at once in {:?}: the same bytes", file.name, began.elapsed());
    Ok(())
}

/// FNV-1a, a well-known hash.
fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
