//! The clock against a model that keeps its value in a slot, as a timer with an interrupt does.

use super::*;

const TICK: Duration = Duration::from_nanos(1);
const PERIOD: Duration = Duration::from_nanos(2);

/// An eager timer: when the time has come, the value goes to the slot if that is empty, and every
/// stop and set must drain the slot.
#[derive(Clone, Copy)]
struct Eager {
    armed: Option<Instant>,
    period: Option<Duration>,
    slot: Option<Instant>,
}

impl Eager {
    fn set(&mut self, at: Instant, period: Option<Duration>) -> bool {
        let was_set = self.stop();
        (self.armed, self.period) = (Some(at), period);
        was_set
    }

    fn stop(&mut self) -> bool {
        self.armed.take().is_some() | self.slot.take().is_some()
    }

    /// A value in the slot is the last one, else that for which it is armed.
    fn seal(&mut self) {
        self.period = None;
        if self.slot.is_some() {
            self.armed = None;
        }
    }

    /// The interrupt at `now`.
    fn fire(&mut self, now: Instant) {
        if let Some(at) = self.armed.filter(|&at| at <= now) {
            self.slot = self.slot.or(Some(at));
            self.armed = self.period.map(|period| at + period);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Set,
    SetPeriodic,
    Stop,
    /// A nanosecond passes, or four, each with its interrupt.
    Pass(u32),
    Receive,
    /// The setting end is dropped.
    Seal,
}

const EVENTS: [Event; 7] = [
    Event::Set,
    Event::SetPeriodic,
    Event::Stop,
    Event::Pass(1),
    Event::Pass(4),
    Event::Receive,
    Event::Seal,
];

/// Does `event` to both, and compares what they answer.
fn step(clock: &mut Clock, eager: &mut Eager, now: &mut Instant, event: Event) -> bool {
    let at = *now + PERIOD;
    match event {
        Event::Set => clock.set(Clock::new(at, None)).is_some() == eager.set(at, None),
        Event::SetPeriodic => {
            let was_set = clock.set(Clock::new(at, Some(PERIOD))).is_some();
            was_set == eager.set(at, Some(PERIOD))
        }
        Event::Stop => clock.stop() == eager.stop(),
        Event::Pass(n) => {
            for _ in 0..n {
                *now += TICK;
                eager.fire(*now);
            }
            true
        }
        Event::Receive => clock.tick(*now) == eager.slot.take(),
        Event::Seal => {
            clock.seal();
            eager.seal();
            true
        }
    }
}

fn all_sequences(
    (clock, eager, now): (Clock, Eager, Instant),
    left: usize,
    path: &mut Vec<Event>,
) -> usize {
    if left == 0 {
        return 1;
    }
    let mut tried = 0;
    for event in EVENTS {
        let (mut clock, mut eager, mut now) = (clock, eager, now);
        path.push(event);
        assert!(step(&mut clock, &mut eager, &mut now, event), "{path:?}");
        assert_eq!(clock.next().is_some(), eager.armed.or(eager.slot).is_some(), "{path:?}");
        // A closed channel is set no more: nothing but the rest of its value comes.
        tried += match event {
            Event::Seal => {
                assert!(step(&mut clock, &mut eager, &mut now, Event::Pass(4)), "{path:?}");
                assert!(step(&mut clock, &mut eager, &mut now, Event::Receive), "{path:?}");
                assert_eq!(clock.next(), None, "{path:?}");
                1
            }
            _ => all_sequences((clock, eager, now), left - 1, path),
        };
        path.pop();
    }
    tried
}

#[test]
fn every_sequence_of_six_events_is_that_of_an_eager_timer() {
    let length = if cfg!(miri) { 3 } else { 6 };
    let now = Instant::now();
    let mut tried = 0;
    for period in [None, Some(PERIOD)] {
        let eager = Eager { armed: Some(now + PERIOD), period, slot: None };
        let clock = Clock::new(now + PERIOD, period);
        tried += all_sequences((clock, eager, now), length, &mut Vec::new());
    }
    assert!(tried > if cfg!(miri) { 300 } else { 90_000 }, "{tried}");
}

#[test]
fn ticks_are_dropped_and_do_not_drift() {
    let start = Instant::now();
    let mut clock = Clock::new(start + PERIOD, Some(PERIOD));
    let late = start + 7 * TICK;
    assert_eq!(clock.tick(late), Some(start + PERIOD), "the oldest");
    assert_eq!(clock.tick(late), None, "those at 4 and 6 are dropped");
    assert_eq!(clock.next(), Some(start + 8 * TICK), "and the next is where it always was");
}

#[test]
fn the_end_of_time_never_comes() {
    let now = Instant::now();
    let mut clock = Clock::new(Instant::NEVER, Some(Duration::MAX));
    assert_eq!(clock.tick(now), None);
    assert_eq!(clock.set(Clock::new(now, Some(Duration::MAX))), Some(Instant::NEVER));
    assert_eq!(clock.tick(now), Some(now));
    assert_eq!(clock.next(), Some(Instant::NEVER));
    assert!(clock.stop());
}

#[test]
#[should_panic(expected = "a period of zero")]
fn a_period_of_zero_is_refused() {
    Clock::new(Instant::now(), Some(Duration::ZERO));
}
