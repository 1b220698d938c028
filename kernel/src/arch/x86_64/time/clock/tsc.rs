//! The time stamp counter: reading it, and what CPUID says about it.

use raw_cpuid::{CpuId, CpuIdReader};

/// Reads the time stamp counter, after everything before it is done.
///
/// Without the fence a CPU may take a time from before a message that it has already seen.
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

/// Reads the time stamp counter unordered: for spans of thousands of cycles.
#[inline(always)]
pub fn cycles() -> u64 {
    // SAFETY: reads a counter that belongs to x86-64.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// The counter's frequency and where it is stated: in leaf 0x15, complete with the crystal,
    /// or by the hypervisor, in a leaf of VMware's that KVM and others share.
    pub stated: Option<(u64, &'static str)>,
    /// The counter runs at one pace in all power states.
    pub is_invariant: bool,
    /// A hypervisor or emulator is below us.
    pub is_virtual: bool,
    /// The local APIC's timer can fire at a value of the counter.
    pub has_deadline: bool,
}

impl Hints {
    pub fn of_this_cpu() -> Hints {
        Hints::read(&CpuId::new())
    }

    fn read(cpuid: &CpuId<impl CpuIdReader>) -> Hints {
        let by_cpuid = || sane(cpuid.get_tsc_info()?.tsc_frequency()?);
        let by_hypervisor =
            || sane(1_000 * u64::from(cpuid.get_hypervisor_info()?.tsc_frequency()?));
        let features = cpuid.get_feature_info();
        let power = cpuid.get_advanced_power_mgmt_info();
        Hints {
            stated: by_cpuid()
                .map(|hz| (hz, "cpuid"))
                .or_else(|| by_hypervisor().map(|hz| (hz, "hypervisor"))),
            is_invariant: power.is_some_and(|power| power.has_invariant_tsc()),
            is_virtual: features.as_ref().is_some_and(|has| has.has_hypervisor()),
            has_deadline: features.is_some_and(|has| has.has_tsc_deadline()),
        }
    }
}

/// Frequencies outside of 100 MHz to 20 GHz are lies.
fn sane(hz: u64) -> Option<u64> {
    (100_000_000..=20_000_000_000).contains(&hz).then_some(hz)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUID with these leaves and no others: (leaf, eax, ebx, ecx, edx).
    fn hints(leaves: &[(u32, u32, u32, u32, u32)]) -> Hints {
        Hints::read(&CpuId::with_cpuid_reader(|leaf, _| {
            let found = leaves.iter().find(|l| l.0 == leaf);
            let &(_, eax, ebx, ecx, edx) = found.unwrap_or(&(0, 0, 0, 0, 0));
            raw_cpuid::CpuIdResult { eax, ebx, ecx, edx }
        }))
    }

    const VIRTUAL: (u32, u32, u32, u32, u32) = (1, 0, 0, 1 << 31, 0);

    #[test]
    fn crystal_and_ratio_give_the_frequency() {
        let hints = hints(&[(0, 0x16, 0, 0, 0), (0x15, 2, 216, 24_000_000, 0)]);
        assert_eq!(hints.stated, Some((2_592_000_000, "cpuid")));
    }

    #[test]
    fn leaf_15_without_crystal_or_with_nonsense_states_nothing() {
        let max = u32::MAX;
        for leaf in [(2, 216, 0), (0, 216, 24_000_000), (2, 0, 24_000_000), (1, max, max)] {
            let found = hints(&[(0, 0x15, 0, 0, 0), (0x15, leaf.0, leaf.1, leaf.2, 0)]);
            assert_eq!(found.stated, None, "{leaf:?}");
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
        let basic = (0, 1, 0, 0, 0);
        let found = hints(&[basic, VIRTUAL, range, timing]);
        assert_eq!(found.stated, Some((2_995_200_000, "hypervisor")));
        assert_eq!(hints(&[basic, VIRTUAL, short, timing]).stated, None);
        assert_eq!(hints(&[basic, range, timing]).stated, None);
    }

    #[test]
    fn what_the_cpu_states_goes_before_what_the_hypervisor_states() {
        let found = hints(&[
            (0, 0x15, 0, 0, 0),
            VIRTUAL,
            (0x15, 2, 216, 24_000_000, 0),
            (0x4000_0000, 0x4000_0010, 0, 0, 0),
            (0x4000_0010, 1_000_000, 0, 0, 0),
        ]);
        assert_eq!(found.stated, Some((2_592_000_000, "cpuid")));
    }

    #[test]
    fn invariance_and_deadline_are_seen() {
        let found = hints(&[
            (0, 0x16, 0, 0, 0),
            (1, 0, 0, 1 << 24, 0),
            (0x16, 2600, 0, 0, 0),
            (0x8000_0000, 0x8000_0008, 0, 0, 0),
            (0x8000_0007, 0, 0, 0, 1 << 8),
        ]);
        assert!(found.is_invariant && found.has_deadline && !found.is_virtual);
    }

    #[test]
    fn counter_read_in_order_does_not_go_backwards() {
        let reads: std::vec::Vec<u64> = (0..1000).map(|_| rdtsc_ordered()).collect();
        assert!(reads.is_sorted());
    }
}
