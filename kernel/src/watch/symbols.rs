//! Names for addresses, from the kernel's own ELF file.
//!
//! The loader leaves the file in memory; its symbol table is searched in place, without copying or
//! allocating, because the only users are the panic path and fault reports (`backtrace.rs`). A
//! linear scan is fast enough for 64 frames. The file is not trusted: it is in memory that a wild
//! pointer may have hit before a name is looked up.

use core::fmt::{self, Write};
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
pub struct Symbols<'a> {
    /// Whole entries of `.symtab`.
    symtab: &'a [u8],
    strtab: &'a [u8],
}

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

// Sizes and numbers of the ELF specification, 64-bit files.
const SECTION_HEADER_SIZE: usize = 64;
const SYMBOL_SIZE: usize = 24;
const SHT_SYMTAB: u32 = 2;
const STT_FUNC: u8 = 2;

/// How far a function without a size (assembly) may reach.
const UNSIZED_REACH: usize = 4096;

/// The longest name that is shown whole, bytes.
pub const MAX_SHOWN: usize = 512;

impl<'a> Symbols<'a> {
    /// Finds the symbol table of `file`; `None` if it is no ELF file for this machine, has none, or
    /// is damaged.
    pub fn parse(file: &'a [u8]) -> Option<Self> {
        // 64-bit, little-endian.
        if !file.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let headers = usize::try_from(u64_at(file, 0x28)?).ok()?;
        if usize::from(u16_at(file, 0x3a)?) != SECTION_HEADER_SIZE {
            return None;
        }
        let count = usize::from(u16_at(file, 0x3c)?);
        let header = |index: usize| {
            let at = headers.checked_add(index * SECTION_HEADER_SIZE)?;
            file.get(at..at.checked_add(SECTION_HEADER_SIZE)?)
        };
        let symtab = (0..count).filter_map(header).find(|h| u32_at(h, 4) == Some(SHT_SYMTAB))?;
        // The table's `link` is the section that holds its strings.
        let link = usize::try_from(u32_at(symtab, 0x28)?).ok().filter(|&link| link < count)?;
        Some(Symbols { symtab: section(file, symtab)?, strtab: section(file, header(link)?)? })
    }

    /// The function that `address` is in.
    pub fn lookup(&self, address: usize) -> Option<Symbol<'a>> {
        let mut best: Option<(usize, u32)> = None;
        for entry in self.symtab.as_chunks::<SYMBOL_SIZE>().0 {
            let (Some(name), Some(start), Some(size)) =
                (u32_at(entry, 0), u64_at(entry, 8), u64_at(entry, 16))
            else {
                continue;
            };
            let (start, size) = (start as usize, size as usize);
            let is_function = entry[4] & 0xf == STT_FUNC && u16_at(entry, 6) != Some(0);
            let reach = if size == 0 { UNSIZED_REACH } else { size };
            let inside = address.checked_sub(start).is_some_and(|offset| offset < reach);
            // The nearest start wins: a function without a size reaches into others.
            if is_function && inside && best.is_none_or(|(other, _)| start > other) {
                best = Some((start, name));
            }
        }
        let (start, name) = best?;
        Some(Symbol { name: self.name(name)?, offset: address - start })
    }

    fn name(&self, at: u32) -> Option<&'a str> {
        let rest = self.strtab.get(at as usize..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        core::str::from_utf8(&rest[..end]).ok()
    }
}

/// The bytes of the section with this header.
fn section<'a>(file: &'a [u8], header: &[u8]) -> Option<&'a [u8]> {
    let start = usize::try_from(u64_at(header, 0x18)?).ok()?;
    let size = usize::try_from(u64_at(header, 0x20)?).ok()?;
    file.get(start..start.checked_add(size)?)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes_at(bytes, at)?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes_at(bytes, at)?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes_at(bytes, at)?))
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_binary() -> Vec<u8> {
        std::fs::read(std::env::current_exe().expect("tests have a path")).expect("readable")
    }

    /// The address of a function with `part` in its name, from the file itself.
    fn address_of(symbols: &Symbols, part: &str) -> usize {
        let entry = symbols
            .symtab
            .as_chunks::<SYMBOL_SIZE>()
            .0
            .iter()
            .find(|&e| {
                let name = u32_at(e, 0).and_then(|at| symbols.name(at));
                e[4] & 0xf == STT_FUNC && name.is_some_and(|name| name.contains(part))
            })
            .expect("the function is in the file");
        u64_at(entry, 8).expect("whole entry") as usize
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
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[0x28..0x30].copy_from_slice(&64u64.to_le_bytes());
        file[0x3a..0x3c].copy_from_slice(&64u16.to_le_bytes());
        file[0x3c..0x3e].copy_from_slice(&2u16.to_le_bytes());
        let mut section = |kind: u32, offset: usize, size: usize, link: u32| {
            let mut header = [0; 64];
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[0x18..0x20].copy_from_slice(&(offset as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
            header[0x28..0x2c].copy_from_slice(&link.to_le_bytes());
            file.extend_from_slice(&header);
        };
        section(SHT_SYMTAB, 192, symbols.len() * SYMBOL_SIZE, 1);
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
