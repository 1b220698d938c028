//! Do the events agree with what the machine has counted?
//!
//! Each CPU counts switches, ticks and the like for itself, whether a trace
//! traces or not, and says so at the end of the stream. If no event was lost the
//! two must be the same; where they are not, one of them lies. Called after every
//! conversion, and by the tests of the whole machine.
#![forbid(unsafe_code)]

use std::fmt;

use crate::model::{Cpu, Model};
use crate::wire::Kind;

/// What came of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Agreement {
    /// All numbers are the same; so many were compared.
    Full(usize),
    /// These are not.
    Differs(Vec<Difference>),
    /// So many events were lost that nothing can be said.
    Lost(u64),
    /// The stream has no counters, or not of all CPUs.
    NoCounters,
}

/// A number that should be the same twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Of which CPU.
    pub cpu: usize,
    /// What is counted.
    pub what: &'static str,
    /// How many events there are.
    pub events: u64,
    /// What the CPU has counted.
    pub counted: u64,
}

/// Compares the events of `model` with the counters in it.
///
/// ```
/// use trace::{check::{Agreement, compare}, model::Model};
/// assert_eq!(compare(&Model::default()), Agreement::NoCounters);
/// ```
pub fn compare(model: &Model) -> Agreement {
    let all_said = model.cpus.iter().all(|cpu| cpu.counters.is_some());
    if !all_said || model.cpus.is_empty() {
        return Agreement::NoCounters;
    }
    if model.lost > 0 {
        return Agreement::Lost(model.lost);
    }
    let numbered = model.cpus.iter().enumerate();
    let compared: Vec<Difference> = numbered.flat_map(|(cpu, facts)| numbers(cpu, facts)).collect();
    let len = compared.len();
    let differs: Vec<Difference> =
        compared.into_iter().filter(|number| number.events != number.counted).collect();
    if differs.is_empty() { Agreement::Full(len) } else { Agreement::Differs(differs) }
}

fn numbers(cpu: usize, facts: &Cpu) -> Vec<Difference> {
    let Some(counters) = facts.counters else { return Vec::new() };
    let pairs = [
        ("switches", Kind::Start, counters.switches),
        ("preemptions", Kind::Expire, counters.preemptions),
        ("ticks", Kind::Tick, counters.ticks),
        ("halts", Kind::Halt, counters.halts),
        ("wakes", Kind::WakeSent, counters.wakes),
        ("displacements", Kind::Displace, counters.displacements),
        ("handoffs", Kind::Handoff, counters.handoffs),
        ("steals", Kind::Steal, counters.steals),
    ];
    let difference = |(what, kind, counted)| {
        let events = facts.counts.of(kind);
        Difference { cpu, what, events, counted }
    };
    pairs.map(difference).to_vec()
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Agreement::Full(len) => write!(f, "all {len} counters agree with the events"),
            Agreement::Lost(lost) => {
                write!(f, "not compared with the counters: {lost} events lost")
            }
            Agreement::NoCounters => write!(f, "the stream has no counters to compare with"),
            Agreement::Differs(differs) => {
                match differs.len() {
                    1 => write!(f, "a counter does not agree with the events:")?,
                    len => write!(f, "{len} counters do not agree with the events:")?,
                }
                differs.iter().try_for_each(|difference| write!(f, "\n  {difference}"))
            }
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { cpu, what, events, counted } = self;
        write!(f, "CPU {cpu}: {events} {what} by events, {counted} by the counter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use crate::encode::Encoder;
    use crate::wire::{Counters, Event, Header};

    /// A CPU that switched twice (once by preemption), and says `counters`.
    fn model(first: u64, counters: Option<Counters>) -> Model {
        let mut stream = Encoder::new(Header { cpus: 1, hz: 1, zero: 0 });
        let merged = Event::new(2, 2, Kind::Start, (Kind::Expire as u32) << 8);
        stream.events(0, first, &[Event::new(1, 1, Kind::Start, 0), merged]);
        if let Some(counters) = counters {
            stream.stat(0, counters);
        }
        Model::new(&decode(stream.bytes()).expect("a stream"))
    }

    const RIGHT: Counters = Counters {
        events: 2,
        lost: 0,
        switches: 2,
        preemptions: 1,
        ticks: 0,
        halts: 0,
        wakes: 0,
        displacements: 0,
        handoffs: 0,
        steals: 0,
    };

    #[test]
    fn merged_events_count_as_both() {
        assert_eq!(compare(&model(0, Some(RIGHT))), Agreement::Full(8));
    }

    #[test]
    fn a_counter_that_lies_is_named() {
        let wrong = Counters { preemptions: 3, ..RIGHT };
        let text = compare(&model(0, Some(wrong))).to_string();
        assert!(text.contains("CPU 0: 1 preemptions by events, 3 by the counter"), "{text}");
    }

    #[test]
    fn nothing_is_claimed_when_events_are_missing() {
        assert_eq!(compare(&model(5, Some(RIGHT))), Agreement::Lost(5));
        assert_eq!(compare(&model(0, Some(Counters { lost: 1, ..RIGHT }))), Agreement::Lost(1));
        assert_eq!(compare(&model(0, None)), Agreement::NoCounters);
    }
}
