//! Starts a CPU that the kernel has given up, as one that comes late would start.
//!
//! The host hides CPU 1 from the kernel, and lists one that is not there: the kernel
//! gives that one up, and must keep its start page. Here CPU 1 is sent through it.
//! `early` has a CPU take an interrupt before it has been told where its events go, as one
//! that is slow to come up does; to be booted with `trace=on`.

use crate::check;
use runnext::internals::arch::{self, paging};
use runnext::internals::trace::{RING_SLOT, RINGS};
use runnext::prelude::*;

runnext::main!(late, main);
runnext::main!(early, early);

/// The APIC id of the CPU that is there, and not listed.
const HIDDEN: u32 = 1;
/// Registers of a local APIC, and its commands (Intel SDM vol. 3, "Interrupt Command
/// Register").
const LOCAL_APIC: u64 = 0xfee0_0000;
const COMMAND_LOW: usize = 0x300;
const COMMAND_HIGH: usize = 0x310;
const INIT: u32 = 0x4500;
const STARTUP: u32 = 0x4600;

fn main() {
    // The kernel maps nothing else in the low half.
    let mut pages = (1..256).filter(|page| paging::translate(page << 12).is_some());
    let page = pages.next().expect("the start page is mapped") as u32;
    let apic = paging::map_mmio(LOCAL_APIC, 4096).expect("the registers of the local APIC");
    let send = |command: u32| {
        let irqs = arch::irq::disable();
        for (register, value) in [(COMMAND_HIGH, HIDDEN << 24), (COMMAND_LOW, command)] {
            apic.put(register, value);
        }
        arch::irq::restore(irqs);
        sleep(Duration::from_millis(10));
    };
    [INIT, STARTUP | page, STARTUP | page].into_iter().for_each(send);
    // It goes through the page within microseconds, if it has a CPU of the host's.
    sleep(Duration::from_millis(500));
    println!("sent for it; this CPU goes on");
}

fn early() {
    let took = check::go_on(num_cpus() - 1, interrupt_before_init_cpu);
    took.join().expect("it goes on");
    println!("an early interrupt was noted");
}

/// Takes a wake-up interrupt as a CPU does that is slow to come up: tracing is on, and
/// `run::ring::init_cpu` has not set its ring. By a pinned G, with nothing else to run.
fn interrupt_before_init_cpu() {
    let irqs = arch::irq::disable();
    let (cpu, ring) = (arch::cpu_index(), arch::slot::<RING_SLOT>());
    arch::set_slot::<RING_SLOT>(0);
    let before = RINGS[cpu].count();
    arch::wake(cpu);
    arch::irq::restore(arch::irq::IrqState::ON);
    while RINGS[cpu].count() == before {
        arch::relax();
    }
    arch::irq::disable();
    arch::set_slot::<RING_SLOT>(ring);
    arch::irq::restore(irqs);
}
