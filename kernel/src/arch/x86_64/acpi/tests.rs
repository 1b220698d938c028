//! What reading the firmware promises, on tables good, odd and broken.

mod memory;

use super::builder::{Entries, rsdp, seal, table};
use super::power_button::PowerButton;
use super::*;
use crate::arch::MAX_CPUS;
use crate::arch::x86_64::irq::apic::{Lint, Polarity, Trigger};
use memory::{Memory, Random, Root, machine};

const BOOT: u32 = 4;
const ENABLED: u32 = 1;
const ONLINE_CAPABLE: u32 = 2;

fn no_override(_: &str) -> Option<Vec<u8>> {
    None
}

fn read_memory(rsdp: Option<u64>, memory: &Memory, overrides: Overrides<'_>) -> Firmware {
    super::read(rsdp, &|phys, len| memory.bytes(phys, len), overrides, BOOT)
}

fn read_tables(tables: &[Vec<u8>]) -> Firmware {
    let (memory, rsdp) = machine(tables, Root::Xsdt);
    read_memory(Some(rsdp), &memory, &no_override)
}

fn read_madt(entries: Entries) -> Firmware {
    read_tables(&[entries.madt()])
}

fn ids(firmware: &Firmware) -> Vec<u32> {
    firmware.cpus.iter().map(|cpu| cpu.apic_id).collect()
}

/// What a machine without a usable MADT comes to.
fn assert_boot_cpu_alone(firmware: &Firmware) {
    assert_eq!(ids(firmware), [BOOT]);
    assert_eq!(firmware.local_apic, DEFAULT_LOCAL_APIC);
    assert!(notices(firmware).contains(&NO_MADT.to_string()), "{:?}", firmware.notices);
}

const NO_MADT: &str = "no MADT: running on the boot CPU alone";

fn notices(firmware: &Firmware) -> Vec<String> {
    let text = |(_, text, count): &(Level, String, usize)| match count {
        1 => text.clone(),
        _ => format!("{text} ({count})"),
    };
    firmware.notices.iter().map(text).collect()
}

fn ignored(table: &str, why: &str) -> String {
    format!("table {table} ignored: {why}")
}

fn two_cpus() -> Entries {
    Entries::default().local_apic(0, 4, ENABLED).local_apic(1, 6, ENABLED)
}

// CPUs.

#[test]
fn the_boot_cpu_comes_first_whatever_its_id_and_place() {
    let entries = Entries::default().local_apic(0, 0, ENABLED).local_apic(1, 2, ENABLED);
    let firmware = read_madt(entries.local_apic(2, BOOT as u8, ENABLED).local_apic(3, 9, ENABLED));
    assert_eq!(ids(&firmware), [BOOT, 0, 2, 9]);
    assert_eq!(firmware.cpus[0].acpi_uid, Some(2));
    assert_eq!(notices(&firmware), [] as [&str; 0]);
}

#[test]
fn a_boot_cpu_that_the_madt_forgot_is_there_all_the_same() {
    let firmware = read_madt(Entries::default().local_apic(0, 0, ENABLED));
    assert_eq!(ids(&firmware), [BOOT, 0]);
    assert_eq!(firmware.cpus[0].acpi_uid, None);
    let text = "the MADT does not list the boot CPU (APIC id 4) as enabled";
    assert_eq!(notices(&firmware), [text]);
}

#[test]
fn duplicate_apic_ids_are_dropped() {
    let entries = two_cpus().x2apic(1, 6, ENABLED).x2apic(0, 4, ENABLED).local_apic(1, 6, ENABLED);
    let firmware = read_madt(entries);
    assert_eq!(ids(&firmware), [4, 6]);
    assert_eq!(notices(&firmware), ["table APIC: duplicate APIC ids skipped (3)"]);
}

#[test]
fn disabled_cpus_are_skipped_and_counted() {
    let entries = two_cpus().local_apic(2, 8, 0).x2apic(3, 300, ONLINE_CAPABLE);
    let firmware = read_madt(entries);
    assert_eq!(ids(&firmware), [4, 6]);
    assert_eq!(notices(&firmware), ["table APIC: disabled CPUs skipped (2)"]);
}

#[test]
fn a_cpu_listed_as_disabled_and_as_enabled_counts() {
    let firmware = read_madt(two_cpus().local_apic(2, 8, 0).x2apic(2, 8, ENABLED));
    assert_eq!(ids(&firmware), [4, 6, 8]);
}

#[test]
fn x2apic_ids_above_255_and_sparse_ids_are_kept() {
    let entries = two_cpus().x2apic(70, 254, ENABLED).x2apic(71, 255, ENABLED);
    let firmware = read_madt(entries.x2apic(72, 0x0001_0000, ENABLED));
    assert_eq!(ids(&firmware), [4, 6, 254, 255, 0x0001_0000]);
    let needs: Vec<bool> = firmware.cpus.iter().map(CpuEntry::needs_x2apic).collect();
    assert_eq!(needs, [false, false, false, true, true]);
}

#[test]
fn broadcast_ids_are_no_cpus() {
    let firmware = read_madt(two_cpus().local_apic(9, 0xff, ENABLED).x2apic(9, u32::MAX, ENABLED));
    assert_eq!(ids(&firmware), [4, 6]);
    assert_eq!(notices(&firmware), ["table APIC: CPUs with the broadcast APIC id skipped (2)"]);
}

#[test]
fn cpus_beyond_the_maximum_are_dropped_with_a_notice_but_never_the_boot_cpu() {
    let many = 1000..1000 + MAX_CPUS as u32 + 5;
    let entries = many.fold(Entries::default(), |e, id| e.x2apic(id, id, ENABLED));
    let firmware = read_madt(entries.local_apic(1, BOOT as u8, ENABLED));
    assert_eq!(firmware.cpus.len(), MAX_CPUS);
    assert_eq!(firmware.cpus[0].apic_id, BOOT);
    assert_eq!(notices(&firmware), ["table APIC: CPUs beyond the limit skipped (6)"]);
}

// Interrupt routing.

#[test]
fn io_apics_and_overrides_are_read() {
    let entries = two_cpus().io_apic(2, 0xfec0_0000, 0).io_apic(3, 0xfec1_0000, 24);
    // IRQ 9 active low, level; IRQ 0 at input 2, as the bus has it.
    let firmware = read_madt(entries.interrupt_override(0, 2, 0).interrupt_override(9, 9, 0xf));
    let second = firmware.io_apics[1];
    assert_eq!((second.id, second.address), (3, 0xfec1_0000));
    assert_eq!(second.global_system_interrupt_base, 24);
    assert_eq!(firmware.isa_overrides.iter().flatten().count(), 2);
    let [zero, nine] = [0, 9].map(|line| firmware.isa_overrides[line].unwrap());
    assert_eq!((zero.gsi, zero.trigger), (2, Trigger::SameAsBus));
    assert_eq!((nine.polarity, nine.trigger), (Polarity::ActiveLow, Trigger::Level));
}

#[test]
fn second_overrides_of_a_line_and_of_lines_beyond_isa_are_skipped() {
    let entries = two_cpus().interrupt_override(0, 2, 0).interrupt_override(0, 7, 0);
    let firmware = read_madt(entries.interrupt_override(16, 3, 0));
    assert_eq!(firmware.isa_overrides[0].unwrap().gsi, 2);
    assert_eq!(firmware.isa_overrides.iter().flatten().count(), 1);
    let second = "table APIC: second overrides of an ISA line skipped";
    let beyond = "table APIC: overrides of lines that ISA does not have skipped";
    assert_eq!(notices(&firmware), [second, beyond]);
}

#[test]
fn more_io_apics_than_are_kept_are_skipped() {
    let entries = (0..20).fold(two_cpus(), |e, id| e.io_apic(id, 0xfec0_0000, 24 * u32::from(id)));
    let firmware = read_madt(entries);
    assert_eq!(firmware.io_apics.len(), 16);
    assert_eq!(notices(&firmware), ["table APIC: I/O APICs beyond the limit skipped (4)"]);
}

#[test]
fn reserved_interrupt_flags_mean_same_as_bus() {
    let firmware = read_madt(two_cpus().interrupt_override(5, 5, 0b10));
    assert_eq!(firmware.isa_overrides[5].unwrap().polarity, Polarity::SameAsBus);
    let text = "table APIC: reserved values of polarity or trigger skipped";
    assert_eq!(notices(&firmware), [text]);
}

#[test]
fn a_madt_may_have_no_local_apic_address() {
    let firmware = read_tables(&[table(b"APIC", &[0; 8])]);
    assert_eq!(firmware.local_apic, DEFAULT_LOCAL_APIC);
}

#[test]
fn the_address_override_moves_the_local_apic() {
    let far = 0x12_3456_7000u64;
    let firmware = read_madt(two_cpus().raw(5, &[&[0, 0][..], &far.to_le_bytes()].concat()));
    assert_eq!(firmware.local_apic, far);
}

#[test]
fn nmi_pins_concern_all_cpus_or_the_one_with_that_uid() {
    // LINT1 of all; LINT0 of uid 1, once in each form; LINT7, which is none.
    let entries = two_cpus().raw(4, &[0xff, 0, 0, 1]).raw(4, &[1, 5, 0, 0]);
    let entries = entries.raw(10, &[5, 0, 1, 0, 0, 0, 0, 0, 0, 0]).raw(4, &[0xff, 0, 0, 7]);
    let firmware = read_madt(entries);
    let lints = |cpu: usize| -> Vec<Lint> {
        firmware.local_nmis_of(&firmware.cpus[cpu]).map(|nmi| nmi.lint).collect()
    };
    assert_eq!((lints(0), lints(1)), (vec![Lint::Lint1], vec![Lint::Lint1, Lint::Lint0]));
    assert_eq!(notices(&firmware), ["table APIC: NMI pins that no CPU has skipped"]);
}

// Affinity.

#[test]
fn srat_gives_nodes_to_cpus_in_both_forms() {
    // Domain 0x00050302: the low byte and the upper three are stored apart.
    let srat = Entries::default().raw(0, &[2, 4, 1, 0, 0, 0, 0, 3, 5, 0, 0, 0, 0, 0]);
    let mut far = vec![0, 0, 7, 0, 0, 0];
    far.extend(300u32.to_le_bytes());
    far.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let srat = srat.raw(2, &far).raw(0, &[1, 6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let firmware = read_tables(&[two_cpus().x2apic(3, 300, ENABLED).madt(), srat.srat()]);
    assert_eq!(nodes(&firmware), [Some(0x0005_0302), Some(1), Some(7)]);
    assert_eq!(notices(&firmware), [""; 0]);
}

fn nodes(firmware: &Firmware) -> Vec<Option<u32>> {
    firmware.cpus.iter().map(|cpu| cpu.node).collect()
}

/// The SRAT's entry of a CPU.
fn affinity(node: u8, apic_id: u8) -> [u8; 14] {
    [node, apic_id, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

#[test]
fn nodes_of_some_cpus_are_no_nodes() {
    let srat = Entries::default().raw(0, &affinity(1, 4));
    let firmware = read_tables(&[two_cpus().madt(), srat.srat()]);
    assert_eq!(nodes(&firmware), [None, None]);
    let why = "table SRAT ignored: it names the node of some CPUs, and not of others";
    assert_eq!(notices(&firmware), [why]);
}

#[test]
fn memory_of_nodes_is_read_unless_it_cannot_be() {
    let cpus = Entries::default().raw(0, &affinity(0, 4)).raw(0, &affinity(1, 6));
    let read = |srat: Entries| read_tables(&[two_cpus().madt(), srat.srat()]);
    let two = cpus.clone().memory(0, 0, 1 << 30, 1).memory(1, 1 << 30, 1 << 30, 1);
    let sound = read(two.clone().memory(7, 0, 1 << 40, 0).memory(1, 0, 0, 1));
    assert_eq!(sound.memory, [(0..1 << 30, 0), (1 << 30..2 << 30, 1)], "disabled and empty ones");
    assert_eq!(notices(&sound), [""; 0]);
    let beyond = read(two.clone().memory(1, u64::MAX, 2, 1));
    assert_eq!(beyond.memory.len(), 2);
    assert_eq!(notices(&beyond), ["table SRAT: memory beyond all addresses skipped"]);
    let twice = read(two.clone().memory(1, 4096, 4096, 1));
    assert!(twice.memory.is_empty());
    assert_eq!(nodes(&twice), [Some(0), Some(1)], "the CPUs' nodes stand");
    let empty = read(two.memory(2, 2 << 30, 1 << 30, 1));
    assert_eq!(empty.memory.len(), 3);
    assert_eq!(notices(&empty), ["table SRAT: a node with memory has no CPU"]);
    let many = (0..300).fold(cpus, |all, i| all.memory(0, i << 20, 1 << 20, 1));
    assert_eq!(read(many).memory.len(), 256);
}

// Clocks and reset.

fn fadt(len: usize, set: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = table(b"FACP", &vec![0; len - 36]);
    set(&mut bytes);
    seal(&mut bytes, 9);
    bytes
}

#[test]
fn an_old_fadt_gives_the_pm_timer_port() {
    let old = fadt(116, |bytes| {
        bytes[76..80].copy_from_slice(&0x608u32.to_le_bytes());
        bytes[64..68].copy_from_slice(&0x604u32.to_le_bytes());
    });
    let fixed = read_tables(&[old]).fixed;
    assert_eq!((fixed.pm_timer, fixed.century), (Some((0x608, 0xff_ffff)), None));
    assert_eq!((fixed.reset, fixed.power_off), (None, [None; 2]), "there is no DSDT");
}

#[test]
fn a_new_fadt_gives_wide_addresses_and_the_reset_register() {
    let new = fadt(276, |bytes| {
        bytes[112..116].copy_from_slice(&(1u32 << 8 | 1 << 10).to_le_bytes());
        bytes[116..128].copy_from_slice(&[1, 8, 0, 1, 0xf9, 0x0c, 0, 0, 0, 0, 0, 0]);
        bytes[128] = 0x0f;
        bytes[76..80].copy_from_slice(&0x608u32.to_le_bytes());
        bytes[208..220].copy_from_slice(&[1, 32, 0, 3, 0x08, 0xb0, 0, 0, 0, 0, 0, 0]);
        bytes[108] = 0x48;
    });
    let fixed = read_tables(&[new]).fixed;
    assert_eq!((fixed.pm_timer, fixed.century), (Some((0xb008, u32::MAX)), Some(0x48)));
    assert_eq!(fixed.reset, Some((0xcf9, 0x0f)));
}

#[test]
fn the_dsdt_says_what_switches_the_machine_off_and_the_fadt_where() {
    let mut memory = Memory::default();
    let code = b"\x08_S5_\x12\x06\x04\x0a\x05\x0a\x07\0\0";
    let dsdt = memory.place(table(b"DSDT", code)) as u32;
    let fadt = memory.place(fadt(116, |bytes| {
        bytes[40..44].copy_from_slice(&dsdt.to_le_bytes());
        bytes[64..68].copy_from_slice(&0x604u32.to_le_bytes());
    }));
    let xsdt = memory.place(table(b"XSDT", &fadt.to_le_bytes()));
    let at = memory.place(rsdp(2, 0, xsdt));
    let fixed = read_memory(Some(at), &memory, &no_override).fixed;
    assert_eq!(fixed.power_off, [Some((0x604, 5 << 10 | 1 << 13)), None]);
}

#[test]
fn hardware_reduced_machines_have_no_pm_timer() {
    let reduced = fadt(276, |bytes| {
        bytes[112..116].copy_from_slice(&(1u32 << 20).to_le_bytes());
        bytes[76..80].copy_from_slice(&0x608u32.to_le_bytes());
    });
    assert_eq!(read_tables(&[reduced]).fixed, FixedHardware::default());
}

/// A FADT as QEMU's `pc` has it, and what is changed about it.
fn with_button(set: impl Fn(&mut [u8])) -> Option<PowerButton> {
    let table = fadt(116, |bytes| {
        bytes[46..48].copy_from_slice(&9u16.to_le_bytes());
        bytes[48..52].copy_from_slice(&0xb2u32.to_le_bytes());
        bytes[52] = 0xf1;
        bytes[56..60].copy_from_slice(&0x600u32.to_le_bytes());
        bytes[64..68].copy_from_slice(&0x604u32.to_le_bytes());
        bytes[88] = 4;
        set(bytes);
    });
    read_tables(&[table]).fixed.power_button
}

#[test]
fn the_power_button_is_where_the_fadt_says() {
    let events = [Some((0x600, 0x602)), None];
    let there = PowerButton { line: 9, events, control: 0x604, handover: Some((0xb2, 0xf1)) };
    assert_eq!(with_button(|_| ()), Some(there));
    // ACPI from the start: nothing is to be handed over.
    assert_eq!(with_button(|b| b[48] = 0), Some(PowerButton { handover: None, ..there }));
}

/// The ports are written to, so nothing is believed that would reach other devices.
#[test]
fn a_power_button_at_odd_places_is_none() {
    type Set = fn(&mut [u8]);
    let refused: [(&str, Set); 9] = [
        ("a device of the DSDT's", |b| b[112] |= 1 << 4),
        ("line 0", |b| b[46] = 0),
        ("line 265", |b| b[47] = 1),
        ("the keyboard's port", |b| (b[56], b[57]) = (0x64, 0)),
        ("PCI's port", |b| (b[56], b[57]) = (0xf8, 0x0c)),
        ("beyond all ports", |b| (b[56], b[57], b[58]) = (0xfe, 0xff, 0)),
        ("no registers", |b| b[88] = 0),
        ("a control register at the DMA's port", |b| (b[64], b[65]) = (0, 0)),
        ("commands to the reset port", |b| (b[48], b[49]) = (0xf9, 0x0c)),
    ];
    for (what, set) in refused {
        assert_eq!(with_button(set), None, "{what}");
    }
}

#[test]
fn the_hpet_must_be_in_memory() {
    let body = |space: u8| {
        let address = 0xfed0_0000u64.to_le_bytes();
        [&[1, 0x82, 0x86, 0x80, space, 64, 0, 0][..], &address, &[0, 100, 0, 0]].concat()
    };
    let found = read_tables(&[table(b"HPET", &body(0))]).hpet;
    assert_eq!(found, Some(0xfed0_0000));
    assert_eq!(read_tables(&[table(b"HPET", &body(1))]).hpet, None);
}

// What is missing or broken.

#[test]
fn without_an_rsdp_the_boot_cpu_runs_alone() {
    let firmware = read_memory(None, &Memory::default(), &no_override);
    assert_boot_cpu_alone(&firmware);
    assert_eq!(notices(&firmware), ["no RSDP: the firmware has no ACPI tables", NO_MADT]);
}

#[test]
fn without_a_madt_the_boot_cpu_runs_alone() {
    let firmware = read_tables(&[Entries::default().srat()]);
    assert_boot_cpu_alone(&firmware);
    assert_eq!(notices(&firmware), [NO_MADT]);
}

#[test]
fn a_broken_rsdp_is_ignored() {
    let (memory, at) = machine(&[two_cpus().madt()], Root::Xsdt);
    for (offset, fault) in [(0, "wrong signature"), (8, "bad checksum")] {
        let mut memory = memory.clone();
        memory.chunks.last_mut().unwrap().1[offset] ^= 1;
        let firmware = read_memory(Some(at), &memory, &no_override);
        assert_boot_cpu_alone(&firmware);
        assert_eq!(notices(&firmware)[0], ignored("RSDP", fault));
    }
    let firmware = read_memory(Some(0xdead_0000), &memory, &no_override);
    assert_eq!(notices(&firmware)[0], ignored("RSDP", "not all of it is readable"));
}

#[test]
fn xsdt_and_rsdt_lead_to_the_same_tables() {
    for root in [Root::Xsdt, Root::Rsdt] {
        let (memory, at) = machine(&[two_cpus().madt()], root);
        let firmware = read_memory(Some(at), &memory, &no_override);
        assert_eq!(ids(&firmware), [4, 6]);
    }
}

#[test]
fn a_broken_xsdt_falls_back_to_the_rsdt() {
    let mut memory = Memory::default();
    let madt = memory.place(two_cpus().madt()) as u32;
    let rsdt = memory.place(table(b"RSDT", &madt.to_le_bytes())) as u32;
    let mut broken = table(b"XSDT", &[0; 8]);
    broken[40] ^= 1;
    let xsdt = memory.place(broken);
    let at = memory.place(rsdp(2, rsdt, xsdt));
    let firmware = read_memory(Some(at), &memory, &no_override);
    assert_eq!(ids(&firmware), [4, 6]);
    assert_eq!(notices(&firmware), [ignored("XSDT", "bad checksum")]);
}

#[test]
fn a_madt_with_a_bad_checksum_is_not_believed() {
    let mut madt = two_cpus().madt();
    *madt.last_mut().unwrap() ^= 0x40;
    let firmware = read_tables(&[madt]);
    assert_boot_cpu_alone(&firmware);
    assert_eq!(notices(&firmware)[0], ignored("APIC", "bad checksum"));
}

#[test]
fn the_next_table_of_a_name_is_used_when_the_first_is_broken() {
    let mut broken = two_cpus().madt();
    broken[9] ^= 1;
    assert_eq!(ids(&read_tables(&[broken, two_cpus().madt()])), [4, 6]);
}

#[test]
fn a_truncated_table_is_not_believed() {
    let whole = two_cpus().madt();
    for len in [0, 3, 35, 36, 43, whole.len() - 1] {
        assert_boot_cpu_alone(&read_tables(&[whole[..len].to_vec()]));
    }
}

#[test]
fn an_absurd_length_is_not_believed() {
    for (length, fault) in [
        (0u32, "too short"),
        (43, "too short"),
        (u32::MAX, "too long"),
        (1 << 19, "not all of it is readable"),
    ] {
        let mut madt = two_cpus().madt();
        madt[4..8].copy_from_slice(&length.to_le_bytes());
        seal(&mut madt, 9);
        let firmware = read_tables(&[madt]);
        assert_boot_cpu_alone(&firmware);
        assert_eq!(notices(&firmware)[0], ignored("APIC", fault));
    }
}

const BROKEN_ENTRY: &str = "table APIC: broken entry at byte 60: rest of the table skipped";

#[test]
fn an_entry_without_length_ends_the_walk_and_keeps_what_came_before() {
    for length in [0, 1] {
        let mut entries = two_cpus();
        entries.0.extend([0, length, 7, 7, 1, 0, 0, 0]);
        let firmware = read_madt(entries.local_apic(9, 9, ENABLED));
        assert_eq!(ids(&firmware), [4, 6]);
        assert_eq!(notices(&firmware), [BROKEN_ENTRY]);
    }
}

#[test]
fn an_entry_longer_than_the_table_ends_the_walk() {
    for tail in [&[0, 8, 7, 7, 1, 0, 0][..], &[0, 200], &[0]] {
        let mut entries = two_cpus();
        entries.0.extend(tail);
        let firmware = read_madt(entries);
        assert_eq!(ids(&firmware), [4, 6]);
        assert_eq!(notices(&firmware), [BROKEN_ENTRY]);
    }
}

#[test]
fn an_entry_too_short_for_its_kind_is_skipped_alone() {
    let firmware = read_madt(two_cpus().raw(0, &[7, 7]).local_apic(9, 9, ENABLED));
    assert_eq!(ids(&firmware), [4, 6, 9]);
    assert_eq!(notices(&firmware), ["table APIC: entries too short for their kind skipped"]);
}

#[test]
fn notices_are_bounded() {
    let entries = (0..500).fold(two_cpus(), |e, _| e.raw(0, &[]));
    let short = "table APIC: entries too short for their kind skipped (500)";
    assert_eq!(notices(&read_madt(entries)), [short]);
    let mut broken = two_cpus().madt();
    broken[9] ^= 1;
    let firmware = read_tables(&vec![broken; 300]);
    assert_eq!(notices(&firmware), [&ignored("APIC", "bad checksum (300)"), NO_MADT]);
}

// Overrides.

#[test]
fn a_table_can_be_replaced_even_without_firmware() {
    let replace =
        |name: &str| (name == "APIC").then(|| two_cpus().local_apic(2, 7, ENABLED).madt());
    let (memory, at) = machine(&[two_cpus().madt()], Root::Xsdt);
    for rsdp in [Some(at), None] {
        let firmware = read_memory(rsdp, &memory, &replace);
        assert_eq!(ids(&firmware), [4, 6, 7]);
        assert!(notices(&firmware).contains(&"table APIC replaced from outside".to_string()));
    }
}

#[test]
fn a_table_can_be_hidden() {
    let (memory, at) = machine(&[two_cpus().madt()], Root::Xsdt);
    let hide = |name: &str| (name == "APIC").then(Vec::new);
    let firmware = read_memory(Some(at), &memory, &hide);
    assert_boot_cpu_alone(&firmware);
    assert_eq!(notices(&firmware)[0], "table APIC hidden from outside");
}

#[test]
fn a_replacement_is_validated_like_any_table() {
    let mut longer = two_cpus().madt();
    longer[4] += 1;
    for bytes in [vec![], longer, two_cpus().srat()] {
        let replace = |name: &str| (name == "APIC").then(|| bytes.clone());
        assert_boot_cpu_alone(&read_memory(None, &Memory::default(), &replace));
    }
}

// The real thing's memory.

#[test]
fn the_direct_map_ends_where_it_ends() {
    let page = [7u8; 64];
    // SAFETY: "physical" 0..64 is the array, which is not written to.
    let map = |phys, len| unsafe { direct_map(page.as_ptr() as u64, 64, phys, len) };
    assert_eq!(map(32, 32), Some(&page[32..]));
    assert_eq!(map(32, 33), None);
    assert_eq!(map(u64::MAX, 2), None);
    assert_eq!(map(0, 1), None, "nothing of ours is at physical 0");
}

// Nonsense.

/// A machine with every kind of table and entry, to be damaged.
fn full_machine() -> (Memory, u64) {
    let madt = two_cpus().x2apic(9, 300, ENABLED).io_apic(2, 0xfec0_0000, 0);
    let madt = madt.interrupt_override(0, 2, 0).raw(4, &[0xff, 0, 0, 1]).raw(3, &[0; 6]);
    let madt = madt.raw(5, &[0; 10]).raw(10, &[0; 10]);
    let srat = Entries::default().raw(0, &[0; 14]).raw(2, &[0; 22]).memory(0, 0, 0xa0000, 1);
    let tables = [madt.madt(), srat.srat(), fadt(276, |_| {}), table(b"HPET", &[0; 20])];
    machine(&tables, Root::Xsdt)
}

#[test]
fn no_damage_makes_reading_panic_hang_or_break_its_promises() {
    let (whole, at) = full_machine();
    let mut random = Random(0x5eed);
    let mut believed = 0;
    for _ in 0..20_000 {
        let mut memory = whole.clone();
        for _ in 0..1 + random.below(4) {
            let chunk = random.below(memory.chunks.len());
            let bytes = &mut memory.chunks[chunk].1;
            let byte = random.below(bytes.len());
            match random.below(4) {
                0 => bytes.truncate(byte),
                1 => bytes[byte] = [0, 1, 0x7f, 0xff][random.below(4)],
                _ => bytes[byte] = random.next() as u8,
            }
            // Most damage must get past the checksum to be worth anything.
            let sum_at = if bytes.starts_with(b"RSD") { 8 } else { 9 };
            if random.below(8) != 0 && bytes.len() > 32 {
                seal(bytes, sum_at);
            }
            if bytes.is_empty() {
                bytes.push(0);
            }
        }
        let firmware = read_memory(Some(at), &memory, &no_override);
        assert_eq!(firmware.cpus[0].apic_id, BOOT);
        assert!(firmware.cpus.len() <= MAX_CPUS && firmware.notices.len() <= 64);
        believed += usize::from(firmware.cpus.len() > 1);
    }
    // The damage was neither always fatal nor always harmless.
    assert!((2_000..19_900).contains(&believed), "{believed}");
}
