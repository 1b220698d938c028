//! Made-up memory with made-up tables in it, and numbers to damage them by.

use super::super::builder::{rsdp, table};

/// Sparse physical memory: what was placed is readable, the rest is not mapped.
#[derive(Default, Clone)]
pub struct Memory {
    pub chunks: Vec<(u64, Vec<u8>)>,
}

impl Memory {
    pub fn bytes(&self, phys: u64, len: usize) -> Option<&[u8]> {
        let (at, chunk) = self.chunks.iter().find(|(at, chunk)| {
            phys >= *at && phys.checked_sub(*at).is_some_and(|from| from < chunk.len() as u64)
        })?;
        let from = (phys - at) as usize;
        chunk.get(from..from.checked_add(len)?)
    }

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
