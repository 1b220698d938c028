//! The contract: the only names of the machine that others may use.
//!
//! Everything below `x86_64` is private to this folder. What the rest of the kernel may rely on is
//! named here; a second machine would have to offer the same.
//!
//! - **One CPU**: its number, its words, its interrupt flag ([`irq`]), its stack probe,
//!   halting until an interrupt as one step.
//! - **All CPUs**: how many came up, what is known of each, waking one, asking one
//!   whether it goes on, stopping all others.
//! - **Contexts**: preparing a stack and switching to it; replacing a function that
//!   faulted by another ([`call_in_place`]); calling a rare function at no cost to
//!   paths that do not ([`call_rarely`]).
//! - **Interrupts**: they go up by one door, [`set_handlers`]; a device's line is
//!   sent to a CPU by [`route_isa`], a device's message by [`message_for`].
//! - **Buses**: PCI's configuration space, a word at a time.
//! - **Memory**: [`paging`], the page tables; whether a frame is memory ([`holds`]).
//! - **Reports**: the CPU's name ([`identity`]), what the bring-up found
//!   ([`reported`]).
//! - **Bring-up**, in this order: [`init_boot_cpu`], `mem::init`, [`init`],
//!   [`start_cpus`], [`begin_turns`]. And the end: [`exit`], [`power_off`], [`reboot`].

pub mod lock;
mod x86_64;

/// Makes an enum of which each variant has a text, which is its `Display` and its documentation:
/// `NoSuchLine(line: u8) => "no I/O APIC has line {line}",`. With `error` in place of `enum` it is
/// an error for programs.
macro_rules! text_enum {
    ($(#[$of_all:meta])* pub error $name:ident { $($variants:tt)* }) => {
        $crate::arch::text_enum! { $(#[$of_all])* pub enum $name { $($variants)* } }

        impl core::error::Error for $name {}
    };
    ($(#[$of_all:meta])* pub enum $name:ident {
        $($(#[$more:meta])* $variant:ident
            $(($value:ident: $type:ty))? $({ $($field:ident: $of:ty),* })? => $text:literal,)*
    }) => {
        $(#[$of_all])*
        pub enum $name {
            $(#[doc = $text] $(#[$more])* $variant
                $(($type))? $({ $(#[doc = "See the text."] $field: $of),* })?,)*
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $($name::$variant $(($value))? $({ $($field),* })? => write!(f, $text),)*
                }
            }
        }
    };
}
pub(crate) use text_enum;

pub(crate) use x86_64::cpu::point_slot;
pub use x86_64::cpu::{
    MAX_CPUS, PROBE_BYTES, cpu_index, halt_forever, here, num_cpus, probe_stack, probe_stack_again,
    relax, set_all_slots, set_slot, slot, slot_of, slot_offset, wait_for_interrupt,
};

pub use x86_64::machine::{
    Config, CpuInfo, begin_turns, cpus, init, init_boot_cpu, node_memory, route_isa, wake,
};
pub use x86_64::smp::{report_late_cpus, start_cpus};

#[cfg(not(target_os = "none"))]
pub use x86_64::acpi;
pub use x86_64::acpi::power_button::power_button;
pub use x86_64::cpu::features::entropy;
pub use x86_64::cpu::features::missing as missing_features;
pub use x86_64::cpu::mmio::Window;
pub use x86_64::cpu::pci::{PciPorts, message_for};
pub use x86_64::cpu::switch::{
    OnM, OnStack, bottom_of, call_on, call_rarely, gogo, mcall, mcall_for_good, prepare,
};
pub use x86_64::cpu::topology::Topology;
pub use x86_64::irq::apic::Mode as ApicMode;
pub use x86_64::irq::flag as irq;
pub use x86_64::irq::ioapic::{RouteError, mask as mask_isa};
pub use x86_64::irq::nmi::{ask, has_stopped_others, sample, stop_others, stopped_at, was_sampled};
pub use x86_64::irq::preempt::{can_leave, leave as leave_interrupted};
pub use x86_64::irq::sections;
pub use x86_64::irq::shootdown::shootdown;
#[cfg(test)]
pub use x86_64::irq::trap::trap_return;
pub use x86_64::irq::trap::{
    Fault, Frame, Handlers, PageFault, TRAPPED_RIP, is_trap_return, saved, set_handlers,
};
pub use x86_64::machine::exit::{exit, power_off, reboot};
pub use x86_64::machine::report::{identity, reported};
pub use x86_64::paging;
pub use x86_64::paging::LOADER_CONFIG;
pub use x86_64::paging::probe::{NEVER_MEMORY, holds};
pub use x86_64::time::clock::tsc::cycles;
pub use x86_64::time::clock::{
    ClockChoice, cycles_to_ns, now_ns, ns_at, ns_to_tsc as ns_to_cycles,
    uncertainty_ns as clock_uncertainty_ns,
};
pub use x86_64::time::rtc::unix_seconds;
pub use x86_64::time::timer::{
    TimerChoice, arm as arm_timer, disarm as disarm_timer, is_there as has_timer,
    tsc_at as cycles_at,
};
pub use x86_64::unwind::rescue::{
    Faulted, FullStack, Rescue, call_above_forbidden, call_in_place, is_caught,
};
