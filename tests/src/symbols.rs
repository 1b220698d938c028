//! Names the functions of the kernel by address, from its ELF file.

use std::path::Path;

use anyhow::{Context, Result};
use boot::kernel::in_elf;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

/// The functions of one kernel, in order of address.
#[derive(Clone, Debug, Default)]
pub struct Symbols(Vec<Symbol>);

#[derive(Clone, Debug)]
struct Symbol {
    start: u64,
    size: u64,
    name: String,
}

impl Symbols {
    /// Reads the symbol table of `elf`.
    pub fn read(elf: &Path) -> Result<Self> {
        in_elf(elf, |file| {
            let functions = file.symbols().filter(|symbol| {
                // Entry stubs in assembly often carry no type.
                matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown)
                    && symbol.address() != 0
            });
            let part = |s: object::Symbol<'_, '_>| {
                (s.address(), s.size(), s.name().unwrap_or("?").to_string())
            };
            Ok(Self::from_parts(functions.map(part)))
        })
    }

    fn from_parts(parts: impl IntoIterator<Item = (u64, u64, String)>) -> Self {
        let mut symbols: Vec<Symbol> =
            parts.into_iter().map(|(start, size, name)| Symbol { start, size, name }).collect();
        symbols.sort_by_key(|symbol| symbol.start);
        Self(symbols)
    }

    /// `function+0x12`, or nothing for an address in no function.
    pub fn name(&self, address: u64) -> Option<String> {
        let after = self.0.partition_point(|symbol| symbol.start <= address);
        let symbol = self.0.get(after.checked_sub(1)?)?;
        let offset = address - symbol.start;
        // A size of zero means unknown; assume a page.
        let size = if symbol.size == 0 { 4096 } else { symbol.size };
        let name = format!("{:#}", rustc_demangle::demangle(&symbol.name));
        (offset <= size).then(|| format!("{name}+{offset:#x}"))
    }
}

/// How often `code` stands in the code of `elf`: between the symbols `start` and `end`, and
/// elsewhere.
pub fn count_code(elf: &Path, code: &[u8], [start, end]: [&str; 2]) -> Result<[usize; 2]> {
    in_elf(elf, |file| {
        let address = |name: &str| {
            let symbol = file.symbol_by_name(name).with_context(|| format!("no symbol {name}"))?;
            anyhow::Ok(symbol.address())
        };
        let range = address(start)?..address(end)?;
        let text = file.section_by_name(".text").context("no .text")?;
        let mut counts = [0, 0];
        for (offset, window) in text.data()?.windows(code.len()).enumerate() {
            if window == code {
                counts[usize::from(!range.contains(&(text.address() + offset as u64)))] += 1;
            }
        }
        Ok(counts)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Symbols {
        let part = |start, size, name: &str| (start, size, name.to_string());
        Symbols::from_parts([
            part(0x3000, 0, "entry_stub"),
            part(0x1000, 0x10, "_ZN7runnext5start17h0123456789abcdefE"),
            part(0x1010, 0x20, "halt"),
        ])
    }

    #[test]
    fn an_address_is_named_by_the_function_around_it() {
        let symbols = three();
        assert_eq!(symbols.name(0x1004).as_deref(), Some("runnext::start+0x4"));
        assert_eq!(symbols.name(0x1010).as_deref(), Some("halt+0x0"));
        assert_eq!(symbols.name(0x3002).as_deref(), Some("entry_stub+0x2"));
    }

    #[test]
    fn an_address_in_no_function_has_no_name() {
        let symbols = three();
        for address in [0, 0xfff, 0x1040, 0x5000, u64::MAX] {
            assert_eq!(symbols.name(address), None, "{address:#x}");
        }
        assert_eq!(Symbols::default().name(0x1000), None);
    }
}
