//! Which CPUs share a core, a package, a NUMA node.
//!
//! An APIC id is a number in mixed radix: thread within core in the low bits,
//! core within package above, package on top. CPUID says where the borders are,
//! in one of several ways by age and maker of the CPU; [`Borders::read`] tries
//! them from the most to the least exact. The node comes from the firmware's
//! SRAT (`acpi`), not from the id.
//!
//! All of this is a pure function of CPUID's answers, so the boot CPU can work
//! it out for all CPUs. A hypervisor can answer anything: nonsense gives a wrong
//! topology, never a panic, and a wrong topology costs speed only. Choosing the
//! P to steal from is left to the scheduler.

pub use core::arch::x86_64::CpuidResult;
use core::fmt;

/// Extended topology, version 2: knows modules, tiles and dies as well.
const LEAF_TOPOLOGY_V2: u32 = 0x1f;
/// Extended topology.
const LEAF_TOPOLOGY: u32 = 0xb;
/// Caches; also how many cores there are in a package (Intel).
const LEAF_CACHE: u32 = 4;
const LEAF_EXTENDED_MAX: u32 = 0x8000_0000;
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

/// Where one CPU sits.
///
/// Two CPUs are threads of one core if package and core agree.
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

impl Topology {
    /// Both are threads of one core.
    pub fn shares_core(&self, other: &Topology) -> bool {
        self.package == other.package && self.core == other.core
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Topology { package, core, smt, node } = self;
        write!(f, "package {package} core {core} thread {smt} node {node}")
    }
}

/// Topology of the CPU with this APIC id, by the answers of `cpuid(leaf, subleaf)`.
pub fn of(cpuid: &impl Fn(u32, u32) -> CpuidResult, apic_id: u32, node: Option<u32>) -> Topology {
    Borders::read(cpuid).split(apic_id, node)
}

/// Topology of the CPU that runs this.
pub fn read_this_cpu(node: Option<u32>) -> Topology {
    of(&cpuid, this_apic_id(), node)
}

/// The APIC id of the CPU that runs this, from CPUID: it works before the local
/// APIC is set up, and with ids of 32 bits whatever the APIC's mode.
pub fn this_apic_id() -> u32 {
    apic_id(&cpuid)
}

/// The real CPUID.
pub fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    core::arch::x86_64::__cpuid_count(leaf, subleaf)
}

/// The APIC id, from the same leaves in the same order as the AP trampoline
/// reads them: the two must give a CPU the same id.
fn apic_id(cpuid: &impl Fn(u32, u32) -> CpuidResult) -> u32 {
    let max = cpuid(0, 0).eax;
    for leaf in [LEAF_TOPOLOGY_V2, LEAF_TOPOLOGY] {
        if max >= leaf {
            let answer = cpuid(leaf, 0);
            if answer.ebx & 0xffff != 0 {
                return answer.edx;
            }
        }
    }
    cpuid(1, 0).ebx >> 24
}

/// Where an APIC id splits: `smt` low bits number the thread within a core, the
/// bits below `package` number the thread within a package.
///
/// Invariant: `smt <= package <= 32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Borders {
    smt: u32,
    package: u32,
}

impl Borders {
    fn new(smt: u32, package: u32) -> Self {
        let package = package.min(32);
        Borders { smt: smt.min(package), package }
    }

    /// Asks CPUID, the most exact way first.
    pub fn read(cpuid: &impl Fn(u32, u32) -> CpuidResult) -> Self {
        let max = cpuid(0, 0).eax;
        from_levels(cpuid, max, LEAF_TOPOLOGY_V2)
            .or_else(|| from_levels(cpuid, max, LEAF_TOPOLOGY))
            .or_else(|| from_amd(cpuid))
            .unwrap_or_else(|| from_counts(cpuid, max))
    }

    /// Takes an APIC id apart.
    pub fn split(&self, apic_id: u32, node: Option<u32>) -> Topology {
        let in_package = apic_id & low_bits(self.package);
        Topology {
            // A shift by 32 leaves nothing, which Rust will not do for us.
            package: apic_id.checked_shr(self.package).unwrap_or(0),
            core: in_package.checked_shr(self.smt).unwrap_or(0),
            smt: apic_id & low_bits(self.smt),
            node: node.unwrap_or(0),
        }
    }
}

/// Leaf 0x1F or 0xB: each level says how far to shift an id to get rid of it.
fn from_levels(cpuid: &impl Fn(u32, u32) -> CpuidResult, max: u32, leaf: u32) -> Option<Borders> {
    if max < leaf {
        return None;
    }
    let (mut smt, mut package, mut levels) = (0, 0, 0);
    for level in 0..MAX_LEVELS {
        let CpuidResult { eax, ebx, ecx, .. } = cpuid(leaf, level);
        let (kind, shift, threads) = (ecx >> 8 & 0xff, eax & 0x1f, ebx & 0xffff);
        if kind == LEVEL_END {
            break;
        }
        // A level without threads, or with more than its bits can number, is
        // made up: an older leaf may know better.
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
fn from_amd(cpuid: &impl Fn(u32, u32) -> CpuidResult) -> Option<Borders> {
    let vendor = cpuid(0, 0);
    let vendor = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
    if ![b"AuthenticAMD", b"HygonGenuine"].contains(&vendor.as_flattened().first_chunk()?) {
        return None;
    }
    let max = cpuid(LEAF_EXTENDED_MAX, 0).eax;
    if max < LEAF_AMD_SIZES {
        return None;
    }
    let sizes = cpuid(LEAF_AMD_SIZES, 0).ecx;
    let package = match sizes >> 12 & 0xf {
        0 => bits_for((sizes & 0xff) + 1),
        bits => bits,
    };
    let has_topology = cpuid(LEAF_EXTENDED_FEATURES, 0).ecx & 1 << 22 != 0;
    let threads = if has_topology && max >= LEAF_AMD_TOPOLOGY {
        (cpuid(LEAF_AMD_TOPOLOGY, 0).ebx >> 8 & 0xff) + 1
    } else {
        1
    };
    Some(Borders::new(bits_for(threads), package))
}

/// The oldest way: how many threads and how many cores a package has room for.
fn from_counts(cpuid: &impl Fn(u32, u32) -> CpuidResult, max: u32) -> Borders {
    const HTT: u32 = 1 << 28;
    let features = cpuid(1, 0);
    if max < 1 || features.edx & HTT == 0 {
        return Borders::new(0, 0);
    }
    let threads = (features.ebx >> 16 & 0xff).max(1);
    let cache = if max >= LEAF_CACHE { cpuid(LEAF_CACHE, 0).eax } else { 0 };
    // Without a first cache the leaf says nothing, and all threads count as
    // threads of one core: with HTT and no leaf 4 they are.
    let cores = if cache & 0x1f != 0 { (cache >> 26) + 1 } else { 1 };
    let package = bits_for(threads);
    Borders::new(package.saturating_sub(bits_for(cores)), package)
}

/// How many bits it takes to number so many things.
fn bits_for(count: u32) -> u32 {
    count.max(1).next_power_of_two().trailing_zeros()
}

/// A mask of so many low bits, up to 32.
fn low_bits(count: u32) -> u32 {
    ((1u64 << count) - 1) as u32
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
            let Topology { package, core, smt, .. } = of(&self.cpuid(), apic_id, None);
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
        let cpu = Leaves::new(1, INTEL);
        assert_eq!(of(&cpu.cpuid(), 3, Some(7)).node, 7);
        assert_eq!(of(&cpu.cpuid(), 3, None).node, 0);
    }

    #[test]
    fn the_apic_id_is_the_wide_one_where_there_is_one() {
        let narrow = Leaves::new(0xb, INTEL).with(1, 0, [0, 0x2a << 24, 0, 0]);
        assert_eq!(apic_id(&narrow.cpuid()), 0x2a);
        let wide = narrow.level(0xb, 0, 1, 1, 2);
        assert_eq!(apic_id(&wide.cpuid()), 0xabcd);
    }

    #[test]
    fn threads_of_a_core_know_each_other() {
        let at = |package, core, smt| Topology { package, core, smt, node: 0 };
        assert!(at(0, 1, 0).shares_core(&at(0, 1, 1)));
        assert!(!at(0, 1, 0).shares_core(&at(1, 1, 0)));
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
