//! Properties that hold for any input bytes: a check for each parser.
//!
//! Each check parses bytes as the kernel would, panics when a promise of the parser is broken, and
//! returns whether the parser accepted anything. Seeds are valid inputs to mutate. Here are texts and
//! files; data from devices is in [`devices`], the loader's memory map in [`memory`], the
//! firmware's tables in [`acpi`].

pub mod acpi;
pub mod devices;
pub mod memory;

use runnext::console::LINE_MAX;
use runnext::internals::parsers::ustar::{self, BLOCK, Damage};
use runnext::internals::parsers::{Editor, MAX_CPUS, MAX_LENGTH, NEVER, Options, Symbols, Typed};
use runnext::internals::parsers::{MAX_FRAMES, MAX_SHOWN, follow};

/// Reads bytes one after the other; `None` at the end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

/// Panics unless `line` can be shown on a console: printable, and not long.
#[track_caller]
fn assert_line(line: &str, most: usize) {
    assert!(line.len() <= most, "{} bytes: {line:?}", line.len());
    assert!(!line.chars().any(char::is_control), "{line:?}");
}

/// A command line: numbers are within their limits, warnings can be printed, and arguments that are
/// written out are parsed back equal.
pub fn cmdline(bytes: &[u8]) -> bool {
    let mut options = Options::default();
    options.apply("fuzz", bytes);
    assert!(options.max_cpus.is_none_or(|n| (1..=MAX_CPUS).contains(&n)));
    assert!(options.gomaxprocs.is_none_or(|n| (1..=MAX_CPUS).contains(&n)));
    let is_slice = |ns| ns == NEVER || (5_000..=10_000_000_000).contains(&ns);
    assert!(options.slice_ns.is_none_or(is_slice));
    assert!(options.warnings.len() <= 16);
    options.warnings.iter().for_each(|warning| assert_line(&warning.to_string(), 320));
    let length: usize = options.args.iter().map(String::len).sum();
    assert!(length <= MAX_LENGTH && options.program.as_ref().is_none_or(|p| p.len() <= MAX_LENGTH));
    options.args.iter().for_each(|word| assert_line(word, MAX_LENGTH));

    let again: Vec<_> = options.args.iter().map(|word| format!("\"{word}\"")).collect();
    let again = format!("-- {}", again.join(" "));
    if again.len() <= MAX_LENGTH {
        let mut second = Options::default();
        second.apply("again", again.as_bytes());
        assert_eq!((&second.args, second.warnings.len()), (&options.args, 0), "{again:?}");
    }
    options.warnings.is_empty()
}

/// Valid command lines.
pub fn cmdlines() -> Vec<Vec<u8>> {
    let lines: [&[u8]; 5] = [
        b"program=shell log=debug maxcpus=4 slice=10 seed=0x5eed trace=stream events=4096",
        b"\xef\xbb\xbf# a comment\r\nprogram=tour\r\n  console=serial timer=lapic -- \"two words\" x=y",
        b"slice=off system=shared handoff=never pack=off accounting=full",
        b"gomaxprocs=8 order=steal-first handoff=sysmon apic=x2apic clock=hpet acpi=off",
        b"-- \"\" a\"b c\"d -- e",
    ];
    lines.map(<[u8]>::to_vec).to_vec()
}

/// A disk with an archive: the walk ends, entries are inside, names are normalized.
pub fn archive(disk: &[u8]) -> bool {
    let mut blocks = 0;
    let mut entries = 0;
    let read = |at: u64, block: &mut ustar::Block| -> Result<(), (u64, Damage)> {
        blocks += 1;
        assert!(blocks <= disk.len() / BLOCK, "it goes in circles");
        let at = usize::try_from(at).expect("inside");
        block.copy_from_slice(disk.get(at..at + BLOCK).expect("inside"));
        Ok(())
    };
    let walked = ustar::walk(disk.len() as u64, read, |entry| {
        entries += 1;
        let end = entry.start.checked_add(entry.size).expect("no overflow");
        assert!(entry.start >= BLOCK as u64 && end <= disk.len() as u64, "{entry:?}");
        assert_eq!(ustar::normal(&entry.name).as_ref(), Some(&entry.name), "a name has two forms");
        assert!(entry.name.len() <= 256 && entry.kind != ustar::Kind::Other);
        Ok(())
    });
    if let Err((at, damage)) = walked {
        assert!(at < disk.len() as u64);
        assert_line(&damage.to_string(), 80);
    }
    entries > 0
}

/// Valid archives: files, a directory, a long name, a link, a size in base 256.
pub fn archives() -> Vec<Vec<u8>> {
    let header = |name: &[u8], prefix: &[u8], size: &[u8], kind: u8| {
        let mut block = [0; BLOCK];
        block[..name.len()].copy_from_slice(name);
        block[124..124 + size.len()].copy_from_slice(size);
        block[156] = kind;
        block[257..263].copy_from_slice(b"ustar\0");
        block[345..345 + prefix.len()].copy_from_slice(prefix);
        block
    };
    let mut disk = Vec::new();
    disk.extend(header(b"./docs/", b"", b"00000000000\0", b'5'));
    disk.extend(header(b"a.txt", b"", b"00000000005\0", b'0'));
    disk.extend([b'x'; BLOCK]);
    disk.extend(header(b"b", b"a/long/prefix", b"00000001001\0", 0));
    disk.extend([b'y'; 2 * BLOCK]);
    disk.extend(header(b"link", b"", b"00000000777\0", b'1'));
    disk.extend(header(b"wide", b"", b"\x80\0\0\0\0\0\0\0\0\0\0\x03", b'0'));
    disk.extend([b'z'; BLOCK]);
    let mut ended = disk.clone();
    ended.resize(disk.len() + 2 * BLOCK, 0);
    let mut seeds = [disk, ended].to_vec();
    seeds.iter_mut().for_each(|disk| mend_archive(disk));
    seeds
}

/// Corrects the checksum of every block that has the mark of a header.
pub fn mend_archive(disk: &mut [u8]) {
    for block in disk.as_chunks_mut::<BLOCK>().0 {
        if &block[257..262] == b"ustar" {
            block[148..156].fill(b' ');
            let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
}

/// The kernel's own file, overwritten by a wild pointer: names come from inside of it and are not
/// longer than a line of a report can be.
pub fn symbols(file: &[u8]) -> bool {
    let Some(symbols) = Symbols::parse(file) else { return false };
    let mut is_found = false;
    for address in [0, 0x1000, 0x1010, 0x1100, 0x1105, 0x2000, usize::MAX] {
        let Some(symbol) = symbols.lookup(address) else { continue };
        is_found = true;
        assert!(symbol.offset <= address && symbol.name.len() <= file.len());
        let inside = file.as_ptr_range();
        assert!(inside.contains(&symbol.name.as_ptr()) || symbol.name.is_empty());
        let shown = symbol.to_string();
        assert!(shown.len() <= MAX_SHOWN + 3, "{} bytes of a name", shown.len());
    }
    is_found
}

/// Small files with symbols, one with mangled names.
pub fn symbol_files() -> Vec<Vec<u8>> {
    let names =
        b"\0asm\0_RNvCs1234_7mycrate3foo\0_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE\0";
    let starts = [(1u32, 0x1000u64, 0u64), (5, 0x1100, 0x40), (33, 0x1140, 0x1000)];
    let mut file = vec![0; 64];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[0x28..0x30].copy_from_slice(&64u64.to_le_bytes());
    file[0x3a..0x3c].copy_from_slice(&64u16.to_le_bytes());
    file[0x3c..0x3e].copy_from_slice(&2u16.to_le_bytes());
    file[0x3e..0x40].copy_from_slice(&1u16.to_le_bytes());
    let tables =
        [(2u32, 192, 24 * starts.len(), 1u32), (3, 192 + 24 * starts.len(), names.len(), 0)];
    for (kind, offset, size, link) in tables {
        let mut header = [0; 64];
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[0x18..0x20].copy_from_slice(&(offset as u64).to_le_bytes());
        header[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
        header[0x28..0x2c].copy_from_slice(&link.to_le_bytes());
        file.extend(header);
    }
    for (name, start, size) in starts {
        file.extend(name.to_le_bytes());
        file.extend([2, 0, 1, 0]);
        file.extend(start.to_le_bytes());
        file.extend(size.to_le_bytes());
    }
    file.extend(names);
    // And one with a very long last name.
    let mut long = file.clone();
    long.splice(file.len() - 1..file.len() - 1, [b'n'; 800]);
    let size = (names.len() + 800) as u64;
    long[128 + 0x20..128 + 0x28].copy_from_slice(&size.to_le_bytes());
    [file, long].to_vec()
}

/// A stack that was overwritten: the walk reads only aligned words of it, and ends.
pub fn frames(stack: &[u8]) -> bool {
    const BASE: usize = 0x10000;
    let words = stack.as_chunks::<8>().0;
    let read = |address: usize| {
        assert!(address.is_multiple_of(8));
        let index = address.checked_sub(BASE)? / 8;
        words.get(index).map(|word| usize::from_le_bytes(*word))
    };
    for is_guarded in [false, true] {
        let mut number = 0;
        let leads_on = |frame, caller| !is_guarded || caller > frame;
        follow(1, BASE, read, leads_on, |_| number += 1);
        assert!((1..=MAX_FRAMES).contains(&number));
    }
    words.len() > 1
}

/// A stack with some frames.
pub fn stacks() -> Vec<Vec<u8>> {
    let words: Vec<u64> = (0..40u64).flat_map(|i| [0x10000 + 16 * (i + 1), 0x4000 + i]).collect();
    [words.iter().flat_map(|word| word.to_le_bytes()).collect()].to_vec()
}

/// Typed input: the terminal shows the line that is returned, and no line is too long.
pub fn typed(bytes: &[u8]) -> bool {
    let mut editor = Editor::empty();
    let mut shown: Vec<char> = Vec::new();
    let mut lines = 0;
    for &byte in bytes {
        match editor.push(byte) {
            Typed::Nothing => {}
            Typed::Added(letter) => {
                assert!(!letter.is_control());
                shown.push(letter);
            }
            Typed::Erased(count) => {
                assert!(count <= shown.len());
                shown.truncate(shown.len() - count);
            }
            Typed::Line => {
                let line = editor.take();
                assert!(line.len() <= LINE_MAX && line.chars().eq(shown.drain(..)), "{line:?}");
                lines += 1;
            }
            Typed::End => assert!(shown.is_empty()),
        }
    }
    lines > 0
}

/// Keys of all kinds.
pub fn keystrokes() -> Vec<Vec<u8>> {
    let keys: [&[u8]; 4] = [
        b"help\rps\nstack 1\r\n",
        "gr\u{fc}\u{df} \u{1f600}\u{8}\u{7f}x\r".as_bytes(),
        b"gomaxprocs 3\x1b[D\x1b[D2\x1b[F\x1b[1;5D\x1bOP\x0b\x15\x17\t\tbench yi\t\r\x1b[A\x1b[B\r\x03\x04",
        b"run echo 'a b' \"c d\" &\rkill g7\rtrace sideways\rdmesg 99999999999999999999\r",
    ];
    keys.map(<[u8]>::to_vec).to_vec()
}
