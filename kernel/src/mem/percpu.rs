//! The proof that code stays on its CPU, for values that each CPU has of its own.

use crate::arch::{self, irq::IrqState};
use core::marker::PhantomData;

/// Proof that the code stays on this CPU: interrupts are off until this is dropped.
pub struct Here {
    index: usize,
    irqs: IrqState,
    // Another CPU's interrupts are not off: the proof must not be sent.
    _here: PhantomData<*mut ()>,
}

impl Here {
    /// Turns interrupts off, after a probe of the stack: no page fault comes meanwhile.
    #[inline]
    pub fn enter() -> Here {
        let irqs = arch::irq::disable_probed();
        Here { index: arch::cpu_index(), irqs, _here: PhantomData }
    }

    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// A test acts as CPU `index`. Sound: on the host a spinning flag guards the values.
    #[cfg(test)]
    pub fn pretend(index: usize) -> Here {
        Here { index, irqs: arch::irq::disable(), _here: PhantomData }
    }
}

impl Drop for Here {
    #[inline]
    fn drop(&mut self) {
        arch::irq::restore(self.irqs);
    }
}
