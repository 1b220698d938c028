//! What this host offers: a QEMU, an accelerator that truly works, UEFI firmware.
//!
//! All of them are looked for, never assumed. A `/dev/kvm` that exists proves nothing:
//! in a container it may not open, and on a host without the CPU's help a guest
//! crawls or QEMU stops on an assertion.

use std::env;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A QEMU, and where it finds its firmware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    /// The program.
    pub binary: PathBuf,
    /// Folders for its `-L`; none for one that is installed and knows its own.
    pub firmware: Vec<PathBuf>,
}

/// Where `scripts/newer-qemu` unpacks one, below the folder of what is built.
const NEWER_QEMU: &str = "newer-qemu/usr";

impl Qemu {
    /// The one that `QEMU=` in the environment names, else the one that is installed.
    pub fn installed() -> Self {
        let named = env::var_os("QEMU").filter(|name| !name.is_empty());
        let binary = named.map_or("qemu-system-x86_64".into(), PathBuf::from);
        Self { binary, firmware: Vec::new() }
    }

    /// The one for virtual time on several CPUs: that of `scripts/newer-qemu` if it was unpacked and `QEMU=`
    /// names no other, else [`Qemu::installed`]. Under `-icount` QEMU divides the time until
    /// the next deadline among all CPUs since version 8.1. An older one gives all of it to
    /// the first that can run, and nothing to the one behind it: a CPU can be left out for
    /// seconds, so a hang there says little about the guest.
    ///
    /// All other machines run in the installed one: it is what `make run` has, a newer one is
    /// no quicker (`hello` on 8 CPUs: 3.3 CPU seconds in QEMU 10, 3.0 in 7.2), and so the
    /// suite tries both.
    pub fn newest() -> Self {
        match env::var_os("QEMU").is_none_or(|name| name.is_empty()) {
            true => Self::unpacked_in(&crate::target_dir()).unwrap_or_else(Self::installed),
            false => Self::installed(),
        }
    }

    /// The text in which it names its version.
    pub fn version(&self) -> Result<String> {
        output(Command::new(&self.binary).arg("--version"))
    }

    fn unpacked_in(target: &Path) -> Option<Self> {
        let root = target.join(NEWER_QEMU);
        let binary = root.join("bin/qemu-system-x86_64");
        let firmware = ["share/qemu", "share/seabios"].map(|folder| root.join(folder)).to_vec();
        binary.is_file().then_some(Self { binary, firmware })
    }
}

/// Runs a command to its end and gives its standard output.
///
/// # Errors
/// It does not start, or it fails: with all that it wrote.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("starting {name}"))?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        // Both: some programs write their errors to standard output.
        let both = text(&output.stderr) + &text(&output.stdout);
        bail!("{name} failed: {}", both.trim());
    }
    Ok(text(&output.stdout))
}

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// QEMU's translator. Works everywhere.
    Tcg,
    /// The host's own CPUs.
    Kvm,
}

impl Accel {
    /// The accelerator named by `word`.
    pub fn parse(word: &str) -> Result<Self> {
        match word {
            "tcg" => Ok(Self::Tcg),
            "kvm" => Ok(Self::Kvm),
            _ => bail!("unknown accelerator {word:?}: tcg or kvm"),
        }
    }

    /// Whether the host has it, as far as that can be seen without trying.
    pub fn check(self) -> Result<()> {
        if self == Self::Kvm && !has_kvm(Path::new("/")) {
            bail!("ACCEL=kvm: /dev/kvm cannot be opened here; ACCEL=tcg works");
        }
        Ok(())
    }

    /// KVM if the CPU has it and `/dev/kvm` can be opened for writing, else TCG.
    pub fn detect() -> Self {
        Self::detect_in(Path::new("/"))
    }

    fn detect_in(root: &Path) -> Self {
        let cpuinfo = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
        let has_flag = cpuinfo
            .lines()
            .filter(|line| line.starts_with("flags"))
            .any(|line| line.split_whitespace().any(|word| word == "vmx" || word == "svm"));
        if has_flag && has_kvm(root) { Self::Kvm } else { Self::Tcg }
    }

    /// QEMU's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcg => "tcg",
            Self::Kvm => "kvm",
        }
    }
}

fn has_kvm(root: &Path) -> bool {
    OpenOptions::new().read(true).write(true).open(root.join("dev/kvm")).is_ok()
}

/// UEFI firmware: the code, and the template of its variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ovmf {
    /// Read-only flash with the firmware itself.
    pub code: PathBuf,
    /// Flash with its variables; each machine writes to a copy of its own.
    pub vars: PathBuf,
}

/// Where distributions put the two files, the plain 4 MiB build first. QEMU's
/// own packages (Homebrew) bring the code under another name, and the
/// variables of the 32-bit build serve both.
const OVMF_PLACES: [(&str, &str); 9] = [
    // Debian, Ubuntu
    ("usr/share/OVMF/OVMF_CODE_4M.fd", "usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("usr/share/OVMF/OVMF_CODE.fd", "usr/share/OVMF/OVMF_VARS.fd"),
    // Fedora
    ("usr/share/edk2/ovmf/OVMF_CODE_4M.fd", "usr/share/edk2/ovmf/OVMF_VARS_4M.fd"),
    ("usr/share/edk2/ovmf/OVMF_CODE.fd", "usr/share/edk2/ovmf/OVMF_VARS.fd"),
    // Arch
    ("usr/share/edk2/x64/OVMF_CODE.4m.fd", "usr/share/edk2/x64/OVMF_VARS.4m.fd"),
    ("usr/share/edk2-ovmf/x64/OVMF_CODE.fd", "usr/share/edk2-ovmf/x64/OVMF_VARS.fd"),
    // Homebrew on ARM and on Intel, and QEMU installed by hand
    ("opt/homebrew/share/qemu/edk2-x86_64-code.fd", "opt/homebrew/share/qemu/edk2-i386-vars.fd"),
    ("usr/local/share/qemu/edk2-x86_64-code.fd", "usr/local/share/qemu/edk2-i386-vars.fd"),
    ("usr/share/qemu/edk2-x86_64-code.fd", "usr/share/qemu/edk2-i386-vars.fd"),
];

impl Ovmf {
    /// The first pair that is there.
    pub fn find() -> Result<Self> {
        match Self::find_in(Path::new("/")) {
            Some(ovmf) => Ok(ovmf),
            None => bail!(
                "no UEFI firmware found. It is in the package ovmf (Debian, Ubuntu), edk2-ovmf \
                 (Fedora, Arch) or qemu (Homebrew)"
            ),
        }
    }

    fn find_in(root: &Path) -> Option<Self> {
        OVMF_PLACES
            .iter()
            .map(|(code, vars)| Self { code: root.join(code), vars: root.join(vars) })
            .find(|ovmf| ovmf.code.is_file() && ovmf.vars.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree;

    #[test]
    fn kvm_needs_the_flag_and_the_device() {
        let cases = [
            ("both", "flags\t: fpu vmx sse", true, Accel::Kvm),
            ("amd", "flags\t: fpu svm", true, Accel::Kvm),
            ("no-device", "flags\t: fpu vmx", false, Accel::Tcg),
            ("no-flag", "flags\t: fpu sse", true, Accel::Tcg),
            // A word that contains the flag, and the flag in another line.
            ("near", "flags\t: vmxnot\nmodel name\t: vmx", true, Accel::Tcg),
        ];
        for (name, cpuinfo, device, expected) in cases {
            let mut files = vec![("proc/cpuinfo", cpuinfo)];
            if device {
                files.push(("dev/kvm", ""));
            }
            assert_eq!(Accel::detect_in(tree(&files).path()), expected, "{name}");
        }
    }

    #[test]
    fn what_fails_is_heard_wherever_it_complains() {
        let sh = |script| output(Command::new("sh").args(["-c", script]));
        let error = sh("echo on one; echo on the other >&2; exit 1").expect_err("it fails");
        assert_eq!(error.to_string(), "sh failed: on the other\non one");
        assert_eq!(sh("echo good").ok(), Some("good\n".into()));
    }

    #[test]
    fn the_user_has_the_last_word() {
        assert_eq!(Accel::parse("tcg").expect("a known word"), Accel::Tcg);
        assert_eq!(Accel::parse("kvm").expect("a known word"), Accel::Kvm);
        assert!(Accel::parse("xen").is_err());
    }

    #[test]
    fn a_newer_qemu_is_used_with_its_firmware_once_it_is_unpacked() {
        assert_eq!(Qemu::unpacked_in(tree(&[("newer-qemu/usr/share/qemu/x", "")]).path()), None);
        let there = tree(&[("newer-qemu/usr/bin/qemu-system-x86_64", "")]);
        let found = Qemu::unpacked_in(there.path()).expect("it is there");
        assert!(found.binary.starts_with(there.path()), "{found:?}");
        let folders = ["newer-qemu/usr/share/qemu", "newer-qemu/usr/share/seabios"];
        assert_eq!(found.firmware, folders.map(|folder| there.path().join(folder)));
    }

    #[test]
    fn firmware_needs_both_files_of_one_place() {
        let half = tree(&[("usr/share/OVMF/OVMF_CODE_4M.fd", "")]);
        assert_eq!(Ovmf::find_in(half.path()), None);
        let fedora = [
            ("usr/share/OVMF/OVMF_CODE_4M.fd", ""),
            ("usr/share/edk2/ovmf/OVMF_CODE.fd", ""),
            ("usr/share/edk2/ovmf/OVMF_VARS.fd", ""),
        ];
        let found = Ovmf::find_in(tree(&fedora).path()).expect("a whole pair");
        assert!(found.code.ends_with("edk2/ovmf/OVMF_CODE.fd"));
    }
}
