//! Starting the other CPUs: INIT, SIPI, SIPI, and a bound on every wait.
//!
//! Knows the protocol and the trampoline: the low page with the code of `trampoline.S` and the
//! block of parameters behind it. The boot CPU resets all APs together, then starts one after the
//! other, and does nothing else meanwhile.
//!
//! # The protocol
//!
//! All CPUs but one wait for a start-up IPI (SDM volume 3, "MP initialization protocol"):
//!
//! ```text
//! boot CPU                            AP
//! INIT to all ──────────────────────▶ reset, waits for SIPI
//! 10 ms, once
//! SIPI (page) ──────────────────────▶ starts at page:0 in real mode
//! up to 200 µs                        protected mode, long mode
//! SIPI (page), if not yet claimed     reads its APIC id, claims the ticket
//! up to LIMIT_US               ◀───── claimed
//! up to LIMIT_US               ◀───── arrived: runs Rust on its own stack
//! ```
//!
//! The manual always sends the second SIPI: the first may get lost, and a CPU that runs ignores it.
//!
//! # The ticket
//!
//! All APs start through one page, and any of them may be late: it may come when the boot CPU has
//! given it up, filled the page with the stack of another AP, and started that. So that no two CPUs
//! run on one stack:
//!
//! > An AP touches a stack only after it has swapped the ticket it read first
//! > for "claimed", having read everything else in between.
//!
//! The ticket holds a round number, which no other round has, and a state:
//!
//! ```text
//!              publish              (1) the trampoline            (2) Rust
//!   round n-1 ────────▶ n, WAITING ────────────────▶ n, CLAIMED ──────────▶ n, ARRIVED
//!                            │   (3) by the boot CPU      │
//!                            └────────────────────────────┴───▶ n, ABANDONED
//! ```
//!
//! The boot CPU writes the block only when no AP may claim, and publishes it with the ticket.
//! So if (1) succeeds the ticket has not changed since it was read, and what was read in
//! between belongs to round n. It was also meant for this CPU: the AP compares its own APIC
//! id first. An AP for which (1) fails counts itself as late and halts for ever, without a
//! stack. One for which (2) fails was given up meanwhile, and halts on its own stack. In
//! between an AP needs nothing of the block but the ticket: the next round may begin even if
//! this AP is slow.
//!
//! On a time-out the boot CPU does (3) and sends INIT once more, so that the AP, should it
//! still come, goes back to waiting for a SIPI. If that INIT is lost too, the AP comes to the
//! page at any later time: so the page and its mapping stay when an AP has failed. Without
//! the mapping the AP would fault on its way into long mode, and that resets the machine.
//!
//! # Rejected
//!
//! - *Waiting for ever*, as many kernels do: one broken CPU is then a dead machine.
//! - *A reset and its 10 ms for each AP*: an AP that was reset waits for its SIPI without an
//!   instruction, so one wait serves all. It was 0.6 s of a boot with 64 CPUs.
//! - *All SIPIs at once, each AP finding its stack by its id*: an AP takes a tenth of a millisecond
//!   to come, and the comparison of its counter with the boot CPU's takes turns all the same. The
//!   others would spin meanwhile, as they can halt only when their number is known, and that
//!   depends on which of the APs before them come: on a host with fewer cores than CPUs they would
//!   keep the two that are compared from running. And each CPU of the list that is absent would
//!   cost a stack.
//! - *A claimed flag without a round*: an AP of an earlier round that has read its stack, and is
//!   then delayed, would claim the round of another.

#[cfg(test)]
mod tests;

use crate::arch::x86_64::irq::apic::Message;
use crate::arch::x86_64::paging::PAGE_SIZE;
use core::mem::offset_of;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// From INIT to the first SIPI, µs (SDM volume 3).
const INIT_DELAY_US: u64 = 10_000;
/// From the first SIPI to the second, µs (SDM volume 3).
const SIPI_DELAY_US: u64 = 200;
/// From the last SIPI to the claim, and from there to the arrival, µs. On an emulator with fewer
/// cores than CPUs a start was seen to take 300 ms.
const LIMIT_US: u64 = 5_000_000;
/// Between two looks of [`wait`], µs. An AP measures its timer while it is waited for, and a
/// clock that another CPU reads without a pause disturbs that on an emulator.
const POLL_US: u64 = 50;

/// The AP did not claim in time, and cannot any more: its stack may be used otherwise.
pub const NO_ANSWER: &str = "no answer";
/// The AP claimed and did not arrive: its stack is its own for ever.
pub const STUCK: &str = "started but never arrived";

/// What starting a CPU needs of the machine: a local APIC and a clock.
pub trait Machine {
    /// Sends INIT or a start-up IPI to one CPU, within a bound.
    fn send(&self, apic_id: u32, message: Message);

    /// Lets at least so many µs pass; says false, within a bound, if the clock stands still.
    fn delay_us(&self, us: u64) -> bool;
}

/// Waits until `done`, for `limit_us` at most; says whether it is.
pub fn wait(machine: &impl Machine, limit_us: u64, done: impl Fn() -> bool) -> bool {
    for _ in 0..limit_us / POLL_US {
        if done() || !machine.delay_us(POLL_US) {
            break;
        }
    }
    done()
}

/// Resets these APs: they wait for a SIPI then, for as long as it takes.
///
/// # Safety
///
/// None of them runs yet: INIT would reset it.
pub unsafe fn reset_all(machine: &impl Machine, apic_ids: impl Iterator<Item = u32>) {
    apic_ids.for_each(|apic_id| machine.send(apic_id, Message::Init));
    machine.delay_us(INIT_DELAY_US);
}

/// What an AP calls, in 64-bit mode, interrupts off, with the trampoline's GDT and no IDT:
/// with its argument, for [`Block::arrive`] the block and the ticket, and its APIC id.
pub type Entry = extern "C" fn(argument: usize, block: &'static Block, id: u32, ticket: u64) -> !;

pub struct Trampoline {
    block: &'static Block,
    vector: u8,
}

impl Trampoline {
    /// Copies the trampoline to the page at physical `phys`; `None` if that is not a page
    /// below 1 MiB. The APs will load `cr3`, and `cr4` as far as they can, and call `entry`.
    ///
    /// # Safety
    ///
    /// 1. `page` is where that physical page is mapped for reading and writing,
    ///    here and in the tables at `cr3`, for good: a late AP may come at any time.
    /// 2. The page is used for nothing else.
    pub unsafe fn install(
        page: *mut u8,
        phys: u64,
        [cr3, cr4]: [u32; 2],
        entry: Entry,
    ) -> Option<Self> {
        let is_aligned = (phys as usize | page as usize).is_multiple_of(PAGE_SIZE);
        if !is_aligned || !(0x1000..0x10_0000).contains(&phys) {
            return None;
        }
        let code = code();
        assert!(code.len() <= BLOCK_OFFSET, "trampoline too long");
        // SAFETY: the page is ours to write (1, 2); the code is shorter, see above, and
        // elsewhere, in the kernel's image.
        unsafe { page.copy_from_nonoverlapping(code.as_ptr(), code.len()) };
        let block = page.wrapping_add(BLOCK_OFFSET).cast::<Block>();
        // SAFETY: inside the page, and aligned, since the page is.
        unsafe { block.write(Block::new(phys, block as u64, [cr3, cr4], entry)) };
        // SAFETY: written just now, mapped for good (1), and what changes in it is atomic.
        let block = unsafe { &*block };
        Some(Trampoline { block, vector: (phys >> 12) as u8 })
    }

    pub fn page(&self) -> u64 {
        u64::from(self.vector) << 12
    }

    /// Counts the APs that found nothing to claim, and parked themselves.
    pub fn late(&self) -> &'static AtomicU32 {
        &self.block.late
    }

    /// Starts the AP `apic_id`, which waits for a SIPI, or gives up within [`NO_ANSWER`] or
    /// [`STUCK`]. It calls its entry with `argument`, on the stack below `stack_top`.
    ///
    /// # Safety
    ///
    /// 1. The tables at `cr3` map the trampoline's page at its own address, readable and
    ///    executable, and the kernel (entry, stack, argument) as they are mapped here.
    /// 2. The stack is used for nothing else; unless the answer is [`NO_ANSWER`], for ever.
    /// 3. The entry may be called with `argument` on another CPU, unless the answer is
    ///    [`NO_ANSWER`] at any later time, and calls [`Block::arrive`].
    /// 4. `apic_id` is not a CPU that runs already: should it not answer, it gets an INIT.
    pub unsafe fn start(
        &mut self,
        machine: &impl Machine,
        apic_id: u32,
        stack_top: u64,
        argument: usize,
    ) -> Result<(), &'static str> {
        let round = self.block.publish(apic_id, stack_top, argument);
        let has_left = |state| self.block.ticket.load(Acquire) != round + state;
        machine.send(apic_id, Message::Startup(self.vector));
        if !wait(machine, SIPI_DELAY_US, || has_left(WAITING)) {
            machine.send(apic_id, Message::Startup(self.vector));
        }
        for (state, why) in [(WAITING, NO_ANSWER), (CLAIMED, STUCK)] {
            if !wait(machine, LIMIT_US, || has_left(state)) && self.block.abandon(round + state) {
                machine.send(apic_id, Message::Init);
                return Err(why);
            }
        }
        Ok(())
    }
}

// The page, as `trampoline.S` reads it: offsets and states go to the assembler as constants.

/// Where in the page the block starts; the code must end before it.
const BLOCK_OFFSET: usize = 0x800;

// The states of a ticket, in its low bits, 0 before the first round; the round is above.
const WAITING: u64 = 1;
const CLAIMED: u64 = 2;
const ARRIVED: u64 = 3;
const ABANDONED: u64 = 4;
const STATE_MASK: u64 = 7;

/// PG, WP, NE, ET, MP, PE: paging and caches on. The bring-up of the CPU sets the rest.
const CR0: u32 = 1 << 31 | 1 << 16 | 1 << 5 | 1 << 4 | 1 << 1 | 1 << 0;
/// NXE before a table with NX bits is walked, LME.
const EFER: u32 = 1 << 11 | 1 << 8;
const PAE: u32 = 1 << 5;
/// Bits of CR4 that fault unless something else is set up first.
const VMXE_SMXE_PCIDE_CET: u32 = 1 << 13 | 1 << 14 | 1 << 17 | 1 << 23;

const CODE32: u16 = 0x08;
const DATA32: u16 = 0x10;
const CODE64: u16 = 0x18;

core::arch::global_asm!(
    include_str!("apstart/trampoline.S"),
    params = const BLOCK_OFFSET,
    gdt_pointer = const offset_of!(Block, gdt_pointer),
    far32 = const offset_of!(Block, far32),
    far64 = const offset_of!(Block, far64),
    own_address = const offset_of!(Block, own_address),
    cr0 = const CR0,
    cr3 = const offset_of!(Block, cr3),
    cr4 = const offset_of!(Block, cr4),
    efer = const EFER,
    ticket = const offset_of!(Block, ticket),
    apic_id = const offset_of!(Block, apic_id),
    stack_top = const offset_of!(Block, stack_top),
    entry = const offset_of!(Block, entry),
    argument = const offset_of!(Block, argument),
    late = const offset_of!(Block, late),
    code32 = const CODE32,
    data32 = const DATA32,
    code64 = const CODE64,
    state_mask = const STATE_MASK,
    waiting = const WAITING,
    claimed = const CLAIMED,
);

unsafe extern "C" {
    static apstart_begin: u8;
    static apstart_32: u8;
    static apstart_64: u8;
    static apstart_end: u8;
}

/// The trampoline as it is in the kernel's image.
fn code() -> &'static [u8] {
    let begin = &raw const apstart_begin;
    let len = &raw const apstart_end as usize - begin as usize;
    // SAFETY: both are in one section of `trampoline.S`, in this order, with constants between.
    unsafe { core::slice::from_raw_parts(begin, len) }
}

/// Offsets of the code's 32-bit and 64-bit parts.
fn far_targets() -> [u64; 2] {
    [&raw const apstart_32, &raw const apstart_64]
        .map(|part| (part as usize - &raw const apstart_begin as usize) as u64)
}

/// What an AP reads on its way.
#[repr(C, align(16))]
pub struct Block {
    gdt: [u64; 4],
    /// 16 bits of limit, 32 of base.
    gdt_pointer: u64,
    /// 32 bits of offset, 16 of selector.
    far32: u64,
    far64: u64,
    /// Where this block is in the mapping that may be written through.
    own_address: u64,
    entry: u64,
    /// The top page table, below 4 GiB, because it is loaded in 32-bit mode.
    cr3: u32,
    cr4: u32,
    // What differs from AP to AP, ordered by the ticket.
    ticket: AtomicU64,
    stack_top: AtomicU64,
    argument: AtomicU64,
    apic_id: AtomicU32,
    /// APs that found nothing to claim, and parked themselves.
    late: AtomicU32,
}

const _: () = assert!(BLOCK_OFFSET + size_of::<Block>() <= PAGE_SIZE);

impl Block {
    fn new(page: u64, own_address: u64, [cr3, cr4]: [u32; 2], entry: Entry) -> Block {
        // Flat code and data; with the accessed bit, or the CPU would write it to the page.
        let gdt = [0, 0x00cf_9b00_0000_ffff, 0x00cf_9300_0000_ffff, 0x00af_9b00_0000_ffff];
        let gdt_base = page + (BLOCK_OFFSET + offset_of!(Block, gdt)) as u64;
        let [start32, start64] = far_targets().map(|offset| page + offset);
        Block {
            gdt,
            gdt_pointer: gdt_base << 16 | (size_of_val(&gdt) as u64 - 1),
            far32: u64::from(CODE32) << 32 | start32,
            far64: u64::from(CODE64) << 32 | start64,
            own_address,
            entry: entry as usize as u64,
            cr3,
            cr4: cr4 & !VMXE_SMXE_PCIDE_CET | PAE,
            ticket: AtomicU64::new(0),
            stack_top: AtomicU64::new(0),
            argument: AtomicU64::new(0),
            apic_id: AtomicU32::new(0),
            late: AtomicU32::new(0),
        }
    }

    /// Writes the stack and argument of one AP, then lets it claim the ticket. Returns the round.
    ///
    /// Boot CPU only, while no AP may claim. An AP of an earlier round may read words of both
    /// rounds, but its compare-and-swap of the ticket fails then, and it does not use them.
    fn publish(&self, apic_id: u32, stack_top: u64, argument: usize) -> u64 {
        self.apic_id.store(apic_id, Relaxed);
        self.stack_top.store(stack_top & !0xf, Relaxed);
        self.argument.store(argument as u64, Relaxed);
        let round = (self.ticket.load(Relaxed) | STATE_MASK) + 1;
        self.ticket.store(round + WAITING, Release); // pairs with the trampoline's load
        round
    }

    /// Called by an AP with the ticket that it claimed, once, before it takes any lock. False:
    /// the boot CPU has given it up and goes on without it, and it must halt for ever.
    #[must_use]
    pub fn arrive(&self, claimed: u64) -> bool {
        let arrived = claimed - CLAIMED + ARRIVED;
        self.ticket.compare_exchange(claimed, arrived, AcqRel, Acquire).is_ok()
    }

    /// Called by the boot CPU: ends the round, unless the AP has left the state after all.
    fn abandon(&self, ticket: u64) -> bool {
        let abandoned = ticket & !STATE_MASK | ABANDONED;
        self.ticket.compare_exchange(ticket, abandoned, AcqRel, Acquire).is_ok()
    }
}
