//! Makes MADTs, good and bad: the firmware's list of CPUs (ACPI 6.5, §5.2.12).
//!
//! The kernel takes a table from QEMU's fw_cfg in place of the firmware's, so a
//! test can hand it what no firmware at hand would write: a CPU that does not
//! exist, one that is listed twice, nonsense.

/// Bit 0 of a CPU's flags: it is there and may be started.
pub const ENABLED: u32 = 1;
/// Bit 1: it is not there now, but may be plugged in later.
pub const ONLINE_CAPABLE: u32 = 2;

/// A table in the making.
///
/// ```
/// use tests::madt::{ENABLED, Madt};
///
/// let table = Madt::for_qemu(2).local_apic(7, ENABLED).bytes();
/// assert_eq!(&table[..4], b"APIC");
/// assert_eq!(table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)), 0);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Madt {
    entries: Vec<u8>,
    uid: u32,
}

impl Madt {
    /// A table with no entries.
    pub fn empty() -> Self {
        Self { entries: Vec::new(), uid: 0 }
    }

    /// What QEMU's firmware writes for `cpus` CPUs with ids from 0 on: the CPUs,
    /// the IOAPIC, its overrides, and NMI on pin 1.
    pub fn for_qemu(cpus: u8) -> Self {
        (0..cpus).fold(Self::empty(), |madt, id| madt.local_apic(id, ENABLED)).with_qemu_wiring()
    }

    /// The IOAPIC, overrides and NMI entries of QEMU's boards, without CPUs.
    pub fn with_qemu_wiring(self) -> Self {
        let mut madt = self.io_apic(0, 0xfec0_0000, 0).isa_override(0, 2, 0);
        for irq in [5, 9, 10, 11] {
            madt = madt.isa_override(irq, u32::from(irq), 0x000d);
        }
        madt.local_nmi(0xff, 0, 1)
    }

    /// A CPU as all firmware lists it (type 0).
    pub fn local_apic(mut self, apic_id: u8, flags: u32) -> Self {
        let uid = self.next_uid() as u8;
        let mut body = vec![uid, apic_id];
        body.extend(flags.to_le_bytes());
        self.entry(0, &body)
    }

    /// A CPU as firmware lists it when ids may exceed 254 (type 9).
    pub fn local_x2apic(mut self, apic_id: u32, flags: u32) -> Self {
        let uid = self.next_uid();
        let mut body = vec![0, 0];
        for word in [apic_id, flags, uid] {
            body.extend(word.to_le_bytes());
        }
        self.entry(9, &body)
    }

    /// An IOAPIC (type 1).
    pub fn io_apic(self, id: u8, address: u32, first_gsi: u32) -> Self {
        let mut body = vec![id, 0];
        body.extend(address.to_le_bytes());
        body.extend(first_gsi.to_le_bytes());
        self.entry(1, &body)
    }

    /// An ISA line that arrives elsewhere (type 2).
    pub fn isa_override(self, irq: u8, gsi: u32, flags: u16) -> Self {
        let mut body = vec![0, irq];
        body.extend(gsi.to_le_bytes());
        body.extend(flags.to_le_bytes());
        self.entry(2, &body)
    }

    /// Where NMI comes in at a CPU's own APIC (type 4); uid 0xff is all CPUs.
    pub fn local_nmi(self, uid: u8, flags: u16, pin: u8) -> Self {
        let mut body = vec![uid];
        body.extend(flags.to_le_bytes());
        body.push(pin);
        self.entry(4, &body)
    }

    /// Any entry, with a true length.
    pub fn entry(mut self, kind: u8, body: &[u8]) -> Self {
        let length = u8::try_from(body.len() + 2).unwrap_or(u8::MAX);
        self.entries.extend([kind, length]);
        self.entries.extend(body);
        self
    }

    /// Bytes that need not be an entry at all.
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.entries.extend(bytes);
        self
    }

    /// The whole table, with its checksum.
    pub fn bytes(&self) -> Vec<u8> {
        let mut table = b"APIC".to_vec();
        let length = 44 + self.entries.len() as u32;
        table.extend(length.to_le_bytes());
        // Revision, checksum to come, OEM and creator.
        table.extend([3, 0]);
        table.extend(b"RUNNXTTESTMADT");
        table.extend([1, 0, 0, 0]);
        table.extend(b"TEST");
        table.extend([1, 0, 0, 0]);
        table.extend(0xfee0_0000u32.to_le_bytes());
        // There is a pair of 8259s to mask.
        table.extend(1u32.to_le_bytes());
        table.extend(&self.entries);
        let sum = table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        table[9] = sum.wrapping_neg();
        table
    }

    fn next_uid(&mut self) -> u32 {
        self.uid += 1;
        self.uid - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_checksum_are_true() {
        let table = Madt::for_qemu(3).local_x2apic(300, ENABLED).bytes();
        let length = u32::from_le_bytes(table[4..8].try_into().expect("four bytes"));
        assert_eq!(length as usize, table.len());
        assert_eq!(table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)), 0);
        // The entries follow each other exactly to the end.
        let mut at = 44;
        let mut kinds = Vec::new();
        while at < table.len() {
            kinds.push((table[at], table[at + 1]));
            at += usize::from(table[at + 1]);
        }
        assert_eq!(at, table.len());
        assert_eq!(kinds[..4], [(0, 8), (0, 8), (0, 8), (1, 12)]);
        assert_eq!(kinds[4..], [(2, 10), (2, 10), (2, 10), (2, 10), (2, 10), (4, 6), (9, 16)]);
    }
}
