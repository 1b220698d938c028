//! The low page: the trampoline's code, and the block of parameters behind it.
//!
//! The one place where Rust and `trampoline.S` meet: offsets go to the assembler
//! as constants, and the states of the ticket are named once. When the block is
//! filled in, and by which CPU, is in `apstart.rs`.

use super::{ApParams, ControlRegisters};
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Where in the page the block starts; the code must end before it.
pub(super) const BLOCK_OFFSET: usize = 0x800;

/// No AP may claim; the state before the first round.
const IDLE: u64 = 0;
/// The AP that is being started may claim.
const WAITING: u64 = 1;
/// It has.
const CLAIMED: u64 = 2;
/// It may not any more.
const ABANDONED: u64 = 3;
/// The bits of a ticket that hold the state; the round is above them.
const STATE_MASK: u64 = 3;
const ROUND: u64 = STATE_MASK + 1;

const CODE32: u16 = 0x08;
const DATA32: u16 = 0x10;
const CODE64: u16 = 0x18;

core::arch::global_asm!(
    include_str!("trampoline.S"),
    params = const BLOCK_OFFSET,
    gdt_pointer = const offset_of!(Block, gdt_pointer),
    far32 = const offset_of!(Block, far32),
    far64 = const offset_of!(Block, far64),
    own_address = const offset_of!(Block, own_address),
    cr0 = const offset_of!(Block, cr0),
    cr3 = const offset_of!(Block, cr3),
    cr4 = const offset_of!(Block, cr4),
    efer = const offset_of!(Block, efer),
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
pub(super) fn code() -> &'static [u8] {
    let begin = &raw const apstart_begin;
    let len = &raw const apstart_end as usize - begin as usize;
    // SAFETY: both symbols are in one section of `trampoline.S`, in this order,
    // with initialised read-only bytes between them.
    unsafe { core::slice::from_raw_parts(begin, len) }
}

/// Offsets of the code's 32-bit and 64-bit parts.
pub(super) fn far_targets() -> [u32; 2] {
    [&raw const apstart_32, &raw const apstart_64]
        .map(|part| (part as usize - &raw const apstart_begin as usize) as u32)
}

/// What an AP reads on its way. All of it is atomic, because the other side is
/// another CPU; the ticket is what orders the rest (see "The ticket").
#[repr(C, align(16))]
pub(super) struct Block {
    gdt: [AtomicU64; 4],
    /// 16 bits of limit, 32 of base.
    gdt_pointer: AtomicU64,
    /// 32 bits of offset, 16 of selector.
    far32: AtomicU64,
    far64: AtomicU64,
    /// Where this block is in the mapping that may be written through.
    own_address: AtomicU64,
    pub(super) ticket: AtomicU64,
    pub(super) stack_top: AtomicU64,
    pub(super) entry: AtomicU64,
    pub(super) argument: AtomicU64,
    cr0: AtomicU32,
    cr3: AtomicU32,
    cr4: AtomicU32,
    efer: AtomicU32,
    pub(super) apic_id: AtomicU32,
    /// APs that found nothing to claim, and parked themselves.
    pub(super) late: AtomicU32,
}

const _: () = assert!(BLOCK_OFFSET + size_of::<Block>() <= super::PAGE_BYTES);

/// The right to claim, in one round: a number that is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(pub(super) u64);

impl Block {
    /// Fills in what is the same for all APs.
    pub(super) fn prepare(&self, page: u32) {
        let block = page + BLOCK_OFFSET as u32;
        // Flat code and data; the accessed bit is set in each, so that the CPU
        // does not write to the page when it loads them.
        let flat = [0, 0x00cf_9b00_0000_ffff, 0x00cf_9300_0000_ffff, 0x00af_9b00_0000_ffff];
        for (slot, descriptor) in self.gdt.iter().zip(flat) {
            slot.store(descriptor, Relaxed);
        }
        let base = u64::from(block) + offset_of!(Block, gdt) as u64;
        self.gdt_pointer.store(base << 16 | (size_of_val(&self.gdt) as u64 - 1), Relaxed);
        let [start32, start64] = far_targets().map(|offset| u64::from(page + offset));
        self.far32.store(u64::from(CODE32) << 32 | start32, Relaxed);
        self.far64.store(u64::from(CODE64) << 32 | start64, Relaxed);
        self.own_address.store(self as *const Block as u64, Relaxed);
        self.ticket.store(IDLE, Release);
    }

    /// Fills in what is meant for one AP, and lets it claim.
    ///
    /// Boot CPU only, and only while no AP may claim: no reader can take a mix
    /// of two rounds for its own, because the swap of the ticket would fail.
    pub(super) fn publish(&self, ap: &ApParams<'_>) -> Ticket {
        let round = self.ticket.load(Relaxed) & !STATE_MASK;
        let ControlRegisters { cr0, cr3, cr4, efer } = ap.control.for_the_way();
        self.cr0.store(cr0, Relaxed);
        self.cr3.store(cr3, Relaxed);
        self.cr4.store(cr4, Relaxed);
        self.efer.store(efer, Relaxed);
        self.apic_id.store(ap.apic_id, Relaxed);
        self.stack_top.store(ap.stack_top & !0xf, Relaxed);
        self.entry.store(ap.entry as usize as u64, Relaxed);
        self.argument.store(ap.argument as u64, Relaxed);
        let ticket = Ticket(round + ROUND + WAITING);
        self.ticket.store(ticket.0, Release); // pairs with the trampoline's load
        ticket
    }

    /// Whether the AP has claimed.
    pub(super) fn is_claimed(&self, ticket: Ticket) -> bool {
        self.ticket.load(Acquire) == ticket.0 - WAITING + CLAIMED
    }

    /// Ends the round; false if the AP has claimed after all.
    pub(super) fn abandon(&self, ticket: Ticket) -> bool {
        // Against the trampoline's `lock cmpxchg`: exactly one of the two wins.
        let abandoned = ticket.0 - WAITING + ABANDONED;
        self.ticket.compare_exchange(ticket.0, abandoned, Acquire, Acquire).is_ok()
    }
}
