//! What the whole machine promises, one module a subject, in one test binary.
//!
//! `cargo test -p tests --test machine` runs all of it, `-- shell::` one module,
//! `-- --include-ignored` what `make test-full` adds. The harness is the library
//! (`tests/src`); the programs that most of these boot are in `tests/guest`.

#[macro_use]
mod checks;

mod app;
mod blocking;
mod bochs;
mod boot;
mod buttons;
mod chaos;
mod checked;
mod console;
mod cpus;
mod cycles;
mod disk;
mod explore;
mod fast;
mod faults;
mod firmware;
mod gdb;
mod guardian;
mod harness;
mod hostile;
mod lives;
mod memory;
mod models;
mod near;
mod newer;
mod order;
mod overflow;
mod overrides;
mod packing;
mod panics;
mod patterns;
mod poller;
mod priority;
mod probes;
mod programs;
mod protection;
mod replay;
mod scheduling;
mod scopes;
mod selftest;
mod serial_input;
mod shapes;
mod shares;
mod shell;
mod soak;
mod stress;
mod syncing;
mod systems;
mod timers;
mod tour;
mod trace;
mod unwinding;
mod virtual_time;
