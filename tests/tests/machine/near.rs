//! Near and far: machines with two NUMA nodes, and with tables that are wrong about them.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;

static NEAR: LazyLock<Outcome> =
    LazyLock::new(|| two_nodes(Boot::guest("near").cmdline("program=near")).run());

/// Two packages of two cores of two threads, each package a node with half of the memory; in virtual
/// time.
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
