//! When a CPU is taken for stuck: one step at each check.
//!
//! A check reads the progress of a CPU (its *beat*: slices, halts, interrupts). If the beat stands
//! still that need not mean anything, as a G that is alone on its CPU is never interrupted. So the
//! watchdog sends a liveness interrupt: a CPU that has interrupts on takes it, which is a beat. If
//! the CPU does not, the watchdog sends an NMI, which the CPU takes whatever it does, and whose
//! handler records whether interrupts were off.
//!
//! # No false alarm
//!
//! A virtual CPU may be without a core for seconds, so that the time that has passed proves
//! nothing. But then it does not take the NMI either. A CPU is reported when [`STRIKES`] NMIs, sent
//! in different checks, were each taken with interrupts off, and the liveness interrupt, which has
//! been pending all the time, is still not taken. So the CPU has run in each of these stretches of
//! time, and in none of them turned interrupts on for an instant. The kernel's sections without
//! interrupts are microseconds long: one that ends as soon as it gets a core cannot be seen three
//! times, half a second apart.
#![forbid(unsafe_code)]

/// For how long a CPU may take no interrupt, ns.
pub const LIMIT_NS: u64 = 2_000_000_000;

/// NMIs in a row that must find interrupts off.
pub const STRIKES: u32 = 3;

/// The watchdog state of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ward {
    beat: u64,
    state: State,
    /// When the liveness interrupt was sent.
    since_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// It made progress, or has nothing to do.
    #[default]
    Calm,
    /// A liveness interrupt was sent.
    Asked,
    /// NMIs were sent; so many found interrupts off.
    Suspected(u32),
    /// It was reported.
    Reported,
}

/// What a check reads of a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    /// The time.
    pub now_ns: u64,
    /// Its progress counter; any change will do.
    pub beat: u64,
    /// Whether it has something to do: a halted CPU is not checked.
    pub is_busy: bool,
    /// Whether interrupts were off at the last NMI, if that has been taken.
    pub irqs_off: Option<bool>,
}

/// What the watchdog must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Nothing.
    Nothing,
    /// Send a liveness interrupt.
    Ask,
    /// Send it an NMI.
    Sample,
    /// Report that it is stuck, for so long at least.
    Report(u64),
    /// Report that it continues. It was stuck since that time.
    Over(u64),
}

impl Ward {
    /// Initial state.
    pub const NEW: Ward = Ward { beat: 0, state: State::Calm, since_ns: 0 };

    /// One check: advances the state and returns the next step.
    pub fn look(&mut self, sight: Sight) -> Step {
        let Sight { now_ns, beat, is_busy, irqs_off } = sight;
        if beat != self.beat {
            let before = core::mem::replace(self, Ward { beat, ..Ward::NEW });
            let was_reported = before.state == State::Reported;
            return if was_reported { Step::Over(before.since_ns) } else { Step::Nothing };
        }
        let (state, step) = match (self.state, irqs_off) {
            (State::Calm, _) if !is_busy => return Step::Nothing,
            (State::Calm, _) => {
                self.since_ns = now_ns;
                (State::Asked, Step::Ask)
            }
            (State::Asked, _) => (State::Suspected(0), Step::Sample),
            // It does not run: no conclusion is possible.
            (State::Suspected(_), None) => return Step::Nothing,
            // It will take the liveness interrupt as soon as it runs.
            (State::Suspected(_), Some(false)) => (State::Suspected(0), Step::Sample),
            (State::Suspected(strikes), Some(true)) => {
                let (strikes, took_ns) = (strikes + 1, now_ns.saturating_sub(self.since_ns));
                if strikes >= STRIKES && took_ns >= LIMIT_NS {
                    (State::Reported, Step::Report(took_ns))
                } else {
                    (State::Suspected(strikes), Step::Sample)
                }
            }
            (State::Reported, _) => return Step::Nothing,
        };
        self.state = state;
        step
    }

    /// Whether it was reported, and has made no progress since.
    pub fn is_reported(&self) -> bool {
        self.state == State::Reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u64 = 500_000_000;

    /// The steps of checks half a second apart, with these beats and samples.
    fn steps(sights: &[(u64, bool, Option<bool>)]) -> Vec<Step> {
        let mut ward = Ward::NEW;
        let look = |(number, &(beat, is_busy, irqs_off))| {
            ward.look(Sight { now_ns: number as u64 * HALF, beat, is_busy, irqs_off })
        };
        sights.iter().enumerate().map(look).collect()
    }

    #[test]
    fn cpu_that_goes_on_is_left_alone() {
        let sights: Vec<_> = (1..50).map(|beat| (beat, true, None)).collect();
        assert!(steps(&sights).iter().all(|step| *step == Step::Nothing));
    }

    #[test]
    fn cpu_that_halts_is_never_asked() {
        assert_eq!(steps(&[(1, false, None); 50]), [Step::Nothing; 50]);
    }

    #[test]
    fn g_alone_on_its_cpu_answers_and_is_asked_every_other_time() {
        let sights = [(1, true, None), (1, true, None), (2, true, None), (2, true, None)];
        assert_eq!(steps(&sights), [Step::Nothing, Step::Ask, Step::Nothing, Step::Ask]);
    }

    #[test]
    fn cpu_with_interrupts_off_is_reported_once_after_two_seconds_and_when_it_goes_on() {
        let off = (1, true, Some(true));
        let sights = [(1, true, None), off, off, off, off, off, off, off, (2, true, None)];
        let expected = [
            Step::Nothing,
            Step::Ask,
            Step::Sample,
            Step::Sample,
            Step::Sample,
            Step::Report(2_000_000_000),
            Step::Nothing,
            Step::Nothing,
            Step::Over(HALF),
        ];
        assert_eq!(steps(&sights), expected);
    }

    #[test]
    fn cpu_that_has_no_core_is_not_reported_however_long_it_takes() {
        // It takes one NMI, and the next one never.
        let mut sights = vec![(1, true, None); 3];
        sights.push((1, true, Some(true)));
        sights.extend([(1, true, None); 100]);
        assert!(!steps(&sights).iter().any(|step| matches!(step, Step::Report(_))));
    }

    #[test]
    fn nmi_that_finds_interrupts_on_takes_back_what_was_held_against_it() {
        let (off, on) = ((1, true, Some(true)), (1, true, Some(false)));
        let sights = [(1, true, None), off, off, off, off, on, off, off, off];
        let steps = steps(&sights);
        assert!(steps[..8].iter().all(|step| !matches!(step, Step::Report(_))), "{steps:?}");
        assert!(matches!(steps[8], Step::Report(_)), "{steps:?}");
    }

    #[test]
    fn strikes_in_a_hurry_do_not_make_two_seconds() {
        let mut ward = Ward::NEW;
        let reported = (0..100).any(|now_ns| {
            let sight = Sight { now_ns, beat: 1, is_busy: true, irqs_off: Some(true) };
            matches!(ward.look(sight), Step::Report(_))
        });
        assert!(!reported);
    }
}
