//! Boots one machine with a list of workloads and reads what they report.
//!
//! Ours and Go's get the same QEMU and the same flags; they differ in what is
//! booted. Who asks for which machine, and what is made of it, is `measure`.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, Result, bail};
use boot::qemu::{Firmware, Machine};

/// What is booted.
#[derive(Clone, Debug)]
pub enum System {
    /// Our kernel with its workloads: a BIOS image.
    Ours(PathBuf),
    /// Linux with the Go program as `/init`: kernel and initramfs.
    Go(PathBuf, PathBuf),
}

/// The machine that it is booted on.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of CPUs.
    pub cpus: u32,
    /// Whether a virtual nanosecond is an instruction.
    pub is_counted: bool,
    /// In QEMU's notation. Given to the guest at once, so that neither pays for
    /// what the host does when a page is touched for the first time.
    pub mem: &'static str,
}

/// One figure: what each operation took, in nanoseconds or bytes.
pub type Figure = (String, f64);

/// How long a machine may take. The slowest is Go's million on one CPU.
const LIMIT: Duration = Duration::from_secs(900);

impl System {
    /// The name in tables and results.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ours(_) => "ours",
            Self::Go(..) => "go",
        }
    }

    fn machine(&self, words: &str) -> Machine {
        match self {
            Self::Ours(image) => Machine::new(image, Firmware::Bios)
                .cmdline(format!("program=bench log=warn console=serial -- {words}")),
            // Quiet, for the serial port takes time; the clock of the CPU, because
            // Go asks for the time at every switch and would pay for any other.
            Self::Go(kernel, initrd) => {
                let append = format!("console=ttyS0 quiet panic=-1 tsc=reliable -- {words}");
                Machine::linux(kernel, initrd, append)
            }
        }
    }
}

/// Runs the workloads in one boot. `progress` hears every figure.
pub fn run(
    system: &System,
    shape: Shape,
    workloads: &[String],
    mut progress: impl FnMut(&str),
) -> Result<Vec<Figure>> {
    let mut machine = system.machine(&workloads.join(" ")).smp(shape.cpus).mem(shape.mem);
    if shape.is_counted {
        machine = machine.icount("shift=0,sleep=off");
    }
    let machine = machine.arg("-mem-prealloc");
    let mut lines = Vec::new();
    let mut figures = Vec::new();
    listen(machine.command(&env::temp_dir())?, |line| {
        let found = parse(&line);
        if let Some((name, _)) = found.first() {
            progress(name);
        }
        figures.extend(found);
        lines.push(line);
    })?;
    if !lines.iter().any(|line| line == "BENCH end") {
        let tail = lines[lines.len().saturating_sub(10)..].join("\n  ");
        bail!("the guest ({}) did not reach its end; it said\n  {tail}", system.name());
    }
    Ok(figures)
}

/// The figures on one line of the guest's; most lines have none.
fn parse(line: &str) -> Vec<Figure> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |word: &str| word.parse::<f64>().ok().filter(|n| n.is_finite());
    match words[..] {
        ["BENCH", name, operations, ns] => match (number(operations), number(ns)) {
            (Some(operations), Some(ns)) if operations >= 1.0 => {
                vec![(name.to_string(), ns / operations)]
            }
            _ => Vec::new(),
        },
        ["MILLION", gs, create, wake, bytes] => {
            let Some(gs) = number(gs).filter(|&gs| gs >= 1.0) else { return Vec::new() };
            [("create", create), ("wake", wake), ("bytes", bytes)]
                .into_iter()
                .filter_map(|(name, word)| Some((format!("million_{name}"), number(word)? / gs)))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Hands over the lines that QEMU's serial port says, until QEMU leaves.
fn listen(mut command: Command, mut hear: impl FnMut(String)) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut qemu = command.spawn().context("starting QEMU (make setup?)")?;
    let stdout = qemu.stdout.take().context("QEMU's output")?;
    let (tx, rx) = mpsc::channel();
    thread::spawn(move || {
        // Not lines(): the guest may say bytes that are not UTF-8.
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim().to_string();
            if tx.send(line).is_err() {
                break;
            }
        }
    });
    let deadline = Instant::now() + LIMIT;
    loop {
        match rx.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => hear(line),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                qemu.kill().context("ending QEMU")?;
                qemu.wait().context("waiting for QEMU")?;
                bail!("the machine was not done after {} s", LIMIT.as_secs());
            }
        }
    }
    qemu.wait().context("waiting for QEMU")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_time_by_operations() {
        assert_eq!(parse("BENCH yield 1000 152000"), [("yield".to_string(), 152.0)]);
        let million = parse("MILLION 10 100 200 300");
        let names: Vec<&str> = million.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["million_create", "million_wake", "million_bytes"]);
        assert_eq!(million[2].1, 30.0);
    }

    #[test]
    fn what_is_no_figure_is_none() {
        let lines = ["", "BENCH end", "BENCH yield 0 1", "BENCH yield x 1", "BENCH yield 1 inf"];
        for line in lines.into_iter().chain(["MILLION 0 1 1 1", "[ 1.0] reboot: Restarting"]) {
            assert_eq!(parse(line), [], "{line}");
        }
    }
}
