//! The watcher's decisions: when it rests, what wakes it, what is a deadlock.
//!
//! This file touches no machine: `beside` examines Gs, parks, and readies. Why these decisions are
//! right is explained there.
#![forbid(unsafe_code)]

use crate::lock::IrqLock;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// How often a scan is repeated because Gs began or ended meanwhile.
const TRIES: usize = 16;

/// Whether there is a watcher, and whether it rests. `H` is a handle that readies it.
pub struct Watcher<H> {
    /// It rests, or is about to: events on the machine must wake it.
    rests: AtomicBool,
    /// It scans.
    looks: AtomicBool,
    state: IrqLock<State<H>>,
}

struct State<H> {
    is_there: bool,
    /// An event has happened since it began to scan.
    is_stirred: bool,
    resting: Option<H>,
}

impl<H> Watcher<H> {
    /// Without a watcher G.
    pub const fn new() -> Self {
        let state = State { is_there: false, is_stirred: false, resting: None };
        Watcher {
            rests: AtomicBool::new(false),
            looks: AtomicBool::new(false),
            state: IrqLock::new(state),
        }
    }

    /// Sets whether there is a watcher; returns whether there was one.
    pub fn set_there(&self, is_there: bool) -> bool {
        core::mem::replace(&mut self.state.lock().is_there, is_there)
    }

    /// The watcher begins to scan; every event from here on is a reason to scan again. If no
    /// program runs `beside` the booted one, events are not: the scan of the idle machine is
    /// enough.
    pub fn begin_look(&self, beside: bool) {
        self.looks.store(true, Relaxed);
        self.state.lock().is_stirred = false;
        self.rests.store(beside, Relaxed);
    }

    /// The watcher is to rest, unless an event has happened since it began to scan. True: it has
    /// begun to park, by `begin_park`, and must park.
    pub fn begin_rest(&self, begin_park: impl FnOnce() -> H) -> bool {
        let mut state = self.state.lock();
        if state.is_stirred {
            return false;
        }
        self.looks.store(false, Relaxed); // a moment early, which costs one extra scan at most
        state.resting = Some(begin_park());
        true
    }

    /// The watcher has finished its scan.
    pub fn end_look(&self) {
        self.looks.store(false, Relaxed);
    }

    /// An event happens on the machine. Returns the handle if the watcher rests: the caller must
    /// ready it. Any context.
    #[inline]
    pub fn stir(&self) -> Option<H> {
        if self.rests.load(Relaxed) { self.wake() } else { None }
    }

    /// As [`stir`](Self::stir), for a CPU that is about to halt while so many CPUs run Gs. If only
    /// the watcher runs, a halt is no event.
    pub fn stir_from_halt(&self, busy: usize) -> Option<H> {
        let is_watcher = busy <= 1 && self.looks.load(Relaxed);
        if is_watcher { None } else { self.stir() }
    }

    /// Makes the watcher scan, with or without an event.
    #[cold]
    pub fn wake(&self) -> Option<H> {
        let mut state = self.state.lock();
        state.is_stirred = true;
        self.rests.store(false, Relaxed);
        state.resting.take()
    }
}

/// The result of a scan of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// It can continue.
    Nothing,
    /// All its Gs wait for each other: it is scanned once more.
    Suspect,
    /// They have been in the very same waits since the last scan.
    Deadlock,
}

impl Seen {
    /// From the stamps ([`stamp_of`]) of this scan and of the one before; 0: none.
    pub fn of(stamp: u64, before: u64) -> Self {
        match stamp {
            0 => Seen::Nothing,
            _ if stamp != before => Seen::Suspect,
            _ => Seen::Deadlock,
        }
    }
}

/// The stamp that two scans in a row have given, with no G begun or ended on the machine from
/// before the first until after the second (`lives` counts those).
pub fn look_twice(
    mut look: impl FnMut() -> Option<u64>,
    mut lives: impl FnMut() -> u64,
) -> Option<u64> {
    for _ in 0..TRIES {
        let before = lives();
        let first = look()?;
        if look()? == first && lives() == before {
            return Some(first);
        }
    }
    None
}

/// A stamp of Gs and their waits, three words for each; `None` if a G can continue, or there is no
/// G. Not 0.
pub fn stamp_of(gs: impl Iterator<Item = Option<[u64; 3]>>) -> Option<u64> {
    let mut stamp = 0_u64;
    for g in gs {
        for part in g? {
            stamp = (stamp ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }
    (stamp != 0).then_some(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins a scan while another program runs.
    fn looking() -> Watcher<&'static str> {
        let watcher = Watcher::new();
        watcher.begin_look(true);
        watcher
    }

    fn resting() -> Watcher<&'static str> {
        let watcher = looking();
        assert!(watcher.begin_rest(|| "watcher"));
        watcher
    }

    #[test]
    fn the_first_event_wakes_a_watcher_that_rests_and_no_other_does() {
        for wake in [Watcher::stir, Watcher::wake, |w: &Watcher<_>| w.stir_from_halt(1)] {
            let watcher = resting();
            assert_eq!(wake(&watcher), Some("watcher"));
            assert_eq!((watcher.stir(), watcher.wake()), (None, None));
        }
    }

    #[test]
    fn an_event_during_a_look_is_a_reason_to_look_again() {
        let watcher = looking();
        assert_eq!(watcher.stir(), None, "it does not rest");
        assert!(!watcher.begin_rest(|| unreachable!("it looks again")));
        watcher.end_look();
        watcher.begin_look(true);
        assert!(watcher.begin_rest(|| "watcher"), "nothing has happened since");
        assert_eq!(watcher.stir(), Some("watcher"));
    }

    #[test]
    fn an_event_before_a_look_is_seen_by_it() {
        let watcher = looking();
        watcher.end_look(); // a suspect: it does not rest
        assert_eq!(watcher.stir(), None);
        watcher.begin_look(true);
        assert!(watcher.begin_rest(|| "watcher"));
    }

    #[test]
    fn without_a_program_beside_only_the_start_of_one_wakes_it() {
        let watcher = Watcher::new();
        watcher.begin_look(false);
        assert_eq!(watcher.stir(), None);
        assert!(watcher.begin_rest(|| "watcher"), "that was no reason");
        assert_eq!((watcher.stir(), watcher.stir_from_halt(3)), (None, None));
        assert_eq!(watcher.wake(), Some("watcher"));
    }

    #[test]
    fn a_program_that_starts_during_a_look_is_looked_at() {
        let watcher = Watcher::<&str>::new();
        watcher.begin_look(false);
        assert_eq!(watcher.wake(), None);
        assert!(!watcher.begin_rest(|| unreachable!("it looks again")));
    }

    #[test]
    fn a_cpu_that_halts_beside_the_watcher_alone_is_no_news() {
        let watcher = looking();
        assert_eq!(watcher.stir_from_halt(1), None);
        assert!(watcher.begin_rest(|| "watcher"), "it would keep itself awake");
        let watcher = looking();
        assert_eq!(watcher.stir_from_halt(2), None);
        assert!(!watcher.begin_rest(|| unreachable!("somebody else ran")));
        let watcher = looking();
        watcher.end_look(); // it sleeps, and the one that runs is another
        assert_eq!(watcher.stir_from_halt(1), None);
        assert!(!watcher.begin_rest(|| unreachable!("somebody else ran")));
    }

    #[test]
    fn there_is_one_watcher_until_it_could_not_be_made() {
        let watcher = Watcher::<()>::new();
        assert!(!watcher.set_there(true));
        assert!(watcher.set_there(true));
        watcher.set_there(false);
        assert!(!watcher.set_there(true));
    }

    /// The results of scans with these stamps.
    fn seen(stamps: &[u64]) -> Vec<Seen> {
        let before = [0].iter().chain(stamps);
        stamps.iter().zip(before).map(|(&stamp, &before)| Seen::of(stamp, before)).collect()
    }

    #[test]
    fn a_deadlock_is_the_same_state_in_two_looks() {
        use Seen::{Deadlock, Nothing, Suspect};
        assert_eq!(seen(&[0, 0]), [Nothing, Nothing]);
        assert_eq!(seen(&[5, 5]), [Suspect, Deadlock]);
        assert_eq!(seen(&[5, 6, 6]), [Suspect, Suspect, Deadlock]);
        assert_eq!(seen(&[5, 0, 5]), [Suspect, Nothing, Suspect], "it went on in between");
    }

    /// The result of `look_twice` when scans and lives give these values in turn; and the number of
    /// scans.
    fn looked(looks: &[Option<u64>], lives: &[u64]) -> (Option<u64>, usize) {
        let (mut looks, mut lives) = (looks.iter().cycle(), lives.iter().cycle());
        let mut count = 0;
        let look = || {
            count += 1;
            *looks.next().unwrap()
        };
        (look_twice(look, || *lives.next().unwrap()), count)
    }

    #[test]
    fn two_looks_count_if_they_agree_and_no_g_began_or_ended() {
        assert_eq!(looked(&[Some(5)], &[1]), (Some(5), 2));
        assert_eq!(looked(&[None], &[1]), (None, 1));
        assert_eq!(looked(&[Some(5), None], &[1]), (None, 2));
        assert_eq!(looked(&[Some(5), Some(6), Some(6), Some(6)], &[1]), (Some(6), 4));
        assert_eq!(looked(&[Some(5)], &[1, 2, 2, 2]), (Some(5), 4), "a G began meanwhile");
        assert_eq!(looked(&[Some(5)], &[1, 2]), (None, 2 * TRIES), "Gs begin all the time");
    }

    #[test]
    fn a_stamp_tells_gs_and_waits_apart() {
        let stamp = |gs: &[Option<[u64; 3]>]| stamp_of(gs.iter().copied());
        assert_eq!(stamp(&[]), None, "no G waits");
        assert_eq!(stamp(&[Some([1, 2, 3]), None]), None, "one of them goes on");
        assert_eq!(stamp(&[None, Some([1, 2, 3])]), None, "one of them goes on");
        let states = [
            vec![Some([1, 2, 3])],
            vec![Some([9, 2, 3])],
            vec![Some([1, 9, 3])],
            vec![Some([1, 2, 9])],
            vec![Some([1, 2, 3]), Some([4, 5, 6])],
            vec![Some([4, 5, 6]), Some([1, 2, 3])],
        ];
        let stamps: std::collections::BTreeSet<_> = states.iter().map(|s| stamp(s)).collect();
        assert_eq!(stamps.len(), states.len());
        assert!(!stamps.contains(&None));
    }
}
