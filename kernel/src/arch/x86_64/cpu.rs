//! One hardware thread: its number, its interrupt flag, its registers.

/// The most hardware threads this kernel keeps books for.
pub const MAX_CPUS: usize = 256;

/// The dense number of this CPU, 0 for the boot CPU.
#[inline]
pub fn cpu_index() -> usize {
    0
}

/// Turns interrupts off and says whether they were on.
#[inline]
pub fn irq_save() -> bool {
    #[cfg(target_os = "none")]
    {
        let on = x86_64::instructions::interrupts::are_enabled();
        x86_64::instructions::interrupts::disable();
        on
    }
    // In host tests a thread stands for a CPU, and nothing interrupts it.
    #[cfg(not(target_os = "none"))]
    false
}

/// Turns interrupts on again if [`irq_save`] found them on.
#[inline]
pub fn irq_restore(were_on: bool) {
    #[cfg(target_os = "none")]
    if were_on {
        x86_64::instructions::interrupts::enable();
    }
    #[cfg(not(target_os = "none"))]
    let _ = were_on;
}

/// Touches the stack one page down, so that the page fault that commits it
/// happens now and not under a lock.
#[inline]
pub fn probe_stack() {
    #[cfg(target_os = "none")]
    // SAFETY: reads one byte below the stack pointer; the page is this G's own
    // or its guard, and in both cases the fault belongs here.
    unsafe {
        core::arch::asm!("test byte ptr [rsp - 4096], 0", options(nostack, readonly));
    }
}

/// Says to the CPU that this is a spin loop.
#[inline]
pub fn relax() {
    core::hint::spin_loop();
}
