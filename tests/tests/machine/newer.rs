//! What Debian 12's QEMU cannot do: the same in a newer one.
//!
//! `make test` unpacks one by `scripts/newer-qemu`. Where that cannot be, the
//! usual one is taken for new enough, and if it is not these fail: a promise that
//! was not tried is not kept.

use tests::expect;
use tests::guest::Boot;

/// The standard image on the newer QEMU.
fn newer(name: &str) -> Boot {
    Boot::new(format!("newer-{name}")).newer_qemu()
}

#[test]
#[ignore = "make test-full"]
fn x2apic_is_used_where_the_cpu_has_it() {
    let outcome = newer("x2apic").cpu("max").smp(8).run();
    outcome.assert_ok();
    outcome.assert_line(&expect::banner("apic", "x2apic id 0"));
    outcome.assert_line(&expect::all_online(8));
    outcome.assert_line(expect::HELLO_END);
}

#[test]
#[ignore = "make test-full"]
fn xapic_can_be_asked_for_where_there_is_x2apic() {
    let outcome = newer("xapic").cpu("max").smp(4).cmdline("apic=xapic").run();
    outcome.assert_ok();
    outcome.assert_line(&expect::banner("apic", "xapic id 0"));
    outcome.assert_line(&expect::all_online(4));
}

/// Ids beyond 254 exist for an x2APIC only.
#[test]
#[ignore = "make test-full"]
fn ids_beyond_an_xapic_come_up_in_x2apic_mode() {
    let outcome = newer("wide-ids")
        .cmdline(expect::DETAILS)
        .cpu("max")
        .board(boot::qemu::Board::Q35)
        .smp("1,sockets=300,cores=1,threads=1,maxcpus=300")
        .arg("-device")
        .arg("max-x86_64-cpu,socket-id=270,core-id=0,thread-id=0")
        .run();
    outcome.assert_ok();
    outcome.assert_line(&expect::cpu(1, 270));
    outcome.assert_line(&expect::all_online(2));
}
