//! Boots one guest and watches it to its end.
//!
//! [`Boot`] says which machine, what it runs and what to wait for;
//! [`Boot::run`] does it and gives back an [`Outcome`]. It panics only where the
//! harness itself cannot go on (no kernel, no QEMU): that is no verdict about
//! the guest.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use boot::cores::Cores;
use boot::cost::CpuTime;
use boot::data::DataDisk;
use boot::exit::End;
use boot::image;
use boot::kernel::Source;
use boot::qemu::{Board, Disk, Firmware, Machine, Serial, VIRTUAL_CLOCKS};

use crate::files::{Files, trace_of};
use crate::hang::Hang;
use crate::outcome::{Ended, Outcome, lines_of};
use crate::qmp::Qmp;
use crate::results;
use crate::screen::Screen;
use crate::snapshot;
use crate::symbols::Symbols;
use crate::typist::{self, Keyboard};

/// Far more than a healthy boot takes on a busy host.
const DEFAULT_LIMIT: Duration = Duration::from_secs(120);
/// The same in virtual time, where eight CPUs share one of the host's.
const VIRTUAL_LIMIT: Duration = Duration::from_secs(600);
/// What makes a run in virtual time repeat, beside [`VIRTUAL_CLOCKS`]: short turns.
/// QEMU 10 divides the 400 µs among all CPUs, so that eight have 50 µs each: shorter ones cost
/// the host four times as much where one CPU is busy and seven are idle.
/// Lines go to the serial port alone: writes to the screen move the turns, at times that
/// depend on the host (`syncing` on 8 CPUs: two hashes in two runs with it, one in three without).
pub const VIRTUAL_WORDS: &str = "console=serial turns=400";
/// The CPUs of the one boot of a [`Boot::series`] that is not in virtual time.
pub const PARALLEL_CPUS: usize = 4;
/// How often the guest is looked at.
const POLL: Duration = Duration::from_millis(20);
/// How long a run may take before its virtual time is read, and how often it is read then.
const CLOCK_POLL: Duration = Duration::from_secs(1);
/// How often its screen is looked at, which costs more.
const SCREEN_POLL: Duration = Duration::from_millis(500);

/// A boot to be. The methods are a builder.
#[derive(Clone, Debug)]
#[must_use]
pub struct Boot {
    name: String,
    source: Source,
    /// The machine, except for what depends on the image and on the files of a run.
    machine: Machine,
    firmware: Firmware,
    /// The kernel's command line, without the words that [`Boot::command_line`] adds.
    cmdline: String,
    limit: Duration,
    /// The same in seconds of virtual time.
    virtual_limit_s: Option<u64>,
    /// A line at which the limit changes.
    limit_after: Option<(String, Duration)>,
    until: Until,
    /// Files for the kernel in QEMU's fw_cfg, by name.
    files: Vec<(String, Vec<u8>)>,
    has_serial: bool,
    /// What is typed, each after a line.
    typed: Vec<(String, Vec<u8>)>,
    /// Commands for QEMU's monitor, each after a line.
    monitored: Vec<(String, String)>,
    /// A line at which the guest is frozen, how and for how long.
    frozen: Option<(String, Freeze, Duration)>,
    /// At a terminal, and not into a pipe.
    has_terminal: bool,
    /// The image's own command line, where it is not the usual one.
    ramdisk: Option<String>,
    /// What runs if the command line names no program; `None`: the image decides.
    program: Option<&'static str>,
    /// The seed of a run in virtual time.
    seed: Option<u64>,
    /// Through firmware and loader, and not from a snapshot after them.
    is_cold: bool,
    /// A kernel that is built already, and its image.
    built: Option<(PathBuf, PathBuf)>,
}

/// What a run waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Until {
    Exit,
    Line(String),
    Screen(String),
}

impl Boot {
    /// The standard image on a `pc` with one CPU and 1 GiB, from BIOS, until
    /// QEMU exits. It runs `hello`, the shortest program, unless the command line
    /// or the image's own names another. The name is that of the log; give each
    /// run its own.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            source: Source::Standard,
            machine: Machine::new("", Firmware::Bios),
            firmware: Firmware::Bios,
            cmdline: String::new(),
            limit: DEFAULT_LIMIT,
            virtual_limit_s: None,
            limit_after: None,
            until: Until::Exit,
            files: Vec::new(),
            has_serial: true,
            typed: Vec::new(),
            monitored: Vec::new(),
            frozen: None,
            has_terminal: false,
            ramdisk: None,
            program: Some("hello"),
            seed: None,
            is_cold: false,
            built: None,
        }
    }

    /// The same with an image that was made already, from this kernel. The image decides
    /// which program runs, or the command line.
    pub fn built(name: impl Into<String>, kernel: PathBuf, image: PathBuf) -> Self {
        Self { built: Some((kernel, image)), program: None, ..Self::new(name) }
    }

    /// Through firmware and loader: for what is about booting. Others start from a snapshot
    /// ([`crate::snapshot`]) where there can be one.
    pub fn cold(mut self) -> Self {
        self.is_cold = true;
        self
    }

    /// The CPUs take turns in one thread of the host's, which is quicker for CPUs that
    /// mostly halt, and takes one of the host's cores. Not for a guest in which a CPU spins.
    pub fn single_threaded(self) -> Self {
        self.with(Machine::single_threaded)
    }

    /// The program that the image runs by itself.
    pub fn default_program(mut self) -> Self {
        self.program = None;
        self
    }

    /// The same with the programs of `tests/guest`.
    pub fn guest(name: impl Into<String>) -> Self {
        Self { source: Source::Guest, program: None, ..Self::new(name) }
    }

    /// The same, built with the profile `checked`: with every assertion that a
    /// release build does without. It is slower; give it less to do.
    pub fn checked(name: impl Into<String>) -> Self {
        Self { source: Source::Checked, ..Self::guest(name) }
    }

    /// The CPUs, as a number or as a value of QEMU's `-smp`.
    pub fn smp(self, smp: impl ToString) -> Self {
        self.with(|machine| machine.smp(smp))
    }

    /// The memory, as `512M` or `6G`.
    pub fn mem(self, mem: &str) -> Self {
        self.with(|machine| machine.mem(mem))
    }

    /// The CPU model.
    pub fn cpu(self, cpu: &str) -> Self {
        self.with(|machine| machine.cpu(cpu))
    }

    /// Virtual time: an instruction is a nanosecond, nothing but the guest takes time, and
    /// its CPUs take short turns on one core of the host. So what the guest does depends on
    /// the kernel, its command line, the QEMU and the seed, not on the host's load: a failure
    /// is a seed, and comes again. `RUNNEXT_SEED` in the environment chooses another than 1;
    /// the run's name has it. Not for what follows the host's clock (disks, what is typed)
    /// and not for races that take CPUs which truly run at the same time.
    pub fn virtual_time(mut self) -> Self {
        let seed = chosen_seed();
        self.name = format!("{}-seed-{seed}", self.name);
        self.virtual_time_of(seed)
    }

    /// The same with this seed, which is not in the name.
    pub fn virtual_time_of(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self.limit = self.limit.max(VIRTUAL_LIMIT);
        self.icount("shift=0,sleep=off")
    }

    /// One of a series on 1, 2, 4 and 8 CPUs: in virtual time, except with
    /// [`PARALLEL_CPUS`], where each CPU is a thread of the host, for races that turns do
    /// not show.
    pub fn series(self, cpus: usize) -> Self {
        let boot = self.smp(cpus);
        if cpus == PARALLEL_CPUS { boot } else { boot.virtual_time() }
    }

    /// Virtual time by counted instructions: `"shift=0,sleep=off"`. Most want
    /// [`Boot::virtual_time`], which adds the words that make a run repeat.
    pub fn icount(self, icount: &str) -> Self {
        self.with(|machine| machine.icount(icount))
    }

    /// A debug console that leads to a file.
    pub fn debugcon(self, file: impl Into<PathBuf>) -> Self {
        self.with(|machine| machine.debugcon(file))
    }

    /// The kernel's command line.
    pub fn cmdline(mut self, cmdline: &str) -> Self {
        self.cmdline = cmdline.into();
        self
    }

    /// The mainboard.
    pub fn board(self, board: Board) -> Self {
        self.with(|machine| machine.board(board))
    }

    /// How the image is attached.
    pub fn disk(self, disk: Disk) -> Self {
        self.with(|machine| machine.disk(disk))
    }

    /// A disk for the guest's data; without this there is none.
    pub fn data(self, data: DataDisk) -> Self {
        self.with(|machine| machine.data(data))
    }

    /// No HPET.
    pub fn without_hpet(self) -> Self {
        self.with(Machine::without_hpet)
    }

    /// No isa-debug-exit: what ends stays, as on a real machine. Use it with
    /// [`Boot::until_line`] or [`Boot::until_screen`].
    pub fn without_debug_exit(self) -> Self {
        self.with(Machine::without_debug_exit)
    }

    /// Any further argument of QEMU's. Cold: a snapshot for it would be used once.
    pub fn arg(self, arg: &str) -> Self {
        self.cold().with(|machine| machine.arg(arg))
    }

    /// The newest QEMU that is here, for what the usual one may not have.
    pub fn newer_qemu(self) -> Self {
        self.with(Machine::newer_qemu)
    }

    /// From UEFI. Cold: the loader relies on OVMF's variables, a file that each machine
    /// writes to.
    pub fn uefi(mut self) -> Self {
        self.firmware = Firmware::Uefi;
        self.cold()
    }

    /// No serial port.
    pub fn without_serial(mut self) -> Self {
        self.has_serial = false;
        self
    }

    /// A person sits at the serial port: it leads to a pseudo-terminal, as with
    /// `make run` in a window, and the guest is told so.
    pub fn at_terminal(mut self) -> Self {
        self.has_terminal = true;
        let trace = trace_of(&self.name);
        self.debugcon(trace)
    }

    /// Types `bytes` on the serial port, as fast as the guest takes them, as soon
    /// as a line on it contains `text`: one that came since the last time that
    /// something was typed. Several are typed in their order.
    pub fn typed_after(mut self, text: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.typed.push((text.into(), bytes.into()));
        self
    }

    /// Has QEMU's monitor execute `command` (QMP, without arguments) as soon as a line on
    /// the serial port contains `text`. Several are executed in their order.
    pub fn monitor_after(mut self, text: &str, command: &str) -> Self {
        self.monitored.push((text.into(), command.into()));
        self
    }

    /// Freezes the guest for that time as soon as a line on the serial port contains `text`.
    pub fn frozen_after(mut self, text: &str, freeze: Freeze, time: Duration) -> Self {
        self.frozen = Some((text.into(), freeze, time));
        self
    }

    /// An ACPI table in place of the firmware's; empty, the table is hidden.
    pub fn acpi_table(mut self, signature: &str, table: Vec<u8>) -> Self {
        self.files.push((format!("opt/runnext/acpi/{signature}"), table));
        self
    }

    /// Regions that are added to the loader's memory map: see [`crate::memory`].
    pub fn memory(mut self, regions: Vec<u8>) -> Self {
        self.files.push(("opt/runnext/memory".into(), regions));
        self
    }

    /// Another text in the image's command line file. Cold: the image is used once.
    pub fn ramdisk(mut self, text: &str) -> Self {
        self.ramdisk = Some(text.into());
        self.program = None;
        self.cold()
    }

    /// A crate of its own instead of the standard image, by its path from the
    /// top of the source tree. Cold: the image is used once.
    pub fn app(mut self, path: impl AsRef<Path>) -> Self {
        self.source = Source::App(boot::root().join(path));
        self.program = None;
        self.cold()
    }

    /// When to call it a hang.
    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// When to call it a hang, in seconds of virtual time after the first second of the host's:
    /// so a busy host makes no hang of a run that is slow. The clock that is read is the
    /// machine's real-time clock.
    pub fn virtual_limit(mut self, seconds: u64) -> Self {
        self.virtual_limit_s = Some(seconds);
        self.with(|machine| machine.arg("-rtc").arg("base=2000-01-01,clock=vm"))
    }

    /// When to call it a hang, counted from the line that contains `text`: for a
    /// guest that is meant to hang, and should not be waited for.
    pub fn limit_after(mut self, text: &str, seconds: u64) -> Self {
        self.limit_after = Some((text.into(), Duration::from_secs(seconds)));
        self
    }

    /// Stops the machine as soon as a line on the serial port contains `text`.
    pub fn until_line(mut self, text: &str) -> Self {
        self.until = Until::Line(text.into());
        self
    }

    /// Stops the machine as soon as its screen shows `text`.
    pub fn until_screen(mut self, text: &str) -> Self {
        self.until = Until::Screen(text.into());
        self
    }

    /// The name of the run.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Boots, waits, and says what came of it.
    #[track_caller]
    pub fn run(&self) -> Outcome {
        match self.try_run() {
            Ok(outcome) => outcome,
            Err(error) => panic!("{}: the harness cannot go on: {error:#}", self.name),
        }
    }

    /// The same; an error is about the harness.
    pub fn try_run(&self) -> Result<Outcome> {
        let files = Files::new(&self.name)?;
        let (kernel, image) = match &self.built {
            Some(built) => built.clone(),
            None => {
                let kernel = kernel_of(&self.source)?;
                let image = self.image(&kernel, &files)?;
                (kernel, image)
            }
        };
        let mut machine = self.machine(&image, &files)?;
        let _core = Cores::take(1)?;
        let started = Instant::now();
        if !self.is_cold {
            let snapshot = snapshot::of(&machine, &kernel, files.scratch.path())?;
            machine = machine.incoming(snapshot);
        }
        let (mut qemu, keyboard) = self.start(&machine, &files)?;
        let has_ended = AtomicBool::new(false);
        let (ended, screen, cpu) = thread::scope(|scope| {
            if let Some(keys) = keyboard {
                scope.spawn(|| typist::type_in(&self.typed, keys, &files.log, &has_ended));
            }
            let ended = self.watch(&mut qemu, &files, &kernel);
            let cpu = qemu.cpu;
            drop(qemu); // a typist in the middle of a word notices this way
            has_ended.store(true, Ordering::Relaxed);
            ended.map(|(ended, screen)| (ended, screen, cpu))
        })?;
        let lines = lines_of(&fs::read(&files.log).unwrap_or_default());
        let qemu_said = fs::read_to_string(&files.qemu_log).unwrap_or_default();
        let (name, log) = (self.name.clone(), files.log.clone());
        let outcome = Outcome { name, ended, lines, log, screen, qemu_said };
        results::append_run(&outcome, started.elapsed(), cpu);
        Ok(outcome)
    }

    /// Starts QEMU. If it is typed to, standard input and output are its serial
    /// port, and what is typed goes into the keyboard.
    fn start(&self, machine: &Machine, files: &Files) -> Result<(Guest, Option<Keyboard>)> {
        let mut command = machine.command(files.scratch.path())?;
        let said = File::create(&files.qemu_log).context("creating QEMU's log")?;
        let log = File::create(&files.log).context("creating the log")?;
        let keyboard = if self.has_terminal {
            command.stderr(said);
            Some(Keyboard::terminal(&mut command, log)?)
        } else {
            match self.typed.is_empty() {
                true => command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said),
                false => command.stdin(Stdio::piped()).stdout(log).stderr(said),
            };
            None
        };
        let mut qemu = Guest::new(command.spawn().context("starting QEMU (make setup?)")?);
        let keyboard = keyboard.or_else(|| qemu.child.stdin.take().map(Keyboard::pipe));
        Ok((qemu, keyboard))
    }

    fn image(&self, kernel: &Path, files: &Files) -> Result<PathBuf> {
        match &self.ramdisk {
            None => image_of(&self.source, self.firmware, kernel),
            Some(text) => {
                let cmdline = files.scratch.path().join("cmdline.txt");
                fs::write(&cmdline, text).with_context(|| cmdline.display().to_string())?;
                image::build(self.firmware, kernel, &cmdline, files.scratch.path(), "edited")
            }
        }
    }

    fn with(self, change: impl FnOnce(Machine) -> Machine) -> Self {
        Self { machine: change(self.machine), ..self }
    }

    fn machine(&self, image: &Path, files: &Files) -> Result<Machine> {
        let machine = self.machine.clone().start_from(image, self.firmware).qmp(files.qmp());
        let mut machine = machine.cmdline(self.command_line()).serial(match self.has_serial {
            true if self.has_terminal => Serial::Shell,
            true if self.typed.is_empty() => Serial::File(files.log.clone()),
            true => Serial::Output, // what comes in is standard input
            false => Serial::None,
        });
        for (name, contents) in &self.files {
            let file = files.scratch.path().join(name.replace('/', "-"));
            fs::write(&file, contents).with_context(|| file.display().to_string())?;
            machine = machine.fw_cfg(name, file);
        }
        Ok(machine)
    }

    /// The words that follow from other options first: words after a `--` in the rest are
    /// the program's.
    fn command_line(&self) -> String {
        let mut words = Vec::new();
        words.extend(self.program.map(|name| format!("program={name}")));
        words.extend(self.has_terminal.then(|| "terminal=on".into()));
        words.extend(self.seed.map(|seed| format!("{VIRTUAL_CLOCKS} {VIRTUAL_WORDS} seed={seed}")));
        words.extend(Some(self.cmdline.clone()).filter(|rest| !rest.is_empty()));
        words.join(" ")
    }

    fn watch(
        &self,
        qemu: &mut Guest,
        files: &Files,
        kernel: &Path,
    ) -> Result<(Ended, Option<Screen>)> {
        let started = Instant::now();
        let mut deadline = started + self.limit;
        let mut limit_after = self.limit_after.as_ref();
        let mut last_look = started;
        let mut monitored = self.monitored.iter().peekable();
        let mut frozen = self.frozen.as_ref();
        let mut clock_poll = started + CLOCK_POLL;
        let mut first_s = None;
        loop {
            while let Some((_, command)) = monitored.next_if(|(text, _)| files.log_contains(text)) {
                // The machine may end of it before QEMU answers.
                let qmp = Qmp::connect(&files.qmp());
                qmp.and_then(|mut qmp| qmp.execute(command, serde_json::json!({}))).ok();
            }
            if let Some((_, how, time)) = frozen.take_if(|(text, ..)| files.log_contains(text)) {
                how.freeze(&qemu.child, &files.qmp(), *time)?;
            }
            if let Some(status) = qemu.poll()? {
                if let Some((text, ..)) = frozen {
                    bail!("the guest was never frozen: it ended without {text:?}");
                }
                return Ok((Ended::Exit(End::from_status(status.code())), None));
            }
            match &self.until {
                Until::Line(text) if files.log_contains(text) => return Ok((Ended::Seen, None)),
                Until::Screen(text) if last_look.elapsed() > SCREEN_POLL => {
                    last_look = Instant::now();
                    // The monitor may not be there yet, or QEMU be on its way out.
                    let screen = Qmp::connect(&files.qmp()).and_then(|mut qmp| {
                        let screen = files.screen(&mut qmp)?;
                        let is_there = screen.shows(text);
                        if is_there {
                            files.picture(&mut qmp).ok();
                        }
                        Ok(is_there.then_some(screen))
                    });
                    if let Ok(Some(screen)) = screen {
                        return Ok((Ended::Seen, Some(screen)));
                    }
                }
                _ => {}
            }
            if let Some((_, limit)) = limit_after.take_if(|(text, _)| files.log_contains(text)) {
                deadline = Instant::now() + *limit;
            }
            if let Some(limit_s) = self.virtual_limit_s
                && Instant::now() > clock_poll
            {
                clock_poll = Instant::now() + CLOCK_POLL;
                // QEMU may be on its way out.
                let now_s = Qmp::connect(&files.qmp()).and_then(|mut qmp| qmp.rtc_seconds()).ok();
                first_s = first_s.or(now_s);
                if now_s.zip(first_s).is_some_and(|(now_s, first_s)| now_s > first_s + limit_s) {
                    return Ok(self.inspect(files, kernel, started.elapsed()));
                }
            }
            if Instant::now() > deadline {
                return Ok(self.inspect(files, kernel, started.elapsed()));
            }
            thread::sleep(POLL);
        }
    }

    fn inspect(&self, files: &Files, kernel: &Path, waited: Duration) -> (Ended, Option<Screen>) {
        let symbols = Symbols::read(kernel).unwrap_or_default();
        let mut qmp = match Qmp::connect(&files.qmp()) {
            Ok(qmp) => qmp,
            Err(error) => {
                let trouble = Some(format!("{error:#}"));
                let hang = Hang { waited, trouble, ..Hang::default() };
                return (Ended::Hang(hang), None);
            }
        };
        let mut hang = Hang::inspect(&mut qmp, &symbols, waited);
        let screen = files.screen(&mut qmp).ok();
        hang.screenshot = files.picture(&mut qmp).ok();
        (Ended::Hang(hang), screen)
    }
}

/// How a guest is kept from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freeze {
    /// The host stops QEMU's process. The guest's clock goes on, as when the host is busy elsewhere.
    Process,
    /// QEMU stops the machine, and the guest's clock with it.
    Machine,
}

impl Freeze {
    fn freeze(self, qemu: &Child, qmp: &Path, time: Duration) -> Result<()> {
        let signal = |name: &str| -> Result<()> {
            Command::new("kill").args([name, &qemu.id().to_string()]).status()?;
            Ok(())
        };
        match self {
            Freeze::Process => {
                signal("-STOP")?;
                thread::sleep(time);
                signal("-CONT")
            }
            Freeze::Machine => {
                let mut qmp = Qmp::connect(qmp)?;
                qmp.execute("stop", serde_json::json!({}))?;
                thread::sleep(time);
                qmp.execute("cont", serde_json::json!({}))?;
                Ok(())
            }
        }
    }
}

/// What `RUNNEXT_SEED` in the environment says; 1 if it says nothing.
fn chosen_seed() -> u64 {
    match std::env::var("RUNNEXT_SEED") {
        Ok(word) if !word.is_empty() => {
            word.parse().unwrap_or_else(|_| panic!("RUNNEXT_SEED={word} is not a number"))
        }
        _ => 1,
    }
}

/// What is booted is built once a process, so that a test never judges an old
/// one. `RUNNEXT_KERNEL` names a standard kernel that is built already, `RUNNEXT_GUEST` one of
/// the tests' guest.
pub fn kernel_of(source: &Source) -> Result<PathBuf> {
    type Built = LazyLock<Result<PathBuf, String>>;
    fn build(source: &Source, variable: &str) -> Result<PathBuf, String> {
        match std::env::var_os(variable) {
            Some(path) => Ok(path.into()),
            None => source.build_quietly().map_err(|error| format!("{error:#}")),
        }
    }
    static STANDARD: Built = LazyLock::new(|| build(&Source::Standard, "RUNNEXT_KERNEL"));
    static GUEST: Built = LazyLock::new(|| build(&Source::Guest, "RUNNEXT_GUEST"));
    static CHECKED: Built =
        LazyLock::new(|| Source::Checked.build_quietly().map_err(|error| format!("{error:#}")));
    match source {
        Source::Standard => STANDARD.clone().map_err(anyhow::Error::msg),
        Source::Guest => GUEST.clone().map_err(anyhow::Error::msg),
        Source::Checked => CHECKED.clone().map_err(anyhow::Error::msg),
        Source::Bench | Source::App(_) | Source::AppTests(_) => source.build_quietly(),
    }
}

fn image_of(source: &Source, firmware: Firmware, kernel: &Path) -> Result<PathBuf> {
    let dir = match source {
        Source::Standard => boot::target_dir(),
        Source::Guest | Source::Checked | Source::Bench | Source::App(_) | Source::AppTests(_) => {
            crate::out_dir()
        }
    };
    let cmdline = boot::root().join("boot/cmdline.txt");
    image::build(firmware, kernel, &cmdline, &dir, source.image_name())
}

/// A QEMU that does not outlive its owner.
pub(crate) struct Guest {
    child: Child,
    /// What it had of the host's CPUs when it was last looked at.
    cpu: Duration,
}

impl Guest {
    pub(crate) fn new(child: Child) -> Self {
        Self { child, cpu: Duration::ZERO }
    }

    /// Its status, if it has ended.
    pub(crate) fn poll(&mut self) -> Result<Option<ExitStatus>> {
        self.cpu = CpuTime::of(self.child.id()).map_or(self.cpu, |cpu| cpu.own);
        self.child.try_wait().context("waiting for QEMU")
    }

    pub(crate) fn wait(&mut self) -> Result<()> {
        self.child.wait().map(drop).context("waiting for QEMU")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
