//! Broken bytes for everything that takes bytes from outside.
//!
//! Firmware, loader, launcher, disk, devices and whoever types are not trusted.
//! Each of the kernel's readers is a [`Target`] here: some good inputs, a way to
//! make a spoilt one look whole again (checksums, lengths), and a check of what
//! the reader promises whatever it is given. "Does not panic" is the least of it:
//! lists are within their limits, frames are given out once, what was read and
//! written again is the same, messages are one printable line.
//!
//! | bytes from | targets |
//! |---|---|
//! | firmware | `acpi` (a whole image: RSDP, XSDT, tables), `madt`, `srat`, `fadt`, `hpet` |
//! | loader | `memory` (the memory map), `symbols` (the ELF file), `screen` (the framebuffer) |
//! | launcher, boot disk | `cmdline`, `fw_cfg` |
//! | devices | `pci` (configuration space), `buses` (bridges), `slots` (answers of the disk), `uart` |
//! | disk | `archive` (tar) |
//! | whoever types | `typed` (lines of a program), `shell` (keys, lines, commands) |
//! | a stack that is broken | `frames` (the walk along frame pointers) |
//! | the machine, read on the host | `trace` (the event stream) |
//!
//! The unwinder's tables are not here: they are part of the image, read-only, and
//! a kernel whose own code is wrong has nothing to stand on.
//!
//! **A case is a number.** Everything about it follows from its target and that
//! number ([`case`]), so a failure is told in a line and done again by
//! `cargo run -p fuzz -- --target madt --seed <number> --rounds 1`.
//!
//! [`mutate`] spoils, [`checks`] says what must hold, [`targets`] lists, [`run()`] runs. `cargo test` runs some
//! thousand cases, with fixed numbers and with fresh ones; `make fuzz` as many as
//! fit into the time. There is no coverage to guide it: that needs a second build
//! of everything with a sanitizer's run time in C++, and with seeds of every kind
//! of entry and repaired checksums these readers, a few hundred lines each, are
//! reached everywhere.
#![deny(unsafe_code)]

pub mod checks;
pub mod mutate;
pub mod run;
pub mod targets;

use trace::random::Random;

pub use run::{Failure, run};

/// One reader of bytes.
pub struct Target {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Good inputs, some of them odd.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Pieces that mean something to the reader.
    pub words: &'static [&'static [u8]],
    /// Makes a spoilt input look whole. Chooses how by the number.
    pub repair: fn(&mut Vec<u8>, u64),
    /// Reads it and panics if a promise is broken. Whether the reader made
    /// anything of it.
    pub check: fn(&[u8]) -> bool,
    /// The longest input, bytes.
    pub most: usize,
}

/// The target of that name.
///
/// ```
/// assert!(fuzz::target("madt").is_some());
/// assert!(fuzz::target("nonsense").is_none());
/// ```
pub fn target(name: &str) -> Option<&'static Target> {
    targets::ALL.iter().find(|target| target.name == name)
}

/// The input of case `number`.
///
/// ```
/// let madt = fuzz::target("madt").expect("it is there");
/// let seeds = (madt.seeds)();
/// assert_eq!(fuzz::case(madt, &seeds, 7), fuzz::case(madt, &seeds, 7));
/// ```
pub fn case(target: &Target, seeds: &[Vec<u8>], number: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    let mut input = mutate::spoilt(seeds, target.words, target.most, &mut random);
    // What is refused at the door tests the door alone.
    if random.below(8) > 0 {
        (target.repair)(&mut input, random.any());
    }
    input
}
