//! Starting the other CPUs: INIT, SIPI, SIPI, and a bound on every wait.
//!
//! Knows the protocol and the trampoline, and nothing of the kernel around it:
//! it imports `core` alone, gets the local APIC and the clock as a [`Machine`],
//! and could be a crate of its own. Which CPUs there are (`acpi`), their stacks,
//! the page tables, and what a CPU does once it runs are the caller's. The boot
//! CPU calls it, for one AP after the other, while the APs are all that it waits
//! for.
//!
//! # The protocol
//!
//! After power-up all CPUs but one wait for a start-up IPI. The boot CPU brings
//! one up as Intel's manual has it (SDM volume 3, "MP initialization protocol"):
//!
//! ```text
//! boot CPU                            AP
//! INIT        ──────────────────────▶ reset, waits for SIPI
//! 10 ms
//! SIPI (page) ──────────────────────▶ starts at page:0 in real mode
//! up to 200 µs                        protected mode, long mode
//! SIPI (page), if not yet claimed     reads its APIC id, claims the ticket
//! up to Limits::claim_us       ◀───── claimed
//! up to Limits::arrival_us     ◀───── arrived: runs Rust on its own stack
//! ```
//!
//! The manual sends the second SIPI always, because the first may get lost. A
//! CPU that runs ignores it, so to leave it out when the AP has already answered
//! changes nothing but the time it takes; that is what we do.
//!
//! # The ticket
//!
//! All APs start through one page, and any of them may be late by any time: it
//! may come when the boot CPU has long given it up, filled the page with the
//! stack of another, and started that. Two CPUs on one stack is the worst thing
//! that can happen here, so:
//!
//! > An AP touches a stack only after it has swapped the ticket it read first
//! > for "claimed", having read everything else in between.
//!
//! The ticket holds a round number, which no other round has, and a state:
//!
//! ```text
//!              publish                (1) lock cmpxchg, by the AP
//!   round n-1 ────────▶ n, WAITING ──────────────────────────────▶ n, CLAIMED
//!                            │        (2) abandon, by the boot CPU
//!                            └───────────────────────────────────▶ n, ABANDONED
//! ```
//!
//! The boot CPU writes the block only when no AP may claim, and publishes it
//! with the ticket. So if (1) succeeds the ticket has not changed since it was
//! read, and what was read in between belongs to round n. It was also meant for
//! this CPU: the AP compares its own APIC id first. An AP for which (1) fails
//! counts itself as late and halts for ever, without a stack. Having claimed, an AP needs nothing of the
//! page any more: the next round may begin even if this AP is slow.
//!
//! On a time-out the boot CPU does (2) and sends INIT once more, so that the AP,
//! should it still come, goes back to waiting for a SIPI. If that INIT is lost
//! too, the AP comes to the page at any later time: so keep the page, and its
//! mapping, when an AP has failed. Without the mapping the AP would fault on its
//! way into long mode, and that resets the machine.
//!
//! Between claim and arrival the same question is put once more, by [`Arrival`]:
//! the AP says that it has come, or the boot CPU that it has given up, and
//! exactly one of them is first. An AP that finds itself given up must halt.
//!
//! # Rejected
//!
//! - *Waiting for ever*, as many kernels do: one broken CPU is then a dead
//!   machine, before there is a prompt to ask on.
//! - *All APs at once, each finding its stack by its id*: faster by 10 ms an AP,
//!   but a table of stacks in a page that late APs may read at any time, and no
//!   order in the boot report.
//! - *A claimed flag without a round*: an AP of an earlier round that has read
//!   its stack, and is then delayed, would claim the round of another.

mod block;
#[cfg(test)]
mod tests;

use block::{BLOCK_OFFSET, Block};
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

/// A page; the trampoline takes one.
pub const PAGE_BYTES: usize = 4096;

/// From INIT to the first SIPI, µs (SDM volume 3).
const INIT_DELAY_US: u64 = 10_000;
/// From the first SIPI to the second, µs (SDM volume 3).
const SIPI_DELAY_US: u64 = 200;
/// So many polls without the clock moving, and we take it to have stopped.
const MAX_POLLS_WITHOUT_TIME: u32 = 10_000_000;

/// What starting a CPU needs of the machine: a local APIC and a clock.
pub trait Machine {
    /// Sends INIT (assert) to one CPU. Must not wait without a limit.
    fn send_init(&self, apic_id: u32);

    /// Sends a start-up IPI: begin at physical `vector << 12`. Must not wait
    /// without a limit.
    fn send_sipi(&self, apic_id: u32, vector: u8);

    /// Lets at least so many µs pass, within a bound of its own.
    fn delay_us(&self, us: u64);

    /// A clock in µs that never goes back. If it stands still, waits end all the
    /// same.
    fn now_us(&self) -> u64;

    /// Called in each turn of a wait.
    fn relax(&self) {
        core::hint::spin_loop();
    }
}

/// How long to wait for an AP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From the last SIPI to the claim, µs.
    pub claim_us: u64,
    /// From the claim to the arrival, µs.
    pub arrival_us: u64,
}

/// The control registers an AP starts with: the boot CPU's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlRegisters {
    /// CR0.
    pub cr0: u32,
    /// CR3: the top page table, below 4 GiB, because it is loaded in 32-bit mode.
    pub cr3: u32,
    /// CR4.
    pub cr4: u32,
    /// EFER, with NXE if the tables have NX bits.
    pub efer: u32,
}

impl ControlRegisters {
    /// The same, as they can be set on the way into long mode.
    fn for_the_way(self) -> Self {
        const PE_ET_PG: u32 = 1 << 0 | 1 << 4 | 1 << 31;
        const TS_NW_CD: u32 = 1 << 3 | 1 << 29 | 1 << 30;
        const PAE: u32 = 1 << 5;
        // These fault unless something else is set up first; the kernel sets
        // them again when it sets up the CPU.
        const VMXE_SMXE_PCIDE_CET: u32 = 1 << 13 | 1 << 14 | 1 << 17 | 1 << 23;
        const SCE_NXE: u32 = 1 << 0 | 1 << 11;
        const LME: u32 = 1 << 8;
        ControlRegisters {
            cr0: self.cr0 & !TS_NW_CD | PE_ET_PG,
            cr3: self.cr3,
            cr4: self.cr4 & !VMXE_SMXE_PCIDE_CET | PAE,
            efer: self.efer & SCE_NXE | LME,
        }
    }
}

/// Where an AP says that it runs.
///
/// One for each AP, never used twice. The AP gets at it through its argument,
/// and its first act is to call [`arrive`](Arrival::arrive).
#[derive(Debug)]
pub struct Arrival(AtomicU32);

const EXPECTED: u32 = 0;
const ARRIVED: u32 = 1;
const GIVEN_UP: u32 = 2;

impl Arrival {
    /// No AP has come yet.
    pub const fn new() -> Self {
        Arrival(AtomicU32::new(EXPECTED))
    }

    /// Called by the AP, once, before it takes any lock. False: the boot CPU has
    /// given it up and goes on without it, and it must halt for ever.
    #[must_use]
    pub fn arrive(&self) -> bool {
        // Pairs with `give_up`: exactly one of the two is first.
        self.0.compare_exchange(EXPECTED, ARRIVED, AcqRel, Acquire).is_ok()
    }

    /// Whether the AP has come.
    pub fn has_arrived(&self) -> bool {
        self.0.load(Acquire) == ARRIVED
    }

    /// Called by the boot CPU. False: the AP has come after all.
    fn give_up(&self) -> bool {
        self.0.compare_exchange(EXPECTED, GIVEN_UP, AcqRel, Acquire).is_ok()
    }
}

/// What an AP is to start with.
#[derive(Debug, Clone, Copy)]
pub struct ApParams<'a> {
    /// The CPU to start.
    pub apic_id: u32,
    /// Its control registers.
    pub control: ControlRegisters,
    /// The end of its stack, rounded down to 16 bytes.
    pub stack_top: u64,
    /// What it calls, in 64-bit mode, interrupts off, with the trampoline's GDT
    /// and no IDT.
    pub entry: extern "C" fn(argument: usize) -> !,
    /// What it calls it with.
    pub argument: usize,
    /// Where it says that it has come.
    pub arrival: &'a Arrival,
}

/// What became of an AP.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It runs.
    Started,
    /// It did not claim in time, and cannot any more: its stack may be used
    /// otherwise.
    NoAnswer,
    /// It claimed and was not heard of again: its stack is its own for ever.
    Stuck,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Started => "online",
            Outcome::NoAnswer => "no answer, left out",
            Outcome::Stuck => "started but never arrived, left out",
        })
    }
}

/// The page is not a page below 1 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadPage(pub u32);

/// The trampoline, in its page.
pub struct Trampoline {
    block: NonNull<Block>,
    vector: u8,
}

impl Trampoline {
    /// Copies the trampoline to the page at physical `phys`, which is below 1 MiB
    /// and stays out of the frame allocator for good: a late AP may begin there
    /// at any time. It must be mapped at its own address, readable and
    /// executable, in the tables that the APs start with.
    ///
    /// # Safety
    ///
    /// 1. `page` is where that physical page is mapped for reading and writing,
    ///    here and in the tables that the APs start with, as long as this lives.
    /// 2. The page is used for nothing else.
    pub unsafe fn install(page: *mut u8, phys: u32) -> Result<Self, BadPage> {
        let aligned = (phys as usize | page as usize).is_multiple_of(PAGE_BYTES);
        if !aligned || page.is_null() || !(0x1000..0x10_0000).contains(&phys) {
            return Err(BadPage(phys));
        }
        let code = block::code();
        assert!(code.len() <= BLOCK_OFFSET, "trampoline too long");
        // SAFETY: the page is ours to write (1, 2).
        unsafe { page.write_bytes(0, PAGE_BYTES) };
        // SAFETY: the same, and the code is shorter than the page, see above,
        // and elsewhere, in the kernel's image.
        unsafe { page.copy_from_nonoverlapping(code.as_ptr(), code.len()) };
        // SAFETY: inside the page.
        let block = unsafe { page.add(BLOCK_OFFSET) }.cast::<Block>();
        // SAFETY: aligned, since the page is; all zeroes are a `Block`; the page
        // is mapped as long as `self` lives, and a `Block` is atomic throughout.
        let block = unsafe { &*block };
        block.prepare(phys);
        Ok(Trampoline { block: NonNull::from(block), vector: (phys >> 12) as u8 })
    }

    /// Leaves the trampoline where it is, for APs that come late; gives the counter in
    /// which they say that they have parked themselves.
    ///
    /// # Safety
    /// The page stays mapped, as for [`install`](Self::install), for good.
    pub unsafe fn keep(self) -> &'static AtomicU32 {
        // SAFETY: the caller's promise; a `Block` is atomic throughout.
        unsafe { &(*self.block.as_ptr()).late }
    }

    /// The page, which is to be unmapped when all have come.
    pub fn page(&self) -> u64 {
        u64::from(self.vector) << 12
    }

    /// Starts one AP, or gives it up within the limits.
    ///
    /// # Safety
    ///
    /// 1. The tables at `cr3` map the trampoline's page at its own address, and
    ///    the kernel (entry, stack, argument, the page passed to `install`) as
    ///    they are mapped here.
    /// 2. `stack_top` is the end of a stack that is used for nothing else; unless
    ///    the outcome is [`Outcome::NoAnswer`], for ever.
    /// 3. `entry` may be called with `argument` on another CPU, and first calls
    ///    [`Arrival::arrive`] on `arrival`, which must therefore live on unless
    ///    the outcome is `NoAnswer`.
    /// 4. `apic_id` is not a CPU that runs already: INIT would end it.
    pub unsafe fn start(
        &mut self,
        machine: &impl Machine,
        ap: &ApParams<'_>,
        limits: &Limits,
    ) -> Outcome {
        // SAFETY: mapped as long as `self` lives, see `install`.
        let block = unsafe { self.block.as_ref() };
        let ticket = block.publish(ap);
        let is_claimed = || block.is_claimed(ticket);

        // INIT, SIPI, SIPI.
        reset(machine, ap.apic_id);
        machine.send_sipi(ap.apic_id, self.vector);
        if !wait(machine, SIPI_DELAY_US, is_claimed) {
            machine.send_sipi(ap.apic_id, self.vector);
        }

        // It claims, or it may not any more.
        if !wait(machine, limits.claim_us, is_claimed) && block.abandon(ticket) {
            reset(machine, ap.apic_id);
            return Outcome::NoAnswer;
        }

        // It arrives, or it has been given up.
        if !wait(machine, limits.arrival_us, || ap.arrival.has_arrived()) && ap.arrival.give_up() {
            reset(machine, ap.apic_id);
            return Outcome::Stuck;
        }
        Outcome::Started
    }
}

/// Sends a CPU back to waiting for a SIPI.
fn reset(machine: &impl Machine, apic_id: u32) {
    machine.send_init(apic_id);
    machine.delay_us(INIT_DELAY_US);
}

/// Waits until `done`, for `limit_us` at most; says whether it is.
fn wait(machine: &impl Machine, limit_us: u64, done: impl Fn() -> bool) -> bool {
    let start = machine.now_us();
    let (mut last, mut polls) = (start, 0);
    while !done() {
        let now = machine.now_us();
        polls = if now == last { polls + 1 } else { 0 };
        if now.saturating_sub(start) >= limit_us || polls > MAX_POLLS_WITHOUT_TIME {
            return done();
        }
        last = now;
        machine.relax();
    }
    true
}
