//! Bad input: whatever comes from outside, a clear message, and the system runs on.
//!
//! What a parser makes of broken bytes is tried by the million on the host (crate
//! `fuzz`); here is what the machine makes of what got through.

use std::sync::LazyLock;

use boot::data::{self, DataDisk};
use tests::expect;
use tests::guest::Boot;
use tests::madt::{ENABLED, Madt};
use tests::memory::Regions;
use tests::outcome::Outcome;

/// The standard image with its shortest program, on eight CPUs.
fn hello(name: &str) -> Boot {
    Boot::new(format!("hostile-{name}")).smp(8).single_threaded()
}

#[track_caller]
fn ends_well(boot: &Boot) -> Outcome {
    let outcome = boot.run();
    outcome.assert_ok();
    outcome.assert_line(expect::HELLO_END);
    outcome
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let byte = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..bytes).map(byte).collect()
}

#[test]
fn more_cpus_than_supported_and_than_there_are() {
    for cpus in tests::eight_or(1) {
        let there = Madt::for_qemu(cpus as u8);
        let madt = (cpus as u32..300).fold(there, |madt, id| madt.local_x2apic(id, ENABLED));
        let boot = hello(&format!("300-cpus-{cpus}")).smp(cpus).limit(200);
        let outcome = ends_well(&boot.acpi_table("APIC", madt.bytes()));
        outcome.assert_line("acpi: table APIC: CPUs beyond the limit skipped (44)");
        // An xAPIC cannot reach number 255, which is refused before any is tried.
        let untried = 256 - cpus - 4 - 1;
        let given_up = format!("smp: 4 CPUs in a row gave no answer; {untried} more are not tried");
        outcome.assert_line(&given_up);
        outcome.assert_line(&expect::some_online(cpus, 256 - cpus));
    }
}

/// A table for every signature that the kernel looks for, none of them any good.
#[test]
fn no_acpi_table_is_any_good() {
    let tables = ["APIC", "SRAT", "FACP", "HPET"];
    let boot = tables
        .iter()
        .fold(hello("tables"), |boot, signature| boot.acpi_table(signature, noise(300)));
    let outcome = ends_well(&boot);
    for signature in tables {
        outcome.assert_line(&format!("acpi: table {signature} ignored: "));
    }
    outcome.assert_line(&expect::all_online(1));
}

/// Registers of an I/O APIC and of a HPET in the middle of memory: writing there
/// would be writing into the kernel.
#[test]
fn registers_in_memory_are_not_touched() {
    let hpet = acpi_table(
        b"HPET",
        &[1, 0xa2, 0x86, 0x80, 0, 64, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0x80, 0, 0],
    );
    for cpus in [1u8, 8] {
        let madt = (0..cpus).fold(Madt::empty(), |madt, id| madt.local_apic(id, ENABLED));
        let madt = madt.io_apic(0, 0x0200_0000, 0).local_nmi(0xff, 0, 1).bytes();
        let boot = hello(&format!("registers-{cpus}")).smp(cpus).acpi_table("APIC", madt);
        let outcome = ends_well(&boot.acpi_table("HPET", hpet.clone()));
        for address in ["0x2000000", "0x3000000"] {
            let why = "cannot be mapped: that is memory, and no device's";
            outcome.assert_line(&format!("registers at {address} {why}"));
        }
        outcome.assert_line(&expect::all_online(cpus.into()));
    }
}

/// A table with a true length and checksum.
fn acpi_table(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut table = signature.to_vec();
    table.extend((36 + body.len() as u32).to_le_bytes());
    table.extend([1, 0]);
    table.extend(b"RUNNXTTESTTEST");
    table.extend([1, 0, 0, 0]);
    table.extend(b"TEST");
    table.extend([1, 0, 0, 0]);
    table.extend(body);
    let sum = table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    table[9] = sum.wrapping_neg();
    table
}

/// Sixty-four KiB, with NULs, quotes, control characters and words that nobody
/// knows. What made sense before the limit counts.
#[test]
fn a_command_line_without_an_end() {
    let mut text =
        String::from("program=hello colour=green \0\0 \"open\n\u{1}\u{1b}[31m log=loud ");
    text.push_str("\n# and so on".repeat(6_000).as_str());
    let outcome = ends_well(&hello("cmdline").ramdisk(&text));
    outcome.assert_line(&expect::word_ignored("colour=green"));
    outcome.assert_line("a quote is not closed on its line");
    outcome.assert_line("`\\x01\\x1b[31m` ignored: not plain text");
    outcome.assert_line("bytes after the first 4096");
}

/// Bytes that are no text, in the launcher's file, and one that is too long.
#[test]
fn a_command_line_of_noise() {
    for (name, bytes, cpus) in [("noise", 4000, 8), ("noise", 4000, 1), ("long", 64 << 10, 1)] {
        let file = tests::out_dir().join(format!("hostile-{name}.bin"));
        std::fs::create_dir_all(tests::out_dir()).expect("a directory");
        std::fs::write(&file, noise(bytes)).expect("a file");
        let from_file = format!("name=opt/runnext/cmdline,file={}", file.display());
        let boot = hello(&format!("{name}-{cpus}")).smp(cpus).ramdisk("program=hello\n");
        let boot = boot.arg("-fw_cfg").arg(&from_file);
        let outcome = ends_well(&boot);
        match name {
            "noise" => outcome.assert_line("command line (fw_cfg): "),
            _ => outcome.assert_line("cmdline ignored: it is too large: 65536 bytes"),
        }
    }
}

/// All byte values, at the shell; then it does as it is told.
#[track_caller]
fn survives_on_the_serial_line(cpus: usize, bytes: usize) {
    // All but Ctrl-A, which is the emulator's own key.
    let noise: Vec<u8> = noise(bytes).into_iter().filter(|byte| *byte != 1).collect();
    let outcome = Boot::new(format!("hostile-serial-{cpus}"))
        .smp(cpus)
        .cmdline("program=shell log=warn")
        .at_terminal()
        .typed_after(expect::PROMPT, noise)
        .typed_after(expect::PROMPT, format!("\x03\x03\rgomaxprocs {cpus}\rgomaxprocs 1\r"))
        .typed_after(&format!("1 of {cpus} Ps run Gs; {cpus} did before"), "poweroff\r")
        .limit(300)
        .run();
    outcome.assert_ok();
    outcome.assert_no_line("panicked");
}

#[test]
fn two_hundred_kilobytes_of_noise_on_the_serial_line() {
    survives_on_the_serial_line(8, 200_000);
}

#[test]
fn noise_on_the_serial_line_of_one_cpu() {
    survives_on_the_serial_line(1, 20_000);
}

/// All that is above, and no second CPU to help.
#[test]
fn everything_at_once_on_one_cpu() {
    let text = format!("program=hello colour=green \0 \"open\n{}", "# and so on\n".repeat(6_000));
    let tables = ["APIC", "SRAT", "FACP", "HPET"];
    let boot = hello("all").smp(1).mem("64M").ramdisk(&text);
    let boot = tables.iter().fold(boot, |boot, name| boot.acpi_table(name, noise(300)));
    let outcome = ends_well(&boot);
    outcome.assert_line(&expect::word_ignored("colour=green"));
    outcome.assert_line("bytes after the first 4096");
    outcome.assert_line("acpi: table APIC ignored: ");
    outcome.assert_line(&expect::all_online(1));
}

/// The least that the launcher lets through, from BIOS. With much less the loader stops
/// before there is a kernel to say anything.
#[test]
fn as_little_memory_as_the_loader_can_do_with() {
    ends_well(&hello("small").mem("32M"));
}

/// Memory maps that no honest firmware makes; each on one CPU and on eight.
mod map {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    /// The machine with these regions added to its map, on so many CPUs.
    fn with(name: &str, cpus: usize, regions: &Regions) -> Boot {
        hello(&format!("map-{name}-{cpus}")).smp(cpus).memory(regions.bytes())
    }

    /// How much the kernel found, by its banner.
    fn usable_mib(outcome: &Outcome) -> u64 {
        let line = outcome.line(&expect::banner("memory", "")).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|mib| mib.parse().ok()).unwrap_or(0)
    }

    /// Usable regions over everything that is in use, in no order, with edges
    /// anywhere, without an end, and ends before beginnings.
    #[test]
    fn a_map_that_makes_no_sense_leaves_what_is_sound() {
        let regions = Regions::new()
            .usable(0, 1 << 52)
            .usable(300 * MIB + 5, 400 * MIB + 9)
            .reserved(200 * MIB + 1, 200 * MIB + 2)
            .usable(100 * MIB, 350 * MIB)
            .usable(0, GIB)
            .usable(5 * GIB, 4 * GIB)
            .usable(7 * MIB, 7 * MIB)
            .reserved(60 * MIB, 50 * MIB)
            .usable(u64::MAX - 4095, 4096)
            .usable(u64::MAX - 8191, u64::MAX)
            .reserved(u64::MAX, u64::MAX);
        // What is in use by kernel and loader is usable by these, and not one MiB more is.
        let honest = usable_mib(&ends_well(&hello("map-honest")));
        for cpus in [1, 8] {
            let outcome = ends_well(&with("nonsense", cpus, &regions));
            outcome.assert_line(&expect::regions_added(11, 0));
            outcome.assert_line(&expect::left_out(1 << 40, 1 << 52));
            outcome.assert_line(&expect::left_out(5 * GIB, 4 * GIB));
            outcome.assert_line(&expect::left_out(u64::MAX - 8191, u64::MAX - 4095));
            let mib = usable_mib(&outcome);
            assert!((honest - 1..=honest).contains(&mib), "{mib} of {honest} MiB\n{outcome}");
            outcome.assert_line(&expect::all_online(cpus));
        }
    }

    /// Where the window of physical memory reaches, and no memory is: below 4 GiB and
    /// above.
    #[test]
    fn memory_that_is_not_there_is_found_out() {
        let absent = [(2 * GIB, 3 * GIB), (8 * GIB, 9 * GIB)];
        let regions = absent.iter().fold(Regions::new(), |map, &(from, to)| map.usable(from, to));
        for cpus in [1, 8] {
            let outcome = ends_well(&with("absent", cpus, &regions));
            for (from, to) in absent {
                outcome.assert_line(&expect::no_memory_at(from, to));
            }
        }
    }

    /// Two GiB above 4 GiB, and the map says five.
    #[test]
    fn memory_that_ends_early_is_used_as_far_as_it_goes() {
        for cpus in [1, 8] {
            let regions = Regions::new().usable(4 * GIB, 9 * GIB);
            let outcome = ends_well(&with("early", cpus, &regions).mem("5G"));
            outcome.assert_line(&expect::no_memory_at(6 * GIB, 9 * GIB));
            assert!(usable_mib(&outcome) > 5000, "{outcome}");
        }
    }

    #[test]
    fn hundreds_of_regions_are_taken_and_more_are_not() {
        let piece = |map: Regions, i: u64| match i % 2 {
            0 => map.usable((300 - i) * MIB, (302 - i) * MIB),
            _ => map.reserved(i * MIB, i * MIB + 4097),
        };
        let regions = (0..300).fold(Regions::new(), piece);
        for cpus in [1, 8] {
            let outcome = ends_well(&with("many", cpus, &regions));
            outcome.assert_line("opt/runnext/memory: last 1056 bytes ignored");
            outcome.assert_line(&expect::regions_added(256, 0));
        }
    }

    #[test]
    fn a_file_of_noise_is_no_map() {
        for cpus in [1, 8] {
            let boot = hello(&format!("map-noise-{cpus}")).smp(cpus);
            let outcome = ends_well(&boot.memory(noise(100)));
            outcome.assert_line("opt/runnext/memory: last 4 bytes ignored");
            outcome.assert_line(&expect::regions_added(0, 4));
        }
    }

    /// CPUs start below 1 MiB, or not at all.
    #[test]
    fn without_low_memory_the_boot_cpu_runs_alone() {
        for cpus in [1, 8] {
            let outcome = ends_well(&with("low", cpus, &Regions::new().reserved(0, MIB)));
            outcome.assert_line(&expect::some_online(1, cpus - 1));
        }
    }

    /// One MiB, of which eight CPUs want more than there is. Those that get none are
    /// never started, and are not there when the machine goes down, either.
    #[test]
    fn too_little_for_all_cpus_ends_with_a_message() {
        let regions = Regions::new().reserved(MIB, 100 * MIB).reserved(101 * MIB, u64::MAX);
        ends_well(&with("little", 1, &regions));
        let outcome = with("little", 8, &regions).run();
        outcome.assert_code(expect::CODE_PANIC);
        outcome.assert_line("no memory for its stacks, left out");
        outcome.assert_line(expect::KERNEL_PANIC);
    }

    /// Without memory there is nothing to do but to say so.
    #[test]
    fn a_map_without_memory_ends_with_a_message() {
        for cpus in [1, 8] {
            let outcome = with("none", cpus, &Regions::new().reserved(0, u64::MAX)).run();
            outcome.assert_code(expect::CODE_PANIC);
            outcome.assert_line(expect::NO_MEMORY);
        }
    }
}

mod damage {
    use super::*;

    static DAMAGE: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

    fn boot(cpus: usize) -> Boot {
        let image = data::build(&boot::target_dir()).expect("a disk image");
        Boot::guest(format!("damage-{cpus}"))
            .smp(cpus)
            .cmdline("program=damage")
            .data(DataDisk::new(image))
    }

    guest_tests!(DAMAGE => damage);

    #[test]
    fn all_of_it_holds_on_eight_cpus_and_on_one() {
        DAMAGE.assert_ok();
        boot(1).run().assert_ok();
    }
}
