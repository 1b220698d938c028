//! Firmware that is wrong, or merely odd, about its CPUs.
//!
//! The tables are made here and handed to the kernel in place of the firmware's.
//! Whatever they say, the machine comes up with what is there and says what was
//! wrong. On one CPU or on eight: what the boot CPU does alone, and what it does for
//! many others.

use tests::expect;
use tests::guest::Boot;
use tests::madt::{ENABLED, Madt, ONLINE_CAPABLE};
use tests::outcome::Outcome;

fn boot(name: &str, cpus: impl ToString, madt: Vec<u8>) -> Outcome {
    let boot = Boot::new(format!("firmware-{name}")).single_threaded().cmdline(expect::DETAILS);
    boot.smp(cpus).acpi_table("APIC", madt).run()
}

#[test]
fn a_cpu_that_never_starts_is_left_out_loudly() {
    let madt = Madt::for_qemu(1).local_apic(9, ENABLED).bytes();
    let outcome = boot("phantom", 1, madt);
    outcome.assert_ok();
    outcome.assert_line(expect::MADT_REPLACED);
    outcome.assert_line(&expect::no_answer(9));
    outcome.assert_line(&expect::some_online(1, 1));
}

#[test]
fn a_cpu_after_one_that_never_starts_comes_up() {
    let ids = [0, 1, 2, 9, 3, 4, 5, 6, 7];
    let cpus = ids.into_iter().fold(Madt::empty(), |madt, id| madt.local_apic(id, ENABLED));
    let outcome = boot("phantom-between", 8, cpus.with_qemu_wiring().bytes());
    outcome.assert_ok();
    outcome.assert_line(&expect::no_answer(9));
    outcome.assert_line(&expect::cpu(3, 3));
    outcome.assert_line(&expect::some_online(8, 1));
}

/// The start page is kept for it; without, it would reset the machine.
#[test]
fn a_cpu_that_comes_after_it_was_given_up_parks_itself() {
    let madt = Madt::empty().local_apic(0, ENABLED).local_apic(9, ENABLED);
    let outcome = Boot::guest("firmware-late")
        .smp(2)
        .cmdline("program=late")
        .acpi_table("APIC", madt.with_qemu_wiring().bytes())
        .run();
    outcome.assert_ok();
    outcome.assert_line(&expect::no_answer(9));
    outcome.assert_line("sent for it; this CPU goes on");
    outcome.assert_line("smp: 1 CPUs came after they were given up; they have parked themselves");
}

#[test]
fn cpus_listed_in_both_forms_are_started_once() {
    let madt = (0..8).fold(Madt::for_qemu(8), |madt, id| madt.local_x2apic(id, ENABLED));
    let outcome = boot("twice", 8, madt.bytes());
    outcome.assert_ok();
    outcome.assert_line(&expect::duplicates(8));
    outcome.assert_line(&expect::all_online(8));
}

#[test]
fn disabled_cpus_are_skipped() {
    // They are there, so starting them would work: it must not be tried.
    let madt = Madt::for_qemu(6).local_apic(6, 0).local_apic(7, ONLINE_CAPABLE).bytes();
    let outcome = boot("disabled", 8, madt);
    outcome.assert_ok();
    outcome.assert_line(&expect::disabled(2));
    outcome.assert_line(&expect::all_online(6));
}

#[test]
fn the_broadcast_id_is_no_cpu() {
    let madt = Madt::for_qemu(1).local_apic(0xff, ENABLED).local_x2apic(u32::MAX, ENABLED).bytes();
    let outcome = boot("broadcast", 1, madt);
    outcome.assert_ok();
    outcome.assert_line(&expect::broadcast(2));
    outcome.assert_line(&expect::all_online(1));
}

#[test]
fn without_a_madt_the_boot_cpu_runs_alone() {
    for cpus in [1, 8] {
        let outcome = boot(&format!("none-{cpus}"), cpus, Vec::new());
        outcome.assert_ok();
        outcome.assert_line(expect::MADT_HIDDEN);
        outcome.assert_line(expect::NO_MADT);
        outcome.assert_line(&expect::all_online(1));
    }
}

#[test]
fn a_boot_cpu_that_is_not_listed_runs_all_the_same() {
    let others = (1..8).fold(Madt::empty(), |madt, id| madt.local_apic(id, ENABLED));
    let outcome = boot("unlisted", 8, others.with_qemu_wiring().bytes());
    outcome.assert_ok();
    outcome.assert_line(expect::BOOT_CPU_NOT_LISTED);
    outcome.assert_line(&expect::all_online(8));
}

#[test]
fn a_madt_of_noise_is_ignored() {
    // A fixed sequence, so that a failure can be repeated.
    let mut state = 1u32;
    let noise = (0..512).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let outcome = boot("noise", 8, noise.collect());
    outcome.assert_ok();
    outcome.assert_line(expect::MADT_IGNORED);
    outcome.assert_line(&expect::all_online(1));
}

#[test]
fn a_madt_with_a_wrong_checksum_is_ignored() {
    // It would have been believed to be of two.
    let mut madt = Madt::for_qemu(2).bytes();
    madt[9] ^= 1;
    let outcome = boot("checksum", 1, madt);
    outcome.assert_ok();
    outcome.assert_line(expect::MADT_IGNORED);
    outcome.assert_line(&expect::all_online(1));
}

#[test]
fn an_entry_without_length_ends_the_list_and_not_the_boot() {
    let madt = Madt::for_qemu(1).raw(&[0, 0, 0, 0, 0, 0, 0, 0]).bytes();
    let outcome = boot("zero-length", 1, madt);
    outcome.assert_ok();
    outcome.assert_line(expect::MADT_BROKEN_ENTRY);
    outcome.assert_line(&expect::all_online(1));
}

#[test]
fn an_entry_beyond_the_end_of_the_table_is_not_read() {
    let madt = Madt::for_qemu(8).raw(&[0, 200, 1, 1]).bytes();
    let outcome = boot("overlong", 8, madt);
    outcome.assert_ok();
    outcome.assert_line(expect::MADT_BROKEN_ENTRY);
    outcome.assert_line(&expect::all_online(8));
}

#[test]
fn cpus_to_be_plugged_in_later_are_not_waited_for() {
    let outcome = Boot::new("firmware-hotplug").smp("1,maxcpus=8").run();
    outcome.assert_ok();
    outcome.assert_line(&expect::all_online(1));
}

#[test]
fn ids_with_gaps_all_come_up() {
    // Three cores need two bits, so the second socket begins at 4, and the third,
    // which lacks a core, at 8.
    let smp = "8,maxcpus=9,sockets=3,cores=3,threads=1";
    let outcome = Boot::new("firmware-sparse").cmdline(expect::DETAILS).smp(smp).run();
    outcome.assert_ok();
    outcome.assert_line(&expect::all_online(8));
    for (index, apic_id) in [0, 1, 2, 4, 5, 6, 8, 9].into_iter().enumerate() {
        outcome.assert_line(&expect::cpu(index, apic_id));
    }
}
