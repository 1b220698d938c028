//! Virtio structures that are inside their memory, and outside.

use super::*;
use crate::drivers::pci::tests::{Fake, device, with_capabilities};

const AT: (u8, u8, u8) = (0, 1, 0);

/// A vendor's capability at 0x40 with so many bytes and this kind.
fn one(bytes: u16, kind: u8) -> Fake {
    let mut fake = with_capabilities(&[(0x40, PCI_CAP_ID_VNDR, 0, u16::from(kind) << 8 | bytes)]);
    fake.bar(4, 0xfe00_0000, 0x4000);
    fake
}

fn place(fake: &mut Fake, bar: u32, offset: u32, bytes: u32) {
    fake.set(AT, 0x44, bar);
    fake.set(AT, 0x48, offset);
    fake.set(AT, 0x4c, bytes);
}

#[test]
fn a_structure_is_found_by_its_kind() {
    let mut fake = one(16, 1);
    place(&mut fake, 4, 0x1000, 0x38);
    let region = Region { address: 0xfe00_1000, bytes: 0x38 };
    assert_eq!(structure(&device(&fake), 1), Ok(Some((0x40, region))));
    assert_eq!(structure(&device(&fake), 2), Ok(None));
}

#[test]
fn a_structure_outside_of_its_memory_is_refused() {
    for (bar, offset, bytes, error) in [
        (4, 0x4000, 1, ProbeError::OutsideBar(4)),
        (4, 0xffff_ffff, 0xffff_ffff, ProbeError::OutsideBar(4)),
        (4, 0, 0, ProbeError::OutsideBar(4)),
        (3, 0, 1, ProbeError::NoMemoryBar(3)),
        (0xfc, 0, 1, ProbeError::NoSuchBar(0xfc)),
    ] {
        let mut fake = one(16, 1);
        place(&mut fake, bar, offset, bytes);
        assert_eq!(structure(&device(&fake), 1), Err(error), "{bar} {offset:#x} {bytes:#x}");
    }
}

#[test]
fn structures_that_are_too_short_are_passed_over() {
    let mut fake = one(15, 1);
    place(&mut fake, 4, 0, 0x38);
    assert_eq!(structure(&device(&fake), 1), Ok(None));
    let mut bells = one(16, VIRTIO_PCI_CAP_NOTIFY_CFG);
    place(&mut bells, 4, 0, 0x38);
    assert_eq!(structure(&device(&bells), VIRTIO_PCI_CAP_NOTIFY_CFG), Ok(None));
}

#[test]
fn a_capability_at_the_edge_is_refused_whatever_its_kind() {
    let fake = with_capabilities(&[(0xf4, PCI_CAP_ID_VNDR, 0, 5 << 8 | 20)]);
    assert_eq!(structure(&device(&fake), 1), Err(ProbeError::CutCapability(0xf4)));
}

#[test]
fn errors_are_sentences() {
    let error = ProbeError::OutsideBar(4);
    assert_eq!(error.to_string(), "it names memory outside of register 4's");
    assert_eq!(NO_INTERRUPT.to_string(), "its interrupt cannot reach a CPU");
}
