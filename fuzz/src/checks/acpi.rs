//! Tables for the host's fuzzer: good ones, mended ones, and what must hold.
//!
//! An *image* is a piece of physical memory from [`BASE`] on with the RSDP at its
//! start.

use runnext::internals::parsers::MAX_CPUS;
use runnext::internals::parsers::acpi::builder::{Entries, rsdp, seal, table};
use runnext::internals::parsers::acpi::{Firmware, read};

/// Where an image begins.
const BASE: u64 = 0x1000;
/// The id of the CPU that reads.
const BOOT: u32 = 4;
const ENABLED: u32 = 1;

/// Reads an image, with nothing replaced. Whether more than the boot CPU is known.
pub fn image(bytes: &[u8]) -> bool {
    let memory = |phys: u64, len: usize| {
        let from = usize::try_from(phys.checked_sub(BASE)?).ok()?;
        bytes.get(from..from.checked_add(len)?)
    };
    let firmware = read(Some(BASE), &memory, &|_| None, BOOT);
    promises(&firmware);
    firmware.cpus.len() > 1
}

/// Reads `bytes` as the table `signature`, without any other.
pub fn one(signature: &str, bytes: &[u8]) -> bool {
    let replace = |name: &str| match name == signature {
        true => Some(bytes.to_vec()),
        // Nodes are given to CPUs: to all of those that a good SRAT names.
        false if name == "APIC" => Some(madts().swap_remove(1)),
        false => None,
    };
    let firmware = read(None, &|_, _| None, &replace, BOOT);
    promises(&firmware);
    !bytes.is_empty() && !firmware.notices.iter().any(|(_, line, _)| line.contains("ignored"))
}

fn promises(firmware: &Firmware) {
    let Firmware { cpus, notices, .. } = firmware;
    assert_eq!(cpus.first().map(|cpu| cpu.apic_id), Some(BOOT), "the boot CPU comes first");
    assert!(cpus.len() <= MAX_CPUS);
    let mut ids: Vec<_> = cpus.iter().map(|cpu| cpu.apic_id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), cpus.len(), "an id comes twice");
    assert!(!ids.contains(&u32::MAX), "the broadcast id is no CPU");
    for cpu in cpus {
        assert!(firmware.local_nmis_of(cpu).count() <= firmware.local_nmis.len());
    }
    assert!(firmware.local_nmis.len() <= 2 * MAX_CPUS);
    assert!(firmware.io_apics.len() <= 16);
    assert!(notices.len() <= 64);
    for (_, line, _) in notices {
        assert!(
            line.len() < 120 && line.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
            "{line:?}"
        );
    }
}

/// Makes the length true, sometimes, and the bytes add up to zero.
pub fn mend_table(bytes: &mut [u8], how: u64) {
    const LENGTH: usize = 4;
    if bytes.len() < 36 {
        return;
    }
    if how & 1 == 0 {
        let length = bytes.len() as u32;
        bytes[LENGTH..LENGTH + 4].copy_from_slice(&length.to_le_bytes());
    }
    let length = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
    let covered = length.clamp(10, bytes.len());
    seal(&mut bytes[..covered], 9);
}

/// Mends every table that can be recognised, wherever it is.
pub fn mend_image(bytes: &mut [u8], how: u64) {
    for at in 0..bytes.len() {
        let rest = &mut bytes[at..];
        if rest.starts_with(b"RSD PTR ") && rest.len() >= 36 {
            seal(&mut rest[..20], 8);
            seal(&mut rest[..36], 32);
        }
        let known = [b"XSDT", b"RSDT", b"APIC", b"SRAT", b"FACP", b"HPET", b"DSDT"];
        if known.iter().any(|name| rest.starts_with(*name)) {
            mend_table(rest, how | 1); // the length of the rest is not its own
        }
    }
}

/// An image with these tables, the DSDT last among them.
fn image_of(tables: &[Vec<u8>], revision: u8) -> Vec<u8> {
    let root_bytes = 36 + 8 * tables.len();
    let mut at = BASE + (48 + root_bytes).next_multiple_of(16) as u64;
    let mut body = Vec::new();
    let mut places = Vec::new();
    for table in tables {
        places.push(at);
        body.extend(if revision >= 2 {
            at.to_le_bytes().to_vec()
        } else {
            (at as u32).to_le_bytes().to_vec()
        });
        at += table.len().next_multiple_of(16) as u64;
    }
    let root = BASE + 48;
    let mut image = rsdp(revision, root as u32, root);
    image.resize(48, 0);
    image.extend(table(if revision >= 2 { b"XSDT" } else { b"RSDT" }, &body));
    for (table, place) in tables.iter().zip(places) {
        image.resize((place - BASE) as usize, 0);
        image.extend(table);
    }
    // The FADT names the DSDT by its address, which is known only now.
    let dsdt = tables.last().map_or(0, |table| BASE + (image.len() - table.len()) as u64);
    if let Some(at) = image.windows(4).position(|four| four == b"FACP") {
        image[at + 40..at + 44].copy_from_slice(&(dsdt as u32).to_le_bytes());
        image[at + 140..at + 148].copy_from_slice(&dsdt.to_le_bytes());
    }
    mend_image(&mut image, 1);
    image
}

/// Good images: of a new firmware, and of an old one.
pub fn images() -> Vec<Vec<u8>> {
    let dsdt = table(b"DSDT", b"x_S5_\x08_S5_\x12\x06\x04\x0a\x05\x0a\x07\0\0");
    let [madts, srats, fadts, hpets] = [madts(), srats(), fadts(), hpets()];
    let new = [&madts[0], &srats[0], &fadts[0], &hpets[0], &dsdt].map(Vec::clone);
    let old = [&madts[1], &fadts[1], &dsdt].map(Vec::clone);
    [image_of(&new, 2), image_of(&old, 0)].to_vec()
}

/// Good MADTs: every kind of entry, and more CPUs than there can be.
pub fn madts() -> Vec<Vec<u8>> {
    let cpus = Entries::default().local_apic(0, BOOT as u8, ENABLED).local_apic(1, 6, ENABLED);
    let all = cpus.clone().x2apic(9, 300, ENABLED).io_apic(2, 0xfec0_0000, 0);
    let all = all.interrupt_override(0, 2, 0).raw(4, &[0xff, 0, 0, 1]).raw(3, &[0; 6]);
    let all = all.raw(5, &[0; 10]).raw(10, &[0; 10]);
    let many = (0..300).fold(cpus.clone(), |madt, id| madt.x2apic(id, id, ENABLED));
    [all.madt(), cpus.madt(), many.madt()].to_vec()
}

/// Good SRATs.
pub fn srats() -> Vec<Vec<u8>> {
    let cpus = Entries::default().raw(0, &[0, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let cpus = cpus.raw(2, &[0, 0, 1, 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let memory = cpus.clone().memory(0, 0, 0xa_0000, 1).memory(1, 1 << 32, 1 << 30, 7);
    [memory.srat(), cpus.srat()].to_vec()
}

/// Good FADTs: of today, and of the first ACPI.
pub fn fadts() -> Vec<Vec<u8>> {
    let made = |len: usize| {
        let mut bytes = table(b"FACP", &vec![0; len - 36]);
        bytes[64..68].copy_from_slice(&0x604u32.to_le_bytes());
        bytes[76..80].copy_from_slice(&0x608u32.to_le_bytes());
        if len > 200 {
            bytes[112..116].copy_from_slice(&(1u32 << 8 | 1 << 10).to_le_bytes());
            bytes[116..129].copy_from_slice(&[1, 8, 0, 1, 0xf9, 0x0c, 0, 0, 0, 0, 0, 0, 0x0f]);
        }
        seal(&mut bytes, 9);
        bytes
    };
    [made(276), made(116)].to_vec()
}

/// A good HPET.
pub fn hpets() -> Vec<Vec<u8>> {
    let block = [0x01, 0xa2, 0x86, 0x80, 0, 64, 0, 0, 0, 0, 0xd0, 0xfe, 0, 0, 0, 0, 0, 0x80, 0, 0];
    [table(b"HPET", &block)].to_vec()
}
