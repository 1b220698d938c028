//! The record of a CPU, and [`OnCpu`]: the right to use it.
//!
//! Only the CPU itself touches its record ([`Cpu`]), with interrupts off. Code that does has an
//! [`OnCpu`]: "this CPU, until interrupts are on again or the stack is switched".
//!
//! > An `OnCpu` is used only while interrupts are off, on a CPU that has been through `init_cpu`,
//! > and no two lend the P of a CPU at a time.
//!
//! So what it gives out needs no further argument. What ends that state takes the `OnCpu` by value
//! and returns a new one: [`OnCpu::open`] and [`OnCpu::halt`], during which interrupt handlers use
//! the record. A switch takes it as well (`proc`). So the compiler checks that nothing of the CPU
//! is kept across them.

use super::Link;
use super::account::{Counters, CpuTimes};
use super::error::JoinError;
use super::m::M;
use super::preempt::Slices;
use super::task::Task;
use crate::arch;
use crate::arch::irq::IrqState;
use core::cell::{Cell, UnsafeCell};
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use sched::P;

/// The per-CPU word that points to its [`Cpu`], 0 before it has a P.
const CPU_SLOT: usize = 1;

/// The scheduling state of one CPU. The P is first: so it has the address of the record, and code
/// that uses both needs one register. On cache lines of its own, in pairs as CPUs fetch them: its
/// CPU writes it at every switch, and no other CPU writes but rare requests (`Attention`).
#[repr(C, align(128))]
pub(crate) struct Cpu {
    /// The P of this CPU; there from `init_cpu` on.
    pub p: UnsafeCell<MaybeUninit<P<Task>>>,
    /// Where the frames of its M begin, or those of a call.
    pub sp: Cell<usize>,
    /// The M on whose stack it schedules; there from `init_cpu` on.
    pub m: Link<M>,
    /// A spare M that takes over when the current M leaves with a call.
    pub spare: Cell<Option<&'static M>>,
    pub slices: Slices,
    pub random: Cell<u64>,
    // Any CPU reads these two.
    pub counters: Counters,
    pub times: CpuTimes,
    /// Why the G that is just being abandoned ends, if it recorded a reason.
    pub exit_reason: Cell<Option<JoinError>>,
}

// SAFETY: only its own CPU touches it, with interrupts off, except for the atomic fields.
unsafe impl Sync for Cpu {}

impl Cpu {
    pub const fn new() -> Self {
        Cpu {
            p: UnsafeCell::new(MaybeUninit::uninit()),
            sp: Cell::new(0),
            m: Link::new(),
            spare: Cell::new(None),
            slices: Slices::new(),
            random: Cell::new(0),
            counters: Counters::new(),
            times: CpuTimes::new(),
            exit_reason: Cell::new(None),
        }
    }

    /// Gives the record its P, and the CPU its record. On that CPU, once, interrupts off.
    pub fn install(&'static self, p: P<Task>) {
        // SAFETY: this CPU's own record, and no code reads it before the next line.
        unsafe { (*self.p.get()).write(p) };
        arch::set_slot::<CPU_SLOT>(core::ptr::from_ref(self).addr());
    }

    pub fn m(&self) -> &'static M {
        self.m.get().expect("no M here")
    }
}

/// The record of this CPU, if it has been through `init_cpu`. Interrupts off.
pub(crate) fn try_this_cpu() -> Option<&'static Cpu> {
    // SAFETY: null until `install` has put a pointer to a static there.
    unsafe { (arch::slot::<CPU_SLOT>() as *const Cpu).as_ref() }
}

/// As [`try_this_cpu`].
///
/// # Safety
/// This CPU has been through `init_cpu`. Good while interrupts stay off, and until the next switch.
#[inline(always)]
pub(crate) unsafe fn this_cpu() -> &'static Cpu {
    // SAFETY: `install` has put a pointer to a static there.
    unsafe { &*(arch::slot::<CPU_SLOT>() as *const Cpu) }
}

/// The right to use the record of this CPU: see the head of this file.
pub(crate) struct OnCpu<'a> {
    cpu: &'static Cpu,
    /// Not for another CPU, and not beyond the scope that has interrupts off.
    scope: PhantomData<(*const Cpu, &'a ())>,
}

impl<'a> OnCpu<'a> {
    /// # Safety
    /// 1. Interrupts are off, and stay off until it is dropped. 2. This CPU has been through
    ///    `init_cpu`. 3. No other lends its P meanwhile.
    #[inline(always)]
    pub unsafe fn assume() -> Self {
        // SAFETY: 2.
        let cpu = unsafe { this_cpu() };
        // SAFETY: the caller's promise, and it is that of this CPU.
        unsafe { Self::of(cpu) }
    }

    /// As [`OnCpu::assume`], for a caller that knows the record.
    ///
    /// # Safety
    /// As there; and it is that of this CPU.
    #[inline(always)]
    pub unsafe fn of(cpu: &'static Cpu) -> Self {
        OnCpu { cpu, scope: PhantomData }
    }

    /// Gives it up to code that goes on with the record, on another stack.
    #[inline(always)]
    pub fn give_up(self) -> &'static Cpu {
        self.cpu
    }

    /// In an interrupt handler, which may have come to a CPU that has no record yet.
    ///
    /// # Safety
    /// 1 and 3 of [`OnCpu::assume`].
    pub unsafe fn in_handler() -> Option<Self> {
        Some(OnCpu { cpu: try_this_cpu()?, scope: PhantomData })
    }

    #[inline(always)]
    pub fn cpu(&self) -> &Cpu {
        self.cpu
    }

    #[inline(always)]
    pub fn p(&mut self) -> &mut P<Task> {
        self.parts().1
    }

    #[inline(always)]
    pub fn parts(&mut self) -> (&Cpu, &mut P<Task>) {
        // SAFETY: the CPU's own record, interrupts off, and `self` is borrowed: no other borrow.
        let p = unsafe { &mut *self.cpu.p.get() };
        // SAFETY: a record that `install` has published has its P.
        (self.cpu, unsafe { p.assume_init_mut() })
    }

    /// Calls `f` with interrupts on. An M is not preempted, and stays on its CPU; a G may be on
    /// another one afterwards.
    pub fn open(self, f: impl FnOnce()) -> OnCpu<'a> {
        arch::irq::restore(IrqState::ON);
        f();
        arch::irq::disable();
        // SAFETY: off again, on a CPU that runs Gs, and `self` is gone.
        unsafe { OnCpu::assume() }
    }

    /// Halts until an interrupt comes, which is handled. For an M or a G that keeps its CPU.
    pub fn halt(self) -> OnCpu<'a> {
        arch::wait_for_interrupt();
        // SAFETY: off again, on the same CPU, and `self` is gone.
        unsafe { OnCpu::assume() }
    }
}

/// Calls `f` with the P of this CPU, interrupts off. Any code after `init_cpu`, but not inside of
/// another call.
#[inline(always)]
pub(crate) fn with_p<R>(f: impl FnOnce(&mut P<Task>) -> R) -> R {
    let irqs = arch::irq::disable_probed();
    // SAFETY: 1. Off until `f` has returned. 2, 3. As documented.
    let result = f(unsafe { OnCpu::assume() }.p());
    arch::irq::restore(irqs);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn records_of_two_cpus_share_no_cache_line() {
        assert_eq!((align_of::<Cpu>(), offset_of!(Cpu, p)), (128, 0));
    }
}
