//! Paths into the kernel that no program may name: each line is an error.
//!
//! Not part of any image: `tests/src/forbidden.rs` compiles this as a program would be
//! compiled, and expects the error that stands at the end of a line, there and nowhere
//! else. With any of these a safe program breaks memory or ends the machine. To each
//! module of the kernel that is not for programs belongs at least one line.
#![forbid(unsafe_code)]
#![allow(unused_imports)]

use runnext::arch; //~ E0603
use runnext::arch::irq::disable; //~ E0603
use runnext::arch::paging::flush_local_all; //~ E0603
use runnext::arch::set_slot; //~ E0603
use runnext::attendants; //~ E0603
use runnext::backtrace::walk; //~ E0603
use runnext::banner; //~ E0603
use runnext::cell::held; //~ E0603
use runnext::cell::wait::Selection; //~ E0603
use runnext::cell::{Shared, Work}; //~ E0603
use runnext::chaos::begin; //~ E0603
use runnext::cmdline::Options; //~ E0603
use runnext::deadlock; //~ E0603
use runnext::drivers::fw_cfg::FwCfg; //~ E0603
use runnext::drivers::irq::{Handler, claim}; //~ E0603
use runnext::drivers::pci; //~ E0603
use runnext::drivers::serial::input::INPUT; //~ E0603
use runnext::drivers::simulated; //~ E0603
use runnext::drivers::virtio_blk::disk; //~ E0603
use runnext::handover; //~ E0603
use runnext::internals; //~ E0432
use runnext::internals::arch::irq::disable as irq_off; //~ E0433
use runnext::invariant::check; //~ E0603
use runnext::lock::IrqLock; //~ E0603
use runnext::log::{attach_serial, with_serial}; //~ E0603
use runnext::mem::frames::alloc; //~ E0603
use runnext::mem::heap; //~ E0603
use runnext::mem::percpu::Here; //~ E0603
use runnext::mem::stack::{leave, trim}; //~ E0603
use runnext::options; //~ E0603
use runnext::panic::kernel_bug; //~ E0603
use runnext::park::{abandon_locks, begin_park, ready}; //~ E0603
use runnext::poller::PollDesc; //~ E0603
use runnext::preempt::on_device; //~ E0603
use runnext::program::{BOOT, Instance, KERNEL}; //~ E0603
use runnext::schedtrace::begin as begin_schedtrace; //~ E0603
use runnext::schedule::{abandon_locks as abandon, mstart}; //~ E0603
use runnext::select::Case; //~ E0603
use runnext::select::Waiting; //~ E0603
use runnext::simulated::on_tick as on_device_tick; //~ E0603
use runnext::start; //~ E0603
use runnext::start_cpu; //~ E0603
use runnext::symbols::set; //~ E0603
use runnext::timer::Timers; //~ E0603
use runnext::trace::{begin, event, finish}; //~ E0603
use runnext::unwind::resume; //~ E0603
use runnext::watchdog::on_nmi_sample; //~ E0603

fn main() {}
