//! The longest section with interrupts off, with names: what `arch::sections` has measured.
#![forbid(unsafe_code)]

use super::symbols;
use crate::arch::sections;
use core::fmt;

/// A time for which a CPU had interrupts off. Prints as the time, the CPU, and the functions in which
/// it began and ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IrqsOff {
    /// How long, in nanoseconds.
    pub ns: u64,
    /// The CPU.
    pub cpu: usize,
    /// An address in the function that turned them off.
    pub from: u64,
    /// An address in the function that turned them on.
    pub to: u64,
}

/// The longest section with interrupts off since the machine came up; `None` in the usual build, in
/// which it is not measured (`cargo checked` makes one in which it is).
#[must_use]
pub fn longest_irqs_off() -> Option<IrqsOff> {
    let sections::Section { cpu, ns, from, to } = sections::longest()?;
    Some(IrqsOff { ns, cpu, from, to })
}

impl fmt::Display for IrqsOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns on CPU {}", self.ns, self.cpu)?;
        for (word, address) in [("from", self.from), ("to", self.to)] {
            match symbols::lookup(address as usize) {
                Some(symbol) => write!(f, ", {word} {symbol}+{:#x}", symbol.offset)?,
                None => write!(f, ", {word} {address:#x}")?,
            }
        }
        Ok(())
    }
}
