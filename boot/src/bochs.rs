//! The second emulator: Bochs 2.7, which has what the QEMU of Debian 12 has not,
//! x2APIC and a TSC-deadline timer that fires.
//!
//! It has neither fw_cfg nor isa-debug-exit. So the command line goes in as the image's
//! own text file (`ramdisk`), and the end is read from the serial port: the kernel says
//! `ended with code N` where no device takes its code, and halts. Bochs interprets each
//! instruction; a boot of two CPUs takes tens of CPU seconds.
//!
//! Three settings matter. With the display `rfb` the loader's stage 3 stops after it has
//! chosen a mode of 320 by 200; with `sdl2` and SDL's driver `dummy` it gets a real one.
//! The VGA is a PCI device in slot 1 and has the LGPL BIOS of Debian's package
//! `vgabios`, which knows VESA modes. And the CPU model must have the two features.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// What the kernel says last where it cannot switch the machine off.
const LAST_WORDS: &str = "ended with code ";
/// How often the serial output is looked at.
const POLL: Duration = Duration::from_millis(200);
/// Bytes of a cylinder as Bochs counts them: it leaves out what is behind the last one.
const CYLINDER: u64 = 16 * 63 * 512;

/// A machine of Bochs. The methods are a builder.
#[derive(Clone, Debug)]
#[must_use]
pub struct Bochs {
    image: PathBuf,
    cpus: u32,
    mem_mib: u32,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The kernel ended it, with this code.
    Code(u32),
    /// Bochs left by itself: a panic of its own, or three faults in a row.
    Left,
    /// It said nothing of an end within its time.
    Hang,
}

impl Bochs {
    /// One CPU and 256 MiB, started from a BIOS image. The command line is that in the
    /// image.
    pub fn new(image: impl Into<PathBuf>) -> Self {
        Self { image: image.into(), cpus: 1, mem_mib: 256 }
    }

    /// The number of CPUs.
    pub fn smp(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// The memory.
    pub fn mem_mib(mut self, mib: u32) -> Self {
        self.mem_mib = mib;
        self
    }

    /// Boots it and waits for its end, but no longer than `limit`. In `dir` are then
    /// `serial.txt`, what the machine said, and `bochs.log`, what Bochs said.
    pub fn run(&self, dir: &Path, limit: Duration) -> Result<Ended> {
        self.prepare(dir)?;
        let mut command = Command::new("bochs");
        command
            .args(["-q", "-f", "bochsrc", "-rc", "commands"])
            .current_dir(dir)
            .envs([("SDL_VIDEODRIVER", "dummy"), ("SDL_AUDIODRIVER", "dummy")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        crate::qemu::kill_with_parent(&mut command);
        let mut bochs = Running(command.spawn().context("starting bochs (scripts/setup bochs?)")?);
        let begun = Instant::now();
        loop {
            let left = bochs.0.try_wait().context("waiting for Bochs")?;
            // Read after it was seen to leave, so nothing is missed.
            let said = fs::read(dir.join("serial.txt")).unwrap_or_default();
            match (code(&String::from_utf8_lossy(&said)), left) {
                (Some(code), _) => return Ok(Ended::Code(code)),
                (None, Some(_)) => return Ok(Ended::Left),
                (None, None) if begun.elapsed() > limit => return Ok(Ended::Hang),
                (None, None) => thread::sleep(POLL),
            }
        }
    }

    /// Writes what Bochs reads, and a copy of the image that is its own: Bochs opens a
    /// disk for writing.
    fn prepare(&self, dir: &Path) -> Result<()> {
        if !Path::new(VGA_BIOS).is_file() {
            bail!("{VGA_BIOS} is missing (scripts/setup bochs?)");
        }
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        fs::remove_file(dir.join("serial.txt")).ok();
        fs::remove_file(dir.join("disk.img.lock")).ok();
        let disk = dir.join("disk.img");
        fs::copy(&self.image, &disk)
            .with_context(|| format!("copying {}", self.image.display()))?;
        let file = fs::OpenOptions::new().write(true).open(&disk)?;
        file.set_len(file.metadata()?.len().next_multiple_of(CYLINDER))?;
        fs::write(dir.join("bochsrc"), self.config())?;
        // Debian's Bochs stops in its debugger first: go on.
        fs::write(dir.join("commands"), "continue\n")?;
        Ok(())
    }

    /// Its configuration, with names relative to the directory that it runs in.
    fn config(&self) -> String {
        let Self { cpus, mem_mib, .. } = self;
        format!(
            "display_library: sdl2\n\
             romimage: file={BIOS}\n\
             vgaromimage: file={VGA_BIOS}\n\
             vga: extension=vbe\n\
             pci: enabled=1, chipset=i440fx, slot1=pcivga\n\
             cpu: model=corei7_haswell_4770, count={cpus}, ips=50000000, reset_on_triple_fault=0\n\
             memory: guest={mem_mib}, host={mem_mib}\n\
             ata0-master: type=disk, path=disk.img, mode=flat\n\
             boot: disk\n\
             com1: enabled=1, mode=file, dev=serial.txt\n\
             clock: sync=none\n\
             log: bochs.log\n\
             panic: action=fatal\n\
             error: action=report\n\
             info: action=ignore\n"
        )
    }
}

/// Where Debian's packages `bochsbios` and `vgabios` put the two.
const BIOS: &str = "/usr/share/bochs/BIOS-bochs-latest";
const VGA_BIOS: &str = "/usr/share/vgabios/vgabios.bin";

/// The code in the kernel's last line, once that line is whole.
fn code(said: &str) -> Option<u32> {
    let (number, _) = said.rsplit_once(LAST_WORDS)?.1.split_once(';')?;
    number.parse().ok()
}

/// A Bochs that does not outlive its run.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_read_from_the_last_line() {
        assert_eq!(code("ended with code 0; the machine may be switched off\n"), Some(0));
        assert_eq!(code("hello\r\nended with code 101; the"), Some(101));
        assert_eq!(code("ended with code 10"), None, "there may be another digit to come");
        assert_eq!(code("hello\n"), None);
    }

    #[test]
    fn the_machine_is_what_it_is_asked_to_be() {
        let config = Bochs::new("x.img").smp(4).mem_mib(512).config();
        for part in ["count=4,", "guest=512, host=512", "corei7_haswell_4770", "sdl2"] {
            assert!(config.contains(part), "{part} in {config}");
        }
    }
}
