//! Names for addresses, from the kernel's own ELF file.
//!
//! The loader leaves the file in memory; its symbol table is scanned in place, without allocating,
//! because the users are the panic path and fault reports (`backtrace.rs`). The file is not
//! trusted: a wild pointer may have hit it before a name is looked up.

use core::fmt::{self, Write};
use object::LittleEndian as LE;
use object::elf::{FileHeader64, SHT_SYMTAB, STT_FUNC};
use object::read::elf::{FileHeader, Sym, SymbolTable};
use rustc_demangle::demangle;
use spin::Once;

static KERNEL: Once<Symbols<'static>> = Once::new();

/// Sets the table that [`lookup`] uses; the first call counts.
pub fn set(symbols: Symbols<'static>) {
    KERNEL.call_once(|| symbols);
}

/// The function of the kernel at `address`, if [`set`] was called and there is one.
pub fn lookup(address: usize) -> Option<Symbol<'static>> {
    KERNEL.get()?.lookup(address)
}

/// The symbol table of an ELF file.
#[derive(Clone, Copy)]
pub struct Symbols<'a>(SymbolTable<'a, FileHeader64<LE>>);

/// A function and an offset in it. Prints as the demangled name, without hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The name as it is in the file.
    pub name: &'a str,
    /// How far into the function the address is.
    pub offset: usize,
}

impl fmt::Display for Symbol<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut out = Clipped { out: &mut *f, room: MAX_SHOWN };
        match write!(out, "{:#}", demangle(self.name)) {
            Err(fmt::Error) if out.room == 0 => f.write_str("..."),
            done => done,
        }
    }
}

/// Writes so many bytes, up to a character, and no more. A name of a few letters can expand to a
/// million, by referring to itself: it must not fill the report.
pub(super) struct Clipped<W> {
    pub(super) out: W,
    pub(super) room: usize,
}

impl<W: Write> Write for Clipped<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = text.floor_char_boundary(self.room);
        self.out.write_str(&text[..fits])?;
        self.room = if fits < text.len() { 0 } else { self.room - fits };
        if fits < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// How far a function without a size (assembly) may reach.
const UNSIZED_REACH: usize = 4096;
/// The longest name that is shown whole, bytes.
pub const MAX_SHOWN: usize = 512;

impl<'a> Symbols<'a> {
    /// Finds the symbol table of `file`; `None` if it is no ELF file for this machine, has none, or
    /// is damaged.
    pub fn parse(file: &'a [u8]) -> Option<Self> {
        let header = FileHeader64::<LE>::parse(file).ok()?;
        let endian = header.endian().ok()?;
        let table = header.sections(endian, file).ok()?.symbols(endian, file, SHT_SYMTAB).ok()?;
        (!table.is_empty()).then_some(Symbols(table))
    }

    pub fn lookup(&self, address: usize) -> Option<Symbol<'a>> {
        let mut best = None;
        for symbol in self.0.iter() {
            let (start, size) = (symbol.st_value(LE) as usize, symbol.st_size(LE) as usize);
            let is_function = symbol.st_type() == STT_FUNC && !symbol.is_undefined(LE);
            let reach = if size == 0 { UNSIZED_REACH } else { size };
            let inside = address.checked_sub(start).is_some_and(|offset| offset < reach);
            // The nearest start wins: a function without a size reaches into others.
            if is_function && inside && best.is_none_or(|(other, _)| start > other) {
                best = Some((start, symbol));
            }
        }
        let (start, symbol) = best?;
        let name = symbol.name(LE, self.0.strings()).ok()?;
        Some(Symbol { name: core::str::from_utf8(name).ok()?, offset: address - start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_binary() -> Vec<u8> {
        std::fs::read(std::env::current_exe().expect("tests have a path")).expect("readable")
    }

    /// The address of a function with `part` in its name, from the file itself.
    fn address_of(symbols: &Symbols, part: &str) -> usize {
        let is_meant = |symbol: &&object::elf::Sym64<LE>| {
            let name = symbol.name(LE, symbols.0.strings()).unwrap_or_default();
            symbol.st_type() == STT_FUNC && String::from_utf8_lossy(name).contains(part)
        };
        symbols.0.iter().find(is_meant).expect("the function is in the file").st_value(LE) as usize
    }

    #[test]
    fn own_functions_are_found_by_address() {
        let file = test_binary();
        let symbols = Symbols::parse(&file).expect("the test binary has symbols");
        let start = address_of(&symbols, "own_functions_are_found_by_address");
        let symbol = symbols.lookup(start + 3).expect("found");
        assert_eq!(symbol.offset, 3);
        let shown = symbol.to_string();
        assert!(shown.contains("symbols::tests::own_functions"), "{shown}");
    }

    #[test]
    fn addresses_outside_have_no_name() {
        let file = test_binary();
        let symbols = Symbols::parse(&file).expect("the test binary has symbols");
        assert!(symbols.lookup(0).is_none());
        assert!(symbols.lookup(usize::MAX).is_none());
    }

    /// A file with a header, two sections and `symbols` as (name, info, start, size).
    fn elf(names: &[u8], symbols: &[(u32, u8, u64, u64)]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        file[0x28..0x30].copy_from_slice(&64u64.to_le_bytes());
        file[0x3a..0x3c].copy_from_slice(&64u16.to_le_bytes());
        file[0x3c..0x3e].copy_from_slice(&2u16.to_le_bytes());
        file[0x3e..0x40].copy_from_slice(&1u16.to_le_bytes());
        let mut section = |kind: u32, offset: usize, size: usize, link: u32| {
            let mut header = [0; 64];
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[0x18..0x20].copy_from_slice(&(offset as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
            header[0x28..0x2c].copy_from_slice(&link.to_le_bytes());
            file.extend_from_slice(&header);
        };
        const SYMBOL_SIZE: usize = size_of::<object::elf::Sym64<LE>>();
        section(2, 192, symbols.len() * SYMBOL_SIZE, 1);
        section(3, 192 + symbols.len() * SYMBOL_SIZE, names.len(), 0);
        for (name, info, start, size) in symbols {
            file.extend_from_slice(&name.to_le_bytes());
            file.extend_from_slice(&[*info, 0, 1, 0]);
            file.extend_from_slice(&start.to_le_bytes());
            file.extend_from_slice(&size.to_le_bytes());
        }
        file.extend_from_slice(names);
        file
    }

    #[test]
    fn nearest_function_wins_and_data_does_not_count() {
        let file = elf(
            b"\0asm\0sized\0data\0",
            &[(1, 2, 0x1000, 0), (5, 2, 0x1100, 0x10), (11, 1, 0x1105, 0x10)],
        );
        let symbols = Symbols::parse(&file).expect("well-formed");
        let name = |address| symbols.lookup(address).map(|s| (s.name, s.offset));
        assert_eq!(name(0xfff), None);
        assert_eq!(name(0x1000), Some(("asm", 0)));
        assert_eq!(name(0x1108), Some(("sized", 8)));
        assert_eq!(name(0x1110), Some(("asm", 0x110)));
        assert_eq!(name(0x2000), None);
    }

    #[test]
    fn names_are_shown_to_a_limit() {
        let shown = |name: &str| Symbol { name, offset: 0 }.to_string();
        assert_eq!(shown(&"n".repeat(MAX_SHOWN)), "n".repeat(MAX_SHOWN));
        assert_eq!(shown(&"n".repeat(5000)), "n".repeat(MAX_SHOWN) + "...");
        // Each type is a pair of the one before: 2 to the 16 in all.
        let pairs = (0..16).fold(String::from("u"), |inner, _| format!("T{inner}{inner}E"));
        let long = shown(&format!("_RINvC1a1b{pairs}E"));
        assert!(long.len() <= MAX_SHOWN + 3, "{} bytes", long.len());
        assert_eq!(shown("_ZN4core3fmt5Write17h0123456789abcdefE"), "core::fmt::Write");
    }

    #[test]
    fn damaged_files_are_survived() {
        let good = elf(b"\0one\0two\0", &[(1, 2, 0x1000, 0x80), (5, 2, 0x1080, 0x80)]);
        for cut in 0..good.len() {
            if let Some(symbols) = Symbols::parse(&good[..cut]) {
                symbols.lookup(0x1010);
            }
        }
        // Every byte of it, replaced by critical values.
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let end = bad.len().min(at + 8);
                let mut worse = good.clone();
                worse[at..end].fill(value);
                for file in [bad, worse] {
                    if let Some(symbols) = Symbols::parse(&file) {
                        for address in [0, 0x1010, 0x1090, usize::MAX] {
                            symbols.lookup(address);
                        }
                    }
                }
            }
        }
    }
}
