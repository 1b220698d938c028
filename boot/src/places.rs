//! Files and lines for the backtraces of a running machine.
//!
//! The kernel prints a backtrace with the names of functions, which is all that it carries
//! (`  #3 0xffffffff80201000 runnext::run::park::park+0x1c`). The host has its ELF file with the
//! line tables; so `boot run` reads what the serial port says on its way to the terminal, and puts
//! below each such line where in the source that is, and through which inlined calls:
//!
//! ```text
//!   #3 0xffffffff80201000 runnext::run::park::park+0x1c
//!        kernel/src/wait/queue.rs:112 in runnext::wait::queue::Queue::push, inlined
//!        kernel/src/run/park.rs:60
//! ```
//!
//! Every byte passes at once and unchanged: a prompt without an end of line is seen when it is
//! written. Only behind the end of a frame's line is something put in.
//!
//! At a terminal backtraces are folded ([`Places::folded`]): a person sees the calls of the
//! program, and a line with the number of the kernel's between them. A report of a fault or of a
//! kernel panic is never folded, nor what comes after it.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use addr2line::Loader;

/// The lines of one kernel.
pub struct Places {
    loader: Option<Loader>,
    /// What source paths begin with in this tree.
    root: PathBuf,
    /// The same of the kernel's.
    kernel: Vec<PathBuf>,
    is_folded: bool,
}

/// What is known of a frame's line.
struct Below {
    /// What is put in behind it, each line with the end of line that it had.
    text: String,
    /// The function, or one that is inlined there, is neither the kernel's nor a library's.
    is_program: bool,
}

/// After these words nothing is folded: the machine ends, and each call may matter.
const FATAL: [&str; 2] = ["fatal exception on CPU", "kernel panic on CPU"];

impl Places {
    /// Of the kernel in this file. One without line tables has no places: then nothing is put in.
    pub fn of(kernel: &Path, root: &Path) -> Self {
        let of_kernel = ["kernel/src", "kernel/sched"].map(|dir| root.join(dir)).into();
        let loader = Loader::new(kernel).ok();
        Self { loader, root: root.into(), kernel: of_kernel, is_folded: false }
    }

    /// The same, with the kernel's own calls counted and not shown.
    #[must_use]
    pub fn folded(self) -> Self {
        Self { is_folded: true, ..self }
    }

    /// Whether a path is that of the kernel, of Rust's library or of a crate from the registry.
    fn is_kernels(&self, file: &str) -> bool {
        self.kernel.iter().any(|own| Path::new(file).starts_with(own))
            || ["/library/", "/registry/src/"].iter().any(|mark| file.contains(mark))
    }

    /// What is put in behind `line`, if it is that of a frame whose place is known.
    fn below(&self, line: &[u8]) -> Option<Below> {
        let text = std::str::from_utf8(line).ok()?;
        let address = address_of(text)?;
        let end = if text.ends_with("\r\n") { "\r\n" } else { "\n" };
        let mut frames = self.loader.as_ref()?.find_frames(address).ok()?;
        let mut places = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let place = frame.location.and_then(|at| Some((at.file?.to_string(), at.line?)));
            let name = frame.function.and_then(|name| Some(name.demangle().ok()?.to_string()));
            places.extend(place.map(|(file, line)| (file, line, name.unwrap_or_default())));
        }
        let is_program = places.iter().any(|(file, ..)| !self.is_kernels(file));
        // The last of them is the function that the kernel has named.
        let (file, line, _) = places.pop()?;
        let own = format!("       {}:{line}{end}", self.shortened(&file));
        // Of calls within other crates a reader of this one needs none.
        let inlined = places.iter().filter(|(file, ..)| Path::new(file).starts_with(&self.root));
        let inlined = inlined.map(|(file, line, name)| {
            let name = name.split('<').next().unwrap_or_default();
            format!("       {}:{line} in {name}, inlined{end}", self.shortened(file))
        });
        Some(Below { text: inlined.chain([own]).collect(), is_program })
    }

    /// A path as a reader knows it: from the top of the tree, of a crate, or of Rust's library.
    fn shortened<'a>(&self, file: &'a str) -> &'a str {
        if let Ok(own) = Path::new(file).strip_prefix(&self.root) {
            return own.to_str().unwrap_or(file);
        }
        for (mark, kept) in [("/library/", 1), ("/registry/src/", 14)] {
            if let Some(at) = file.rfind(mark) {
                let rest = &file[at + kept..];
                // Below `registry/src` the crates are in the folder of their index.
                return if kept == 1 {
                    rest
                } else {
                    rest.split_once('/').map_or(rest, |(_, rest)| rest)
                };
            }
        }
        file
    }
}

/// The address that a line of a backtrace is about: of the innermost frame its own, of the others the
/// call before the address to which it returns. `None` for any other line.
fn address_of(line: &str) -> Option<u64> {
    let (number, rest) = line.trim_start().strip_prefix('#')?.split_once(' ')?;
    let number: u32 = number.parse().ok()?;
    let digits = rest.strip_prefix("0x")?.split([' ', '\r', '\n']).next()?;
    let address = u64::from_str_radix(digits, 16).ok()?;
    Some(if number == 0 { address } else { address.checked_sub(1)? })
}

/// A frame's line is not longer: what comes of a line without an end is not kept.
const LONGEST: usize = 4096;

/// Passes all of `from` on to `to`, with the places below each frame.
///
/// # Errors
/// `to` cannot be written; what cannot be read is the end.
pub fn pass_on(places: &Places, mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = [0; 4096];
    let mut line = Vec::new();
    let mut fold = Fold { is_on: places.is_folded, hidden: 0 };
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        for part in buffer[..count].split_inclusive(|&byte| byte == b'\n') {
            let was_held = fold.holds(&line);
            if line.len() < LONGEST {
                line.extend_from_slice(part);
            }
            let has_end = part.ends_with(b"\n");
            if fold.holds(&line) && !has_end {
                continue;
            }
            let below = if has_end { places.below(&line) } else { None };
            if fold.is_on && below.as_ref().is_some_and(|below| !below.is_program) {
                fold.hidden += 1;
            } else {
                fold.end(&line, &mut to)?;
                to.write_all(if was_held { &line } else { part })?;
                to.write_all(below.map(|below| below.text).unwrap_or_default().as_bytes())?;
            }
            if has_end {
                line.clear();
            }
        }
        to.flush()?;
    }
    Ok(())
}

/// The part of a backtrace that is not shown.
struct Fold {
    is_on: bool,
    /// Frames that were left out and not yet told of.
    hidden: usize,
}

impl Fold {
    /// Whether what has come of a line may be the beginning of a frame's: it is shown when the
    /// rest has come, or not at all.
    fn holds(&self, line: &[u8]) -> bool {
        const BEGIN: &[u8] = b"  #";
        self.is_on && line.iter().zip(BEGIN).all(|(byte, begin)| byte == begin)
    }

    /// `line` is to be shown: tells of the frames before it that were not.
    fn end(&mut self, line: &[u8], to: &mut impl Write) -> io::Result<()> {
        let hidden = std::mem::take(&mut self.hidden);
        if hidden > 0 {
            write!(to, "  \u{2026} {hidden} calls of the kernel; `dmesg` has them\r\n")?;
        }
        let text = String::from_utf8_lossy(line);
        self.is_on &= !FATAL.iter().any(|words| text.contains(words));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places of this very test.
    fn own() -> Places {
        let tool = std::env::current_exe().expect("this test is a file");
        Places::of(&tool, Path::new("/nowhere"))
    }

    fn passed(places: &Places, text: &[u8]) -> String {
        let mut out = Vec::new();
        pass_on(places, text, &mut out).expect("memory can be written");
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn lines_of_a_backtrace_and_no_others_have_an_address() {
        assert_eq!(
            address_of("  #0 0xffffffff8029f807 kernel_bug+0x17\r\n"),
            Some(0xffff_ffff_8029_f807)
        );
        assert_eq!(address_of("  #12 0x1000 main"), Some(0xfff));
        assert_eq!(address_of("  #1 0x0"), None);
        for line in [
            "",
            "#",
            "#1",
            "# 0x10",
            "#0 1000",
            "#0 0xz",
            "G 7: 0x1000",
            "# 1 0x1",
            "#0 0x10000000000000000",
        ] {
            assert_eq!(address_of(line), None, "{line}");
        }
    }

    #[test]
    fn what_is_no_frame_passes_unchanged() {
        let places = own();
        let text = "banner\r\n> \x1b[1mps\x1b[0m\r\n#include <x>\n\n no end";
        assert_eq!(passed(&places, text.as_bytes()), text);
        let broken = [b'#', b'0', b' ', 0xff, b'\n'];
        assert_eq!(passed(&places, &broken).len(), "#0 \u{fffd}\n".len());
        let long = vec![b'x'; 3 * LONGEST];
        assert_eq!(passed(&places, &long).len(), long.len());
    }

    #[test]
    fn a_frame_has_its_place_below_it() {
        let address = own_address();
        let said = passed(&own(), format!("  #0 {address:#x} f+0x0\r\nnext\n").as_bytes());
        let lines: Vec<&str> = said.split("\r\n").collect();
        assert!(lines[1].starts_with("       ") && lines[1].contains("places.rs:"), "{said}");
        assert!(said.ends_with("\r\nnext\n"), "{said}");
    }

    /// The address of a function of this file.
    fn own_address() -> u64 {
        use object::{Object, ObjectSymbol};
        let tool = std::env::current_exe().expect("this test is a file");
        let bytes = std::fs::read(&tool).expect("a readable file");
        let elf = object::File::parse(&*bytes).expect("an ELF file");
        let is_ours = |name: &str| name.contains("places") && name.contains("address_of");
        let ours = elf.symbols().find(|symbol| symbol.name().is_ok_and(is_ours));
        ours.expect("a function of this file").address()
    }

    /// A byte at a time.
    struct Slowly<'a>(&'a [u8]);

    impl Read for Slowly<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
            (buffer[0], self.0) = (*first, rest);
            Ok(1)
        }
    }

    #[test]
    fn at_a_terminal_the_kernels_calls_are_counted_and_a_programs_are_shown() {
        let frame = format!("  #1 {:#x} f+0x1\r\n", own_address() + 1);
        let text = format!("G 7 panicked\r\n{frame}{frame}end\r\n> ");
        // This file is a program's, until its folder is called the kernel.
        let program = passed(&own().folded(), text.as_bytes());
        assert_eq!(program.matches("  #1 ").count(), 2, "{program}");
        let dir = tool::tree::root().join("boot");
        let kernels = Places { kernel: vec![dir], ..own().folded() };
        let said = passed(&kernels, text.as_bytes());
        assert_eq!(
            said,
            "G 7 panicked\r\n  \u{2026} 2 calls of the kernel; `dmesg` has them\r\nend\r\n> "
        );
        // Byte by byte, as it comes from a slow line.
        let mut out = Vec::new();
        pass_on(&kernels, Slowly(text.as_bytes()), &mut out).expect("memory can be written");
        assert_eq!(String::from_utf8_lossy(&out), said);
        let fatal = format!("kernel panic on CPU 0\r\n{frame}");
        assert!(passed(&kernels, fatal.as_bytes()).contains("  #1 "), "a report is whole");
    }

    #[test]
    fn a_kernel_without_lines_changes_nothing() {
        let none = Places::of(Path::new("/nowhere"), Path::new("/nowhere")).folded();
        let text = "  #0 0xffffffff8029f807 kernel_bug+0x17\n";
        assert_eq!(passed(&none, text.as_bytes()), text);
    }

    #[test]
    fn paths_are_as_a_reader_knows_them() {
        let places = Places::of(Path::new("/nowhere"), Path::new("/home/me/runnext"));
        for file in ["kernel/src/lib.rs", "kernel/sched/src/g.rs"] {
            assert!(places.is_kernels(&format!("/home/me/runnext/{file}")), "{file}");
        }
        assert!(places.is_kernels("/rustc/21b7/library/core/src/panicking.rs"));
        assert!(!places.is_kernels("/home/me/runnext/kernel/programs/src/hog.rs"));
        assert!(!places.is_kernels("/home/you/app/src/main.rs"));
        for (file, short) in [
            ("/home/me/runnext/kernel/src/lib.rs", "kernel/src/lib.rs"),
            ("/rustc/21b7/library/core/src/panicking.rs", "library/core/src/panicking.rs"),
            ("/r/.cargo/registry/src/index-19/spin-0.9.8/src/once.rs", "spin-0.9.8/src/once.rs"),
            ("other/file.rs", "other/file.rs"),
        ] {
            assert_eq!(places.shortened(file), short);
        }
    }
}
