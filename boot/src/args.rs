//! The words behind `boot <command>`, read into one flat set of options.
//!
//! All commands read the same options, and an unknown one is an error. A value is checked
//! as soon as it is read, and what depends on the host before anything is built.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tool::args::Args;

use crate::data::DataDisk;
use crate::host::{Accel, Ovmf};
use crate::image;
use crate::kernel::Source;
use crate::qemu::{Firmware, Machine};

/// How to use this tool.
pub const USAGE: &str = "\
boot image [options]   build the kernel and its BIOS and UEFI images
boot run [options]     … and start it in QEMU
boot new --app PATH    write a crate of your own there
boot test --app PATH   run its tests in QEMU, each as a program
boot gdb [options]     … halted, with gdb attached
boot usb --dev DEVICE  … and write an image to a stick

  --kernel ELF     a kernel that is built already
  --app PATH       a crate that depends on runnext, instead of the standard programs
  --out-dir DIR    where images go (target)
  --name NAME      what images are called (runnext)
  --uefi 1         UEFI instead of BIOS
  --smp N          CPUs (8), or a value of QEMU's -smp that begins with a number
  --mem SIZE       memory (1G)
  --accel A        tcg or kvm; what works, when not given
  --cpu MODEL      as for QEMU's -cpu
  --icount VALUE   as for QEMU's -icount
  --disk IMAGE     a disk for the guest's data (one with files of ours), or none
  --keep 1         what the guest writes to it stays
  --program NAME   the program to run
  --cmdline WORDS  more words of the kernel's command line
  --test WORD      of the tests, those with this in their names
  --limit SECONDS  what a test may take (60)
  --debugcon FILE  what the guest writes to the debug console
  --gui 1          the framebuffer in a window
  --fast 1         a kernel that is built quickly and runs slowly";

/// All options, as given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// A kernel that is built already.
    pub kernel: Option<PathBuf>,
    /// A crate to boot instead of the standard programs.
    pub app: Option<PathBuf>,
    /// The device to write to.
    pub dev: Option<PathBuf>,
    out_dir: Option<PathBuf>,
    name: Option<String>,
    smp: Option<String>,
    mem: Option<String>,
    accel: Option<Accel>,
    cpu: Option<String>,
    icount: Option<String>,
    disk: Option<String>,
    keeps_writes: bool,
    /// The program to run, if one was named.
    pub program: Option<String>,
    cmdline: Option<String>,
    /// Of the tests, those with this in their names.
    pub test: Option<String>,
    limit_s: Option<u64>,
    /// Whether the image is of the tests of [`Options::app`].
    pub is_test: bool,
    /// Where the guest's debug console goes.
    pub debugcon: Option<PathBuf>,
    is_uefi: bool,
    has_window: bool,
    /// Whether to build with the profile `fast`.
    pub is_fast: bool,
    /// A person sits at the serial port.
    pub at_terminal: bool,
    /// Whether to build with the profile `gdb`.
    pub for_gdb: bool,
}

impl Options {
    /// Reads the options behind the command. Errors about a value have make's names.
    ///
    /// # Errors
    /// The first option that is unknown, or whose value is not allowed, with what is.
    pub fn parse(mut args: Args) -> Result<Self> {
        let mut options = Self::default();
        while let Some(key) = args.next()? {
            match &*key {
                "--kernel" => options.kernel = args.text()?.map(Into::into),
                "--app" => options.app = args.text()?.map(Into::into),
                "--dev" => options.dev = args.text()?.map(Into::into),
                "--out-dir" => options.out_dir = args.text()?.map(Into::into),
                "--name" => options.name = args.text()?,
                "--smp" => options.smp = args.text()?.map(smp).transpose()?,
                "--mem" => options.mem = args.text()?,
                "--accel" => options.accel = args.text()?.map(accel).transpose()?,
                "--cpu" => options.cpu = args.text()?,
                "--icount" => options.icount = args.text()?,
                "--disk" => options.disk = args.text()?,
                "--keep" => options.keeps_writes = is_on("KEEP", args.text()?)?,
                "--program" => {
                    options.program =
                        args.text()?.map(|word| one_word("PROGRAM", word)).transpose()?
                }
                "--cmdline" => options.cmdline = args.text()?,
                "--test" => {
                    options.test = args.text()?.map(|word| one_word("TEST", word)).transpose()?
                }
                "--limit" => options.limit_s = args.number().context("LIMIT")?,
                "--debugcon" => options.debugcon = args.text()?.map(Into::into),
                "--uefi" => options.is_uefi = is_on("UEFI", args.text()?)?,
                "--gui" => options.has_window = is_on("GUI", args.text()?)?,
                "--fast" => options.is_fast = is_on("FAST", args.text()?)?,
                _ => return Err(args.unknown()),
            }
        }
        Ok(options)
    }

    /// Checks all that can be checked before anything is built: what options mean
    /// together, and what this host has. Errors have make's names.
    ///
    /// # Errors
    /// The first value that is not allowed, with what is.
    pub fn check(&self) -> Result<()> {
        self.memory()?;
        self.accel.map_or(Ok(()), Accel::check)?;
        if self.is_uefi {
            Ovmf::find().context("UEFI=1")?;
        }
        match self.disk.as_deref() {
            None | Some("none") => {}
            Some(disk) if Path::new(disk).is_file() => {}
            Some(disk) => bail!("DISK={disk}: there is no such disk image (or say DISK=none)"),
        }
        if let Some(app) = &self.app {
            crate::kernel::manifest_of(app)?;
        }
        Ok(())
    }

    /// Checks that the program or the tests asked for are in `kernel`, where that can be known.
    ///
    /// # Errors
    /// They are not: with the names of those that are.
    pub fn check_program(&self, kernel: &Path) -> Result<()> {
        if self.is_test {
            return self.check_tests(&crate::kernel::tests(kernel)?);
        }
        let (Some(program), Some(known)) = (&self.program, crate::kernel::programs(kernel)?) else {
            return Ok(());
        };
        if !known.contains(program) {
            bail!("PROGRAM={program}: this image has {}", known.join(", "));
        }
        Ok(())
    }

    fn check_tests(&self, known: &[String]) -> Result<()> {
        let word = self.test.as_deref().unwrap_or_default();
        match known {
            [] => bail!("this crate has no tests: list them in runnext::tests! below #[cfg(test)]"),
            known if known.iter().any(|name| name.contains(word)) => Ok(()),
            known => {
                bail!("TEST={word}: no test has this in its name; there are {}", known.join(", "))
            }
        }
    }

    /// What to build.
    pub fn source(&self) -> Source {
        let of_app = if self.is_test { Source::AppTests } else { Source::App };
        self.app.clone().map_or(Source::Standard, of_app)
    }

    /// Makes the image of `kernel` for `firmware`.
    pub fn image(&self, firmware: Firmware, kernel: &Path) -> Result<PathBuf> {
        let out_dir = self.out_dir.clone().unwrap_or_else(crate::target_dir);
        let kind = match (self.for_gdb, self.is_fast) {
            (true, _) => "-gdb",
            (_, true) => "-fast",
            _ => "",
        };
        let usual = || format!("{}{kind}", self.source().image_name());
        let name = self.name.clone().unwrap_or_else(usual);
        image::build(firmware, kernel, &crate::root().join("boot/cmdline.txt"), &out_dir, &name)
    }

    /// The firmware to start from.
    pub fn firmware(&self) -> Firmware {
        if self.is_uefi { Firmware::Uefi } else { Firmware::Bios }
    }

    /// The machine to run `image` on, which is one for [`Options::firmware`].
    pub fn machine(&self, image: &Path) -> Result<Machine> {
        let mut machine = Machine::new(image, self.firmware())
            .smp(self.smp.as_deref().unwrap_or("8"))
            .mem(self.memory()?)
            .accel(self.accel.unwrap_or_else(Accel::detect))
            .cmdline(self.command_line());
        if let Some(cpu) = &self.cpu {
            machine = machine.cpu(cpu);
        }
        if let Some(icount) = &self.icount {
            machine = machine.icount(icount);
        }
        if let Some(disk) = self.data_disk()? {
            machine = machine.data(disk);
        }
        if let Some(file) = &self.debugcon {
            machine = machine.debugcon(file);
        }
        if self.has_window {
            machine = machine.window();
        }
        Ok(machine)
    }

    /// The memory, if the loader can start in it: with less it hangs without a word.
    fn memory(&self) -> Result<&str> {
        let firmware = self.firmware();
        let least = match firmware {
            Firmware::Bios => 32,
            Firmware::Uefi => 64,
        };
        let size = self.mem.as_deref().unwrap_or("1G");
        match mebibytes(size) {
            Some(given) if given >= least => Ok(size),
            Some(_) => bail!("MEM={size} is too little: from {firmware} it takes {least}M"),
            None => bail!("MEM={size}: a number with M or G behind it, {least}M or more"),
        }
    }

    /// The disk for the guest's data: the one named, or ours, made if need be.
    fn data_disk(&self) -> Result<Option<DataDisk>> {
        let image = match self.disk.as_deref() {
            Some("none") => return Ok(None),
            Some(path) => PathBuf::from(path),
            None => crate::data::build(&crate::target_dir())?,
        };
        if !image.is_file() {
            bail!("there is no disk image {}", image.display());
        }
        let disk = DataDisk::new(image);
        Ok(Some(if self.keeps_writes { disk.keeping_writes() } else { disk }))
    }

    /// Whether the guest ends up in its shell, given a terminal.
    pub fn has_shell(&self) -> bool {
        self.app.is_none() && matches!(self.program.as_deref(), None | Some("tour" | "shell"))
    }

    /// `program=` first: words after a `--` in the rest are the program's.
    fn command_line(&self) -> String {
        let program = self.program.as_ref().map(|name| format!("program={name}"));
        let terminal = if self.at_terminal { " terminal=on" } else { "" };
        let rest = self.cmdline.as_deref().unwrap_or("");
        let mut line = format!("{}{terminal} {rest}", program.unwrap_or_default());
        // For the runner of the tests, behind what the tests themselves are given.
        let limit = self.limit_s.map(|seconds| format!("limit={seconds}"));
        let words: Vec<_> = limit.into_iter().chain(self.test.clone()).collect();
        if self.is_test && !words.is_empty() {
            let dashes = if rest.split(' ').any(|word| word == "--") { "" } else { " --" };
            line = format!("{line}{dashes} {}", words.join(" "));
        }
        line.trim().to_string()
    }
}

/// A size in QEMU's notation: a number, of MiB unless a letter follows.
fn mebibytes(size: &str) -> Option<u64> {
    let (number, unit) = match size.char_indices().next_back()? {
        (at, unit) if unit.is_ascii_alphabetic() => (&size[..at], unit.to_ascii_lowercase()),
        _ => (size, 'm'),
    };
    let number: u64 = number.parse().ok()?;
    match unit {
        'b' => Some(number >> 20),
        'k' => Some(number >> 10),
        'm' => Some(number),
        'g' => number.checked_mul(1 << 10),
        't' => number.checked_mul(1 << 20),
        _ => None,
    }
}

/// The value of the switch `name`. Off is a value too, so that `UEFI=0` means what it says.
fn is_on(name: &str, value: Option<String>) -> Result<bool> {
    match value.as_deref() {
        Some("1" | "yes" | "on") => Ok(true),
        None | Some("0" | "no" | "off") => Ok(false),
        Some(value) => bail!("{name}={value}: it is 1 for on, or 0 for off"),
    }
}

fn accel(word: String) -> Result<Accel> {
    Accel::parse(&word).with_context(|| format!("ACCEL={word}"))
}

fn one_word(name: &str, value: String) -> Result<String> {
    if value.contains(char::is_whitespace) {
        bail!("{name}={value}: a name is one word");
    }
    Ok(value)
}

/// As many as QEMU's `pc` has room for.
const MAX_CPUS: u32 = 255;

/// A number of CPUs, or a value of QEMU's `-smp` that begins with one:
/// `6,sockets=2,cores=3`.
fn smp(value: String) -> Result<String> {
    let is_count = |word: &str| word.parse().is_ok_and(|n: u32| (1..=MAX_CPUS).contains(&n));
    let mut words = value.split(',');
    let is_smp = words.next().is_some_and(is_count)
        && words.all(|word| {
            word.split_once('=').is_some_and(|(key, number)| {
                key.bytes().all(|byte| byte.is_ascii_lowercase()) && is_count(number)
            })
        });
    if !is_smp {
        bail!("SMP={value}: the number of CPUs is 1 to {MAX_CPUS}");
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options> {
        Options::parse(Args::new(words, USAGE))
    }

    fn machine_line(words: &[&str]) -> String {
        let images = Path::new("t/x-bios.img");
        let machine = parse(words).and_then(|o| o.machine(images)).expect("good options");
        machine.args().join("|")
    }

    #[test]
    fn nothing_said_is_eight_cpus_and_a_gibibyte_from_bios() {
        let line = machine_line(&["--accel", "tcg", "--uefi", "", "--smp", ""]);
        for part in ["|-smp|8|", "|-m|1G|", "t/x-bios.img", "|-display|none|"] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }

    #[test]
    fn too_little_memory_for_the_loader_is_refused() {
        let images = Path::new("t/x-bios.img");
        for (size, uefi, is_enough) in [
            ("31M", "", false),
            ("31", "", false),
            ("32M", "", true),
            ("1023k", "", false),
            ("48M", "1", false),
            ("64m", "1", true),
            ("6G", "1", true),
            ("lots", "", false),
            ("G", "", false),
            ("", "", true), // not given
        ] {
            let options = parse(&["--mem", size, "--uefi", uefi, "--accel", "tcg"]);
            let machine = options.and_then(|options| options.machine(images));
            assert_eq!(machine.is_ok(), is_enough, "{size} {uefi}");
        }
    }

    #[test]
    fn program_comes_before_the_words_for_it() {
        let line = machine_line(&["--cmdline", "log=debug -- a \"b c\"", "--program", "echo"]);
        assert!(line.contains("string=program=echo log=debug -- a \"b c\"|"), "{line}");
    }

    #[test]
    fn the_guest_hears_of_a_terminal_before_the_words_for_its_program() {
        let options = parse(&["--program", "tour", "--cmdline", "-- fail"]).expect("good");
        let options = Options { at_terminal: true, ..options };
        assert_eq!(options.command_line(), "program=tour terminal=on -- fail");
        assert!(options.has_shell());
        assert!(parse(&[]).expect("good").has_shell());
        assert!(!parse(&["--program", "hog"]).expect("good").has_shell());
        assert!(!parse(&["--app", "x"]).expect("good").has_shell());
    }

    #[test]
    fn words_for_the_tests_follow_the_dashes() {
        let line = |words: &[&str]| {
            let options = parse(words).expect("good");
            Options { is_test: true, ..options }.command_line()
        };
        assert_eq!(line(&[]), "");
        assert_eq!(line(&["--test", "adds"]), "-- adds");
        assert_eq!(line(&["--cmdline", "chaos=3", "--limit", "5"]), "chaos=3 -- limit=5");
        assert_eq!(line(&["--cmdline", "a -- b", "--test", "c"]), "a -- b c");
    }

    #[test]
    fn a_test_that_is_not_there_is_refused_with_those_that_are() {
        let check = |word: &str, known: &[&str]| {
            let known: Vec<_> = known.iter().map(ToString::to_string).collect();
            let options = parse(&["--test", word]).expect("good");
            options.check_tests(&known).map_err(|error| error.to_string())
        };
        assert_eq!(check("add", &["tests::adds", "tests::b"]), Ok(()));
        assert_eq!(check("", &["tests::b"]), Ok(()));
        assert!(check("", &[]).expect_err("none").contains("no tests: list them"));
        let none = check("x", &["a::b", "c"]).expect_err("none");
        assert_eq!(none, "TEST=x: no test has this in its name; there are a::b, c");
    }

    #[test]
    fn there_is_a_disk_with_files_unless_it_is_not_wanted() {
        assert!(machine_line(&[]).contains("target/disk.img,snapshot=on"));
        assert!(machine_line(&["--keep", "1"]).contains("target/disk.img,snapshot=off"));
        assert!(!machine_line(&["--disk", "none"]).contains("id=data"));
        let manifest = crate::root().join("Cargo.toml").display().to_string();
        assert!(machine_line(&["--disk", &manifest]).contains(&format!("file={manifest},")));
        let missing = parse(&["--disk", "no such file"]).expect("good");
        assert!(missing.machine(Path::new("t/x.img")).is_err());
    }

    #[test]
    fn zero_switches_off() {
        assert_eq!(parse(&["--uefi", "0"]).expect("good").firmware(), Firmware::Bios);
        assert_eq!(parse(&["--uefi", "1"]).expect("good").firmware(), Firmware::Uefi);
    }

    #[test]
    fn values_that_are_not_allowed_are_refused_by_name_before_anything_is_built() {
        let complaint = |key: &str, value: &str| {
            let checked = parse(&[key, value]).and_then(|options| options.check());
            checked.err().map(|error| format!("{error:#}"))
        };
        for (key, name, value, allowed) in [
            ("--smp", "SMP", "0", "1 to 255"),
            ("--smp", "SMP", "256", "1 to 255"),
            ("--smp", "SMP", "banana", "1 to 255"),
            ("--smp", "SMP", "-1", "1 to 255"),
            ("--smp", "SMP", "4,cores", "1 to 255"),
            ("--uefi", "UEFI", "maybe", "1 for on, or 0 for off"),
            ("--gui", "GUI", "2", "1 for on, or 0 for off"),
            ("--keep", "KEEP", "x", "1 for on, or 0 for off"),
            ("--fast", "FAST", "very", "1 for on, or 0 for off"),
            ("--mem", "MEM", "lots", "M or G"),
            ("--mem", "MEM", "20M", "32M"),
            ("--accel", "ACCEL", "xen", "tcg or kvm"),
            ("--disk", "DISK", "/no/such", "DISK=none"),
            ("--app", "APP", "/no/such", "no /no/such/Cargo.toml"),
            ("--program", "PROGRAM", "a b", "one word"),
        ] {
            let said = complaint(key, value).unwrap_or_else(|| panic!("{name}={value} is allowed"));
            for part in [&format!("{name}={value}"), allowed] {
                assert!(said.contains(part), "{part} in {said}");
            }
        }
        for (key, value) in [
            ("--smp", "1"),
            ("--smp", "255"),
            ("--smp", "6,sockets=2,cores=3"),
            ("--smp", "4,maxcpus=8"),
            ("--uefi", "0"),
            ("--gui", "yes"),
            ("--mem", "256M"),
            ("--accel", "tcg"),
            ("--disk", "none"),
            ("--program", "hello"),
        ] {
            assert_eq!(complaint(key, value), None, "{key} {value}");
        }
    }

    #[test]
    fn a_program_that_is_not_in_the_image_is_refused_with_those_that_are() {
        // An ELF file with the names of programs, as the linker script leaves them.
        let dir = tempfile::TempDir::new().expect("a writable directory");
        let kernel = dir.path().join("kernel");
        std::fs::write(&kernel, crate::testing::elf(".runnext.names", b"hello\ntour\n"))
            .expect("a writable file");
        let check = |program: &str| {
            let options = parse(&["--program", program]).expect("good");
            options.check_program(&kernel).map_err(|error| error.to_string())
        };
        assert_eq!(check("nope"), Err("PROGRAM=nope: this image has hello, tour".into()));
        assert_eq!(check("tour"), Ok(()));
        assert_eq!(check(""), Ok(()));
        // A kernel that does not say: it is asked when it boots.
        std::fs::write(&kernel, crate::testing::elf(".other", b"")).expect("a writable file");
        assert_eq!(check("nope"), Ok(()));
    }

    #[test]
    fn unknown_words_are_errors() {
        assert!(parse(&["--smpp", "8"]).is_err());
        assert!(parse(&["--smp"]).is_err());
        assert!(parse(&["--program", "a b"]).is_err());
    }
}
