//! How a machine ended, read from QEMU's exit status.
//!
//! The kernel writes `0x10 + code` to the port of QEMU's isa-debug-exit device,
//! and QEMU leaves with `(value << 1) | 1`. So the statuses 33, 35 … 255 come
//! from the guest, and all others from QEMU itself: 1 for arguments it did not
//! like, 0 for a machine that was switched off or reset.

use std::fmt;

/// What the kernel adds to its code, so that a stray write of a small number
/// to the port is not taken for a good end.
const BASE: i32 = 0x10;

/// The program ended well.
pub const OK: u8 = 0;
/// The kernel panicked.
pub const PANIC: u8 = 101;
/// A CPU raised an exception that no handler took.
pub const EXCEPTION: u8 = 102;
/// The largest code that fits into QEMU's exit status.
pub const MAX: u8 = 111;

/// The end of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The kernel ended it, with this code.
    Code(u8),
    /// QEMU left with status 0: power-off, a reset (three faults in a row make
    /// one), or its window was closed.
    Off,
    /// QEMU failed, with this status.
    Failed(i32),
    /// QEMU was killed by a signal.
    Killed,
}

impl End {
    /// Reads QEMU's status; `None` is an end by a signal.
    ///
    /// ```
    /// use boot::exit::End;
    ///
    /// assert_eq!(End::from_status(Some(33)), End::Code(0));
    /// assert_eq!(End::from_status(Some(1)), End::Failed(1));
    /// ```
    pub fn from_status(status: Option<i32>) -> Self {
        let first = BASE * 2 + 1;
        match status {
            None => Self::Killed,
            Some(0) => Self::Off,
            Some(s) if s >= first && s % 2 == 1 => match u8::try_from((s - first) / 2) {
                Ok(code) if code <= MAX => Self::Code(code),
                _ => Self::Failed(s),
            },
            Some(s) => Self::Failed(s),
        }
    }

    /// The exit status of this process: 0 only for a good end, the
    /// guest's own code where it gave one, 125 where the machine failed.
    pub fn to_status(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Off | Self::Failed(_) | Self::Killed => 125,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(OK) => write!(f, "the program ended well"),
            Self::Code(PANIC) => write!(f, "the kernel ended with code {PANIC} (panic)"),
            Self::Code(EXCEPTION) => {
                write!(f, "the kernel ended with code {EXCEPTION} (exception)")
            }
            Self::Code(code) => write!(f, "the kernel ended with code {code} (program)"),
            Self::Off => write!(f, "the machine was switched off or reset (a triple fault?)"),
            Self::Failed(status) => write!(f, "QEMU failed with status {status}"),
            Self::Killed => write!(f, "QEMU was killed by a signal"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_guest_survives_the_way_through_qemu() {
        for code in 0..=MAX {
            let status = ((BASE + i32::from(code)) << 1) | 1;
            assert!(status <= 255, "an exit status has eight bits");
            assert_eq!(End::from_status(Some(status)), End::Code(code));
        }
    }

    #[test]
    fn what_the_guest_did_not_say_is_no_code() {
        assert_eq!(End::from_status(Some(0)), End::Off);
        for status in [1, 2, 31, 32, 34, 254] {
            assert_eq!(End::from_status(Some(status)), End::Failed(status));
        }
        assert_eq!(End::from_status(None), End::Killed);
    }

    #[test]
    fn only_a_good_end_is_zero() {
        assert_eq!(End::Code(OK).to_status(), 0);
        for end in [End::Off, End::Killed, End::Failed(1), End::Code(1), End::Code(PANIC)] {
            assert_ne!(end.to_status(), 0, "{end}");
        }
    }

    #[test]
    fn the_message_names_the_kind() {
        assert!(End::Code(PANIC).to_string().contains("101 (panic)"));
        assert!(End::Code(EXCEPTION).to_string().contains("102 (exception)"));
        assert!(End::Code(3).to_string().contains("3 (program)"));
    }
}
