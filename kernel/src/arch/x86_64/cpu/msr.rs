//! Model-specific registers, also those that the CPU may not have.
//!
//! Touching an MSR that does not exist raises #GP on real hardware (QEMU's TCG ignores it).
//! [`wrmsr_checked`] turns that fault into an error value: the instruction stands at a known label,
//! the #GP handler asks [`fixup`] about the faulting address, and continues at the error return.
//! Registers that CPUID vouches for need none of this.

use core::arch::naked_asm;

pub const IA32_APIC_BASE: u32 = 0x1b;
/// The time stamp counter value at which the timer of this CPU fires.
pub const IA32_TSC_DEADLINE: u32 = 0x6e0;

/// This CPU refused the access to that MSR (#GP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsrFault(pub u32);

/// Where the #GP handler continues, all other registers as they are, when the fault at `rip` is one
/// of ours.
pub fn fixup(rip: u64) -> Option<u64> {
    let at = |label: &'static u8| core::ptr::from_ref(label) as u64;
    // SAFETY: a label of `wrmsr_guarded`; only its address is used.
    let wrmsr = at(unsafe { &runnext_wrmsr_guarded });
    // SAFETY: a label of `wrmsr_guarded`; only its address is used.
    let wrmsr_failed = at(unsafe { &runnext_wrmsr_failed });
    (rip == wrmsr).then_some(wrmsr_failed)
}

/// Writes `msr`, or says that this CPU does not have it or refuses the value.
///
/// # Safety
/// 1. Kernel mode, with an IDT whose #GP handler calls [`fixup`].
/// 2. The write, if it is accepted, breaks nothing that Rust relies on.
pub unsafe fn wrmsr_checked(msr: u32, value: u64) -> Result<(), MsrFault> {
    // SAFETY: both conditions are the caller's.
    match unsafe { wrmsr_guarded(msr, value) } {
        0 => Ok(()),
        _ => Err(MsrFault(msr)),
    }
}

unsafe extern "C" {
    static runnext_wrmsr_guarded: u8;
    static runnext_wrmsr_failed: u8;
}

/// `extern "sysv64" fn(msr: edi, value: rsi) -> eax`: 0, or 1 after a fault.
/// Uses no stack, so there is nothing to undo on the way out.
#[unsafe(naked)]
unsafe extern "sysv64" fn wrmsr_guarded(msr: u32, value: u64) -> u32 {
    naked_asm!(
        "mov ecx, edi",
        "mov eax, esi",
        "mov rdx, rsi",
        "shr rdx, 32",
        ".globl runnext_wrmsr_guarded",
        "runnext_wrmsr_guarded:",
        "wrmsr",
        "xor eax, eax",
        "ret",
        ".globl runnext_wrmsr_failed",
        "runnext_wrmsr_failed:",
        "mov eax, 1",
        "ret",
    )
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    // On the host every MSR access is a #GP, which Linux turns into SIGSEGV: a
    // signal handler can play the kernel's #GP handler, fix-up and all.

    #[repr(C)]
    struct SigAction {
        handler: extern "C" fn(i32, *const u8, *mut u64),
        mask: [u64; 16],
        flags: i32,
        restorer: usize,
    }

    unsafe extern "C" {
        fn sigaction(signal: i32, new: *const SigAction, old: *mut u8) -> i32;
        fn abort() -> !;
    }

    /// `ucontext_t` in words: flags, link, stack (3), then the registers, of
    /// which the instruction pointer is number 16.
    const UCONTEXT_RIP: usize = 5 + 16;

    extern "C" fn on_gp(_: i32, _: *const u8, context: *mut u64) {
        let rip = context.wrapping_add(UCONTEXT_RIP);
        // SAFETY: the kernel hands every SA_SIGINFO handler a ucontext.
        match fixup(unsafe { rip.read() }) {
            // SAFETY: as above; the new address is in the same function.
            Some(next) => unsafe { rip.write(next) },
            // SAFETY: no condition.
            None => unsafe { abort() },
        }
    }

    #[test]
    fn refused_msr_is_an_error_and_not_a_crash() {
        const SIGSEGV: i32 = 11;
        const SA_SIGINFO: i32 = 4;
        let action = SigAction { handler: on_gp, mask: [0; 16], flags: SA_SIGINFO, restorer: 0 };
        // SAFETY: the struct has glibc's layout, and the old action is not wanted.
        assert_eq!(unsafe { sigaction(SIGSEGV, &action, core::ptr::null_mut()) }, 0);
        // SAFETY: ring 3, where the access faults and `on_gp` repairs it.
        let write = unsafe { wrmsr_checked(IA32_TSC_DEADLINE, 1) };
        assert_eq!(write, Err(MsrFault(IA32_TSC_DEADLINE)));
    }

    #[test]
    fn faults_elsewhere_are_not_ours() {
        let inside = wrmsr_guarded as *const () as u64;
        assert_eq!(fixup(inside), None);
        assert_eq!(fixup(0), None);
    }
}
