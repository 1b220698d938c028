//! Which CPUs share a core, a cache, a package, a NUMA node: for the boot report and the scheduler.
//!
//! An APIC id has the thread within its core in the low bits, the core within its package above,
//! the package on top. CPUID says where the borders are, in one of two leaves; a CPU that has
//! neither (Intel before 2008, AMD before 2019) counts as a core of package 0. The node comes from
//! the firmware's SRAT (`acpi`). Which CPUs share the last-level cache is in two more leaves, of
//! which AMD and Intel have one each; where neither answers, a package counts as having one such
//! cache.
//!
//! A hypervisor can answer anything: nonsense gives a wrong topology, never a panic, and levels
//! that contradict themselves are not believed ([`Topology::is_odd`]). (So these leaves are not
//! read by `raw_cpuid`, which panics on a kind of level that it does not know.)

use core::arch::x86_64::{__cpuid_count, CpuidResult};
use core::fmt;

/// The two leaves of extended topology, the newer first: it knows modules, tiles and dies.
const LEAVES_TOPOLOGY: [u32; 2] = [0x1f, 0xb];
/// Levels that an extended topology leaf may have; Intel defines six.
const MAX_LEVELS: u32 = 8;
const LEVEL_END: u32 = 0;
/// The kind of level whose ids count the threads of a core.
const LEVEL_THREAD: u32 = 1;

/// The leaves of cache parameters: Intel's, and AMD's with the bit that says whether it is there.
const LEAF_CACHES: u32 = 4;
const LEAF_CACHES_AMD: u32 = 0x8000_001d;
const LEAF_FEATURES_AMD: u32 = 0x8000_0001;
const TOPOLOGY_EXTENSIONS: u32 = 1 << 22;
/// Caches that a CPU may have; real ones have four.
const MAX_CACHES: u32 = 16;

/// Where one CPU sits. Two CPUs are threads of one core if package and core agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Topology {
    /// The package (socket).
    pub package: u32,
    /// The last-level cache within the package. Numbers may have gaps, here and in the next.
    pub cache: u32,
    /// The core within the package.
    pub core: u32,
    /// The thread within the core.
    pub smt: u32,
    /// The NUMA node, 0 if the firmware says nothing.
    pub node: u32,
    /// CPUID names levels, and they cannot be: the CPU counts as a core of package 0.
    pub is_odd: bool,
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Topology { package, core, smt, node, .. } = self;
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

/// Where an APIC id splits: `smt` low bits number the thread within a core, the bits below `cache`
/// the thread at a last-level cache, those below `package` the thread within a package. Invariant:
/// `smt <= cache <= package <= 32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Borders {
    smt: u32,
    cache: u32,
    package: u32,
    is_odd: bool,
}

impl Borders {
    fn read(cpuid: Cpuid<'_>) -> Self {
        let known = topology_leaves(cpuid).find_map(|leaf| Self::from_levels(cpuid, leaf));
        let is_odd = || topology_leaves(cpuid).any(|leaf| cpuid(leaf, 0).ebx & 0xffff != 0);
        let core = || Borders { smt: 0, cache: 32, package: 32, is_odd: is_odd() };
        let borders = known.unwrap_or_else(core);
        let cache = last_cache(cpuid).unwrap_or(borders.package);
        Borders { cache: cache.clamp(borders.smt, borders.package), ..borders }
    }

    /// Each level says how far to shift an id to get rid of it.
    fn from_levels(cpuid: Cpuid<'_>, leaf: u32) -> Option<Borders> {
        let mut borders = Borders { smt: 0, cache: 0, package: 0, is_odd: false };
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
        None // more levels than there are kinds
    }

    fn split(&self, apic_id: u32, node: Option<u32>) -> Topology {
        let id = u64::from(apic_id); // a shift by 32 leaves nothing
        let low = |bits: u32| id & ((1 << bits) - 1);
        Topology {
            package: (id >> self.package) as u32,
            cache: (low(self.package) >> self.cache) as u32,
            core: (low(self.package) >> self.smt) as u32,
            smt: low(self.smt) as u32,
            node: node.unwrap_or(0),
            is_odd: self.is_odd,
        }
    }
}

/// How many low bits of an APIC id number the threads at one last-level cache.
fn last_cache(cpuid: Cpuid<'_>) -> Option<u32> {
    let has_intels = cpuid(0, 0).eax >= LEAF_CACHES;
    let has_amds = cpuid(0x8000_0000, 0).eax >= LEAF_CACHES_AMD
        && cpuid(LEAF_FEATURES_AMD, 0).ecx & TOPOLOGY_EXTENSIONS != 0;
    let intels = if has_intels { last_cache_of(cpuid, LEAF_CACHES) } else { None };
    intels.or_else(|| if has_amds { last_cache_of(cpuid, LEAF_CACHES_AMD) } else { None })
}

/// Each subleaf is a cache: its kind (0 ends the list, 2 has no data), its level, and how many ids
/// of threads are set aside for those that share it.
fn last_cache_of(cpuid: Cpuid<'_>, leaf: u32) -> Option<u32> {
    let caches = (0..MAX_CACHES).map(|i| cpuid(leaf, i).eax).take_while(|eax| eax & 0x1f != 0);
    let with_data = caches.filter(|eax| eax & 0x1f != 2);
    let last = with_data.max_by_key(|eax| eax >> 5 & 7)?;
    Some(((last >> 14 & 0xfff) + 1).next_power_of_two().trailing_zeros())
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
        let topology = Topology { core: 3, smt: 1, node: 2, ..Topology::default() };
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

    /// A cache: its kind, its level, for how many threads.
    fn cache(kind: u32, level: u32, threads: u32) -> [u32; 4] {
        [(threads - 1) << 14 | level << 5 | kind, 0, 0, 0]
    }

    #[test]
    fn the_last_level_cache_is_that_of_either_maker() {
        let cpu = Leaves::new(0xb, INTEL).level(0xb, 0, 1, 1, 2).level(0xb, 1, 2, 5, 32);
        let cache_of = |cpu: &Leaves| Borders::read(&cpu.cpuid()).split(13, None).cache;
        assert_eq!(cache_of(&cpu), 0, "unknown: one in the package");
        let listed = |cpu: Leaves, leaf| {
            let cpu = cpu.with(leaf, 0, cache(1, 1, 2)).with(leaf, 1, cache(2, 3, 32));
            cpu.with(leaf, 2, cache(3, 3, 8)).with(leaf, 3, cache(3, 2, 2))
        };
        let intel = listed(cpu, 4);
        assert_eq!(cache_of(&intel), 1, "the highest level with data, not the last in the list");
        let cpu = Leaves::new(0xb, INTEL).level(0xb, 0, 1, 1, 2).level(0xb, 1, 2, 5, 32);
        let amd = listed(cpu, 0x8000_001d).with(0x8000_0000, 0, [0x8000_001d, 0, 0, 0]);
        assert_eq!(cache_of(&amd), 0, "the leaf is there, and the bit is not");
        let amd = amd.with(0x8000_0001, 0, [0, 0, 1 << 22, 0]);
        assert_eq!(cache_of(&amd), 1);
    }

    #[test]
    fn a_cache_is_at_least_a_core_and_at_most_a_package() {
        let cpu = Leaves::new(0xb, INTEL).level(0xb, 0, 1, 1, 2).level(0xb, 1, 2, 3, 8);
        let borders = |cpu: &Leaves| Borders::read(&cpu.cpuid());
        let cpu = cpu.with(4, 0, cache(3, 3, 4096));
        assert_eq!(borders(&cpu).cache, 3);
        let cpu = cpu.with(4, 0, cache(3, 3, 1));
        assert_eq!(borders(&cpu).cache, 1);
        // A list without an end is cut off.
        let cpu = (0..99).fold(cpu, |cpu, i| cpu.with(4, i, cache(3, 3, 4)));
        assert_eq!(borders(&cpu).cache, 2);
    }

    #[test]
    fn more_levels_than_there_are_kinds_are_odd() {
        let cpu = (0..20).fold(Leaves::new(0xb, INTEL), |cpu, i| cpu.level(0xb, i, 1 + i, 5, 2));
        let at = Borders::read(&cpu.cpuid()).split(3, None);
        assert_eq!((at.package, at.core, at.is_odd), (0, 3, true));
        let none = Borders::read(&Leaves::new(1, INTEL).cpuid()).split(3, None);
        assert!(!none.is_odd, "an old CPU says nothing, and nothing wrong");
    }

    #[test]
    fn a_cpu_without_any_of_this_is_a_core() {
        let cpu = Leaves::new(1, INTEL).with(1, 0, [0, 8 << 16, 0, 0]);
        assert_eq!(cpu.split(3), (0, 3, 0));
    }

    #[test]
    fn the_node_is_the_firmwares() {
        let borders = Borders { smt: 1, cache: 4, package: 4, is_odd: false };
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
        let whole = Borders { smt: 32, cache: 32, package: 32, is_odd: false };
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
