//! The tool behind `make image`, `run`, `gdb` and `usb`, `make new` and `make test APP=path`.
//!
//! Each command builds what it needs first, so each starts what the sources say.
//! The exit status of `run` is the guest's code, or 125 when the machine failed,
//! or 130 after Ctrl-C.

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, io, thread};

use anyhow::{Context, Result, bail};
use boot::args::{Options, USAGE};
use boot::cost::Cost;
use boot::exit::End;
use boot::places::{Places, pass_on};
use boot::qemu::{Firmware, Machine, Serial};
use boot::{Scratch, usb};
use signal_hook::consts::{SIGINT, SIGTERM};
use tool::args::Args;
use tool::tree::{self, shown};

/// As shells have it: 128 plus the number of the signal.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    tool::end("boot", obey(Args::of_process(USAGE)))
}

fn obey(mut args: Args) -> Result<ExitCode> {
    tree::find()?;
    let command = args.command()?;
    let options = Options::parse(args)?;
    match command.as_str() {
        "image" => image(&options),
        "run" => run(&options),
        "new" => new(&options),
        "test" => test(options),
        "gdb" => gdb(&options),
        "usb" => write_stick(&options),
        _ => bail!("{USAGE}"),
    }
}

fn image(options: &Options) -> Result<ExitCode> {
    options.check()?;
    let kernel = kernel(options)?;
    for firmware in [Firmware::Bios, Firmware::Uefi] {
        let path = options.image(firmware, &kernel)?;
        let bytes = fs::metadata(&path)?.len();
        println!("{} ({:.1} MiB)", shown(&path), bytes as f64 / f64::from(1 << 20));
    }
    Ok(ExitCode::SUCCESS)
}

fn new(options: &Options) -> Result<ExitCode> {
    let path = options.app.as_deref().context("where to? make new APP=path")?;
    boot::new::write(path)?;
    let app = shown(path);
    println!("{app} is a crate now; next: make run APP='{app}', make test APP='{app}'");
    Ok(ExitCode::SUCCESS)
}

/// A test may end the machine, with success even. So only the runner's last line counts.
fn test(mut options: Options) -> Result<ExitCode> {
    options.app.as_ref().context("which crate? make test APP=path")?;
    let scratch = Scratch::new()?;
    let log = scratch.path().join("serial.log");
    options.is_test = true;
    let code = run_logged(&options, &scratch, Some(&log))?;
    let said = fs::read(&log).unwrap_or_default();
    let is_told = String::from_utf8_lossy(&said).lines().any(|line| line.starts_with("tests: "));
    match is_told {
        true => Ok(code),
        false => bail!("the machine ended before all tests had"),
    }
}

fn run(options: &Options) -> Result<ExitCode> {
    run_logged(options, &Scratch::new()?, None)
}

/// Builds and runs; `log` is for a copy of what the guest says.
fn run_logged(options: &Options, scratch: &Scratch, log: Option<&Path>) -> Result<ExitCode> {
    options.check()?;
    let of_cost = scratch.path().join("serial.log");
    let log = log.or(options.is_fast.then_some(&of_cost));
    let mut cost = options.is_fast.then(|| Cost::new(of_cost.clone()));
    let kernel = kernel(options)?;
    options.check_program(&kernel)?;
    cost.iter_mut().for_each(Cost::built);
    let image = options.image(options.firmware(), &kernel)?;
    cost.iter_mut().for_each(Cost::made_image);
    let on_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let mut options = options.clone();
    options.at_terminal = on_terminal;
    let serial = match on_terminal {
        true if options.has_shell() => {
            println!("Ctrl-A X ends the machine at any time");
            // For `trace start` in the shell.
            options.debugcon.get_or_insert_with(|| boot::target_dir().join("trace.bin"));
            Serial::Shell
        }
        true => Serial::Terminal,
        false => Serial::Output,
    };
    let mut machine = options.machine(&image)?.serial(serial);
    if let Some(log) = log {
        machine = machine.serial_log(log);
    }
    // A terminal without its screen is not asked for input; a pipe or a file is.
    let is_deaf = io::stdin().is_terminal() && !on_terminal;
    let stdin = if is_deaf { Stdio::null() } else { Stdio::inherit() };
    let mut command = machine.command(scratch.path())?;
    let mut qemu = start(command.stdin(stdin).stdout(Stdio::piped()))?;
    let mut places = Places::of(&kernel, &boot::root());
    if on_terminal {
        places = places.folded();
    }
    let said = qemu.stdout.take();
    // If nothing reads what is passed on, QEMU is told so by its next write.
    let passing =
        thread::spawn(move || said.map(|said| pass_on(&places, said, io::stdout().lock())));
    let ended = wait(qemu, |pid| cost.iter_mut().for_each(|cost| cost.look(pid)))?;
    passing.join().ok();
    if let Some(cost) = cost {
        eprintln!("boot: {cost}");
    }
    Ok(report(ended))
}

fn gdb(options: &Options) -> Result<ExitCode> {
    options.check()?;
    let mut options = options.clone();
    options.for_gdb = true;
    let kernel = kernel(&options)?;
    options.check_program(&kernel)?;
    let image = options.image(options.firmware(), &kernel)?;
    let scratch = Scratch::new()?;
    let log = boot::target_dir().join("gdb-serial.log");
    let machine: Machine = options.machine(&image)?;
    // It stops before the first instruction and listens on port 1234.
    let machine = machine.serial(Serial::File(log.clone())).arg("-s").arg("-S");
    // Ctrl-C is gdb's, which stops the machine by it: neither QEMU's nor ours.
    let mut command = machine.command(scratch.path())?;
    let mut qemu = start(command.stdin(Stdio::null()).process_group(0))?;
    signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false)))?;
    let mut gdb = Command::new("gdb");
    gdb.arg("-q").arg(&kernel).arg("-x").arg(boot::root().join("scripts/gdb.py"));
    gdb.args(["-ex", "target remote localhost:1234"]);
    let name = options.program.as_deref().unwrap_or_default();
    gdb.args(["-ex", &format!("break-main {name}")]);
    println!("serial output: {}", shown(&log));
    println!("`continue` runs to main; then `info gs`, `info ms`, `info ps`, `bt g 1`");
    match gdb.status() {
        Ok(_) => {
            qemu.kill().ok();
            qemu.wait().context("waiting for QEMU")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(_) => {
            println!("gdb is not installed here. The machine waits for:");
            println!("  gdb {} -ex 'target remote localhost:1234'", shown(&kernel));
            Ok(report(wait(qemu, |_| ())?))
        }
    }
}

fn write_stick(options: &Options) -> Result<ExitCode> {
    let device = options.dev.as_deref().context("which device? make usb DEV=/dev/sdX")?;
    options.check()?;
    usb::inspect(device, 0)?;
    let image = options.image(options.firmware(), &kernel(options)?)?;
    usb::write(&image, device)?;
    Ok(ExitCode::SUCCESS)
}

/// The kernel's ELF file with its symbols.
fn kernel(options: &Options) -> Result<PathBuf> {
    match &options.kernel {
        Some(kernel) => Ok(kernel.clone()),
        None if options.for_gdb => options.source().build_for_gdb(),
        None if options.is_fast => options.source().build_fast(),
        None => options.source().build(),
    }
}

fn start(command: &mut Command) -> Result<Child> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.spawn().with_context(|| format!("starting {name} (make setup?)"))
}

/// The end of QEMU, or `None` if we were told to stop. While it runs, `look` is called
/// with its process number again and again.
///
/// Ctrl-C goes to QEMU as well as to us. We stay until QEMU has left, because it
/// gives the terminal back on its way out.
fn wait(mut qemu: Child, mut look: impl FnMut(u32)) -> Result<Option<End>> {
    let told_to_stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&told_to_stop))?;
    }
    let mut polls_left = 100;
    loop {
        look(qemu.id());
        let status = qemu.try_wait().context("waiting for QEMU")?;
        let stopping = told_to_stop.load(Ordering::Relaxed);
        match status {
            Some(_) if stopping => return Ok(None),
            Some(status) => return Ok(Some(End::from_status(status.code()))),
            // It had two seconds to leave by itself.
            None if polls_left == 0 => qemu.kill().context("ending QEMU")?,
            None if stopping => polls_left -= 1,
            None => {}
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn report(ended: Option<End>) -> ExitCode {
    match ended {
        Some(end) => {
            if end != End::Code(0) {
                eprintln!("boot: {end}");
            }
            ExitCode::from(end.to_status())
        }
        None => ExitCode::from(INTERRUPTED),
    }
}
