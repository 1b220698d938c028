//! Which CPUs share a core, a package, a NUMA node: for the boot report.
//!
//! An APIC id has the thread within its core in the low bits, the core within its package above,
//! the package on top. CPUID says where the borders are, in one of two leaves; a CPU that has
//! neither (Intel before 2008, AMD before 2019) counts as a core of package 0. The node comes from
//! the firmware's SRAT (`acpi`).
//!
//! A hypervisor can answer anything: nonsense gives a wrong topology, never a panic. (So these
//! leaves are not read by `raw_cpuid`, which panics on a kind of level that it does not know.)

use core::arch::x86_64::{__cpuid_count, CpuidResult};
use core::fmt;

/// The two leaves of extended topology, the newer first: it knows modules, tiles and dies.
const LEAVES_TOPOLOGY: [u32; 2] = [0x1f, 0xb];
/// Levels that an extended topology leaf may have; Intel defines six.
const MAX_LEVELS: u32 = 8;
const LEVEL_END: u32 = 0;
/// The kind of level whose ids count the threads of a core.
const LEVEL_THREAD: u32 = 1;

/// Where one CPU sits. Two CPUs are threads of one core if package and core agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Topology {
    /// The package (socket).
    pub package: u32,
    /// The core within the package. Numbers may have gaps.
    pub core: u32,
    /// The thread within the core.
    pub smt: u32,
    /// The NUMA node, 0 if the firmware says nothing.
    pub node: u32,
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Topology { package, core, smt, node } = self;
        write!(f, "package {package} core {core} thread {smt} node {node}")
    }
}

pub fn read_this_cpu(node: Option<u32>) -> Topology {
    Borders::read(&__cpuid_count).split(this_apic_id(), node)
}

/// The APIC id of the CPU that runs this, from CPUID: it works before the local
/// APIC is set up, and with ids of 32 bits whatever the APIC's mode.
pub fn this_apic_id() -> u32 {
    apic_id(&__cpuid_count)
}

/// CPUID: what answers to a leaf and a subleaf.
type Cpuid<'a> = &'a dyn Fn(u32, u32) -> CpuidResult;

fn topology_leaves(cpuid: Cpuid<'_>) -> impl Iterator<Item = u32> {
    let last = cpuid(0, 0).eax;
    LEAVES_TOPOLOGY.into_iter().filter(move |leaf| *leaf <= last)
}

/// The APIC id, from the same leaves in the same order as the AP trampoline
/// reads them: the two must give a CPU the same id.
fn apic_id(cpuid: Cpuid<'_>) -> u32 {
    let wide = topology_leaves(cpuid).map(|leaf| cpuid(leaf, 0));
    let wide = wide.into_iter().find(|answer| answer.ebx & 0xffff != 0);
    wide.map_or_else(|| cpuid(1, 0).ebx >> 24, |answer| answer.edx)
}

/// Where an APIC id splits: `smt` low bits number the thread within a core, the bits below
/// `package` the thread within a package. Invariant: `smt <= package <= 32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Borders {
    smt: u32,
    package: u32,
}

impl Borders {
    fn read(cpuid: Cpuid<'_>) -> Self {
        let known = topology_leaves(cpuid).find_map(|leaf| Self::from_levels(cpuid, leaf));
        known.unwrap_or(Borders { smt: 0, package: 32 })
    }

    /// Each level says how far to shift an id to get rid of it.
    fn from_levels(cpuid: Cpuid<'_>, leaf: u32) -> Option<Borders> {
        let mut borders = Borders { smt: 0, package: 0 };
        for level in 0..MAX_LEVELS {
            let CpuidResult { eax, ebx, ecx, .. } = cpuid(leaf, level);
            let (kind, shift, threads) = (ecx >> 8 & 0xff, eax & 0x1f, ebx & 0xffff);
            if kind == LEVEL_END {
                return (level > 0).then_some(borders);
            }
            // No threads, or more than its bits can number: the other leaf may know better.
            if threads == 0 || threads > 1 << shift.min(16) {
                return None;
            }
            if kind == LEVEL_THREAD {
                borders.smt = shift;
            }
            // The package is above all levels, whatever they are called.
            borders.package = borders.package.max(shift);
        }
        Some(borders)
    }

    fn split(&self, apic_id: u32, node: Option<u32>) -> Topology {
        let id = u64::from(apic_id); // a shift by 32 leaves nothing
        let low = |bits: u32| id & ((1 << bits) - 1);
        Topology {
            package: (id >> self.package) as u32,
            core: (low(self.package) >> self.smt) as u32,
            smt: low(self.smt) as u32,
            node: node.unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const INTEL: [u32; 3] = [0x756e_6547, 0x6c65_746e, 0x4965_6e69];

    /// A CPU that answers zero to everything but this.
    struct Leaves(HashMap<(u32, u32), [u32; 4]>);

    impl Leaves {
        fn new(max: u32, [ebx, ecx, edx]: [u32; 3]) -> Self {
            Leaves(HashMap::new()).with(0, 0, [max, ebx, ecx, edx])
        }

        fn with(mut self, leaf: u32, subleaf: u32, registers: [u32; 4]) -> Self {
            self.0.insert((leaf, subleaf), registers);
            self
        }

        /// One level of an extended topology leaf.
        fn level(self, leaf: u32, level: u32, kind: u32, shift: u32, threads: u32) -> Self {
            self.with(leaf, level, [shift, threads, kind << 8 | level, 0xabcd])
        }

        fn cpuid(&self) -> impl Fn(u32, u32) -> CpuidResult + '_ {
            |leaf, subleaf| {
                let [eax, ebx, ecx, edx] =
                    self.0.get(&(leaf, subleaf)).copied().unwrap_or_default();
                CpuidResult { eax, ebx, ecx, edx }
            }
        }

        fn split(&self, apic_id: u32) -> (u32, u32, u32) {
            let borders = Borders::read(&self.cpuid());
            let Topology { package, core, smt, .. } = borders.split(apic_id, None);
            (package, core, smt)
        }
    }

    #[test]
    fn prints_as_one_short_text() {
        let topology = Topology { package: 0, core: 3, smt: 1, node: 2 };
        assert_eq!(topology.to_string(), "package 0 core 3 thread 1 node 2");
    }

    #[test]
    fn leaf_b_gives_threads_cores_and_packages() {
        let cpu = Leaves::new(0xb, INTEL).level(0xb, 0, 1, 1, 2).level(0xb, 1, 2, 4, 12);
        assert_eq!(cpu.split(2 << 4 | 3 << 1 | 1), (2, 3, 1));
        assert_eq!(cpu.split(0x0001_0000), (0x1000, 0, 0));
    }

    #[test]
    fn leaf_1f_counts_all_levels_below_the_package_and_wins_over_leaf_b() {
        // Thread, core, die: two dies of four cores of two threads.
        let cpu = Leaves::new(0x1f, INTEL)
            .level(0x1f, 0, 1, 1, 2)
            .level(0x1f, 1, 2, 3, 8)
            .level(0x1f, 2, 5, 4, 16)
            .level(0xb, 0, 1, 1, 2)
            .level(0xb, 1, 2, 3, 8);
        assert_eq!(cpu.split(1 << 4 | 7 << 1), (1, 7, 0));
    }

    #[test]
    fn one_thread_a_core_is_a_shift_of_zero() {
        let cpu = Leaves::new(0xb, INTEL).level(0xb, 0, 1, 0, 1).level(0xb, 1, 2, 3, 8);
        assert_eq!(cpu.split(13), (1, 5, 0));
    }

    #[test]
    fn levels_with_more_threads_than_bits_are_not_believed() {
        // Zero shifts for eight CPUs: each would be a package of its own.
        let odd = Leaves::new(0x1f, INTEL).level(0x1f, 0, 1, 0, 2).level(0x1f, 1, 2, 0, 8);
        let cpu = odd.level(0xb, 0, 1, 1, 2).level(0xb, 1, 2, 3, 8);
        assert_eq!(cpu.split(13), (1, 2, 1), "the older leaf is");
    }

    #[test]
    fn a_cpu_without_any_of_this_is_a_core() {
        let cpu = Leaves::new(1, INTEL).with(1, 0, [0, 8 << 16, 0, 0]);
        assert_eq!(cpu.split(3), (0, 3, 0));
    }

    #[test]
    fn the_node_is_the_firmwares() {
        let borders = Borders { smt: 1, package: 4 };
        assert_eq!(borders.split(3, Some(7)).node, 7);
        assert_eq!(borders.split(3, None).node, 0);
    }

    #[test]
    fn the_apic_id_is_the_wide_one_where_there_is_one() {
        let narrow = Leaves::new(0xb, INTEL).with(1, 0, [0, 0x2a << 24, 0, 0]);
        assert_eq!(apic_id(&narrow.cpuid()), 0x2a);
        let wide = narrow.level(0xb, 0, 1, 1, 2);
        assert_eq!(apic_id(&wide.cpuid()), 0xabcd);
    }

    #[test]
    fn absurd_shifts_stay_in_bounds() {
        let cpu = Leaves::new(0xb, INTEL).level(0xb, 0, 1, 31, 2).level(0xb, 1, 2, 0xffff_ffff, 9);
        assert_eq!(cpu.split(u32::MAX), (1, 0, 0x7fff_ffff));
        let whole = Borders { smt: 32, package: 32 };
        assert_eq!(whole.split(7, None), Topology { smt: 7, ..Topology::default() });
    }

    #[test]
    fn no_answer_of_cpuid_makes_it_panic_or_lose_bits() {
        let mut state = 0x5eed_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..20_000 {
            let seed = random();
            let garbage = |leaf: u32, subleaf: u32| {
                let mix = |salt: u64| {
                    let x = seed ^ u64::from(leaf) << 8 ^ u64::from(subleaf) ^ salt << 40;
                    (x.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29) as u32
                };
                CpuidResult { eax: mix(1), ebx: mix(2), ecx: mix(3), edx: mix(4) }
            };
            let id = random() as u32;
            let borders = Borders::read(&garbage);
            let at = borders.split(id, None);
            let back = u64::from(at.package) << borders.package
                | u64::from(at.core) << borders.smt
                | u64::from(at.smt);
            assert_eq!(back, u64::from(id), "{borders:?}");
        }
    }

    #[test]
    fn the_hosts_own_cpu_can_be_read() {
        let topology = read_this_cpu(None);
        assert_eq!(topology.node, 0);
    }
}
