//! The boot banner: the machine in a dozen lines, before the first program runs.
//!
//! Every line is something that was found, requested or measured in this boot; how it was found is
//! in the log, with `log=debug`. Warnings come before the banner, where they arose.
#![forbid(unsafe_code)]

use super::cmdline::Options;
use crate::api::inspect;
use crate::arch::{self, CpuInfo};
use crate::drivers::serial::input::INPUT;
use crate::drivers::{log, virtio_blk};
use crate::mem::PAGE_SIZE;
use crate::run;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{Display, Write};

/// Shows the machine, unless the command line asks for silence.
pub fn show(options: &Options, firmware: &str) {
    if ::log::max_level() < ::log::LevelFilter::Info {
        return;
    }
    let mut text = format!("runnext {}: G, M and P on bare metal\n", env!("CARGO_PKG_VERSION"));
    for (name, found) in lines(options, firmware) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:>9}  {found}");
    }
    crate::print!("{text}");
}

fn lines(options: &Options, firmware: &str) -> Vec<(&'static str, String)> {
    let or_none = |found: Option<String>| found.unwrap_or_else(|| "none".into());
    let part = |part| or_none(arch::reported(part));
    let frames = inspect::memory().frames;
    let mib = |frames: usize| (frames * PAGE_SIZE) >> 20;
    let serial = log::with_serial(|_| ()).map(|()| match INPUT.trouble() {
        None => "COM1, 115200 baud, input by interrupt".into(),
        Some(trouble) => format!("COM1, 115200 baud, output only: {trouble}"),
    });
    let screen =
        log::screen_size().map(|(columns, rows)| format!("{columns} by {rows} characters"));
    let slices = match options.slice_ns.unwrap_or(sched::SLICE_NS) {
        run::preempt::NEVER => "no slices".into(),
        ns if ns % 1_000_000 == 0 => format!("slices of {} ms", ns / 1_000_000),
        ns => format!("slices of {} us", ns / 1_000),
    };
    let ps = many(run::gomaxprocs(), "P");
    let system = run::system::running().name;
    let handoff = run::system::handoff(options.handoff);
    alloc::vec![
        ("machine", arch::identity()),
        ("firmware", firmware.into()),
        ("cpus", format!("{}; {}", part("cpus"), shape(arch::cpus()))),
        ("apic", format!("{}; {}", part("apic"), part("ioapic"))),
        ("memory", format!("{} MiB usable, {} MiB free", mib(frames.total), mib(frames.free))),
        ("clock", part("clock")),
        ("timer", part("timer")),
        ("serial", or_none(serial)),
        ("screen", or_none(screen)),
        ("disk", or_none(virtio_blk::disk().map(|disk| disk.summary.clone()))),
        ("sched", format!("{system}: {ps}, {slices}, hand-off {handoff}")),
    ]
}

fn shape(cpus: &[CpuInfo]) -> String {
    let count = |of: fn(&CpuInfo) -> (u32, u32)| cpus.iter().map(of).collect::<BTreeSet<_>>().len();
    let packages = count(|cpu| (cpu.topology.package, 0));
    let cores = count(|cpu| (cpu.topology.package, cpu.topology.core));
    let nodes = count(|cpu| (cpu.topology.node, 0));
    format!("{}, {}, {}", many(packages, "package"), many(cores, "core"), many(nodes, "node"))
}

fn many(n: usize, what: impl Display) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::inspect::CpuInfo;

    #[test]
    fn packages_cores_and_nodes_are_counted_once_each() {
        let cpu = |index: usize, package, core, smt| {
            let node = package;
            let default = arch::Topology::default();
            let topology = arch::Topology { package, core, smt, node, ..default };
            CpuInfo { index, apic_id: index as u32, topology, timer: None }
        };
        // Two packages of two cores, the first of which has two threads.
        let cpus =
            [cpu(0, 0, 0, 0), cpu(1, 0, 0, 1), cpu(2, 0, 1, 0), cpu(3, 1, 0, 0), cpu(4, 1, 1, 0)];
        assert_eq!(shape(&cpus), "2 packages, 4 cores, 2 nodes");
        assert_eq!(shape(&cpus[..1]), "1 package, 1 core, 1 node");
    }

    #[test]
    fn no_line_is_missing_or_empty() {
        let lines = lines(&Options::default(), "BIOS");
        assert_eq!(lines.len(), 11);
        assert!(lines.iter().all(|(_, found)| !found.is_empty() && !found.contains('\n')));
    }
}
