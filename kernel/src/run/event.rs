//! The kinds of events, and the 16 bytes of one.
//!
//! The numbers and the layout are a contract with the readers of a stream (the crate `trace`, which
//! has its own copy): they must not change.
#![forbid(unsafe_code)]

use core::fmt;

/// An enum of numbered events, and the list of all of them in that order.
macro_rules! kinds {
    ($($(#[doc = $text:literal])+ $kind:ident = $number:literal,)+) => {
        /// What happened. The argument of each is in parentheses.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind { $($(#[doc = $text])+ $kind = $number,)+ }

        impl Kind {
            /// All of them, by number.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)+];
        }
    };
}

kinds! {
    /// A G was made runnable for the first time (the CPU it is pinned to + 1).
    Create = 1,
    /// A G begins to run. Bit 0: on a slice of its own. Bits 8 to 15: the kind of event by which
    /// the previous G left this CPU at this instant, 0 if that has an event of its own. Bits 16 to
    /// 23: why the previous G waits, if it does.
    Start = 2,
    /// The G that ran here yielded.
    Yield = 3,
    /// It was preempted.
    Expire = 4,
    /// It parked (the number of its [`crate::run::waiting::Reason`]).
    Park = 5,
    /// It ended.
    Exit = 6,
    /// A G that waited was readied (1: by an interrupt).
    Ready = 7,
    /// The deadline of a sleeping G passed.
    Fire = 8,
    /// The timer of this CPU fired.
    Tick = 9,
    /// Another CPU was woken (which).
    WakeSent = 10,
    /// Another CPU woke this one.
    WakeReceived = 11,
    /// This CPU halts.
    Halt = 12,
    /// This CPU continues after a halt.
    Resume = 13,
    /// A G was displaced by one that an interrupt has readied.
    Displace = 14,
    /// A G has left in a call, and its M with it (the M that takes over).
    Handoff = 15,
    /// Gs were stolen, the first of which runs next (P << 12 | how many).
    Steal = 16,
    /// A device has interrupted (its line or vector).
    Irq = 17,
    /// An M is on this CPU from now on (which).
    Mount = 18,
    /// The number of Ps that run Gs has changed (how many).
    Procs = 19,
    /// Stacks of Gs at rest were packed (how many).
    Pack = 20,
}

impl Kind {
    pub fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// Kind and argument of an event: the kind is in the top eight bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct What(pub u32);

const KIND_SHIFT: u32 = 24;
const ARG_MASK: u32 = (1 << KIND_SHIFT) - 1;
/// In the argument of [`Kind::Start`].
const LEFT_SHIFT: u32 = 8;
const REASON_SHIFT: u32 = 16;

impl What {
    /// An argument that is too large is saturated.
    #[inline(always)]
    pub const fn new(kind: Kind, arg: u32) -> Self {
        let arg = if arg > ARG_MASK { ARG_MASK } else { arg };
        What((kind as u32) << KIND_SHIFT | arg)
    }

    /// A [`Kind::Start`] right after another G has left like this, on a slice of its own.
    #[inline(always)]
    pub const fn start_after(left: Kind, reason: u8) -> Self {
        What(What::START.0 | (left as u32) << LEFT_SHIFT | (reason as u32) << REASON_SHIFT)
    }

    /// A [`Kind::Start`] without the G before it, on a slice of its own.
    pub const START: What = What::new(Kind::Start, 1);

    /// The same start, on the slice of the G before: the rarer case, so that only this case costs
    /// an instruction.
    #[inline(always)]
    pub const fn on_same_slice(self) -> Self {
        What(self.0 & !1)
    }

    /// How the G before has left, if this start says it, as a separate event.
    pub fn left_before(self) -> Option<What> {
        Kind::from_number((self.0 >> LEFT_SHIFT) as u8)
            .map(|left| What::new(left, self.0 >> REASON_SHIFT & 0xff))
    }

    /// As it is in a register.
    #[inline(always)]
    pub const fn to_word(self) -> u32 {
        self.0
    }

    /// Inverse of [`to_word`](Self::to_word).
    #[inline(always)]
    pub const fn from_word(word: u32) -> Self {
        What(word)
    }

    pub fn kind(self) -> Option<Kind> {
        Kind::from_number((self.0 >> KIND_SHIFT) as u8)
    }

    pub const fn arg(self) -> u32 {
        self.0 & ARG_MASK
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The cycle counter of the CPU that recorded it.
    pub time: u64,
    /// The G that it concerns; 0 if none. The low half of its number.
    pub g: u32,
    pub what: What,
}

impl Event {
    pub const BYTES: usize = 16;

    pub fn to_bytes(self) -> [u8; Event::BYTES] {
        let mut bytes = [0; Event::BYTES];
        bytes[..8].copy_from_slice(&self.time.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.g.to_le_bytes());
        bytes[12..].copy_from_slice(&self.what.0.to_le_bytes());
        bytes
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { time, g, what } = self;
        match what.kind() {
            Some(kind) => write!(f, "{time} {kind:?} {g} {}", what.arg()),
            None => write!(f, "{time} ? {g} {}", what.arg()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_number_of_its_place() {
        for &kind in Kind::ALL {
            assert_eq!(Kind::from_number(kind as u8), Some(kind));
            assert_eq!(What::new(kind, 5).kind(), Some(kind));
        }
        assert_eq!(Kind::from_number(0), None);
        assert_eq!(Kind::from_number(21), None);
    }

    #[test]
    fn an_argument_never_runs_into_the_kind() {
        let what = What::new(Kind::Tick, u32::MAX);
        assert_eq!((what.kind(), what.arg()), (Some(Kind::Tick), 0xff_ffff));
    }

    #[test]
    fn a_start_says_who_left_and_why() {
        let start = What::start_after(Kind::Park, 9);
        assert_eq!((start.kind(), start.arg()), (Some(Kind::Start), 0x09_05_01));
        assert_eq!(start.on_same_slice().arg(), 0x09_05_00);
        assert_eq!(start.left_before(), Some(What::new(Kind::Park, 9)));
        assert_eq!(What::START.left_before(), None);
    }

    #[test]
    fn bytes_are_little_endian_in_the_order_of_the_stream() {
        let event = Event { time: 0x0807_0605_0403_0201, g: 0x0c0b_0a09, what: What(0x100f_0e0d) };
        assert_eq!(event.to_bytes(), core::array::from_fn(|i| i as u8 + 1));
    }
}
