//! All interleavings of looking at records that are added, named and named anew.
//!
//! The files under test are the kernel's own; how they get here is said in
//! `loom/run.rs`.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p runnext --profile loom --test loom_records`
#![cfg(loom)]
#![allow(dead_code, missing_docs, reason = "the sources are written for another crate")]

extern crate alloc;

#[path = "loom/run.rs"]
pub mod run;
#[path = "loom/wait.rs"]
pub mod wait;

use core::panic::Location;
use loom::sync::atomic::{AtomicUsize, Ordering::*};
use loom::thread;
use run::door::model;
use run::record::{Link, Name, Record, Registry};
use std::sync::Arc;

struct Numbered {
    number: AtomicUsize,
    older: Link<Numbered>,
}

impl Record for Numbered {
    fn older(&self) -> &Link<Self> {
        &self.older
    }
}

/// Its number is written plainly: whoever finds the record must see it.
fn numbered(number: usize) -> &'static Numbered {
    let record = Numbered { number: AtomicUsize::new(0), older: Link::new() };
    record.number.store(number, Relaxed);
    Box::leak(Box::new(record))
}

fn sum(registry: &Registry<Numbered>) -> usize {
    registry.iter().map(|record| record.number.load(Relaxed)).sum()
}

#[test]
fn every_record_is_added_once_and_seen_whole() {
    model(|| {
        let registry = Arc::new(Registry::new());
        let adders: Vec<_> = [&[1][..], &[2, 4]]
            .map(|numbers| {
                let registry = registry.clone();
                let add = move || {
                    let records: Vec<_> = numbers.iter().map(|&n| numbered(n)).collect();
                    registry.add(&records);
                };
                thread::spawn(add)
            })
            .into_iter()
            .collect();
        let seen = sum(&registry);
        assert!(matches!(seen, 0 | 1 | 6 | 7), "{seen}: twice, not whole, or half of two");
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        assert_eq!(sum(&registry), 7, "one was lost");
    });
}

#[test]
fn a_walk_meets_all_that_were_added_before_it() {
    model(|| {
        let registry = Arc::new(Registry::new());
        registry.add(&[numbered(1)]);
        let adding = registry.clone();
        let adder = thread::spawn(move || adding.add(&[numbered(2)]));
        let seen = sum(&registry);
        assert!(seen == 1 || seen == 3, "{seen}");
        adder.join().unwrap();
    });
}

/// A G's record: its life (even while it is dead, odd while it lives), its name and spawn site.
struct Named {
    life: AtomicUsize,
    name: Name,
    site: Link<Location<'static>>,
}

/// Another site than its caller's.
fn here() -> &'static Location<'static> {
    Location::caller()
}

const NAMES: [&str; 2] = ["first", "the second"];

/// What is read is the name of the life that was seen, or nothing: never one
/// name's address with the other's length.
#[test]
fn a_name_is_read_whole_and_of_the_life_that_was_seen() {
    model(|| {
        let sites: [&'static Location<'static>; 2] = [Location::caller(), here()];
        let (name, site) = (Name::new(), Link::new());
        let record = Arc::new(Named { life: AtomicUsize::new(0), name, site });
        let named = record.clone();
        let writer = thread::spawn(move || {
            for (at, name) in NAMES.iter().enumerate() {
                named.name.set(name);
                named.site.set(Some(sites[at]));
                named.life.store(2 * at + 1, Release); // begins
                named.life.store(2 * at + 2, Release); // is over
            }
        });
        let life = record.life.load(Acquire);
        if life % 2 == 1 {
            // As `Task::label`.
            let name = record.name.get().expect("none of them will be freed");
            let read = (name, record.site.get());
            assert!(NAMES.contains(&read.0), "{read:?}: not whole");
            let is_same = record.life.load(Relaxed) == life;
            let at = life / 2;
            assert!(!is_same || read == (NAMES[at], Some(sites[at])), "{read:?}");
        }
        writer.join().unwrap();
    });
}
