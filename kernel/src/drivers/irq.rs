//! Device interrupts: the driver of each vector, and how many came.
//!
//! `arch` knows how a line is wired ([`arch::route_isa`]); this file allocates vectors, calls
//! the driver that has claimed one, and counts. A driver claims in its set-up and keeps its
//! vector for ever.
//!
//! # In an interrupt
//!
//! A [`Handler`] runs on the CPU that took the interrupt, with interrupts off, on a stack of
//! its own. It allocates nothing, waits for nothing, and takes no lock that is held with
//! interrupts on. It tells the poller; the Gs that the poller readies are scheduled at the
//! end of the interrupt, once for all of them.

use crate::arch;
use crate::arch::lock::IrqLock;
use crate::run::poller;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub use crate::arch::RouteError;

/// Vectors that [`claim`] allocates. The vectors below, from 0x30 on, are for [`route_isa`],
/// whose callers choose one themselves.
const CLAIMABLE: Range<u8> = 0x50..0xf0;

/// A driver's interrupt handler.
pub trait Handler: Sync {
    /// Its device has interrupted. In an interrupt: see the top of this file. The interrupt
    /// may be spurious.
    fn on_interrupt(&self);
}

/// Why a driver gets no interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqError {
    /// All vectors are claimed.
    NoVector,
    /// The line cannot be routed to that CPU.
    Route(RouteError),
}

/// The state of one vector.
struct Line {
    count: AtomicU64,
    cpu: AtomicUsize,
    /// Held for the time of a copy only, so an interrupt may take it.
    claim: IrqLock<Option<Claim>>,
}

#[derive(Clone, Copy)]
struct Claim {
    name: &'static str,
    handler: &'static dyn Handler,
}

impl Line {
    const fn new() -> Self {
        Line { count: AtomicU64::new(0), cpu: AtomicUsize::new(0), claim: IrqLock::new(None) }
    }

    /// Makes the claim unless there is one.
    fn claim(&self, claim: Claim) -> bool {
        let mut slot = self.claim.lock();
        let is_free = slot.is_none();
        slot.get_or_insert(claim);
        is_free
    }

    fn serve(&self, cpu: usize) {
        self.cpu.store(cpu, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release); // pairs with `taken`
        let claim = *self.claim.lock();
        if let Some(Claim { handler, .. }) = claim {
            poller::serve(|| handler.on_interrupt());
        }
    }
}

static LINES: [Line; 256] = [const { Line::new() }; 256];

/// Gives `handler` a vector of its own, for messages (MSI, MSI-X) of its device. It may be
/// called from here on.
///
/// # Errors
/// [`IrqError::NoVector`]
pub fn claim(name: &'static str, handler: &'static dyn Handler) -> Result<u8, IrqError> {
    let claim = Claim { name, handler };
    let vector = CLAIMABLE.into_iter().find(|&vector| LINES[usize::from(vector)].claim(claim));
    vector.ok_or(IrqError::NoVector)
}

/// As [`claim`], for the ISA line `irq`, which is routed to `cpu` and may interrupt from here
/// on. The firmware says where and how the line really arrives.
///
/// # Errors
/// No vector is left, or there is no such line or CPU.
pub fn claim_isa(
    irq: u8,
    cpu: usize,
    name: &'static str,
    handler: &'static dyn Handler,
) -> Result<u8, IrqError> {
    let vector = claim(name, handler)?;
    arch::route_isa(irq, vector, cpu).map_err(|error| {
        *LINES[usize::from(vector)].claim.lock() = None;
        IrqError::Route(error)
    })?;
    Ok(vector)
}

/// Information on a vector that belongs to a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineInfo {
    /// Its number.
    pub vector: u8,
    /// The driver's name for it.
    pub name: &'static str,
    /// How many came.
    pub count: u64,
    /// The CPU that took the latest.
    pub cpu: usize,
}

/// All vectors that belong to drivers.
pub fn lines() -> impl Iterator<Item = LineInfo> {
    CLAIMABLE.filter_map(|vector| {
        let Claim { name, .. } = (*LINES[usize::from(vector)].claim.lock())?;
        let (count, cpu) = taken(vector);
        Some(LineInfo { vector, name, count, cpu })
    })
}

/// Routes the ISA interrupt `irq` to `cpu` as `vector` (0x30 to 0x4f), and unmasks it. It is
/// counted, and no driver serves it: for tests of the lines themselves. A driver uses
/// [`claim_isa`].
///
/// # Errors
/// No such line or CPU, or not a vector for devices.
#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub fn route_isa(irq: u8, vector: u8, cpu: usize) -> Result<(), RouteError> {
    if CLAIMABLE.contains(&vector) {
        return Err(RouteError::BadVector(vector));
    }
    arch::route_isa(irq, vector, cpu)
}

/// Masks the ISA interrupt `irq`.
///
/// # Errors
/// No such line.
#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub fn mask_isa(irq: u8) -> Result<(), RouteError> {
    arch::mask_isa(irq)
}

/// How many interrupts came as `vector`, and which CPU took the latest.
#[must_use]
pub fn taken(vector: u8) -> (u64, usize) {
    let line = &LINES[usize::from(vector)];
    // Pairs with `Line::serve`: the CPU was written before the count.
    (line.count.load(Ordering::Acquire), line.cpu.load(Ordering::Relaxed))
}

/// A device has interrupted. The caller collects the readied Gs afterwards.
pub fn on_interrupt(vector: u8) {
    LINES[usize::from(vector)].serve(arch::cpu_index());
}

impl fmt::Display for IrqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IrqError::NoVector => f.write_str("all interrupt vectors are taken"),
            IrqError::Route(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for IrqError {}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count(AtomicU64);

    impl Handler for Count {
        fn on_interrupt(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    static ONE: Count = Count(AtomicU64::new(0));

    #[test]
    fn a_claimed_vector_calls_its_driver_and_counts() {
        let vector = claim("one", &ONE).expect("a vector");
        let line = &LINES[usize::from(vector)];
        line.serve(3);
        line.serve(5);
        assert_eq!(ONE.0.load(Ordering::Relaxed), 2);
        let info = lines().find(|info| info.vector == vector).expect("listed");
        assert_eq!((info.name, info.count, info.cpu), ("one", 2, 5));
    }

    #[test]
    fn no_vector_belongs_to_two() {
        let (a, b) = (claim("a", &ONE), claim("b", &ONE));
        assert_ne!(a.expect("a vector"), b.expect("a vector"));
        let line = Line::new();
        assert!(line.claim(Claim { name: "a", handler: &ONE }));
        assert!(!line.claim(Claim { name: "b", handler: &ONE }));
        assert_eq!(line.claim.lock().expect("claimed").name, "a");
    }

    #[test]
    fn a_claim_of_a_line_that_is_not_there_gives_its_vector_back() {
        // On the host there is no I/O APIC, and no CPU.
        let error = claim_isa(4, 0, "absent", &ONE).expect_err("no line");
        assert!(matches!(error, IrqError::Route(_)), "{error}");
        assert!(lines().all(|line| line.name != "absent"));
    }

    #[test]
    fn an_interrupt_that_nobody_claims_is_counted() {
        let line = Line::new();
        line.serve(1);
        assert_eq!(line.count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_vector_of_a_driver_cannot_be_routed_by_hand() {
        assert_eq!(route_isa(4, 0x50, 0), Err(RouteError::BadVector(0x50)));
    }
}
