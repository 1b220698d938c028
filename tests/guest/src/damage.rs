//! An archive that is broken, header by header, while it is being used.
//!
//! The disk can be written here, and the host keeps nothing of it. Every change of
//! a header must be seen by whoever reads the archive, as an error that says where,
//! and by nobody else; when all is as it was, so is the archive.

use crate::check::{checks, run};
use runnext::disk;
use runnext::fs::{self, FsError};
use runnext::prelude::*;

runnext::main!(damage, main);

fn main() {
    run(checks![
        a_damaged_header_is_an_error_that_says_where,
        headers_of_noise_and_of_nothing_are_survived,
    ]);
}

const BLOCK: usize = 512;
type Block = [u8; BLOCK];

/// Where the headers are: one before each file.
fn headers() -> Vec<u64> {
    let files = fs::list().expect("an archive");
    assert!(!files.is_empty());
    files.iter().map(|file| file.start - BLOCK as u64).collect()
}

/// Runs `f` with the block at `at` changed, and changes it back.
fn with_changed<T>(at: u64, change: impl FnOnce(&mut Block), f: impl FnOnce() -> T) -> T {
    let mut good = [0; BLOCK];
    disk::read_at(at, &mut good).expect("a good disk");
    let mut bad = good;
    change(&mut bad);
    disk::write_at(at, &bad).expect("a good disk");
    let result = f();
    disk::write_at(at, &good).expect("a good disk");
    result
}

fn a_damaged_header_is_an_error_that_says_where() {
    // Name, size, checksum, kind, mark, prefix, and what nobody looks at.
    const PLACES: [usize; 9] = [0, 99, 124, 134, 149, 156, 257, 345, 511];
    let before = fs::list();
    let first = before.as_ref().expect("an archive")[0].name.clone();
    let mut said = Vec::new();
    for &at in &headers() {
        for place in PLACES {
            let flip = |block: &mut Block| block[place] ^= 0x55;
            let (list, read) = with_changed(at, flip, || (fs::list(), fs::read(&first)));
            for result in [list.map(drop), read.map(drop)] {
                let (offset, damage) = match result {
                    Err(FsError::NoArchive(damage)) => (0, damage),
                    Err(FsError::Damaged { offset, damage }) => (offset, damage),
                    _ => panic!("byte {place} of the header at {at}: {result:?}"),
                };
                assert_eq!(offset, at);
                let text = result.expect_err("damaged");
                if !said.contains(&damage) {
                    println!("SAID {text}");
                    said.push(damage);
                }
            }
        }
    }
    assert_eq!(fs::list(), before, "the archive is as it was");
}

fn headers_of_noise_and_of_nothing_are_survived() {
    let before = fs::list();
    let mut state = 1u64;
    for (number, &at) in headers().iter().enumerate() {
        let noise = |block: &mut Block| {
            block.iter_mut().for_each(|byte| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                *byte = (state >> 56) as u8;
            });
        };
        assert!(with_changed(at, noise, fs::list).is_err());
        // A block of zeros is the end of an archive.
        let rest = with_changed(at, |block| block.fill(0), fs::list).expect("a shorter archive");
        assert_eq!(rest.len(), number);
    }
    assert_eq!(fs::list(), before, "the archive is as it was");
}
