//! A function of eight instructions, with tables made by hand.

use super::*;

const TEXT: u64 = 0xffff_ffff_8000_1000;
const INDEX: u64 = 0xffff_ffff_8010_0000;
const FRAMES: u64 = 0xffff_ffff_8010_1000;
/// Where the stack was when the function was called: its return address is below.
const CFA: u64 = 0xffff_c000_0000_8000;
const RETURNS_TO: u64 = TEXT + 0x800;

/// `.eh_frame` for a function at [`TEXT`], 32 bytes long:
///
/// ```text
///  0  push rbp
///  1  mov rbp, rsp
///  4  push rbx
///  5  ...
/// ```
fn frames() -> Vec<u8> {
    let mut common = vec![0, 0, 0, 0]; // the id of a common entry
    common.extend(b"\x01zR\0"); // version 1; pointers have an encoding
    common.extend([1, 0x78, 16]); // code by 1, data by -8; the return address is 16
    common.extend([1, 0x1b]); // pointers: distance from themselves, 4 bytes
    common.extend([0x0c, 7, 8]); // the frame begins at rsp + 8
    common.extend([0x80 | 16, 1]); // the return address is 8 below it
    let mut bytes = entry(&common);

    let mut function = (bytes.len() as u32 + 4).to_le_bytes().to_vec(); // back to it
    let here = FRAMES + bytes.len() as u64 + 8;
    function.extend((TEXT.wrapping_sub(here) as i32).to_le_bytes());
    function.extend(32u32.to_le_bytes());
    function.push(0);
    function.extend([0x40 | 1, 0x0e, 16, 0x80 | 6, 2]); // rbp was pushed
    function.extend([0x40 | 3, 0x0d, 6]); // rbp points at it
    function.extend([0x40 | 1, 0x80 | 3, 3]); // rbx was pushed
    bytes.extend(entry(&function));
    bytes.extend([0; 4]);
    bytes
}

/// With its length, padded.
fn entry(contents: &[u8]) -> Vec<u8> {
    let mut contents = contents.to_vec();
    contents.resize((contents.len() + 4).next_multiple_of(8) - 4, 0);
    let mut bytes = (contents.len() as u32).to_le_bytes().to_vec();
    bytes.extend(contents);
    bytes
}

/// `.eh_frame_hdr` with that one function.
fn index(frames: &[u8]) -> Vec<u8> {
    let function = 4 + u32::from_le_bytes(frames[..4].try_into().unwrap());
    let mut bytes = vec![1, 0x1b, 0x03, 0x3b];
    bytes.extend((FRAMES.wrapping_sub(INDEX + 4) as i32).to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    bytes.extend((TEXT.wrapping_sub(INDEX) as i32).to_le_bytes());
    bytes.extend(((FRAMES + u64::from(function)).wrapping_sub(INDEX) as i32).to_le_bytes());
    bytes
}

fn step(at: &Registers, read: impl Fn(u64) -> Option<u64>) -> Result<Registers, NoStep> {
    let frames = frames();
    let index = index(&frames);
    let tables = Tables {
        text: TEXT..TEXT + 0x1000,
        index: Section { at: INDEX, bytes: &index },
        frames: Section { at: FRAMES, bytes: &frames },
    };
    caller(&tables, at, read)
}

/// The stack of the function: return address, rbp and rbx of the caller.
fn stack(address: u64) -> Option<u64> {
    [RETURNS_TO, 0x66, 0x33]
        .get(usize::try_from((CFA - 8).checked_sub(address)? / 8).ok()?)
        .copied()
}

/// The caller's registers, and those of its callee at `offset` into the function.
fn before_and_after(offset: u64) -> (Registers, Registers) {
    let caller = Registers {
        rbx: 0x33,
        rbp: 0x66,
        r12: 12,
        r13: 13,
        r14: 14,
        r15: 15,
        rsp: CFA,
        rip: RETURNS_TO,
    };
    let entered = Registers { rsp: CFA - 8, rip: TEXT + offset, ..caller };
    let callee = match offset {
        0 => entered,
        1 => Registers { rsp: CFA - 16, ..entered },
        4 => Registers { rsp: CFA - 16, rbp: CFA - 16, ..entered },
        _ => Registers { rsp: CFA - 0x200, rbp: CFA - 16, rbx: 77, ..entered },
    };
    (caller, callee)
}

#[test]
fn the_caller_is_found_from_every_instruction() {
    for offset in [0, 1, 4, 5, 31] {
        let (caller, callee) = before_and_after(offset);
        assert_eq!(step(&callee, stack), Ok(caller), "at {offset}");
    }
}

#[test]
fn code_without_a_table_gives_no_step() {
    let (_, at) = before_and_after(0);
    for rip in [TEXT - 1, TEXT + 32, 0, u64::MAX] {
        assert!(step(&Registers { rip, ..at }, stack).is_err(), "{rip:#x}");
    }
    assert_eq!(step(&Registers { rip: TEXT + 32, ..at }, stack), Err(NoStep::NoTable));
}

#[test]
fn a_stack_that_cannot_be_gives_no_step() {
    let (_, at) = before_and_after(5);
    assert_eq!(step(&at, |_| None), Err(NoStep::BadStack));
    assert_eq!(step(&at, |_| Some(0)), Err(NoStep::BadStack), "returns to no code");
    for rbp in [0, 1, at.rsp - 16, u64::MAX, u64::MAX - 8] {
        assert_eq!(
            step(&Registers { rbp, ..at }, |_| Some(RETURNS_TO)),
            Err(NoStep::BadStack),
            "{rbp:#x}"
        );
    }
}

#[test]
fn broken_tables_are_survived() {
    let (good, (_, at)) = (frames(), before_and_after(5));
    let index = index(&good);
    let try_them = |frames: &[u8]| {
        let tables = Tables {
            text: TEXT..TEXT + 0x1000,
            index: Section { at: INDEX, bytes: &index },
            frames: Section { at: FRAMES, bytes: frames },
        };
        let _ = caller(&tables, &at, stack);
    };
    for cut in 0..good.len() {
        try_them(&good[..cut]);
    }
    for (place, value) in (0..good.len()).flat_map(|i| [0, 1, 0x7f, 0x80, 0xff].map(|v| (i, v))) {
        let mut bad = good.clone();
        bad[place] = value;
        try_them(&bad);
    }
}

#[test]
fn calls_are_told_from_other_instructions() {
    for (code, length) in [
        (&[0xe8, 0, 0, 0, 0][..], Some(5)),         // call next
        (&[0xff, 0xd0], Some(2)),                   // call rax
        (&[0x41, 0xff, 0xd7], Some(3)),             // call r15
        (&[0xff, 0x13], Some(2)),                   // call [rbx]
        (&[0xff, 0x50, 0x18], Some(3)),             // call [rax + 24]
        (&[0xff, 0x90, 0, 1, 0, 0], Some(6)),       // call [rax + 256]
        (&[0xff, 0x15, 0, 1, 0, 0], Some(6)),       // call [rip + 256]
        (&[0xff, 0x14, 0x24], Some(3)),             // call [rsp]
        (&[0xff, 0x54, 0x24, 8], Some(4)),          // call [rsp + 8]
        (&[0xff, 0x14, 0xc5, 0, 0, 0, 0], Some(7)), // call [8 * rax + 0]
        (&[0x43, 0xff, 0x54, 0xc5, 0], Some(5)),    // call [r13 + 8 * r8]
        (&[0xff, 0x30], None),                      // push [rax]
        (&[0xff, 0xe0], None),                      // jmp rax
        (&[0x41, 0x57], None),                      // push r15
        (&[0x48, 0x89, 0x45, 0xf8], None),          // mov [rbp - 8], rax
        (&[0xe8, 0, 0], None),                      // cut
        (&[0xff], None),
        (&[0x41], None),
        (&[], None),
    ] {
        assert_eq!(call_length(code), length, "{code:x?}");
    }
}
