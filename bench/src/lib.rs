//! What an operation costs, here and under Go, in the same machine.
//!
//! - [`options`] reads what is asked for;
//! - [`budgets`] reads `bench/budgets.toml`: the rows, and what each may cost;
//!   [`check`] holds figures to that;
//! - [`machine`] boots one machine and reads what its workloads report;
//! - [`locked`] has the emulator count locked instructions meanwhile;
//! - [`linux`] gets the other side: a Linux kernel, a Go, an initramfs of them;
//! - [`counted`] and [`measure`] decide which machines are booted and what counts
//!   as a figure, in instructions and in time;
//! - [`results`] keeps the figures in `target/bench.json`, each with its run, and
//!   [`origin`] says what a run was;
//! - [`show`], [`chart`], [`curves`] and [`docs`] make tables, two pictures and a
//!   page of them.
//!
//! The workloads are in `bench/guest` and `bench/go`. Of G, M and P nothing is
//! known here.

pub mod budgets;
pub mod chart;
pub mod check;
pub mod counted;
pub mod curves;
pub mod docs;
pub mod linux;
pub mod locked;
pub mod machine;
pub mod measure;
pub mod options;
pub mod origin;
pub mod results;
pub mod show;
pub mod systems;
