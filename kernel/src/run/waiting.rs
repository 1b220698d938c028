//! The wait of a G: a reason and an object, packed into one word.
//!
//! A G that begins to park gives the reason ([`crate::run::door::begin_park`]; Go: waitReason); the
//! word stays with the G until its next wait, and its state says whether it is valid. Reports and
//! the deadlock scan read it at any time: it is one word so that they never see one wait's reason
//! with another's object. The names of [`Reason`] are Go's where Go has one for the same thing.
#![forbid(unsafe_code)]

use core::fmt;
use core::time::Duration;

/// The reasons: number, name, text for reports.
macro_rules! reasons {
    ($($(#[$meta:meta])* $name:ident = $number:literal $text:literal,)+) => {
        /// Why a G waits. Traces contain the numbers: they must not change.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Reason {
            $($(#[$meta])* $name = $number),+
        }

        impl Reason {
            /// All of them, by number.
            pub const ALL: [Reason; [$($number),+].len()] = [$(Reason::$name),+];

            /// Its name, for reports.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Reason::$name => $text),+
                }
            }
        }
    };
}

reasons! {
    /// It has not waited yet.
    #[default]
    None = 0 "",
    /// For room in a channel, or for a receiver.
    ChanSend = 1 "chan send",
    /// For a value.
    ChanReceive = 2 "chan receive",
    /// For one of several channels.
    Select = 3 "select",
    /// For a `Mutex`.
    MutexLock = 4 "sync.Mutex.Lock",
    /// For a `RwLock`, to read.
    RwLockRead = 5 "sync.RWMutex.RLock",
    /// For a `RwLock`, to write.
    RwLockWrite = 6 "sync.RWMutex.Lock",
    /// For a `Condvar` or `Notify` to be notified, or the last G at a `Barrier`.
    Condvar = 7 "sync.Cond.Wait",
    /// For permits of a `Semaphore`.
    Semaphore = 8 "semacquire",
    /// For all of a `WaitGroup` to be done.
    WaitGroup = 9 "sync.WaitGroup.Wait",
    /// For the caller that initializes a `Once`.
    Once = 10 "sync.Once",
    /// For another G to end; the object is its number, or 0.
    Join = 11 "join",
    /// For a point in time.
    Sleep = 12 "sleep",
    /// For a device.
    Poll = 13 "IO wait",
    /// In a call, for an event that is not known here.
    Call = 14 "syscall",
    /// For an `unpark`.
    Park = 15 "park",
    /// For a program to end; the object is its number.
    ProgramEnd = 16 "program end",
    /// For the Gs of a scope to end.
    Scope = 17 "scope",
}

impl Reason {
    /// The reason with that number; [`Reason::None`] if there is none.
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// Whether the wait can end without another G: by a device or by the clock.
    #[must_use]
    pub const fn is_external(self) -> bool {
        matches!(self, Reason::Sleep | Reason::Poll | Reason::Call)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a G waits for, or has waited for last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wait {
    /// Why.
    pub reason: Reason,
    /// The address of the awaited object; 0 if there is no single one. For [`Reason::Join`] and
    /// [`Reason::ProgramEnd`] a number instead.
    pub object: usize,
    /// The wait ends at some time, whatever other Gs do.
    pub has_deadline: bool,
    /// It has a deadline, or a [`Context`](crate::context::Context) by which another G can end it.
    pub is_limited: bool,
}

/// Layout of the packed word: the upper bits of an address are all equal, so its highest byte is
/// free. What is put there is added to it without carry: the reason, and whether there is a
/// deadline or another limit.
const REASON_SHIFT: u32 = 56;
const DEADLINE: u8 = 1 << 7;
const LIMITED: u8 = 1 << 6;

impl Wait {
    /// For an object by its number or address, without a deadline.
    #[must_use]
    #[inline(always)]
    pub const fn new(reason: Reason, object: usize) -> Self {
        Wait { reason, object, has_deadline: false, is_limited: false }
    }

    /// For `object`, without a deadline.
    #[must_use]
    #[inline(always)]
    pub fn at<T>(reason: Reason, object: &T) -> Self {
        Wait::new(reason, core::ptr::from_ref(object).addr())
    }

    /// The same, until some time at most.
    #[must_use]
    pub const fn with_deadline(self) -> Self {
        Wait { has_deadline: true, is_limited: true, ..self }
    }

    /// The same, until that deadline: the end of time is that of a limit that has none.
    #[inline(always)]
    pub(crate) fn by(self, deadline_ns: Option<u64>) -> Self {
        let has_deadline = deadline_ns.is_some_and(|ns| ns != u64::MAX);
        Wait { has_deadline, is_limited: deadline_ns.is_some(), ..self }
    }

    /// Whether it can end without another G.
    #[must_use]
    pub const fn is_external(self) -> bool {
        self.has_deadline || self.reason.is_external()
    }

    /// As one word: see [`REASON_SHIFT`]. In few instructions: every wait does this.
    #[must_use]
    #[inline(always)]
    pub const fn pack(self) -> u64 {
        let deadline = if self.has_deadline { DEADLINE } else { 0 };
        let limit = if self.is_limited { LIMITED } else { 0 };
        self.object as u64 ^ ((self.reason as u8 | deadline | limit) as u64) << REASON_SHIFT
    }

    /// The number of the reason in a packed word.
    #[must_use]
    #[inline(always)]
    pub const fn reason_number(word: u64) -> u8 {
        Wait::above(word) & !(DEADLINE | LIMITED)
    }

    /// The object of a packed word: its highest byte is as the bit below it again.
    const fn object_in(word: u64) -> u64 {
        ((word << 8).cast_signed() >> 8).cast_unsigned()
    }

    /// What was put into the highest byte.
    const fn above(word: u64) -> u8 {
        ((word ^ Wait::object_in(word)) >> REASON_SHIFT) as u8
    }

    /// Inverse of [`pack`](Self::pack).
    #[must_use]
    pub fn unpack(word: u64) -> Self {
        let reason = Reason::from_number(Wait::reason_number(word));
        let [has_deadline, is_limited] =
            [DEADLINE, LIMITED].map(|flag| Wait::above(word) & flag != 0);
        Wait { reason, object: Wait::object_in(word) as usize, has_deadline, is_limited }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

/// The time at which `timeout` from now is over, ns; the end of time if that is too far.
pub(crate) fn deadline_after(timeout: Duration) -> u64 {
    let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    crate::run::door::now_ns().saturating_add(ns)
}

// By its path, because the models compile this file from elsewhere.
#[cfg(all(test, not(loom)))]
#[path = "waiting/tests.rs"]
mod tests;
