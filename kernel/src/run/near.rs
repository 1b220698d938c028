//! Which CPUs are near each other, as the scheduler is told (`sched::near`).
//!
//! The first CPU that gets its P makes a row for each, once and for ever, from what the CPUs have
//! said of themselves (CPUID) and the firmware of them (SRAT): all of them are up by then. Neither
//! is trusted: what cannot be gives a line in the log, and a machine without near and far.
//! `topology=flat` gives that, too, to compare. The memory of a node comes first for its CPUs
//! (`mem::frames`), so the stacks and records of Gs that are made there lie there. The pool behind
//! them, for stacks of other sizes and those that were given back in need, is one for all nodes.

use super::SCHED;
use super::task::Task;
use crate::arch::{self, CpuInfo};
use crate::mem::frames;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use sched::P;
use sched::near::{Cpus, Row, Seat, check, is_flat};
use spin::Once;

pub use sched::near::{Distance, LEVELS};

/// `topology=flat`.
static IS_OFF: AtomicBool = AtomicBool::new(false);

/// A row for each P; none on a flat machine.
static ROWS: Once<&'static [Row]> = Once::new();

/// All CPUs are to count as equally far from one another. Before a CPU has its P.
pub(crate) fn set_flat(is_flat: bool) {
    IS_OFF.store(is_flat, Relaxed);
}

/// Gives a P its row, if the machine has near and far. On its CPU.
pub(crate) fn seat(p: &mut P<Task>) {
    let rows = ROWS.call_once(|| make_rows().unwrap_or_default());
    if let Some(row) = rows.get(p.index()) {
        SCHED.seat(p, row);
    }
}

/// How often a P has stolen from Ps at each distance, and woken them. All zero on a flat machine.
pub(crate) fn counts(index: usize) -> [[u64; LEVELS]; 2] {
    let row = ROWS.get().and_then(|rows| rows.get(index));
    row.map_or([[0; LEVELS]; 2], |row| [row.steals(), row.wakes()])
}

/// How far two CPUs are from each other; `None` on a flat machine, or if there is no such CPU.
///
/// ```no_run
/// if let Some(distance) = runnext::inspect::distance(0, 1) {
///     runnext::println!("CPUs 0 and 1 share a {distance}");
/// }
/// ```
#[must_use]
pub fn distance(one: usize, other: usize) -> Option<Distance> {
    ROWS.get().filter(|rows| !rows.is_empty())?;
    let seat = |cpu: usize| arch::cpus().get(cpu).map(seat_of);
    Some(seat(one)?.distance(&seat(other)?))
}

fn seat_of(cpu: &CpuInfo) -> Seat {
    let arch::Topology { node, package, cache, core, .. } = cpu.topology;
    Seat { node, package, cache, core }
}

/// The rows, for ever; `None` if the machine is flat, or is taken for it.
fn make_rows() -> Option<&'static [Row]> {
    let cpus = arch::cpus();
    let seats: Vec<Seat> = cpus.iter().map(seat_of).collect();
    if is_flat(&seats) || IS_OFF.load(Relaxed) {
        return None;
    }
    let is_odd = cpus.iter().any(|cpu| cpu.topology.is_odd);
    let odd = if is_odd { Err("CPUID names levels that cannot be") } else { Ok(()) };
    if let Err(why) = odd.and_then(|()| check(&seats)) {
        log::warn!("topology: {why}; all CPUs count as equally near");
        return None;
    }
    let mut cores = Vec::new();
    let mut rows = Vec::new();
    if cores.try_reserve_exact(seats.len()).and(rows.try_reserve_exact(seats.len())).is_err() {
        log::warn!("topology: no memory; all CPUs count as equally near");
        return None;
    }
    cores.extend((0..seats.len()).map(|i| Cpus::of_core(&seats, i)));
    let cores = cores.leak();
    rows.extend((0..seats.len()).map(|i| Row::new(&seats, i, cores)));
    if seats.iter().any(|seat| seat.node != seats[0].node) {
        for (cpu, seat) in seats.iter().enumerate() {
            if let Some(start) = home(arch::node_memory(), seat.node) {
                frames::set_home(cpu, start);
            }
        }
    }
    Some(rows.leak())
}

/// Where the largest range of a node's memory begins, but above what is set aside below 1 MiB.
fn home(memory: &[(Range<u64>, u32)], node: u32) -> Option<u64> {
    let own = memory.iter().filter(|(_, near)| *near == node);
    let (largest, _) = own.max_by_key(|(range, _)| range.end - range.start)?;
    Some(largest.start.max(frames::LOW_END)).filter(|start| *start < largest.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_home_is_its_largest_range_above_one_mebibyte() {
        let memory = [(0..0xa_0000, 0), (0x10_0000..0x4000_0000, 0), (0x4000_0000..0x8000_0000, 1)];
        assert_eq!(home(&memory, 0), Some(0x10_0000));
        assert_eq!(home(&memory, 1), Some(0x4000_0000));
        assert_eq!(home(&memory, 2), None, "a node without memory");
        assert_eq!(home(&[(0..0x8000_0000, 3)], 3), Some(frames::LOW_END));
        assert_eq!(home(&[(0..0xa_0000, 3)], 3), None);
    }

    #[test]
    fn without_rows_there_are_no_distances() {
        assert_eq!((distance(0, 1), counts(0)), (None, [[0; LEVELS]; 2]));
    }
}
