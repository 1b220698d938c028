//! A guest that did not end: where every CPU is, by name.
//!
//! The registers come from QEMU's monitor, the names from the kernel's ELF file,
//! and the callers from the chain of frame pointers, read out of the guest's
//! memory. All of it is a best effort: a report with holes is better than none.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::qmp::Qmp;
use crate::registers::{self, Cpu};
use crate::symbols::Symbols;

/// How far the callers are followed.
const MAX_FRAMES: usize = 12;
/// Where the kernel's half begins; a frame pointer below is none.
const KERNEL_HALF: u64 = 0xffff_8000_0000_0000;

/// A run that was over its time limit.
#[derive(Clone, Debug, Default)]
pub struct Hang {
    /// How long it was waited for.
    pub waited: Duration,
    /// Where each CPU was.
    pub cpus: Vec<Place>,
    /// What went wrong while looking.
    pub trouble: Option<String>,
    /// A picture of the screen.
    pub screenshot: Option<PathBuf>,
}

/// Where one CPU was.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Its registers.
    pub cpu: Cpu,
    /// The functions it was in, the innermost first; addresses where there is
    /// no name.
    pub functions: Vec<String>,
}

impl Hang {
    /// Looks at every CPU of a guest that still runs.
    pub fn inspect(qmp: &mut Qmp, symbols: &Symbols, waited: Duration) -> Self {
        let mut hang = Self { waited, ..Self::default() };
        match places(qmp, symbols) {
            Ok(cpus) => hang.cpus = cpus,
            Err(error) => hang.trouble = Some(format!("{error:#}")),
        }
        hang
    }
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HANG: the guest did not end within {} s", self.waited.as_secs())?;
        for place in &self.cpus {
            write!(f, "\n{place}")?;
        }
        if let Some(trouble) = &self.trouble {
            write!(f, "\n  (the CPUs could not be looked at: {trouble})")?;
        }
        if let Some(screenshot) = &self.screenshot {
            write!(f, "\n  screen: {}", screenshot.display())?;
        }
        Ok(())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = &self.cpu;
        let state = if cpu.is_halted { "halted" } else { "running" };
        let interrupts = if cpu.takes_interrupts { "on" } else { "off" };
        write!(
            f,
            "  CPU {} {state}, interrupts {interrupts}, rip {:#x} rsp {:#x} cr2 {:#x} cr3 {:#x}",
            cpu.index, cpu.rip, cpu.rsp, cpu.cr2, cpu.cr3
        )?;
        for function in &self.functions {
            write!(f, "\n      {function}")?;
        }
        Ok(())
    }
}

fn places(qmp: &mut Qmp, symbols: &Symbols) -> Result<Vec<Place>> {
    // Stopped, the CPUs hold still while their stacks are read.
    qmp.human("stop", 0)?;
    let cpus = registers::parse(&qmp.human("info registers -a", 0)?);
    Ok(cpus
        .into_iter()
        .map(|cpu| {
            let index = cpu.index;
            let read = |frame: u64| {
                let text = qmp.human(&format!("x /2gx {frame:#x}"), index).unwrap_or_default();
                registers::parse_memory(&text).try_into().ok()
            };
            let functions = callers(&cpu, read).iter().map(|&a| name(symbols, a)).collect();
            Place { cpu, functions }
        })
        .collect())
}

fn name(symbols: &Symbols, address: u64) -> String {
    symbols.name(address).unwrap_or_else(|| format!("{address:#x}"))
}

/// The instruction pointer and the return addresses above it. `read` gives the
/// two words of a frame: the caller's frame and the return address.
fn callers(cpu: &Cpu, mut read: impl FnMut(u64) -> Option<[u64; 2]>) -> Vec<u64> {
    let mut addresses = vec![cpu.rip];
    let mut frame = cpu.rbp;
    // Stacks grow down, so callers' frames lie above: anything else is a loop
    // or not a frame pointer at all.
    while addresses.len() < MAX_FRAMES && frame >= KERNEL_HALF && frame.is_multiple_of(8) {
        let Some([next, return_address]) = read(frame) else { break };
        if return_address < KERNEL_HALF {
            break;
        }
        addresses.push(return_address);
        if next <= frame {
            break;
        }
        frame = next;
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: u64 = KERNEL_HALF + 0x1000;
    const CODE: u64 = 0xffff_ffff_8000_0000;

    fn cpu() -> Cpu {
        Cpu { rip: CODE, rbp: STACK, ..Cpu::default() }
    }

    #[test]
    fn callers_are_followed_to_the_end_of_the_chain() {
        let read = |frame| match frame {
            STACK => Some([STACK + 0x20, CODE + 1]),
            _ => Some([0, CODE + 2]),
        };
        assert_eq!(callers(&cpu(), read), [CODE, CODE + 1, CODE + 2]);
    }

    #[test]
    fn a_broken_chain_ends_the_walk() {
        assert_eq!(callers(&cpu(), |_| None), [CODE], "unreadable");
        assert_eq!(callers(&cpu(), |frame| Some([frame, CODE])), [CODE, CODE], "a loop");
        assert_eq!(callers(&cpu(), |_| Some([STACK, 7])), [CODE], "no code");
        let odd = Cpu { rbp: STACK + 1, ..cpu() };
        assert_eq!(callers(&odd, |_| Some([0, CODE])), [CODE], "no frame");
        let endless = callers(&cpu(), |frame| Some([frame + 16, CODE]));
        assert_eq!(endless.len(), MAX_FRAMES);
    }

    #[test]
    fn the_report_says_hang_and_names_every_cpu() {
        let place = |index| Place {
            cpu: Cpu { index, is_halted: index == 1, ..cpu() },
            functions: vec![format!("runnext::idle+{index}")],
        };
        let waited = Duration::from_secs(120);
        let hang = Hang { waited, cpus: vec![place(0), place(1)], ..Hang::default() };
        let text = hang.to_string();
        for part in ["HANG", "120 s", "CPU 0 running", "CPU 1 halted", "runnext::idle+1"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
