//! What the table of a function says of a call: an unwinding passes, is caught, or is forbidden.
//!
//! A function that must clean up, or that catches, has a table of its calls
//! (`.gcc_except_table`). A call that is not in it was proved not to unwind, and an unwinding is
//! *forbidden* to pass it. The unwinder says only that it met such a call somewhere; `rescue` must
//! know where. A function without a table has nothing to clean up, and lets every unwinding pass.
#![forbid(unsafe_code)]

use gimli::{EndianSlice, LittleEndian, Reader};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It passes, perhaps after destructors have run.
    Passes,
    /// It is caught there.
    Caught,
    /// It was proved, or promised, not to happen.
    Forbidden,
}

const OMIT: u8 = 0xff;
const ULEB128: u8 = 0x01;
const UDATA4: u8 = 0x03;

/// What the function at `start` with this table says of the call before the return address `ip`.
/// `None` if the table is not one of this machine's compiler.
pub fn answer(table: &[u8], start: u64, ip: u64) -> Option<Answer> {
    let mut table = EndianSlice::new(table, LittleEndian);
    // Landing pads count from the function's start; the compiler uses no other base.
    if table.read_u8().ok()? != OMIT {
        return None;
    }
    if table.read_u8().ok()? != OMIT {
        table.read_uleb128().ok()?; // where the types are; Rust catches all or nothing
    }
    let encoding = table.read_u8().ok()?;
    let length = usize::try_from(table.read_uleb128().ok()?).ok()?;
    let mut calls = table.split(length).ok()?;
    let number = |calls: &mut EndianSlice<'_, LittleEndian>| match encoding {
        ULEB128 => calls.read_uleb128().ok(),
        UDATA4 => calls.read_u32().ok().map(u64::from),
        _ => None,
    };
    let offset = ip.checked_sub(start)?.checked_sub(1)?; // in the call itself
    while !calls.is_empty() {
        let [first, count, pad] = [number(&mut calls)?, number(&mut calls)?, number(&mut calls)?];
        let action = usize::try_from(calls.read_uleb128().ok()?).ok()?;
        match offset.checked_sub(first) {
            None => break, // they are in order
            Some(inside) if inside < count => return found(pad, action, table),
            Some(_) => {}
        }
    }
    Some(Answer::Forbidden)
}

fn found(pad: u64, action: usize, mut actions: EndianSlice<'_, LittleEndian>) -> Option<Answer> {
    let Some(at) = action.checked_sub(1).filter(|_| pad != 0) else {
        return Some(Answer::Passes); // no pad, or one that only cleans up
    };
    actions.skip(at).ok()?;
    Some(match actions.read_sleb128().ok()? {
        0 => Answer::Passes,
        1.. => Answer::Caught,
        // A filter that nothing passes: a function that says "nounwind", and panics.
        _ => Answer::Forbidden,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;

    /// Calls at 0x10 (passes), 0x20 (cleans up) and 0x30 (catches), 5 bytes each.
    fn table(encoding: u8) -> Vec<u8> {
        let mut calls = Vec::new();
        for [first, count, pad, action] in [[0x10, 5, 0, 0], [0x20, 5, 0x50, 0], [0x30, 5, 0x60, 1]]
        {
            for number in [first, count, pad] {
                match encoding {
                    ULEB128 => calls.push(number),
                    _ => calls.extend(u32::from(number).to_le_bytes()),
                }
            }
            calls.push(action);
        }
        let mut table = vec![OMIT, 0x9b, 0x40, encoding, calls.len() as u8];
        table.extend(calls);
        table.extend([1, 0]); // the first type; no further action
        table
    }

    #[test]
    fn every_call_gets_its_own_answer() {
        for encoding in [ULEB128, UDATA4] {
            let table = table(encoding);
            for (call, expected) in [
                (0x00, Answer::Forbidden),
                (0x10, Answer::Passes),
                (0x18, Answer::Forbidden),
                (0x20, Answer::Passes),
                (0x30, Answer::Caught),
                (0x40, Answer::Forbidden),
            ] {
                let returns_to = START + call + 5;
                assert_eq!(answer(&table, START, returns_to), Some(expected), "call at {call:#x}");
            }
        }
    }

    #[test]
    fn broken_tables_are_survived() {
        let good = table(ULEB128);
        for cut in 0..good.len() {
            let _ = answer(&good[..cut], START, START + 0x35);
        }
        for (at, value) in (0..good.len()).flat_map(|at| [0, 1, 0x7f, 0xff].map(|v| (at, v))) {
            let mut bad = good.clone();
            bad[at] = value;
            for ip in [0, START, START + 0x35, u64::MAX] {
                let _ = answer(&bad, START, ip);
            }
        }
    }
}
