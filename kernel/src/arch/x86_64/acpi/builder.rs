//! Made-up firmware for the tests: tables byte by byte, placed in made-up memory.

use super::tables::PhysicalMemory;

/// Sparse physical memory: what was placed is readable, the rest is not mapped.
#[derive(Default, Clone)]
pub struct Memory {
    pub chunks: Vec<(u64, Vec<u8>)>,
}

impl PhysicalMemory for Memory {
    fn bytes(&self, phys: u64, len: usize) -> Option<&[u8]> {
        let (at, chunk) = self.chunks.iter().find(|(at, chunk)| {
            phys >= *at && phys.checked_sub(*at).is_some_and(|from| from < chunk.len() as u64)
        })?;
        let from = (phys - at) as usize;
        chunk.get(from..from.checked_add(len)?)
    }
}

impl Memory {
    /// Puts bytes on a page of their own; gives its address.
    pub fn place(&mut self, bytes: Vec<u8>) -> u64 {
        let at = 0x10_0000 * (1 + self.chunks.len() as u64);
        self.chunks.push((at, bytes));
        at
    }
}

/// Which root tables the made-up RSDP names.
#[derive(Clone, Copy, PartialEq)]
pub enum Root {
    Xsdt,
    Rsdt,
}

/// A machine with these tables; gives memory and the RSDP's address.
pub fn machine(tables: &[Vec<u8>], root: Root) -> (Memory, u64) {
    let mut memory = Memory::default();
    let pointers: Vec<u64> = tables.iter().map(|table| memory.place(table.clone())).collect();
    let rsdp = match root {
        Root::Xsdt => {
            let body: Vec<u8> = pointers.iter().flat_map(|at| at.to_le_bytes()).collect();
            let xsdt = memory.place(table(b"XSDT", &body));
            rsdp(2, 0, xsdt)
        }
        Root::Rsdt => {
            let body: Vec<u8> = pointers.iter().flat_map(|at| (*at as u32).to_le_bytes()).collect();
            let rsdt = memory.place(table(b"RSDT", &body));
            rsdp(0, rsdt as u32, 0)
        }
    };
    let at = memory.place(rsdp);
    (memory, at)
}

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

    pub fn local_apic(self, uid: u8, id: u8, flags: u32) -> Self {
        self.raw(0, &[&[uid, id][..], &flags.to_le_bytes()].concat())
    }

    pub fn x2apic(self, uid: u32, id: u32, flags: u32) -> Self {
        self.raw(
            9,
            &[[0; 4], id.to_le_bytes(), flags.to_le_bytes(), uid.to_le_bytes()].concat()[2..],
        )
    }

    pub fn io_apic(self, id: u8, address: u32, gsi: u32) -> Self {
        self.raw(1, &[&[id, 0][..], &address.to_le_bytes(), &gsi.to_le_bytes()].concat())
    }

    pub fn interrupt_override(self, irq: u8, gsi: u32, flags: u16) -> Self {
        self.raw(2, &[&[0, irq][..], &gsi.to_le_bytes(), &flags.to_le_bytes()].concat())
    }

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

    pub fn srat(&self) -> Vec<u8> {
        table(b"SRAT", &[vec![0; 12], self.0.clone()].concat())
    }
}

/// xorshift64*: the same numbers in each run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}
