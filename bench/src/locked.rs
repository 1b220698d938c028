//! How many locked instructions an operation has, counted inside QEMU.
//!
//! A count of instructions does not show what CPUs do to each other; that of the
//! locked ones hints at it. `bench/plugin` counts them; this builds it, tells it
//! where the guest's function `mark` is, and reads what it has written. The guest
//! calls that function before and after each thing that it reports.
//!
//! The plugin can also count all instructions, of all CPUs: what costs are where the
//! CPUs halt in between, and the clock goes on without them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use boot::host::Qemu;
use object::{Object, ObjectSymbol};

use crate::machine::{Reading, Shape, version};

/// The function's name as our linker has it, and as Go's has it.
const MARKS: [&str; 2] = ["9workloads6report4mark", "main.mark"];
/// The first QEMU that takes plugins, and the first that wants the feature `copies`.
const VERSIONS: [u32; 2] = [6, 9];

/// The plugin in one machine.
#[derive(Debug)]
pub struct Plugin {
    argument: String,
    out: PathBuf,
}

impl Plugin {
    /// For a guest on that machine, whose workloads are in the program `elf`. `None`, and
    /// a word about it, if the machine's QEMU does not take it.
    pub fn new(elf: &Path, shape: &Shape) -> Result<Option<Self>> {
        let Some(version) = usable_version(&shape.binary()) else {
            eprintln!("note: locked instructions are not counted: that takes QEMU 6 or newer");
            return Ok(None);
        };
        let library = build(version >= VERSIONS[1])?;
        let bytes = fs::read(elf).with_context(|| format!("reading {}", elf.display()))?;
        let mark = mark(&bytes).with_context(|| format!("in {}", elf.display()))?;
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = (std::process::id(), COUNT.fetch_add(1, Relaxed));
        let out = std::env::temp_dir().join(format!("runnext-locked-{}-{}", name.0, name.1));
        let what = if shape.reading == Reading::Executed { ",count=all" } else { "" };
        let argument = format!("{},mark={mark:#x},out={}{what}", library.display(), out.display());
        Ok(Some(Self { argument, out }))
    }

    /// What QEMU's option `-plugin` gets.
    pub fn argument(&self) -> &str {
        &self.argument
    }

    /// How many there were between each two calls of `mark`. Once, when the
    /// machine is off.
    pub fn read(&self) -> Result<Vec<u64>> {
        let text = fs::read_to_string(&self.out);
        fs::remove_file(&self.out).ok();
        differences(&text.with_context(|| format!("reading {}", self.out.display()))?)
    }
}

/// Whether this QEMU takes the plugin.
pub fn is_countable() -> bool {
    usable_version(&Qemu::installed().binary).is_some()
}

fn usable_version(qemu: &Path) -> Option<u32> {
    version(qemu).filter(|&version| version >= VERSIONS[0])
}

/// A line at each mark; two marks make a figure.
fn differences(text: &str) -> Result<Vec<u64>> {
    let numbers: Vec<u64> = text.lines().map(str::parse).collect::<Result<_, _>>()?;
    let (pairs, rest) = numbers.as_chunks::<2>();
    if !rest.is_empty() {
        bail!("a mark has no other: the guest ended in between");
    }
    Ok(pairs.iter().map(|[before, after]| after.saturating_sub(*before)).collect())
}

/// Builds the plugin, and gives it a name by its feature: a run may need both.
fn build(copies: bool) -> Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsStr::new("cargo").to_owned());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "-p", "plugin"])
        .args(copies.then_some("--features=copies"))
        .current_dir(boot::root())
        .status()
        .context("starting cargo")?;
    if !built.success() {
        bail!("bench/plugin does not build");
    }
    let folder = boot::target_dir().join("debug");
    let name = if copies { "libplugin-copies.so" } else { "libplugin-plain.so" };
    // A new file: a QEMU that runs may have the old one loaded.
    let (fresh, named) = (folder.join(format!("{name}.new")), folder.join(name));
    fs::copy(folder.join("libplugin.so"), &fresh).context("copying the plugin")?;
    fs::rename(&fresh, &named).context("naming the plugin")?;
    Ok(named)
}

/// The address of the function.
fn mark(elf: &[u8]) -> Result<u64> {
    let file = object::File::parse(elf).context("not an ELF file")?;
    let is_it = |name: &str| MARKS.iter().any(|mark| name.ends_with(mark));
    let found = file.symbols().find(|symbol| symbol.name().is_ok_and(is_it));
    found.map(|symbol| symbol.address()).context("there is no function called mark")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_marks_make_a_figure() {
        assert_eq!(differences("5\n12\n12\n112\n").ok(), Some(vec![7, 100]));
        assert_eq!(differences("").ok(), Some(vec![]));
        assert!(differences("5\n12\n13\n").is_err(), "an odd one");
        assert!(differences("5\nx\n").is_err());
    }

    #[test]
    fn what_is_no_program_has_no_mark() {
        assert!(mark(b"no ELF at all").is_err());
        let ours = std::env::current_exe().and_then(fs::read).expect("this program");
        assert!(mark(&ours).is_err(), "the tests have no such function");
    }
}
