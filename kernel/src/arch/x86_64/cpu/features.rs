//! What the kernel needs of a CPU, and whether this one has it.
//!
//! Every x86-64 CPU that was sold has all of it; an emulator can be told to leave it out, and
//! firmware can hide a local APIC. The boot CPU asks [`missing`] before anything relies on it.

use core::arch::x86_64::{__cpuid, _rdrand64_step};
use core::fmt;

/// A feature that the kernel cannot do without: a leaf of CPUID, a bit of EDX there, the feature's
/// name, and its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature(u32, u32, &'static str, &'static str);

/// The leaf that has the features which AMD has added.
const EXTENDED: u32 = 0x8000_0001;

const NEEDED: [Feature; 8] = [
    Feature(1, 0, "x87 FPU", "unwinding saves its control word"),
    Feature(1, 4, "time stamp counter (TSC)", "it is the clock"),
    Feature(1, 5, "MSRs", "the APIC and page protection are switched on by them"),
    Feature(1, 9, "local APIC", "timers and interrupts come through it"),
    Feature(1, 24, "FXSR", "SSE is switched on by it"),
    Feature(1, 25, "SSE", "unwinding saves its control word"),
    Feature(1, 26, "SSE2", "its fences order interrupts after stores"),
    Feature(EXTENDED, 20, "NX", "data and stacks are not executable"),
];

/// What this CPU lacks of what the kernel needs.
pub fn missing() -> impl Iterator<Item = Feature> {
    missing_by(edx)
}

pub fn has_sse() -> bool {
    edx(1) >> 24 & 0b11 == 0b11
}

pub fn has_nx() -> bool {
    edx(EXTENDED) >> 20 & 1 != 0
}

/// A word that differs from boot to boot: of the CPU's random number generator, if it has one that
/// answers, and of the cycle counter. (Some firmware leaves the generator broken, with a constant.)
pub fn entropy() -> u64 {
    let has_rdrand = __cpuid(1).ecx >> 30 & 1 != 0;
    // SAFETY: the CPU has the instruction.
    let word = if has_rdrand { unsafe { rdrand() } } else { 0 };
    word ^ crate::arch::cycles().rotate_left(32)
}

/// 0 if it has no entropy now; Intel SDM vol. 1, 7.3.17, has ten tries.
#[target_feature(enable = "rdrand")]
fn rdrand() -> u64 {
    let mut word = 0;
    for _ in 0..10 {
        if _rdrand64_step(&mut word) == 1 {
            return word;
        }
    }
    0
}

fn missing_by(edx: impl Fn(u32) -> u32) -> impl Iterator<Item = Feature> {
    NEEDED.into_iter().filter(move |&Feature(leaf, bit, ..)| edx(leaf) >> bit & 1 == 0)
}

/// Register EDX of a leaf of CPUID, 0 if there is no such leaf.
fn edx(leaf: u32) -> u32 {
    let highest = __cpuid(leaf & 0x8000_0000).eax; // of the same range
    if leaf <= highest { __cpuid(leaf).edx } else { 0 }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Feature(_, _, name, used_for) = self;
        write!(f, "no {name}: {used_for}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn the_host_has_all_of_it_and_nothing_has_none() {
        assert_eq!(missing().count(), 0);
        assert!(has_sse() && has_nx());
        assert_eq!(missing_by(|_| 0).count(), NEEDED.len());
    }

    #[test]
    fn what_is_missing_is_named() {
        let without = |leaf: u32, bit: u32| {
            missing_by(move |asked| if asked == leaf { !(1 << bit) } else { u32::MAX })
        };
        let names = |leaf, bit| without(leaf, bit).map(|f| f.to_string()).collect::<Vec<_>>();
        assert_eq!(names(1, 9), ["no local APIC: timers and interrupts come through it"]);
        assert_eq!(names(EXTENDED, 20), ["no NX: data and stacks are not executable"]);
        assert_eq!(names(1, 31), [""; 0], "not needed");
    }
}
