//! The interrupt flag of this CPU: off, and back to what it was.
//!
//! The flag is the preempt word: with interrupts off the running G stays on its CPU. `sti` takes
//! effect after the next instruction (Intel SDM vol. 2, STI). So each [`restore`] is followed by an
//! instruction before the next `cli`: by the flags' load in [`disable`] and [`disable_probed`] or,
//! where the compiler drops that load as unused, by a probe or a call.

use super::sections;
use crate::arch::x86_64::cpu::probe_stack;

/// The flags of the CPU as they were. A `bool` would take instructions to make and to test.
#[derive(Clone, Copy, Debug)]
pub struct IrqState(usize);

/// The interrupt flag (Intel SDM vol. 1, 3.4.3).
const IF: usize = 1 << 9;

impl IrqState {
    /// Interrupts on, for callers that know the state.
    pub const ON: IrqState = IrqState(IF);

    /// Interrupts off, for callers that know the state.
    pub const OFF: IrqState = IrqState(0);

    #[inline(always)]
    pub fn were_on(self) -> bool {
        self.0 & IF != 0
    }
}

/// The state now. In host tests a thread stands for a CPU, and has no interrupts.
#[inline(always)]
pub fn state() -> IrqState {
    #[cfg(target_os = "none")]
    {
        let flags: usize;
        // Not `nomem`: the load must not move across `cli` and `sti`, which the
        // compiler takes for writes to memory. `pure`: it goes if its result does.
        // SAFETY: pushes one word on the stack and pops it again.
        unsafe {
            core::arch::asm!("pushfq", "pop {}", out(reg) flags,
                options(pure, readonly, preserves_flags));
        }
        IrqState(flags)
    }
    #[cfg(not(target_os = "none"))]
    IrqState(0)
}

/// Turns interrupts off and gives the state before. `cli` alone, if the state is not used.
#[inline(always)]
pub fn disable() -> IrqState {
    let before = state();
    #[cfg(target_os = "none")]
    x86_64::instructions::interrupts::disable();
    if sections::ARE_MEASURED && before.were_on() {
        sections::begin();
    }
    before
}

/// [`disable`] after [`probe_stack`]. With interrupts off already, the code that turned them off
/// has probed, and a second probe from further down would be the very fault that must not happen.
#[inline(always)]
pub fn disable_probed() -> IrqState {
    let before = state();
    if before.were_on() {
        probe_stack();
        disable();
    }
    before
}

/// Turns interrupts on again if they were on in `before`.
#[inline(always)]
pub fn restore(before: IrqState) {
    #[cfg(target_os = "none")]
    if before.were_on() {
        sections::end();
        // SAFETY: they were on before.
        unsafe { core::arch::asm!("sti", options(nostack, preserves_flags)) };
    }
    #[cfg(not(target_os = "none"))]
    let _ = before;
}

/// Whether this CPU takes interrupts now. A host thread does.
#[inline]
pub fn enabled() -> bool {
    cfg!(not(target_os = "none")) || state().were_on()
}
