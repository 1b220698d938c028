//! Made-up firmware for tests and fuzzing: tables byte by byte.

use alloc::vec::Vec;

/// An RSDP with both checksums right.
pub fn rsdp(revision: u8, rsdt: u32, xsdt: u64) -> Vec<u8> {
    let mut bytes = b"RSD PTR \0TESTER".to_vec();
    bytes.push(revision);
    bytes.extend(rsdt.to_le_bytes());
    seal(&mut bytes, 8);
    if revision >= 2 {
        bytes.extend(36u32.to_le_bytes());
        bytes.extend(xsdt.to_le_bytes());
        bytes.extend([0; 4]);
        seal(&mut bytes, 32);
    }
    bytes
}

/// A table with header, length and checksum right.
pub fn table(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut bytes = signature.to_vec();
    bytes.extend((36 + body.len() as u32).to_le_bytes());
    bytes.extend([6, 0]);
    bytes.extend(b"TESTERTESTTEST\x01\0\0\0TEST\x01\0\0\0");
    assert_eq!(bytes.len(), 36);
    bytes.extend(body);
    seal(&mut bytes, 9);
    bytes
}

/// Makes the bytes add up to zero by setting the one at `at`.
pub fn seal(bytes: &mut [u8], at: usize) {
    bytes[at] = 0;
    let sum = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    bytes[at] = sum.wrapping_neg();
}

/// Entries of a MADT or SRAT, one call each.
#[derive(Default, Clone)]
pub struct Entries(pub Vec<u8>);

impl Entries {
    /// An entry of any kind; the length is worked out.
    pub fn raw(mut self, kind: u8, rest: &[u8]) -> Self {
        self.0.extend([kind, 2 + rest.len() as u8]);
        self.0.extend(rest);
        self
    }

    /// A CPU with a local APIC.
    pub fn local_apic(self, uid: u8, id: u8, flags: u32) -> Self {
        self.raw(0, &[&[uid, id][..], &flags.to_le_bytes()].concat())
    }

    /// A CPU with an x2APIC.
    pub fn x2apic(self, uid: u32, id: u32, flags: u32) -> Self {
        self.raw(
            9,
            &[[0; 4], id.to_le_bytes(), flags.to_le_bytes(), uid.to_le_bytes()].concat()[2..],
        )
    }

    /// An I/O APIC.
    pub fn io_apic(self, id: u8, address: u32, gsi: u32) -> Self {
        self.raw(1, &[&[id, 0][..], &address.to_le_bytes(), &gsi.to_le_bytes()].concat())
    }

    /// An ISA interrupt that arrives elsewhere.
    pub fn interrupt_override(self, irq: u8, gsi: u32, flags: u16) -> Self {
        self.raw(2, &[&[0, irq][..], &gsi.to_le_bytes(), &flags.to_le_bytes()].concat())
    }

    /// A range of memory, and its node.
    pub fn memory(self, node: u32, base: u64, len: u64, flags: u32) -> Self {
        let (base, len) = (base.to_le_bytes(), len.to_le_bytes());
        let head = [&node.to_le_bytes()[..], &[0; 2], &base, &len].concat();
        self.raw(1, &[&head[..], &[0; 4], &flags.to_le_bytes(), &[0; 8]].concat())
    }

    /// As a MADT with the usual local APIC address and 8259s.
    pub fn madt(&self) -> Vec<u8> {
        let head = [0xfee0_0000u32.to_le_bytes(), 1u32.to_le_bytes()].concat();
        table(b"APIC", &[head, self.0.clone()].concat())
    }

    /// The SRAT of these entries.
    pub fn srat(&self) -> Vec<u8> {
        table(b"SRAT", &[vec![0; 12], self.0.clone()].concat())
    }
}
