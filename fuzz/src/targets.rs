//! All readers of bytes, and what they are fed with.
#![forbid(unsafe_code)]

use crate::Target;
use crate::checks::{self, acpi, devices, memory};
use trace::{fuzz as streams, wire};

/// All targets, in the order of the table in the crate's head.
pub static ALL: &[Target] = &[
    Target {
        name: "acpi",
        seeds: acpi::images,
        words: TABLES,
        repair: |bytes, how| acpi::mend_image(bytes, how),
        check: acpi::image,
        most: 16 << 10,
    },
    table("madt", acpi::madts, |bytes| acpi::one("APIC", bytes)),
    table("srat", acpi::srats, |bytes| acpi::one("SRAT", bytes)),
    table("fadt", acpi::fadts, |bytes| acpi::one("FACP", bytes)),
    table("hpet", acpi::hpets, |bytes| acpi::one("HPET", bytes)),
    plain(
        "memory",
        memory::maps,
        &[b"\0\0\0\0\0\0\0\0", b"\0\xf0\xff\xff\xff\xff\xff\xff"],
        memory::map,
    ),
    plain("symbols", checks::symbol_files, NAMES, checks::symbols),
    plain(
        "screen",
        devices::screens,
        &[b"\n", b"\t", b"\x08", b"\xff\xff", b"\r"],
        devices::screen,
    ),
    plain("cmdline", checks::cmdlines, OPTIONS, checks::cmdline),
    plain(
        "fw_cfg",
        devices::fw_cfgs,
        &[b"opt/runnext/cmdline\0", b"\xff\xff\xff\xff"],
        devices::fw_cfg,
    ),
    plain("pci", devices::pcis, &[b"\x09", b"\x11", b"\x98", b"\xf4"], devices::pci),
    plain("buses", devices::bus_maps, &[b"\x01\x08\x81\x00\x01"], devices::buses),
    plain("slots", devices::steps, &[b"\x03\xff", b"\x04\x00", b"\x83\x09"], devices::slots),
    plain("uart", devices::uarts, &[b"\x61", b"\xff", b"\x03"], devices::uart),
    Target {
        name: "archive",
        seeds: checks::archives,
        words: &[b"ustar", b"../", b"/", b"\x80", b"77777777777\0", b"5"],
        repair: |bytes, _| checks::mend_archive(bytes),
        check: checks::archive,
        most: 8 << 10,
    },
    plain("typed", checks::keystrokes, KEYS, checks::typed),
    plain("shell", checks::keystrokes, KEYS, programs::hostile::shell),
    plain(
        "frames",
        checks::stacks,
        &[b"\0\0\x01\0\0\0\0\0", b"\x08\0\x01\0\0\0\0\0"],
        checks::frames,
    ),
    Target {
        name: "trace",
        seeds: streams::seeds,
        words: &[b"RNTRACE1", b"\0\0\0\0\0\0\0\x01"],
        repair: |bytes, how| mend_stream(bytes, how),
        check: streams::check,
        most: 32 << 10,
    },
];

const fn plain(
    name: &'static str,
    seeds: fn() -> Vec<Vec<u8>>,
    words: &'static [&'static [u8]],
    check: fn(&[u8]) -> bool,
) -> Target {
    Target { name, seeds, words, repair: |_, _| {}, check, most: 8 << 10 }
}

const fn table(
    name: &'static str,
    seeds: fn() -> Vec<Vec<u8>>,
    check: fn(&[u8]) -> bool,
) -> Target {
    let repair: fn(&mut Vec<u8>, u64) = |bytes, how| acpi::mend_table(bytes, how);
    Target { name, seeds, words: TABLES, repair, check, most: 16 << 10 }
}

/// Puts the header back: what is behind a bad one is never looked at.
fn mend_stream(bytes: &mut [u8], how: u64) {
    let seeds = streams::seeds();
    let good = &seeds[how as usize % seeds.len()];
    let room = bytes.len().min(wire::HEADER_BYTES);
    if how & 0xf00 != 0 {
        bytes[..room].copy_from_slice(&good[..room]);
    }
}

const TABLES: &[&[u8]] = &[
    b"APIC",
    b"SRAT",
    b"FACP",
    b"HPET",
    b"DSDT",
    b"_S5_",
    b"\x00\x08\x00\x04\x01\x00\x00\x00",
    b"\x01\x0c\x00\x00\x00\x00\xc0\xfe\x00\x00\x00\x00",
    b"\x02\x0a\x00\x00\x02\x00\x00\x00\xff\xff",
    b"\x09\x10\x00\x00\xff\xff\xff\xff\x01\x00\x00\x00\x00\x00\x00\x00",
    b"\x00\x00",
    b"\xff",
];

const NAMES: &[&[u8]] = &[
    b"_RNvCs1234_7mycrate3foo\0",
    b"_RINvCs_1a1bTTTTB2_B2_B2_B2_EE\0",
    b"_ZN1a17h0123456789abcdefE\0",
    b"\x02\0\0\0",
    b"\0",
];

const OPTIONS: &[&[u8]] = &[
    b"\"",
    b"--",
    b"=",
    b"#",
    b"\n",
    b"\0",
    b"\xff",
    b"maxcpus=0",
    b"seed=0x",
    b"program=",
    b"99999999999999999999",
];

const KEYS: &[&[u8]] = &[
    b"\r",
    b"\x1b[",
    b"\x1b[A",
    b"\x1b[D",
    b"\x7f",
    b"\t",
    b"\"",
    b"\xf0\x9f",
    b"\x15",
    b"\x17",
    b"\x04",
    b"gomaxprocs ",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Until, run};
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    /// Of each target: all of them together take seconds, unoptimised.
    const ROUNDS: u64 = 400;
    const TIME: Duration = Duration::from_millis(500);

    #[test]
    fn good_inputs_are_used() {
        for target in ALL {
            // Some are odd on purpose: a port that has gone, a line in no language.
            let seeds = (target.seeds)();
            assert!((target.check)(&seeds[0]), "{}", target.name);
            seeds.iter().for_each(|seed| _ = (target.check)(seed));
        }
    }

    #[test]
    fn no_promise_is_broken_by_the_same_cases_as_ever() {
        for target in ALL {
            let tally = run(target, 1, Until::Rounds(ROUNDS)).unwrap_or_else(|e| panic!("{e}"));
            let share = 100 * tally.used / tally.cases;
            assert!((10..100).contains(&share), "{}: {share} % used", target.name);
        }
    }

    #[test]
    fn no_promise_is_broken_by_fresh_cases() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = now.as_micros() as u64;
        println!("from seed {seed}");
        for target in ALL {
            run(target, seed, Until::Time(TIME)).unwrap_or_else(|e| panic!("{e}"));
        }
    }
}
