//! Which CPUs share a core, a package, a NUMA node.
//!
//! An APIC id has the thread within its core in the low bits, the core within its package above,
//! the package on top. CPUID says where the borders are, in one of several ways by age and maker of
//! the CPU; [`Borders::read`] tries them from the most to the least exact. The node comes from the
//! firmware's SRAT (`acpi`).
//!
//! All of this is a pure function of CPUID's answers. A hypervisor can answer anything:
//! nonsense gives a wrong topology, never a panic, and a wrong topology costs speed only.

use core::arch::x86_64::{__cpuid_count, CpuidResult};
use core::fmt;

/// The two leaves of extended topology, the newer first: it knows modules, tiles and dies.
const LEAVES_TOPOLOGY: [u32; 2] = [0x1f, 0xb];
/// Caches; also how many cores there are in a package (Intel).
const LEAF_CACHE: u32 = 4;
const LEAF_EXTENDED_FEATURES: u32 = 0x8000_0001;
/// Size of the APIC id within a package (AMD).
const LEAF_AMD_SIZES: u32 = 0x8000_0008;
/// Threads of a core (AMD).
const LEAF_AMD_TOPOLOGY: u32 = 0x8000_001e;

/// Levels that an extended topology leaf may have; Intel defines six.
const MAX_LEVELS: u32 = 8;
/// The kind of level that ends the list.
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

/// Topology of the CPU that runs this.
pub fn read_this_cpu(node: Option<u32>) -> Topology {
    Borders::read(Cpuid(&__cpuid_count)).split(this_apic_id(), node)
}

/// The APIC id of the CPU that runs this, from CPUID: it works before the local
/// APIC is set up, and with ids of 32 bits whatever the APIC's mode.
pub fn this_apic_id() -> u32 {
    apic_id(Cpuid(&__cpuid_count))
}

/// CPUID: what answers to a leaf and a subleaf.
#[derive(Clone, Copy)]
struct Cpuid<'a>(&'a dyn Fn(u32, u32) -> CpuidResult);

impl Cpuid<'_> {
    /// A leaf beyond the last of its range reads as zeroes.
    fn read(self, leaf: u32, subleaf: u32) -> CpuidResult {
        let last = (self.0)(leaf & 0x8000_0000, 0).eax;
        if leaf <= last {
            (self.0)(leaf, subleaf)
        } else {
            CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 }
        }
    }
}

/// The APIC id, from the same leaves in the same order as the AP trampoline
/// reads them: the two must give a CPU the same id.
fn apic_id(cpuid: Cpuid<'_>) -> u32 {
    let wide = LEAVES_TOPOLOGY.map(|leaf| cpuid.read(leaf, 0));
    let wide = wide.into_iter().find(|answer| answer.ebx & 0xffff != 0);
    wide.map_or_else(|| cpuid.read(1, 0).ebx >> 24, |answer| answer.edx)
}

/// Where an APIC id splits: `smt` low bits number the thread within a core, the bits below
/// `package` the thread within a package. Invariant: `smt <= package <= 32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Borders {
    smt: u32,
    package: u32,
}

impl Borders {
    fn new(smt: u32, package: u32) -> Self {
        let package = package.min(32);
        Borders { smt: smt.min(package), package }
    }

    /// Asks CPUID, the most exact way first.
    fn read(cpuid: Cpuid<'_>) -> Self {
        let by_levels = LEAVES_TOPOLOGY.into_iter().find_map(|leaf| from_levels(cpuid, leaf));
        by_levels.or_else(|| from_amd(cpuid)).unwrap_or_else(|| from_counts(cpuid))
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

/// Leaf 0x1F or 0xB: each level says how far to shift an id to get rid of it.
fn from_levels(cpuid: Cpuid<'_>, leaf: u32) -> Option<Borders> {
    let (mut smt, mut package, mut levels) = (0, 0, 0);
    for level in 0..MAX_LEVELS {
        let CpuidResult { eax, ebx, ecx, .. } = cpuid.read(leaf, level);
        let (kind, shift, threads) = (ecx >> 8 & 0xff, eax & 0x1f, ebx & 0xffff);
        if kind == LEVEL_END {
            break;
        }
        // Without threads, or with more than its bits can number: an older leaf may know better.
        if threads == 0 || threads > 1 << shift.min(16) {
            return None;
        }
        if kind == LEVEL_THREAD {
            smt = shift;
        }
        // The package is above all levels, whatever they are called.
        package = package.max(shift);
        levels += 1;
    }
    (levels > 0).then(|| Borders::new(smt, package))
}

/// AMD before (and beside) leaf 0xB.
fn from_amd(cpuid: Cpuid<'_>) -> Option<Borders> {
    let vendor = cpuid.read(0, 0);
    let vendor = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
    let is_amd = [b"AuthenticAMD", b"HygonGenuine"].contains(&vendor.as_flattened().first_chunk()?);
    let sizes = cpuid.read(LEAF_AMD_SIZES, 0).ecx;
    let package = match sizes >> 12 & 0xf {
        0 => bits_for((sizes & 0xff) + 1),
        bits => bits,
    };
    let has_topology = cpuid.read(LEAF_EXTENDED_FEATURES, 0).ecx & 1 << 22 != 0;
    let more_threads = cpuid.read(LEAF_AMD_TOPOLOGY, 0).ebx >> 8 & 0xff;
    let smt = if has_topology { bits_for(more_threads + 1) } else { 0 };
    is_amd.then(|| Borders::new(smt, package))
}

/// The oldest way: how many threads and how many cores a package has room for.
fn from_counts(cpuid: Cpuid<'_>) -> Borders {
    const HTT: u32 = 1 << 28;
    let features = cpuid.read(1, 0);
    if features.edx & HTT == 0 {
        return Borders::new(0, 0);
    }
    // Without a first cache the leaf says nothing: all are threads of one core.
    let cache = cpuid.read(LEAF_CACHE, 0).eax;
    let cores = if cache & 0x1f != 0 { (cache >> 26) + 1 } else { 1 };
    let package = bits_for(features.ebx >> 16 & 0xff);
    Borders::new(package.saturating_sub(bits_for(cores)), package)
}

/// How many bits it takes to number so many things.
fn bits_for(count: u32) -> u32 {
    count.max(1).next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const INTEL: [u32; 3] = [0x756e_6547, 0x6c65_746e, 0x4965_6e69];
    const AMD: [u32; 3] = [0x6874_7541, 0x444d_4163, 0x6974_6e65];

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
            let borders = Borders::read(Cpuid(&self.cpuid()));
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
        let cpu = Leaves::new(0xb, INTEL)
            .level(0xb, 0, 1, 0, 2)
            .level(0xb, 1, 2, 0, 8)
            .with(1, 0, [0, 8 << 16, 0, 1 << 28])
            .with(4, 0, [3 << 26 | 1, 0, 0, 0]);
        assert_eq!(cpu.split(13), (1, 2, 1));
    }

    #[test]
    fn old_intel_is_read_from_counts() {
        // Room for 16 threads, 6 cores (so 3 bits): one bit is left for threads.
        let cpu = Leaves::new(4, INTEL).with(1, 0, [0, 16 << 16, 0, 1 << 28]).with(
            4,
            0,
            [5 << 26 | 1, 0, 0, 0],
        );
        assert_eq!(cpu.split(1 << 4 | 2 << 1 | 1), (1, 2, 1));
    }

    #[test]
    fn a_cpu_without_any_of_this_is_a_package() {
        let cpu = Leaves::new(1, INTEL).with(1, 0, [0, 8 << 16, 0, 0]);
        assert_eq!(cpu.split(3), (3, 0, 0));
    }

    #[test]
    fn amd_is_read_from_its_own_leaves() {
        let cpu = Leaves::new(0xa, AMD)
            .with(0x8000_0000, 0, [0x8000_001e, 0, 0, 0])
            .with(0x8000_0001, 0, [0, 0, 1 << 22, 0])
            .with(0x8000_0008, 0, [0, 0, 4 << 12 | 15, 0])
            .with(0x8000_001e, 0, [0, 1 << 8, 0, 0]);
        assert_eq!(cpu.split(1 << 4 | 5 << 1 | 1), (1, 5, 1));
        // Older: no size, no topology leaf; six cores take three bits.
        let old = Leaves::new(5, AMD).with(0x8000_0000, 0, [0x8000_0008, 0, 0, 0]).with(
            0x8000_0008,
            0,
            [0, 0, 5, 0],
        );
        assert_eq!(old.split(1 << 3 | 5), (1, 5, 0));
        // Nonsense: 256 threads a core in a package with four bits.
        let odd = cpu.with(0x8000_001e, 0, [0, 0xff00, 0, 0]);
        assert_eq!(odd.split(1 << 4 | 11), (1, 0, 11));
    }

    #[test]
    fn the_node_is_the_firmwares() {
        let borders = Borders::new(1, 4);
        assert_eq!(borders.split(3, Some(7)).node, 7);
        assert_eq!(borders.split(3, None).node, 0);
    }

    #[test]
    fn the_apic_id_is_the_wide_one_where_there_is_one() {
        let narrow = Leaves::new(0xb, INTEL).with(1, 0, [0, 0x2a << 24, 0, 0]);
        assert_eq!(apic_id(Cpuid(&narrow.cpuid())), 0x2a);
        let wide = narrow.level(0xb, 0, 1, 1, 2);
        assert_eq!(apic_id(Cpuid(&wide.cpuid())), 0xabcd);
    }

    #[test]
    fn absurd_shifts_stay_in_bounds() {
        let cpu = Leaves::new(0xb, INTEL).level(0xb, 0, 1, 31, 2).level(0xb, 1, 2, 0xffff_ffff, 9);
        assert_eq!(cpu.split(u32::MAX), (1, 0, 0x7fff_ffff));
        let whole = Borders::new(40, 99);
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
            let borders = Borders::read(Cpuid(&garbage));
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
