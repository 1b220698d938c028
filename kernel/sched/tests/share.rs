//! CPU shares: which lane a P takes from, and what a program pays (`sched::Share`).
#![cfg(not(any(loom, feature = "sim")))]

mod common;

use common::{exit, find, g, machine, park};
use sched::{
    G, Kept, Next, P, Priority, QueueName, Sched, Share, ShareLane, Slice, Status, Unrotated, Wake,
};
use std::collections::BTreeMap;

/// Cycles of a slice.
const SLICE: u64 = 1000;

/// Ps that run Gs by the kernel's steps, with a clock each. A G's data is its program: an index.
struct Machine {
    sched: &'static Sched<usize>,
    ps: Vec<P<usize>>,
    runs: Vec<Option<&'static G<usize>>>,
    now: Vec<u64>,
    lanes: Vec<Option<ShareLane>>,
    /// Cycles that each program has used.
    used: Vec<u64>,
    /// The programs of all slices, in order.
    order: Vec<usize>,
}

impl Machine {
    /// With a program of each of these shares.
    fn new(ps: usize, shares: &[u16]) -> Self {
        let (sched, ps) = machine(ps);
        sched.set_share_slice(SLICE);
        let lane = |&share: &u16| sched.add_lane(Share::new(share).expect("in range"));
        let lanes: Vec<_> = shares.iter().map(lane).collect();
        let (runs, now) = (vec![None; ps.len()], vec![0; ps.len()]);
        let used = vec![0; shares.len()];
        Machine { sched, ps, runs, now, lanes, used, order: Vec::new() }
    }

    /// Starts so many Gs of a program, on P 0.
    fn start(&mut self, program: usize, gs: usize) -> Vec<&'static G<usize>> {
        let start = |_| {
            let (g, lane) = (g(program), self.lanes[program]);
            let _ = self.sched.start_in_lane(&mut self.ps[0], g, None, Priority::Normal, lane);
            g
        };
        (0..gs).map(start).collect()
    }

    /// The P looks for a G, and begins to run it. False: it parks.
    fn find(&mut self, at: usize) -> bool {
        let p = &mut self.ps[at];
        self.sched.end_share(p, self.now[at]);
        self.runs[at] = find(self.sched, p).map(|run| run.g);
        let Some(g) = self.runs[at] else { return false };
        self.order.push(g.kernel);
        if self.sched.shares_in_force() {
            self.sched.begin_share(p, g, self.lanes[g.kernel], self.now[at]);
        }
        true
    }

    /// The G of that P runs for so long.
    fn run(&mut self, at: usize, cycles: u64) -> &'static G<usize> {
        let g = self.runs[at].take().expect("a G runs");
        self.now[at] += cycles;
        self.used[g.kernel] += cycles;
        g
    }

    /// The G of that P uses up its slice, and the next begins.
    fn slice(&mut self, at: usize) {
        if self.runs[at].is_some() || self.find(at) {
            let g = self.run(at, SLICE);
            let _ = self.sched.expired(&mut self.ps[at], g);
            self.find(at);
        }
    }

    /// So many slices on each P, by turns.
    fn slices(&mut self, each: usize) {
        for _ in 0..each {
            (0..self.ps.len()).for_each(|at| self.slice(at));
        }
    }

    /// What each program has used since the last call, in slices.
    fn take_used(&mut self) -> Vec<u64> {
        self.order.clear();
        self.used.iter_mut().map(|used| core::mem::take(used) / SLICE).collect()
    }

    fn places(&self) -> BTreeMap<QueueName, usize> {
        let mut all = BTreeMap::new();
        self.sched.census(&mut |_, place| *all.entry(place).or_default() += 1);
        self.ps.iter().for_each(|p| p.census(&mut |_, at| *all.entry(at).or_default() += 1));
        all
    }
}

fn lane_of(machine: &Machine, program: usize) -> QueueName {
    QueueName::Shared(ShareLane::number(machine.lanes[program]))
}

#[test]
fn slices_come_by_stride() {
    let mut m = Machine::new(1, &[300, 100]);
    m.start(0, 4);
    m.start(1, 4);
    m.slices(12);
    assert_eq!(m.order[..12], [0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0]);
}

#[test]
fn of_any_hundred_slices_each_program_has_its_share_within_one() {
    for (ps, shares) in [(1, [300, 100]), (4, [300, 100]), (7, [300, 100]), (4, [9900, 100])] {
        let mut m = Machine::new(ps, &shares);
        m.start(0, 4 * ps);
        m.start(1, 4 * ps);
        m.slices(1000 / ps);
        let first = f64::from(shares[0]) / f64::from(shares[0] + shares[1]) * 100.0;
        for (from, hundred) in m.order.windows(100).enumerate() {
            let had = hundred.iter().filter(|&&program| program == 0).count() as f64;
            assert!((had - first).abs() <= 1.0, "{ps} Ps, from {from}: {had}, not {first}");
        }
    }
}

#[test]
fn shares_of_many_programs_are_kept() {
    let shares = [1, 10, 50, 100, 100, 239, 500];
    let mut m = Machine::new(3, &shares);
    (0..shares.len()).for_each(|program| _ = m.start(program, 12));
    m.slices(1000);
    for (program, used) in m.take_used().into_iter().enumerate() {
        let due = f64::from(shares[program]) * 3.0;
        assert!((used as f64 - due).abs() <= 2.0, "{program}: {used}, not {due}");
    }
}

#[test]
fn number_of_gs_changes_nothing() {
    let mut m = Machine::new(1, &[100, 200]);
    m.start(0, 100);
    m.start(1, 1);
    m.slices(300);
    assert_eq!(m.take_used(), [100, 200]);
}

#[test]
fn gs_of_one_program_have_their_turns_in_order() {
    let mut m = Machine::new(1, &[300]);
    let gs = m.start(0, 3);
    for n in 0..9 {
        m.slice(0);
        let runs = m.runs[0].expect("the next");
        assert!(core::ptr::eq(runs, gs[(n + 1) % 3]), "slice {n}");
    }
}

#[test]
fn a_program_that_joins_late_does_not_catch_up() {
    let mut m = Machine::new(1, &[300, 100]);
    m.start(0, 4);
    m.slices(1000);
    m.take_used();
    m.start(1, 4);
    m.slices(100);
    let used = m.take_used();
    assert!(used[1].abs_diff(25) <= 1, "{used:?}");
}

#[test]
fn a_program_that_was_alone_has_no_debt() {
    let mut m = Machine::new(4, &[50, 50]);
    m.start(0, 16);
    m.slices(250);
    // Each CPU has run one G of it all the time, as no other G waited. Now the other program comes.
    m.start(1, 16);
    for at in 0..4 {
        let g = m.run(at, 1_000_000 * SLICE);
        let _ = m.sched.expired(&mut m.ps[at], g);
        m.find(at);
    }
    m.take_used();
    m.slices(100);
    let used = m.take_used();
    assert!(used[0].abs_diff(200) <= 2 * 4, "two slices a CPU: {used:?}");
}

#[test]
fn a_lane_that_empties_and_returns_has_its_share_from_then_on() {
    let mut m = Machine::new(1, &[300, 100]);
    m.start(1, 4);
    for _ in 0..10 {
        // The other program sleeps meanwhile.
        m.slices(50);
        m.take_used();
        let first = m.start(0, 4);
        m.slices(100);
        let used = m.take_used();
        assert!(used[0].abs_diff(75) <= 1, "{used:?}");
        while m.places().contains_key(&lane_of(&m, 0)) || m.runs[0].is_some_and(|g| g.kernel == 0) {
            match m.runs[0] {
                Some(g) if g.kernel == 0 => {
                    let g2 = m.run(0, SLICE);
                    assert!(core::ptr::eq(g, g2));
                    exit(m.sched, &mut m.ps[0], g);
                    m.find(0);
                }
                _ => m.slice(0),
            }
        }
        assert!(first.iter().all(|g| g.status() == Status::Dead));
    }
}

#[test]
fn what_was_used_is_paid_across_a_sleep() {
    let mut m = Machine::new(1, &[100, 101]);
    // It runs a slice, and sleeps just until the other begins one.
    m.start(1, 1);
    m.start(0, 1);
    let mut sleeper = None;
    for _ in 0..200 {
        if m.runs[0].is_none() {
            m.find(0);
        }
        let g = m.run(0, SLICE);
        if g.kernel == 0 {
            g.begin_park();
            assert!(g.finish_park());
            sleeper = Some(g.handle());
            m.find(0);
        } else {
            let _ = m.sched.expired(&mut m.ps[0], g);
            m.find(0);
            if let Some(handle) = sleeper.take() {
                let _ = m.sched.ready(&mut m.ps[0], handle, |_, _| ());
            }
        }
    }
    let used = m.take_used();
    assert!(used[0] <= 101, "{used:?}");
}

/// A program that yields after a tenth of its slice, beside one that never does.
#[test]
fn a_yield_wins_no_time_and_loses_none() {
    let mut m = Machine::new(1, &[100, 101]);
    m.start(0, 4);
    m.start(1, 4);
    m.find(0);
    for _ in 0..11_000 {
        let program = m.runs[0].expect("a G").kernel;
        let g = m.run(0, if program == 0 { SLICE / 10 } else { SLICE });
        m.sched.end_share(&mut m.ps[0], m.now[0]); // the kernel pays first
        if program == 0 {
            let next = m.sched.rotate(&mut m.ps[0], g);
            assert_eq!(next.err(), Some(Unrotated::Kept), "the fast way, with others in the lanes");
            m.sched.yielded(&mut m.ps[0], g);
        } else {
            let _ = m.sched.expired(&mut m.ps[0], g);
        }
        m.find(0);
    }
    let used = m.take_used();
    let [yields, hogs] = [used[0] as f64, used[1] as f64];
    assert!((yields / hogs - 100.0 / 101.0).abs() < 0.01, "{used:?}");
}

/// A program that starts a new G for each tenth of a slice.
#[test]
fn new_gs_win_no_time() {
    let mut m = Machine::new(1, &[100, 300]);
    m.start(0, 1);
    m.start(1, 4);
    m.find(0);
    for _ in 0..11_000 {
        let program = m.runs[0].expect("a G").kernel;
        if program == 0 {
            let g = m.run(0, SLICE / 10);
            m.start(0, 1);
            exit(m.sched, &mut m.ps[0], g);
        } else {
            let g = m.run(0, SLICE);
            let _ = m.sched.expired(&mut m.ps[0], g);
        }
        m.find(0);
    }
    let used = m.take_used();
    let [starts, hogs] = [used[0] as f64, used[1] as f64];
    assert!((starts / hogs - 1.0 / 3.0).abs() < 0.01, "{used:?}");
}

#[test]
fn shares_are_in_force_while_one_program_has_another_than_most() {
    let mut m = Machine::new(1, &[100, 100]);
    assert!(!m.sched.shares_in_force());
    let other = m.sched.add_lane(Share::new(99).expect("in range")).expect("a lane is free");
    assert!(m.sched.shares_in_force());
    m.start(0, 2);
    assert_eq!(m.places(), BTreeMap::from([(lane_of(&m, 0), 2)]));
    m.find(0);
    assert_eq!(m.runs[0].and_then(G::lane), m.lanes[0]);
    m.sched.remove_lane(other);
    assert!(!m.sched.shares_in_force());
    for slice in 0..3 {
        m.slice(0);
        assert_eq!(m.places(), BTreeMap::from([(QueueName::Global, 1)]), "{slice}: as any hog");
    }
    assert_eq!(m.runs[0].and_then(G::lane), None);
}

/// A G that was started before shares were in force is in a ring, and gets its lane as it runs.
#[test]
fn a_g_of_before_has_its_lane_when_it_has_run() {
    let mut m = Machine::new(1, &[100]);
    let old = g(0);
    let _ = m.sched.start(&mut m.ps[0], old, None);
    m.lanes.push(m.sched.add_lane(Share::new(7).expect("in range")));
    m.used.push(0);
    assert_eq!(m.places(), BTreeMap::from([(QueueName::Ring(0), 1)]));
    m.find(0);
    m.start(1, 1);
    m.slice(0);
    assert_eq!(m.places(), BTreeMap::from([(lane_of(&m, 0), 1)]));
}

/// Those that wait in the global queue and the lanes take turns; those that are readied come first.
#[test]
fn gs_outside_the_shares_take_turns_with_the_lanes() {
    let mut m = Machine::new(1, &[300, 100]);
    m.lanes.push(None); // program 2
    m.used.push(0);
    m.start(0, 2);
    m.start(1, 2);
    m.start(2, 2);
    m.slices(400);
    let used = m.take_used();
    assert!(used[2].abs_diff(200) <= 2 && used[0].abs_diff(150) <= 3, "{used:?}");
    m.start(2, 1);
    m.slice(0);
    assert_eq!(m.runs[0].map(|g| g.kernel), Some(2), "a new one runs next");
}

#[test]
fn a_g_in_a_lane_wakes_a_p_and_no_p_parks_while_one_waits() {
    let mut m = Machine::new(2, &[300]);
    park(m.sched, &mut m.ps[1]);
    let lane = m.lanes[0];
    let wake = m.sched.start_in_lane(&mut m.ps[0], g(0), None, Priority::Normal, lane);
    assert_eq!(wake, Wake::Cpu(1));
    assert!(m.sched.needs_timer(&m.ps[0]));
    assert!(m.find(1));
}

#[test]
fn a_pinned_g_waits_at_its_p_and_its_program_pays() {
    let mut m = Machine::new(1, &[100, 101]);
    let pinned = m.start(0, 1)[0];
    m.find(0);
    pinned.keep(Kept::on(0));
    assert_eq!(pinned.lane(), m.lanes[0], "a pin does not take the lane");
    m.start(0, 3);
    m.start(1, 4);
    m.slices(400);
    let used = m.take_used();
    assert!(
        used[0].abs_diff(200) <= 3,
        "what the pinned one has used, the others have not: {used:?}"
    );
}

#[test]
fn a_g_that_becomes_urgent_is_taken_out_of_its_lane() {
    let mut m = Machine::new(1, &[100, 300]);
    let gs = m.start(0, 3);
    m.start(1, 1);
    m.find(0);
    let raised = *gs.last().expect("three");
    assert!(raised.handle().set_rank(Priority::Normal, Priority::Urgent));
    let wake = m.sched.raised(&mut m.ps[0], &raised.handle(), |_| ());
    assert_eq!(wake, Wake::Cpu(0), "to the inbox");
    assert_eq!(raised.lane(), m.lanes[0], "a rank does not take the lane");
    assert!(m.sched.arrive(&mut m.ps[0]).displace);
    let g = m.run(0, SLICE / 2);
    m.sched.displaced(&mut m.ps[0], g);
    let (first, slice) = m.sched.find_local(&mut m.ps[0], true).expect("it is there");
    assert!(core::ptr::eq(first, raised) && slice == Slice::Inherited);
}

#[test]
fn sixty_two_programs_have_lanes_and_the_others_one_in_common() {
    let (sched, mut ps) = machine::<usize>(1);
    let own: Vec<_> = (0..62).map(|_| sched.add_lane(Share::DEFAULT).expect("free")).collect();
    let some = Share::new(300).expect("in range");
    assert_eq!(sched.add_lane(some), None);
    let common = sched.add_lane(Share::DEFAULT).expect("for all");
    assert_eq!(sched.add_lane(Share::DEFAULT), Some(common));
    assert!(!own.contains(&common));
    sched.remove_lane(own[17]);
    assert_eq!(sched.add_lane(some), Some(own[17]), "it is used again");
    sched.remove_lane(common);
    let _ = sched.start_in_lane(&mut ps[0], g(0), None, Priority::Normal, Some(common));
    assert!(matches!(sched.find_runnable(&mut ps[0]), Next::Run(run) if run.slice == Slice::New));
}

#[test]
fn a_program_that_is_to_end_does_not_wait() {
    let mut m = Machine::new(1, &[1, 10_000]);
    m.start(0, 4);
    m.start(1, 4);
    m.slices(100);
    m.take_used();
    m.sched.hurry_lane(m.lanes[0].expect("it has one"));
    m.slices(20);
    assert!(m.take_used()[0] >= 9);
}
