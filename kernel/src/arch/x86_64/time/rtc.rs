//! The real-time clock of the PC: date and time of day, by the registers of the CMOS.
//!
//! The chip (MC146818) counts in BCD or binary, in 12 or 24 hours, and changes its registers once a
//! second: they are read when no update is in progress, and again until two readings agree. The
//! century is in no register of the chip, but in its memory, where the FADT says; PCs without that
//! word have it at 0x32. It is taken for UTC.
//!
//! Nothing that the chip says is trusted: what is no date is no time.

use crate::arch::lock::IrqLock;
use crate::arch::x86_64::cpu::ports::{Hardware, Ports};
use crate::arch::x86_64::cpu::relax;
use crate::arch::x86_64::machine;

const INDEX: u16 = 0x70;
const DATA: u16 = 0x71;

/// Seconds, minutes, hours, day, month, year, century, and status B.
fn registers(century: u8) -> [u8; 8] {
    [0x00, 0x02, 0x04, 0x07, 0x08, 0x09, century, STATUS_B]
}

/// The century, unless the FADT says otherwise.
const CENTURY: u8 = 0x32;
const STATUS_A: u8 = 0x0a;
const STATUS_B: u8 = 0x0b;
/// In status A: an update is in progress, for 2 ms at most.
const UPDATING: u8 = 1 << 7;
/// In status B.
const IS_24_HOURS: u8 = 1 << 1;
const IS_BINARY: u8 = 1 << 2;
/// In the hours, if there are twelve.
const AFTERNOON: u8 = 1 << 7;

/// Readings, each of them a microsecond or longer: more than an update takes.
const TRIES: usize = 10_000;

/// Seconds since 1970, if the machine has such a clock and it makes sense.
pub fn unix_seconds() -> Option<u64> {
    /// Index and data are one access.
    static PORTS: IrqLock<Hardware> = IrqLock::new(Hardware);
    let century = machine::fixed_hardware().and_then(|fixed| fixed.century).unwrap_or(CENTURY);
    read(century, |register| {
        let ports = PORTS.lock();
        ports.outb(INDEX, register);
        ports.inb(DATA)
    })
}

fn read(century: u8, mut register: impl FnMut(u8) -> u8) -> Option<u64> {
    let mut last = None;
    for _ in 0..TRIES {
        if register(STATUS_A) & UPDATING != 0 {
            relax();
            continue;
        }
        let now = registers(century).map(&mut register);
        if last == Some(now) {
            return decode(now);
        }
        last = Some(now);
    }
    None
}

fn decode([second, minute, hour, day, month, year, century, status]: [u8; 8]) -> Option<u64> {
    let number = |byte: u8| -> Option<u64> {
        let (tens, ones) = (u64::from(byte >> 4), u64::from(byte & 15));
        match status & IS_BINARY != 0 {
            true => Some(byte.into()),
            false => (tens < 10 && ones < 10).then_some(tens * 10 + ones),
        }
    };
    let hour = match status & IS_24_HOURS != 0 {
        true => number(hour)?,
        false => {
            let of_twelve = number(hour & !AFTERNOON).filter(|hour| (1..=12).contains(hour))?;
            of_twelve % 12 + if hour & AFTERNOON != 0 { 12 } else { 0 }
        }
    };
    // Machines that have something else there are younger than 2000.
    let century = number(century).filter(|century| (19..=21).contains(century)).unwrap_or(20);
    let year = number(year).filter(|&year| year < 100)? + century * 100;
    let (month, day) = (number(month)?, number(day)?);
    let is_day = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    let (minute, second) = (number(minute)?, number(second)?);
    if !is_day || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_before(year, month)?.checked_add(day - 1)?;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

fn days_in(year: u64, month: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970 to the first of that month; `None` before.
fn days_before(year: u64, month: u64) -> Option<u64> {
    let whole = |year: u64| (1..=12).map(move |month| days_in(year, month)).sum::<u64>();
    let years = (year >= 1970).then(|| (1970..year).map(whole).sum::<u64>())?;
    Some(years + (1..month).map(|month| days_in(year, month)).sum::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINARY: u8 = IS_24_HOURS | IS_BINARY;

    #[test]
    fn both_codes_and_both_kinds_of_hours_give_the_same_second() {
        // 2026-11-19 17:04:05 UTC.
        let expected = Some(1_795_107_845);
        assert_eq!(decode([5, 4, 17, 19, 11, 26, 20, BINARY]), expected);
        assert_eq!(decode([5, 4, 0x17, 0x19, 0x11, 0x26, 0x20, IS_24_HOURS]), expected);
        assert_eq!(decode([5, 4, 0x85, 0x19, 0x11, 0x26, 0x20, 0]), expected);
        assert_eq!(decode([5, 4, 0x85, 19, 11, 26, 20, IS_BINARY]), expected);
        assert_eq!(decode([5, 4, 17, 19, 11, 26, 0xff, BINARY]), expected, "no century there");
    }

    #[test]
    fn noon_midnight_and_the_ends_of_centuries_are_right() {
        let hour = |hour: u8| decode([0, 0, hour, 1, 1, 0x70, 0x19, 0]).map(|s| s / 3600);
        assert_eq!([0x12, 0x01, 0x92, 0x91].map(hour), [Some(0), Some(1), Some(12), Some(23)]);
        assert_eq!(decode([59, 59, 23, 31, 12, 99, 19, BINARY]), Some(946_684_799));
        assert_eq!(decode([0, 0, 0, 1, 1, 0, 20, BINARY]), Some(946_684_800));
        assert_eq!(decode([0, 0, 0, 29, 2, 0, 20, BINARY]), Some(951_782_400));
        assert_eq!(decode([0, 0, 0, 1, 3, 0, 21, BINARY]), Some(4_107_542_400));
    }

    #[test]
    fn what_is_no_date_is_no_time() {
        let good = [0, 0, 0, 1, 1, 26, 20, BINARY];
        assert!(decode(good).is_some());
        for (register, bad) in
            [(0, 60), (1, 60), (2, 24), (3, 0), (3, 32), (4, 0), (4, 13), (5, 100)]
        {
            let mut registers = good;
            registers[register] = bad;
            assert_eq!(decode(registers), None, "{register}: {bad}");
        }
        assert_eq!(decode([0, 0, 0, 29, 2, 26, 20, BINARY]), None, "no leap year");
        assert_eq!(decode([0, 0, 0, 29, 2, 0, 21, BINARY]), None, "no leap year either");
        assert_eq!(decode([0x5a, 0, 0, 1, 1, 0x26, 0x20, IS_24_HOURS]), None, "no BCD");
        assert_eq!(decode([0, 0, 0x13, 1, 1, 0x26, 0x20, 0]), None, "13 o'clock");
        assert_eq!(decode([0, 0, 0, 31, 12, 69, 19, BINARY]), None, "before 1970");
        (0..=255).for_each(|byte| assert!(decode([byte; 8]).is_none_or(|at| at < 1 << 33)));
    }

    #[test]
    fn an_update_is_waited_for_and_two_readings_agree() {
        let mut reads = 0;
        let clock = |register: u8| {
            reads += 1;
            match register {
                STATUS_A if reads < 5 => UPDATING,
                STATUS_A => 0,
                // The first three readings differ.
                0x00 if reads < 10 => 0x07,
                0x00 if reads < 20 => 0x58,
                0x00 => 0x08,
                0x07 | 0x08 => 1,
                0x48 => 0x20,
                STATUS_B => IS_24_HOURS,
                _ => 0,
            }
        };
        assert_eq!(read(0x48, clock), Some(946_684_808));
        assert_eq!(read(CENTURY, |_| 0xff), None, "no such chip: it updates for ever");
        let mut counts = 0_u8;
        let never_twice = |register: u8| {
            counts = counts.wrapping_add(1);
            if register == STATUS_A { 0 } else { counts }
        };
        assert_eq!(read(CENTURY, never_twice), None);
    }
}
