//! Device interrupts: the driver of each vector, and how many came.
//!
//! `arch` knows how a line is wired ([`arch::route_isa`]); this file allocates vectors, which a
//! driver claims in its set-up and keeps for ever.
//!
//! # In an interrupt
//!
//! A [`Handler`] runs on the CPU that took the interrupt, with interrupts off, on a stack of
//! its own. It allocates nothing, waits for nothing, and takes no lock that is held with
//! interrupts on. It tells the poller; the Gs that the poller readies are scheduled at the
//! end of the interrupt, once for all of them.

use crate::arch::lock::IrqLock;
use crate::arch::{self, RouteError, text_enum};
use crate::run::poller;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Vectors that [`claim`] allocates. Those below, from 0x30 on, are for tests of the lines.
const CLAIMABLE: Range<u8> = 0x50..0xf0;

/// Called at an interrupt, which may be spurious: see the top of this file.
pub type Handler = fn();

text_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum IrqError {
        NoVector => "all interrupt vectors are taken",
        Route(error: RouteError) => "{error}",
    }
}

struct Line {
    count: AtomicU64,
    cpu: AtomicUsize,
    /// The name and the handler of its driver. Held for the time of a copy only.
    claim: IrqLock<Option<(&'static str, Handler)>>,
}

impl Line {
    const fn new() -> Self {
        Line { count: AtomicU64::new(0), cpu: AtomicUsize::new(0), claim: IrqLock::new(None) }
    }

    fn claim(&self, name: &'static str, handler: Handler) -> bool {
        let mut claim = self.claim.lock();
        let is_free = claim.is_none();
        claim.get_or_insert((name, handler));
        is_free
    }

    fn serve(&self, cpu: usize) {
        self.cpu.store(cpu, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release); // pairs with `taken`
        let claim = *self.claim.lock();
        if let Some((_, handler)) = claim {
            poller::serve(handler);
        }
    }
}

static LINES: [Line; 256] = [const { Line::new() }; 256];

/// Gives `handler` a vector of its own, for messages (MSI, MSI-X). It may be called from here on.
pub fn claim(name: &'static str, handler: Handler) -> Result<u8, IrqError> {
    let is_claimed = |&vector: &u8| LINES[usize::from(vector)].claim(name, handler);
    CLAIMABLE.into_iter().find(is_claimed).ok_or(IrqError::NoVector)
}

/// As [`claim`], for the ISA line `irq`, which is routed to the boot CPU as the firmware says.
pub fn claim_isa(irq: u8, name: &'static str, handler: Handler) -> Result<u8, IrqError> {
    let vector = claim(name, handler)?;
    arch::route_isa(irq, vector, 0).map(|()| vector).map_err(|error| {
        *LINES[usize::from(vector)].claim.lock() = None;
        IrqError::Route(error)
    })
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
        let (name, _) = (*LINES[usize::from(vector)].claim.lock())?;
        let (count, cpu) = taken(vector);
        Some(LineInfo { vector, name, count, cpu })
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    static COUNT: AtomicU64 = AtomicU64::new(0);

    fn count() {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn a_claimed_vector_calls_its_driver_and_counts() {
        let vector = claim("one", count).expect("a vector");
        let line = &LINES[usize::from(vector)];
        line.serve(3);
        line.serve(5);
        assert_eq!(COUNT.load(Ordering::Relaxed), 2);
        let info = lines().find(|info| info.vector == vector).expect("listed");
        assert_eq!((info.name, info.count, info.cpu), ("one", 2, 5));
    }

    #[test]
    fn no_vector_belongs_to_two() {
        let (a, b) = (claim("a", count), claim("b", count));
        assert_ne!(a.expect("a vector"), b.expect("a vector"));
        let line = Line::new();
        assert!(line.claim("a", count));
        assert!(!line.claim("b", count));
        assert_eq!(line.claim.lock().expect("claimed").0, "a");
    }

    #[test]
    fn a_claim_of_a_line_that_is_not_there_gives_its_vector_back() {
        // On the host there is no I/O APIC, and no CPU.
        let error = claim_isa(4, "absent", count).expect_err("no line");
        assert!(matches!(error, IrqError::Route(_)), "{error}");
        assert!(lines().all(|line| line.name != "absent"));
    }

    #[test]
    fn an_interrupt_that_nobody_claims_is_counted() {
        let line = Line::new();
        line.serve(1);
        assert_eq!(line.count.load(Ordering::Relaxed), 1);
    }
}
