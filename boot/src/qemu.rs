//! One description of a virtual machine, shared by `make run`, tests, benchmarks.
//!
//! [`Machine`] says what the machine is; [`Machine::args`] says it in QEMU's
//! words; [`Machine::command`] makes the command, with what it needs beside it
//! (each UEFI machine writes to its own copy of the firmware's variables). Disks
//! are opened with `snapshot=on`: many machines share one image and none of them
//! changes it.

use std::fmt;
use std::fs;
#[cfg(target_os = "linux")]
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::data::DataDisk;
use crate::host::{Accel, Ovmf, Qemu};

pub use tool::VIRTUAL_CLOCKS;

/// What the machine starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// SeaBIOS, which QEMU brings along.
    Bios,
    /// OVMF, looked for on the host.
    Uefi,
}

impl Firmware {
    /// As in the names of images: `bios` or `uefi`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bios => "bios",
            Self::Uefi => "uefi",
        }
    }
}

impl fmt::Display for Firmware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bios => "BIOS",
            Self::Uefi => "UEFI",
        })
    }
}

/// The mainboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Board {
    /// i440FX of 1996, with ISA and IDE.
    Pc,
    /// ICH9 of 2009, with PCI Express and AHCI.
    Q35,
}

/// How the image hangs on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// The board's own controller: IDE on `pc`, AHCI on `q35`.
    Ide,
    /// A virtio block device.
    Virtio,
    /// A USB stick on an xHCI controller.
    Usb,
}

/// Where the first serial port leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serial {
    /// The terminal, with QEMU's monitor behind Ctrl-A C. Ctrl-C ends QEMU.
    Terminal,
    /// The same for a guest that has a shell: Ctrl-C goes there, and Ctrl-A X
    /// ends QEMU. A machine that resets starts again.
    Shell,
    /// Standard output; nothing comes in.
    Output,
    /// A file, or anything that can be opened like one.
    File(PathBuf),
    /// The machine has no serial port.
    None,
}

/// A Linux that QEMU loads itself, for comparison with ours.
#[derive(Clone, Debug)]
struct Linux {
    initrd: PathBuf,
    append: String,
}

/// A virtual machine. The methods are a builder; see the fields of
/// [`Machine::new`] for what it is when nothing is said.
#[derive(Clone, Debug)]
#[must_use]
pub struct Machine {
    image: PathBuf,
    linux: Option<Linux>,
    firmware: Firmware,
    board: Board,
    disk: Disk,
    data: Option<DataDisk>,
    smp: String,
    mem: String,
    cpu: Option<String>,
    accel: Accel,
    icount: Option<String>,
    cmdline: String,
    fw_cfg: Vec<(String, PathBuf)>,
    serial: Serial,
    serial_log: Option<PathBuf>,
    debugcon: Option<PathBuf>,
    qmp: Option<PathBuf>,
    has_window: bool,
    has_hpet: bool,
    has_debug_exit: bool,
    is_single_threaded: bool,
    gdb: Option<PathBuf>,
    incoming: Option<PathBuf>,
    extra: Vec<String>,
    needs_newer_qemu: bool,
}

impl Machine {
    /// A `pc` with one CPU and 1 GiB, the image on its own disk controller, no
    /// other disk, no window, serial to standard output, under TCG.
    pub fn new(image: impl Into<PathBuf>, firmware: Firmware) -> Self {
        Self {
            image: image.into(),
            linux: None,
            firmware,
            board: Board::Pc,
            disk: Disk::Ide,
            data: None,
            smp: "1".into(),
            mem: "1G".into(),
            cpu: None,
            accel: Accel::Tcg,
            icount: None,
            cmdline: String::new(),
            fw_cfg: Vec::new(),
            serial: Serial::Output,
            serial_log: None,
            debugcon: None,
            qmp: None,
            has_window: false,
            has_hpet: true,
            has_debug_exit: true,
            is_single_threaded: false,
            gdb: None,
            incoming: None,
            extra: Vec::new(),
            needs_newer_qemu: false,
        }
    }

    /// The same machine without a disk, with a Linux kernel that QEMU loads
    /// itself, its initramfs and its command line.
    pub fn linux(
        kernel: impl Into<PathBuf>,
        initrd: impl Into<PathBuf>,
        append: impl Into<String>,
    ) -> Self {
        let linux = Linux { initrd: initrd.into(), append: append.into() };
        Self { linux: Some(linux), ..Self::new(kernel, Firmware::Bios) }
    }

    /// The CPUs: a number, or any value of QEMU's `-smp`
    /// (`"6,sockets=2,cores=3"`, `"4,maxcpus=8"`).
    pub fn smp(mut self, smp: impl ToString) -> Self {
        self.smp = smp.to_string();
        self
    }

    /// The memory, in QEMU's notation: `512M`, `6G`.
    pub fn mem(mut self, mem: impl Into<String>) -> Self {
        self.mem = mem.into();
        self
    }

    /// The mainboard.
    pub fn board(mut self, board: Board) -> Self {
        self.board = board;
        self
    }

    /// How the image is attached.
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// A disk for the guest's data.
    pub fn data(mut self, data: DataDisk) -> Self {
        self.data = Some(data);
        self
    }

    /// The CPU model and its features, as for QEMU's `-cpu`.
    pub fn cpu(mut self, cpu: impl Into<String>) -> Self {
        self.cpu = Some(cpu.into());
        self
    }

    /// What runs the guest.
    pub fn accel(mut self, accel: Accel) -> Self {
        self.accel = accel;
        self
    }

    /// Virtual time by counted instructions, as for QEMU's `-icount`
    /// (`"shift=0,sleep=off"`). The translator alone can count, so this
    /// overrides [`Machine::accel`].
    pub fn icount(mut self, icount: impl Into<String>) -> Self {
        self.icount = Some(icount.into());
        self
    }

    /// The kernel's command line; the kernel reads it after the image's own.
    pub fn cmdline(mut self, cmdline: impl Into<String>) -> Self {
        self.cmdline = cmdline.into();
        self
    }

    /// A file for the guest under `name` in QEMU's fw_cfg, such as
    /// `opt/runnext/acpi/APIC`.
    pub fn fw_cfg(mut self, name: impl Into<String>, file: impl Into<PathBuf>) -> Self {
        self.fw_cfg.push((name.into(), file.into()));
        self
    }

    /// Where the serial port leads.
    pub fn serial(mut self, serial: Serial) -> Self {
        self.serial = serial;
        self
    }

    /// A file for a copy of what the guest writes to a serial port that leads to
    /// standard output.
    pub fn serial_log(mut self, file: impl Into<PathBuf>) -> Self {
        self.serial_log = Some(file.into());
        self
    }

    /// A file for the bytes that the guest writes to the debug console at port
    /// 0xe9. Nothing that it says there takes longer than the write itself.
    pub fn debugcon(mut self, file: impl Into<PathBuf>) -> Self {
        self.debugcon = Some(file.into());
        self
    }

    /// QEMU's monitor (QMP) on a socket at this path. Keep it short: 100 bytes
    /// is what a Unix socket's name may have.
    pub fn qmp(mut self, socket: impl Into<PathBuf>) -> Self {
        self.qmp = Some(socket.into());
        self
    }

    /// Shows the framebuffer in a window.
    pub fn window(mut self) -> Self {
        self.has_window = true;
        self
    }

    /// Takes the HPET away.
    pub fn without_hpet(mut self) -> Self {
        self.has_hpet = false;
        self
    }

    /// Takes away the device by which the kernel ends the machine, so that what
    /// it shows at the end stays to be looked at.
    pub fn without_debug_exit(mut self) -> Self {
        self.has_debug_exit = false;
        self
    }

    /// All CPUs take turns in one thread of the host's. A CPU that never halts keeps the others
    /// waiting for long; where CPUs mostly halt it saves what threads cost each other.
    pub fn single_threaded(mut self) -> Self {
        self.is_single_threaded = true;
        self
    }

    /// Stops before the first instruction and listens for gdb on a socket at this path.
    pub fn gdb(mut self, socket: impl Into<PathBuf>) -> Self {
        self.gdb = Some(socket.into());
        self
    }

    /// Starts from the state in this file and not from the firmware. The state must come
    /// from the same machine as far as [`Machine::loading`] describes it.
    pub fn incoming(mut self, state: impl Into<PathBuf>) -> Self {
        self.incoming = Some(state.into());
        self
    }

    /// This machine as far as it matters while the loader runs: without what the kernel reads
    /// later, without what lies outside of the machine, and with the quickest way to run it.
    pub fn loading(mut self) -> Self {
        // A state is read by the QEMU that wrote it.
        self.needs_newer_qemu |= self.icount.is_some() && self.smp != "1";
        self.cmdline = String::new();
        self.fw_cfg.clear();
        if self.serial != Serial::None {
            self.serial = Serial::File("/dev/null".into());
        }
        self.debugcon = None;
        self.serial_log = None;
        self.qmp = None;
        self.icount = None;
        self.single_threaded()
    }

    /// The same machine, started from another image.
    pub fn start_from(mut self, image: impl Into<PathBuf>, firmware: Firmware) -> Self {
        self.image = image.into();
        self.firmware = firmware;
        self
    }

    /// The image that it starts from.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// The QEMU that it runs in.
    pub fn qemu(&self) -> Qemu {
        // One CPU has no turns to take.
        let takes_turns = self.icount.is_some() && self.smp != "1";
        match self.needs_newer_qemu || takes_turns {
            true => Qemu::newest(),
            false => Qemu::installed(),
        }
    }

    /// Any further argument of QEMU's.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.extra.push(arg.into());
        self
    }

    /// The newest QEMU that is here, for what the usual one may not have. Virtual time on
    /// several CPUs takes it unasked.
    pub fn newer_qemu(mut self) -> Self {
        self.needs_newer_qemu = true;
        self
    }

    /// The arguments for QEMU, without those that depend on the host.
    pub fn args(&self) -> Vec<String> {
        let mut args = Vec::new();
        let mut push = |words: &[&str]| args.extend(words.iter().map(ToString::to_string));
        push(&["-machine", &self.machine_value()]);
        push(&["-smp", &self.smp, "-m", &self.mem]);
        match (&self.cpu, self.runs_on()) {
            (Some(cpu), _) => push(&["-cpu", cpu]),
            (None, Accel::Kvm) => push(&["-cpu", "host"]),
            (None, Accel::Tcg) => {}
        }
        // With counted instructions there is one thread anyway, and QEMU wants no such word.
        match (self.runs_on(), self.is_single_threaded && self.icount.is_none()) {
            (Accel::Tcg, true) => push(&["-accel", "tcg,thread=single"]),
            (accel, _) => push(&["-accel", accel.name()]),
        }
        if let Some(icount) = &self.icount {
            push(&["-icount", icount]);
        }
        // Nothing but the image to boot from, and no reset loop after a triple
        // fault, unless a person at the shell may want to start it again.
        push(&["-nodefaults", "-no-user-config", "-vga", "std"]);
        if self.serial != Serial::Shell {
            push(&["-no-reboot"]);
        }
        if self.has_debug_exit {
            push(&["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]);
        }
        if !self.has_window {
            push(&["-display", "none"]);
        }
        args.extend(self.disk_args());
        args.extend(self.fw_cfg_args());
        args.extend(self.console_args());
        args.extend(self.extra.iter().cloned());
        args
    }

    /// The command that starts this machine. `scratch` is a directory for the
    /// copy of the firmware's variables; it must outlive the machine. On Linux the machine
    /// ends with the thread that starts it.
    pub fn command(&self, scratch: &Path) -> Result<Command> {
        let qemu = self.qemu();
        let mut command = Command::new(&qemu.binary);
        for folder in &qemu.firmware {
            command.arg("-L").arg(folder);
        }
        command.args(self.args());
        if self.firmware == Firmware::Uefi {
            let ovmf = Ovmf::find()?;
            let vars = scratch.join("ovmf-vars.fd");
            fs::copy(&ovmf.vars, &vars).with_context(|| {
                format!("copying the firmware's variables to {}", vars.display())
            })?;
            command.args(["-drive", &flash(&ovmf.code, "readonly=on")]);
            command.args(["-drive", &flash(&vars, "readonly=off")]);
        }
        kill_with_parent(&mut command);
        Ok(command)
    }

    fn runs_on(&self) -> Accel {
        if self.icount.is_some() { Accel::Tcg } else { self.accel }
    }

    fn machine_value(&self) -> String {
        let board = match self.board {
            Board::Pc => "pc",
            Board::Q35 => "q35",
        };
        let hpet = if self.has_hpet { "on" } else { "off" };
        format!("{board},hpet={hpet}")
    }

    fn disk_args(&self) -> Vec<String> {
        if let Some(Linux { initrd, append }) = &self.linux {
            let [kernel, initrd] = [&self.image, initrd].map(|p| p.to_string_lossy().into_owned());
            let words = ["-kernel", &kernel, "-initrd", &initrd, "-append", append];
            return words.map(str::to_string).to_vec();
        }
        let file = comma(&self.image.to_string_lossy());
        let mut words = Vec::new();
        // First, so that it is the first virtio disk that the guest finds.
        if let Some(data) = &self.data {
            words.extend(data.args());
        }
        let drive = format!("file={file},format=raw,snapshot=on,if=none,id=image");
        words.extend(["-drive".into(), drive]);
        let device = match self.disk {
            Disk::Ide => "ide-hd,bus=ide.0",
            Disk::Virtio => "virtio-blk-pci",
            Disk::Usb => "usb-storage",
        };
        if self.disk == Disk::Usb {
            words.extend(["-device".into(), "qemu-xhci".into()]);
        }
        // An index, so that no firmware tries to start from the other disk.
        words.extend(["-device".into(), format!("{device},drive=image,bootindex=0")]);
        words
    }

    fn fw_cfg_args(&self) -> Vec<String> {
        let mut args = Vec::new();
        if !self.cmdline.is_empty() {
            args.push("-fw_cfg".into());
            args.push(format!("name=opt/runnext/cmdline,string={}", comma(&self.cmdline)));
        }
        for (name, file) in &self.fw_cfg {
            args.push("-fw_cfg".into());
            args.push(format!("name={},file={}", comma(name), comma(&file.to_string_lossy())));
        }
        args
    }

    fn console_args(&self) -> Vec<String> {
        let mut args: Vec<String> = Vec::new();
        let mut push = |words: &[&str]| args.extend(words.iter().map(ToString::to_string));
        let copy = self.serial_log.as_ref().map(|file| comma(&file.to_string_lossy()));
        let copy = copy.map(|file| format!(",logfile={file}")).unwrap_or_default();
        match &self.serial {
            // `-serial mon:stdio` would hand Ctrl-C to the guest.
            Serial::Terminal | Serial::Shell => {
                let signal = if self.serial == Serial::Shell { "off" } else { "on" };
                push(&["-chardev", &format!("stdio,id=console,mux=on,signal={signal}{copy}")]);
                push(&["-serial", "chardev:console", "-mon", "chardev=console"]);
            }
            Serial::Output => {
                push(&["-chardev", &format!("stdio,id=console{copy}")]);
                push(&["-serial", "chardev:console", "-monitor", "none"]);
            }
            Serial::File(path) => {
                let path = comma(&path.to_string_lossy());
                push(&["-chardev", &format!("file,id=console,path={path}")]);
                push(&["-serial", "chardev:console", "-monitor", "none"]);
            }
            Serial::None => push(&["-serial", "none", "-monitor", "none"]),
        }
        if let Some(file) = &self.debugcon {
            let file = comma(&file.to_string_lossy());
            push(&["-chardev", &format!("file,id=debugcon,path={file}")]);
            push(&["-device", "isa-debugcon,iobase=0xe9,chardev=debugcon"]);
        }
        if let Some(socket) = &self.qmp {
            let socket = comma(&socket.to_string_lossy());
            push(&["-qmp", &format!("unix:{socket},server=on,wait=off")]);
        }
        if let Some(socket) = &self.gdb {
            let socket = comma(&socket.to_string_lossy());
            push(&["-gdb", &format!("unix:{socket},server=on,wait=off"), "-S"]);
        }
        if let Some(state) = &self.incoming {
            let state = state.to_string_lossy().replace('\'', r"'\''");
            push(&["-incoming", &format!("exec:cat '{state}'")]);
            // A network card would announce itself for a while, and the timers of that run by
            // the host's clock: they would disturb turns that are counted.
            push(&["-global", "migration.announce-rounds=0"]);
        }
        args
    }
}

fn flash(file: &Path, access: &str) -> String {
    format!("if=pflash,format=raw,file={},{access}", comma(&file.to_string_lossy()))
}

/// Has the host's kernel kill the process that `command` starts when the thread that started
/// it ends, also by a signal: a test that is killed leaves no emulator running.
pub(crate) fn kill_with_parent(command: &mut Command) {
    #[cfg(target_os = "linux")]
    {
        let parent = std::process::id();
        let before_exec = move || {
            // SAFETY: this call of prctl has no pointer arguments; it sets a number in the
            // host's kernel.
            let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            // The parent may have ended before the call: no signal comes then.
            match result == 0 && std::os::unix::process::parent_id() == parent {
                true => Ok(()),
                false => Err(std::io::Error::from_raw_os_error(libc::ESRCH)),
            }
        };
        // SAFETY: the closure runs between fork and exec. It makes two system calls,
        // allocates nothing and takes no lock.
        unsafe { command.pre_exec(before_exec) };
    }
}

/// In the value of one of QEMU's options a comma is written twice.
pub(crate) fn comma(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
mod tests;
