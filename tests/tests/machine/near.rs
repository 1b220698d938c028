//! Near and far: machines with two NUMA nodes, and with tables that are wrong about them.

use std::sync::LazyLock;

use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

static NEAR: LazyLock<Outcome> =
    LazyLock::new(|| two_nodes(Boot::guest("near").cmdline("program=near")).run());

/// Two packages of two cores of two threads, each package a node with half of the memory; in
/// virtual time.
fn two_nodes(boot: Boot) -> Boot {
    let memory = |n| format!("memory-backend-ram,id=m{n},size=512M");
    let boot = boot.smp("8,sockets=2,cores=2,threads=2").virtual_time();
    (0..2).fold(boot, |boot, n| {
        let node = format!("node,nodeid={n},cpus={}-{},memdev=m{n}", 4 * n, 4 * n + 3);
        boot.arg("-object").arg(&memory(n)).arg("-numa").arg(&node)
    })
}

guest_tests!(NEAR => near);

#[test]
fn all_of_it_holds() {
    NEAR.assert_ok();
}

#[test]
fn a_flat_machine_counts_nothing() {
    for (name, boot) in [
        (
            "word",
            two_nodes(Boot::guest("near-flat-word").cmdline("program=near topology=flat -- flat")),
        ),
        ("machine", Boot::guest("near-flat").smp(4).virtual_time().cmdline("program=near -- flat")),
    ] {
        let outcome = boot.run();
        outcome.assert_ok();
        outcome.assert_test("a_flat_machine_counts_nothing");
        assert!(!outcome.lines.iter().any(|line| line.contains("topology")), "{name}");
    }
}

/// A SRAT of these entries, each with its kind and without its length.
fn srat(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut table = [b"SRAT".as_slice(), &[0; 4], &[3, 0], b"RUNNXTTESTTEST", &[0; 12]].concat();
    table.extend([0; 12]);
    for entry in entries {
        table.extend([entry[0], entry.len() as u8 + 1]);
        table.extend(&entry[1..]);
    }
    let length = table.len() as u32;
    table[4..8].copy_from_slice(&length.to_le_bytes());
    let sum = table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    table[9] = sum.wrapping_neg();
    table
}

/// The CPU with that APIC id is of that node.
fn cpu(id: u8, node: u8) -> Vec<u8> {
    [&[0, node, id, 1][..], &[0; 11]].concat()
}

fn memory(node: u32, start: u64, bytes: u64) -> Vec<u8> {
    let head = [&[1][..], &node.to_le_bytes(), &[0; 2], &start.to_le_bytes(), &bytes.to_le_bytes()];
    [&head.concat()[..], &[0; 4], &1u32.to_le_bytes(), &[0; 8]].concat()
}

/// Tables that cannot be true: a line says so, and the machine runs as a flat one.
#[test]
fn a_srat_that_cannot_be_true_makes_a_flat_machine() {
    let two_threads = "topology: two threads of one core are in different nodes; all CPUs count as \
                       equally near";
    let some = "acpi: table SRAT ignored: it names the node of some CPUs, and not of others";
    let alternating: Vec<_> = (0..8).map(|id| cpu(id, id % 2)).collect();
    let overlap = [memory(0, 0, 1 << 30), memory(1, 1 << 20, 1 << 30), memory(9, u64::MAX, 2)];
    let cases = [
        (
            "threads",
            [&alternating[..], &overlap].concat(),
            vec![
                two_threads,
                "acpi: table SRAT: memory of two nodes at once: all memory skipped",
                "acpi: table SRAT: memory beyond all addresses skipped",
            ],
        ),
        ("some", vec![cpu(0, 0), cpu(1, 1), cpu(200, 2)], vec![some]),
    ];
    for (name, entries, lines) in cases {
        let boot = Boot::new(format!("near-srat-{name}")).smp("8,sockets=1,cores=4,threads=2");
        let outcome = boot.single_threaded().acpi_table("SRAT", srat(&entries)).run();
        outcome.assert_ok();
        lines.iter().for_each(|line| outcome.assert_line(line));
        outcome.assert_line(expect::HELLO_END);
    }
}
