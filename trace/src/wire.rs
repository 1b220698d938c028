//! The bytes of a stream: header, blocks, events. One place for all numbers.
//!
//! Everything is little-endian. A stream is a [`Header`] and then blocks, each a
//! tag, the length of its payload, and the payload. `decode` reads them and
//! `encode` writes them; the machine's side is `kernel/src/watch/trace.rs`.
//!
//! ```text
//! header  "RNTRACE1"  version:u32  cpus:u32  hz:u64  zero:u64
//! block   tag:u32  bytes:u32  payload
//! EVTS    cpu:u32  0:u32  first:u64  event…      events of one CPU, in order
//! NAME    g:u32  len:u16 name  len:u16 spawn site
//! STAT    cpu:u32  n:u32  n × u64                what the CPU has counted itself
//! DONE    code:u32                               how the program ended
//! event   tsc:u64  g:u32  (kind << 24 | arg):u32
//! ```

/// How a stream begins.
pub const MAGIC: [u8; 8] = *b"RNTRACE1";
/// The only version there is.
pub const VERSION: u32 = 1;
/// More CPUs than this no machine of ours has.
pub const MAX_CPUS: u32 = 256;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 32;
/// Bytes of an event.
pub const EVENT_BYTES: usize = 16;
/// Bytes of an `EVTS` payload before its events.
pub const EVENTS_HEAD: usize = 16;

/// What two CPUs share at most, the nearest first; the last ones share nothing.
pub const DISTANCES: [&str; 5] = ["core", "cache", "package", "node", "remote"];

/// What a block holds.
pub mod tag {
    /// Events of one CPU.
    pub const EVENTS: u32 = u32::from_le_bytes(*b"EVTS");
    /// The name of a G, and where it was spawned.
    pub const NAME: u32 = u32::from_le_bytes(*b"NAME");
    /// What one CPU has counted.
    pub const STAT: u32 = u32::from_le_bytes(*b"STAT");
    /// How far the CPUs are from one of them: a byte each, an index of [`super::DISTANCES`].
    pub const DISTANCES: u32 = u32::from_le_bytes(*b"DIST");
    /// The program has ended.
    pub const DONE: u32 = u32::from_le_bytes(*b"DONE");
}

/// The first bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// CPUs of the machine; P i is on CPU i.
    pub cpus: u32,
    /// Counts of the cycle counter in a second.
    pub hz: u64,
    /// The cycle counter at time 0.
    pub zero: u64,
}

/// What happened. The argument of each is in parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A G was made runnable for the first time (the CPU it is pinned to + 1).
    Create = 1,
    /// A G begins to run (see [`Event::before`]).
    Start,
    /// The G that ran let others run.
    Yield,
    /// It was preempted.
    Expire,
    /// It waits (the number of its reason).
    Park,
    /// It ended.
    Exit,
    /// A G was made runnable (1: by an interrupt).
    Ready,
    /// A sleeping G's time came.
    Fire,
    /// The timer of this CPU fired (how late, in microseconds).
    Tick,
    /// Another CPU was woken (which).
    WakeSent,
    /// Another CPU woke this one.
    WakeReceived,
    /// This CPU halts.
    Halt,
    /// This CPU goes on after a halt.
    Resume,
    /// The G that ran was displaced by one that an interrupt has readied.
    Displace,
    /// A G has left in a call, and its M with it (the M that goes on).
    Handoff,
    /// Gs were taken from another P (victim << 12 | how many).
    Steal,
    /// A device interrupt (its line).
    Irq,
    /// Another M is on this CPU (which).
    Mount,
    /// There are that many Ps from now on.
    Procs,
    /// Stacks of Gs at rest were packed (how many).
    Pack,
}

impl Kind {
    /// All, by number from 1 on.
    pub const ALL: [Kind; 20] = [
        Kind::Create,
        Kind::Start,
        Kind::Yield,
        Kind::Expire,
        Kind::Park,
        Kind::Exit,
        Kind::Ready,
        Kind::Fire,
        Kind::Tick,
        Kind::WakeSent,
        Kind::WakeReceived,
        Kind::Halt,
        Kind::Resume,
        Kind::Displace,
        Kind::Handoff,
        Kind::Steal,
        Kind::Irq,
        Kind::Mount,
        Kind::Procs,
        Kind::Pack,
    ];

    /// The kind of that number, if there is one.
    pub fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// One event, as it is in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The cycle counter when it happened.
    pub tsc: u64,
    /// The number of the G; 0 if it is no G's.
    pub g: u32,
    /// Kind and argument.
    pub word: u32,
}

impl Event {
    /// An event of that kind; of the argument 24 bits are kept.
    ///
    /// ```
    /// use trace::wire::{Event, Kind};
    /// let event = Event::new(1000, 7, Kind::Park, 3);
    /// assert_eq!(Event::from_bytes(event.to_bytes()), event);
    /// assert_eq!((event.kind(), event.arg()), (Some(Kind::Park), 3));
    /// ```
    pub fn new(tsc: u64, g: u32, kind: Kind, arg: u32) -> Event {
        Event { tsc, g, word: u32::from(kind as u8) << 24 | arg & 0xff_ffff }
    }

    /// What happened; `None` if this tool does not know.
    pub fn kind(self) -> Option<Kind> {
        Kind::from_number((self.word >> 24) as u8)
    }

    /// What else there is to say.
    pub fn arg(self) -> u32 {
        self.word & 0xff_ffff
    }

    /// Of a `Start`: how the G before it left this CPU in the same instant, and
    /// the reason if it waits. `None` if that was noted apart, or not at all.
    pub fn before(self) -> Option<(Kind, u8)> {
        let kind = Kind::from_number((self.arg() >> 8) as u8)?;
        Some((kind, (self.arg() >> 16) as u8))
    }

    /// As bytes of the stream.
    pub fn to_bytes(self) -> [u8; EVENT_BYTES] {
        let mut bytes = [0; EVENT_BYTES];
        bytes[..8].copy_from_slice(&self.tsc.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.g.to_le_bytes());
        bytes[12..].copy_from_slice(&self.word.to_le_bytes());
        bytes
    }

    /// From bytes of the stream: any are an event, if not one we know.
    pub fn from_bytes(bytes: [u8; EVENT_BYTES]) -> Event {
        let whole = u128::from_le_bytes(bytes);
        Event { tsc: whole as u64, g: (whole >> 64) as u32, word: (whole >> 96) as u32 }
    }
}

/// What one CPU has counted itself, in the order of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events noted.
    pub events: u64,
    /// Events that were noted and never sent.
    pub lost: u64,
    /// Switches to a G.
    pub switches: u64,
    /// Gs whose slice was over.
    pub preemptions: u64,
    /// Timer interrupts.
    pub ticks: u64,
    /// Halts.
    pub halts: u64,
    /// CPUs that were woken.
    pub wakes: u64,
    /// Gs that lent their slice to another.
    pub displacements: u64,
    /// Calls that gave the CPU to a spare M.
    pub handoffs: u64,
    /// Thefts from other Ps.
    pub steals: u64,
}

impl Counters {
    /// How many there are.
    pub const LEN: usize = 10;

    /// In the order of the stream.
    pub fn to_words(self) -> [u64; Counters::LEN] {
        [
            self.events,
            self.lost,
            self.switches,
            self.preemptions,
            self.ticks,
            self.halts,
            self.wakes,
            self.displacements,
            self.handoffs,
            self.steals,
        ]
    }

    /// From words of the stream; those that are missing count as 0.
    pub fn from_words(words: &[u64]) -> Counters {
        let word = |i: usize| words.get(i).copied().unwrap_or(0);
        Counters {
            events: word(0),
            lost: word(1),
            switches: word(2),
            preemptions: word(3),
            ticks: word(4),
            halts: word(5),
            wakes: word(6),
            displacements: word(7),
            handoffs: word(8),
            steals: word(9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_number_that_the_machine_gives_it() {
        for (i, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, i + 1);
            assert_eq!(Kind::from_number(kind as u8), Some(kind));
        }
        assert_eq!(Kind::from_number(0), None);
        assert_eq!(Kind::from_number(21), None);
        assert_eq!((Kind::Displace as u8, Kind::Procs as u8, Kind::Pack as u8), (14, 19, 20));
    }

    #[test]
    fn a_merged_start_says_how_the_other_left() {
        let start = Event::new(0, 2, Kind::Start, 1 | 5 << 8 | 9 << 16);
        assert_eq!(start.before(), Some((Kind::Park, 9)));
        assert_eq!(Event::new(0, 2, Kind::Start, 1).before(), None);
    }

    #[test]
    fn counters_keep_their_order() {
        let words = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        assert_eq!(Counters::from_words(&words).to_words(), words);
        assert_eq!(Counters::from_words(&words[..3]).preemptions, 0);
    }
}
