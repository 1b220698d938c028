//! Paths into the kernel that no program may name: each line is an error.
//!
//! Not part of any image: `tests/src/forbidden.rs` compiles this as a program would be
//! compiled, and expects the error that stands at the end of a line, there and nowhere
//! else. With any of these a safe program breaks memory or ends the machine. To each
//! module of the kernel that is not for programs belongs at least one line.
#![forbid(unsafe_code)]
#![allow(unused_imports)]

use runnext::api::go::Go as InnerGo; //~ E0603
use runnext::arch; //~ E0603
use runnext::arch::irq::disable; //~ E0603
use runnext::arch::lock::IrqLock; //~ E0603
use runnext::arch::paging::flush_local_all; //~ E0603
use runnext::arch::set_slot; //~ E0603
use runnext::check::chaos::begin; //~ E0603
use runnext::check::invariant::check; //~ E0603
use runnext::check::simulated; //~ E0603
use runnext::drivers::fw_cfg::FwCfg; //~ E0603
use runnext::drivers::irq::{Handler, claim}; //~ E0603
use runnext::drivers::log::{attach_serial, with_serial}; //~ E0603
use runnext::drivers::pci; //~ E0603
use runnext::drivers::serial::input::INPUT; //~ E0603
use runnext::drivers::virtio_blk::disk; //~ E0603
use runnext::fail::abandon_locks; //~ E0603
use runnext::fail::deadlock; //~ E0603
use runnext::fail::panic::kernel_bug; //~ E0603
use runnext::fail::watchdog::on_nmi_sample; //~ E0603
use runnext::init::banner; //~ E0603
use runnext::init::cmdline::Options; //~ E0603
use runnext::init::handover; //~ E0603
use runnext::internals; //~ E0432
use runnext::internals::arch::irq::disable as irq_off; //~ E0433
use runnext::mem::frames::alloc; //~ E0603
use runnext::mem::heap; //~ E0603
use runnext::mem::percpu::Here; //~ E0603
use runnext::mem::stack::{leave, trim}; //~ E0603
use runnext::run::door::{begin_park, ready}; //~ E0603
use runnext::run::hooks::set as set_hooks; //~ E0603
use runnext::run::job::Work; //~ E0603
use runnext::run::mstart; //~ E0603
use runnext::run::poller::PollDesc; //~ E0603
use runnext::run::preempt::Slices; //~ E0603
use runnext::run::program::{BOOT, Instance, KERNEL}; //~ E0603
use runnext::run::scope::Ended; //~ E0603
use runnext::run::service; //~ E0603
use runnext::run::timer::Timers; //~ E0603
use runnext::run::unwind::resume; //~ E0603
use runnext::schedtrace::begin as begin_schedtrace; //~ E0603
use runnext::select::choose::Waiting; //~ E0603
use runnext::start; //~ E0603
use runnext::start_cpu; //~ E0603
use runnext::trace::{begin, event, finish}; //~ E0603
use runnext::wait::Shared; //~ E0603
use runnext::wait::held; //~ E0603
use runnext::wait::queue::Selection; //~ E0603
use runnext::watch::backtrace::walk; //~ E0603
use runnext::watch::symbols::set; //~ E0603

fn main() {}
