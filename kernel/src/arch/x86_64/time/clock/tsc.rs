//! The time stamp counter: reading it, and what CPUID says about it.
//!
//! Pure over a function that gives CPUID leaves, so that machines which are not at
//! hand are tested on the host. `clock` decides what to make of the answers.

use core::arch::x86_64::{__cpuid_count, CpuidResult};

/// Reads the time stamp counter, after everything before it is done.
///
/// Without the fence a CPU may read the counter ahead of an earlier load, and
/// so take a time from before a message that it has already seen.
#[inline]
pub fn rdtsc_ordered() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a counter; SSE2 and the counter belong to x86-64, and this
    // kernel does not turn user access off. Not `nomem`, so that the compiler
    // keeps it in its place among memory accesses.
    unsafe {
        core::arch::asm!("lfence", "rdtsc", out("eax") low, out("edx") high,
            options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Reads the time stamp counter of this CPU, wherever it stands among other
/// instructions: for spans of thousands of cycles.
#[inline(always)]
pub fn cycles() -> u64 {
    // SAFETY: reads a counter that belongs to x86-64.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// What CPUID says about time on this CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Leaf 0x15, complete with the crystal: the counter's frequency.
    pub stated_hz: Option<u64>,
    /// The hypervisor's leaf 0x40000010.
    pub hypervisor_hz: Option<u64>,
    /// Leaf 0x16: the nominal frequency, rounded; good for a guess.
    pub base_hz: Option<u64>,
    /// The counter runs at one pace in all power states.
    pub is_invariant: bool,
    /// A hypervisor or emulator is below us.
    pub is_virtual: bool,
    /// The local APIC's timer can fire at a value of the counter.
    pub has_deadline: bool,
}

/// Frequencies outside of this are lies: 100 MHz to 20 GHz.
const SANE_HZ: core::ops::RangeInclusive<u64> = 100_000_000..=20_000_000_000;

impl Hints {
    /// The hints of the CPU that executes.
    pub fn of_this_cpu() -> Hints {
        Hints::read(__cpuid_count)
    }

    /// The hints in the leaves that `cpuid` gives.
    pub fn read(cpuid: impl Fn(u32, u32) -> CpuidResult) -> Hints {
        let basic_leaves = cpuid(0, 0).eax;
        let extended_leaves = cpuid(0x8000_0000, 0).eax;
        let features = cpuid(1, 0).ecx;
        let is_virtual = features & 1 << 31 != 0;
        let base_mhz = if basic_leaves >= 0x16 { cpuid(0x16, 0).eax & 0xffff } else { 0 };
        let power = if extended_leaves >= 0x8000_0007 { cpuid(0x8000_0007, 0).edx } else { 0 };
        Hints {
            stated_hz: if basic_leaves >= 0x15 { leaf_15(cpuid(0x15, 0)) } else { None },
            hypervisor_hz: if is_virtual { hypervisor_hz(&cpuid) } else { None },
            base_hz: sane(u64::from(base_mhz) * 1_000_000),
            is_invariant: power & 1 << 8 != 0,
            is_virtual,
            has_deadline: features & 1 << 24 != 0,
        }
    }
}

/// The counter's frequency, a ratio of the crystal's.
fn leaf_15(CpuidResult { eax, ebx, ecx, .. }: CpuidResult) -> Option<u64> {
    // Two factors of 32 bits: no overflow. 0 Hz is not sane.
    sane((u64::from(ecx) * u64::from(ebx)).checked_div(eax.into())?)
}

/// Leaf 0x40000010 is a convention of VMware's that KVM and others share.
/// Hyper-V numbers its leaves otherwise, and its range ends before this one.
fn hypervisor_hz(cpuid: &impl Fn(u32, u32) -> CpuidResult) -> Option<u64> {
    const FIRST: u32 = 0x4000_0000;
    const TIMING: u32 = 0x4000_0010;
    // A range that ends far off is no range: old CPUs answer with another leaf.
    let last = cpuid(FIRST, 0).eax;
    if !(TIMING..=FIRST + 0xffff).contains(&last) {
        return None;
    }
    sane(u64::from(cpuid(TIMING, 0).eax) * 1_000)
}

fn sane(hz: u64) -> Option<u64> {
    SANE_HZ.contains(&hz).then_some(hz)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUID with these leaves and no others: (leaf, eax, ebx, ecx, edx).
    fn hints(leaves: &[(u32, u32, u32, u32, u32)]) -> Hints {
        Hints::read(|leaf, _| {
            let found = leaves.iter().find(|l| l.0 == leaf);
            let &(_, eax, ebx, ecx, edx) = found.unwrap_or(&(0, 0, 0, 0, 0));
            CpuidResult { eax, ebx, ecx, edx }
        })
    }

    const VIRTUAL: (u32, u32, u32, u32, u32) = (1, 0, 0, 1 << 31, 0);

    #[test]
    fn crystal_and_ratio_give_the_frequency() {
        let hints = hints(&[(0, 0x16, 0, 0, 0), (0x15, 2, 216, 24_000_000, 0)]);
        assert_eq!(hints.stated_hz, Some(2_592_000_000));
    }

    #[test]
    fn leaf_15_without_crystal_or_with_nonsense_states_nothing() {
        let max = u32::MAX;
        for leaf in [(2, 216, 0), (0, 216, 24_000_000), (2, 0, 24_000_000), (1, max, max)] {
            let found = hints(&[(0, 0x15, 0, 0, 0), (0x15, leaf.0, leaf.1, leaf.2, 0)]);
            assert_eq!(found.stated_hz, None, "{leaf:?}");
        }
    }

    #[test]
    fn leaves_beyond_the_last_are_not_read() {
        let found = hints(&[
            (0, 0x14, 0, 0, 0),
            (0x15, 2, 216, 24_000_000, 0),
            (0x16, 2600, 0, 0, 0),
            (0x8000_0000, 0x8000_0006, 0, 0, 0),
            (0x8000_0007, 0, 0, 0, 1 << 8),
        ]);
        assert_eq!(found, Hints::default());
    }

    #[test]
    fn hypervisor_leaf_counts_only_under_a_hypervisor_that_has_it() {
        let range = (0x4000_0000, 0x4000_0010, 0, 0, 0);
        let short = (0x4000_0000, 0x4000_0001, 0, 0, 0);
        let timing = (0x4000_0010, 2_995_200, 0, 0, 0);
        assert_eq!(hints(&[VIRTUAL, range, timing]).hypervisor_hz, Some(2_995_200_000));
        assert_eq!(hints(&[VIRTUAL, short, timing]).hypervisor_hz, None);
        assert_eq!(hints(&[range, timing]).hypervisor_hz, None);
    }

    #[test]
    fn invariance_deadline_and_base_frequency_are_seen() {
        let found = hints(&[
            (0, 0x16, 0, 0, 0),
            (1, 0, 0, 1 << 24, 0),
            (0x16, 2600, 0, 0, 0),
            (0x8000_0000, 0x8000_0008, 0, 0, 0),
            (0x8000_0007, 0, 0, 0, 1 << 8),
        ]);
        assert!(found.is_invariant && found.has_deadline && !found.is_virtual);
        assert_eq!(found.base_hz, Some(2_600_000_000));
    }

    #[test]
    fn counter_read_in_order_does_not_go_backwards() {
        let reads: std::vec::Vec<u64> = (0..1000).map(|_| rdtsc_ordered()).collect();
        assert!(reads.is_sorted());
    }
}
