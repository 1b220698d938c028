//! One step: from an instruction that faulted to the call that led to it.
//!
//! Unwinding begins at a call: tables say what each caller must clean up if what
//! it called does not return. An instruction that faults is no call. But it is
//! in a function that somebody called, and to that caller it makes no difference
//! whether its callee panicked or faulted. So whoever ends a G at a fault goes one
//! frame up, by the same tables, and unwinds from there ([`caller`]). The tables
//! of this machine are true at every instruction, prologues included.
//!
//! There is one instruction for which not even that is needed: a `call` whose
//! push of the return address is the fault. The caller is the function itself.
//!
//! Here is no register and no stack but what is passed in; who calls is
//! `rescue`. The stack is read as if it were broken. The tables are the linker's,
//! in memory that cannot be written.
#![forbid(unsafe_code)]

use core::ops::Range;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, LittleEndian, Register, RegisterRule,
    UnwindContext, UnwindSection, UnwindTableRow, X86_64,
};

/// The registers that a called function keeps for its caller, with the
/// instruction and stack pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Registers {
    pub rbx: u64,
    pub rbp: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rsp: u64,
    pub rip: u64,
}

/// The unwind tables of a program: where they are and what is in them.
#[derive(Clone, Debug)]
pub struct Tables<'a> {
    /// The code that they are about.
    pub text: Range<u64>,
    /// `.eh_frame_hdr`, the index.
    pub index: Section<'a>,
    /// `.eh_frame`.
    pub frames: Section<'a>,
}

/// A section of a program, as it lies in memory.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    /// Its first address, from which its contents count.
    pub at: u64,
    /// Its contents.
    pub bytes: &'a [u8],
}

/// Why there is no step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStep {
    /// No table is about this instruction: assembly, or no code at all.
    NoTable,
    /// The table says what this machine's compiler does not.
    BadTable,
    /// A word of the stack that the table names cannot be read, or cannot be what
    /// it should.
    BadStack,
}

/// The registers of the caller of the function that `at` is in, as they will be
/// when that function returns to it. `read` reads a word of the stack, `None` if
/// there is none.
///
/// # Errors
/// [`NoStep`].
pub fn caller(
    tables: &Tables<'_>,
    at: &Registers,
    read: impl Fn(u64) -> Option<u64>,
) -> Result<Registers, NoStep> {
    let bases = BaseAddresses::default()
        .set_text(tables.text.start)
        .set_eh_frame_hdr(tables.index.at)
        .set_eh_frame(tables.frames.at);
    let frames = EhFrame::new(tables.frames.bytes, LittleEndian);
    let index = EhFrameHdr::new(tables.index.bytes, LittleEndian)
        .parse(&bases, 8)
        .map_err(|_| NoStep::BadTable)?;
    let found = index.table().ok_or(NoStep::BadTable)?.fde_for_address(
        &frames,
        &bases,
        at.rip,
        EhFrame::cie_from_offset,
    );
    let function = match found {
        Ok(function) => function,
        Err(gimli::Error::NoUnwindInfoForAddress) => return Err(NoStep::NoTable),
        Err(_) => return Err(NoStep::BadTable),
    };
    let mut context = UnwindContext::<usize, OnStack>::new_in();
    let row = function
        .unwind_info_for_address(&frames, &bases, &mut context, at.rip)
        .map_err(|_| NoStep::BadTable)?;
    let caller = apply(row, at, read)?;
    if !tables.text.contains(&caller.rip) || caller.rsp <= at.rsp || !caller.rsp.is_multiple_of(8) {
        return Err(NoStep::BadStack);
    }
    Ok(caller)
}

/// Room for one row of a table, and one that it remembers: none has more.
struct OnStack;

impl gimli::UnwindContextStorage<usize> for OnStack {
    type Rules = [(Register, RegisterRule<usize>); 16];
    type Stack = [UnwindTableRow<usize, Self>; 2];
}

/// What the row of a table says of the caller's registers.
fn apply(
    row: &UnwindTableRow<usize, OnStack>,
    at: &Registers,
    read: impl Fn(u64) -> Option<u64>,
) -> Result<Registers, NoStep> {
    let &CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
        return Err(NoStep::BadTable);
    };
    let base = match register {
        X86_64::RSP => at.rsp,
        X86_64::RBP => at.rbp,
        X86_64::RBX => at.rbx,
        _ => return Err(NoStep::BadTable),
    };
    let frame = base.checked_add_signed(offset).ok_or(NoStep::BadStack)?;
    let value = |register, same| match row.register(register) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Ok(same),
        Some(RegisterRule::Offset(offset)) => {
            frame.checked_add_signed(offset).and_then(&read).ok_or(NoStep::BadStack)
        }
        Some(_) => Err(NoStep::BadTable),
    };
    Ok(Registers {
        rbx: value(X86_64::RBX, at.rbx)?,
        rbp: value(X86_64::RBP, at.rbp)?,
        r12: value(X86_64::R12, at.r12)?,
        r13: value(X86_64::R13, at.r13)?,
        r14: value(X86_64::R14, at.r14)?,
        r15: value(X86_64::R15, at.r15)?,
        rsp: frame,
        rip: value(X86_64::RA, 0)?,
    })
}

/// The length of the instruction that `code` begins with, if it is a call: 5 for
/// `e8` and a distance, 3 for `41 ff d4`, which is `call r12`.
pub fn call_length(code: &[u8]) -> Option<usize> {
    // Intel SDM vol. 2: CALL near is E8 with a distance, or FF /2; a REX prefix
    // may stand before.
    let prefix = usize::from(code.first()? & 0xf0 == 0x40);
    let length = match (code.get(prefix)?, code.get(prefix + 1)) {
        (0xe8, _) => 5,
        (0xff, Some(&modrm)) if modrm >> 3 & 7 == 2 => 2 + operand_length(modrm, code, prefix)?,
        _ => return None,
    };
    Some(prefix + length).filter(|&length| length <= code.len())
}

/// How many bytes after ModRM say where the operand is: table 2-2 of the manual.
fn operand_length(modrm: u8, code: &[u8], prefix: usize) -> Option<usize> {
    let (mode, register) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return Some(0);
    }
    let has_sib = register == 4;
    let base = if has_sib { code.get(prefix + 2)? & 7 } else { register };
    let displacement = match mode {
        0 if base == 5 => 4,
        0 => 0,
        1 => 1,
        _ => 4,
    };
    Some(usize::from(has_sib) + displacement)
}

#[cfg(test)]
mod tests;
