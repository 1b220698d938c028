//! What the whole-machine tests boot.
//!
//! `selftest` checks the machine from inside and reports each promise on a line of its
//! own; `fault` goes wrong on purpose, in the way that its argument names. `scheduling`,
//! `syncing`, `blocking` and `stress` check the scheduler and what stands on it, `soak`
//! that all of it leaves nothing behind, `invariants` that it is sound meanwhile;
//! `guarding` that stuck CPUs are found; `watch` what is told of both; `tasks` what is
//! seen of Gs from outside, `timers` timers and all kinds of selections, `killing` that Gs can be
//! ended, `programs` programs inside
//! the machine; `late` starts a CPU that the kernel has given up; `poller` the poller, with simulated devices; `typing` the serial port's
//! input; `probes` that stacks are probed far enough, `overflow` that a full one ends its
//! G only, `unwinding` that a panic while it panics does, `lives` what a G has of its own, `scopes`
//! that Gs which borrow are gone before what they borrow, `memory` that running out does;
//! `protection` who may do what with which memory; `disk` the disk, of the kind that its
//! argument names, `damage` an archive that is broken block by block. `idle_latency`, `fair`,
//! `cooperative`, `bounds`, `priority`, `irqs_off`, `latency` and `cost` are for virtual time
//! (`-icount`), where they can count slices and instructions; `near` for a machine of two NUMA nodes. Unlike the programs of the standard image these may be
//! unsafe: that is what they are for.
#![no_std]
#![no_main]

mod blocking;
mod bounds;
mod check;
mod cooperative;
mod cost;
mod cycles;
mod damage;
mod disk;
mod fair;
mod fault;
mod guarding;
mod idle_latency;
mod invariants;
mod irqs_off;
mod killing;
mod late;
mod latency;
mod lines;
mod lives;
mod memory;
mod mix;
mod near;
mod overflow;
mod packing;
mod panics;
mod poller;
mod priority;
mod probes;
mod programs;
mod protection;
mod scheduling;
mod scopes;
mod selftest;
mod shares;
mod sharing;
mod soak;
mod stacks;
mod stress;
mod syncing;
mod systems;
mod tasks;
mod timers;
mod typing;
mod unwinding;
mod watch;
