//! What near before far saves, in cache lines that move: a model with weights for distances.
//!
//! Eight CPUs in two nodes take turns; the scheduler runs in the simulator's memory, which counts
//! the lines that move and how far (`sim::lines`). Families of Gs are started: a root makes
//! children, each child works in some lines of its own and in its family's, yields a few times, and
//! ends. So a child that is stolen takes lines along, and the farther the thief, the dearer.

use crate::world::{seat, seats};
use sched::near::LEVELS;
use sched::sim;
use sched::sim::lines::{self, Counted};
use sched::{G, Next, P, PSlot, Run, Sched, Wake};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What a line costs that comes from a CPU at each distance: cycles, about as measured on servers.
const WEIGHTS: [u64; LEVELS] = [5, 40, 100, 150, 300];
const CPUS: usize = 8;
/// Children of a root, a few at each of its turns; and how often each yields.
const CHILDREN: usize = 200;
const BROOD: usize = 3;
const YIELDS: usize = 3;

#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "only its address counts")] [u8; 64]);

pub struct Member {
    /// Children that it has still to make, if it is a root.
    children: AtomicUsize,
    yields: AtomicUsize,
    own: [Line; 8],
    family: &'static [Line; 4],
}

fn member(children: usize, yields: usize, family: &'static [Line; 4]) -> &'static G<Member> {
    let [children, yields] = [children, yields].map(AtomicUsize::new);
    let own = [const { Line([0; 64]) }; 8];
    Box::leak(Box::new(G::new(Member { children, yields, own, family })))
}

/// What moved.
#[derive(Debug)]
struct Moved {
    lines: u64,
    cost: u64,
    /// Steals between the two nodes, and all of them.
    remote: u64,
    steals: u64,
}

/// Runs families, each from its CPU, until all have ended.
fn run(roots: &[usize], is_near: bool, seed: u64) -> Moved {
    let slots = (0..CPUS).map(|_| PSlot::new()).collect::<Vec<_>>().leak();
    let sched: &'static Sched<Member> = Box::leak(Box::new(Sched::new(slots)));
    let mut ps: Vec<P<Member>> = (0..CPUS).map(|i| sched.acquire(i, seed).expect("new")).collect();
    if is_near {
        seat(sched, &mut ps);
    }
    let seats = seats(CPUS);
    let weight = |a: usize, b: usize| WEIGHTS[seats[a].distance(&seats[b]) as usize];
    let weights = (0..CPUS).map(|a| (0..CPUS).map(|b| weight(a, b)).collect()).collect();
    lines::count(weights, usize::MAX); // nothing is lost but to a writer
    sim::begin(CPUS, seed, u32::MAX, None, || ());
    let mut alive = 0;
    for &root in roots {
        let family = Box::leak(Box::new([const { Line([0; 64]) }; 4]));
        sim::set_cpu(Some(root));
        let _ = sched.start(&mut ps[root], member(CHILDREN, 0, family), None);
        alive += 1;
    }
    let (mut remote, mut steals) = (0, 0);
    while alive > 0 {
        for (cpu, p) in ps.iter_mut().enumerate() {
            sim::set_cpu(Some(cpu));
            let next = sched.find_runnable(p);
            sim::flush_all(); // a turn is long: the stores of one are visible in the next
            let Next::Run(Run { g, .. }) = next else { continue };
            if let Some((victim, _)) = p.take_stolen() {
                steals += 1;
                remote += u64::from(seats[cpu].node != seats[victim].node);
            }
            alive += turn(sched, p, g);
            sim::flush_all();
        }
    }
    sim::set_cpu(None);
    sim::end();
    let Counted { moved, cost, .. } = lines::counted();
    Moved { lines: moved, cost, remote, steals }
}

/// A G works for a turn; by how many Gs there are more now.
fn turn(sched: &'static Sched<Member>, p: &mut P<Member>, g: &'static G<Member>) -> isize {
    let Member { children, yields, own, family } = &g.kernel;
    own.iter().for_each(|line| sim::touch(line, true));
    family.iter().for_each(|line| sim::touch(line, false));
    let brood = children.load(Relaxed).min(BROOD);
    children.store(children.load(Relaxed) - brood, Relaxed);
    for _ in 0..brood {
        let _: Wake = sched.start(p, member(0, YIELDS, family), None);
    }
    let is_over = children.load(Relaxed) == 0 && yields.load(Relaxed) == 0;
    if is_over {
        if !sched.exited(p, g) {
            g.exit();
            sched.keep_dead(p, g);
        }
        return brood as isize - 1;
    }
    yields.store(yields.load(Relaxed).saturating_sub(1), Relaxed);
    sched.yielded(p, g);
    brood as isize
}

#[test]
fn near_before_far_moves_lines_over_shorter_distances() {
    // Work on both nodes, and on one, from which the other must steal: what is left of the cost and
    // of the steals across nodes at most, in parts of 100.
    for (roots, cost, remote) in [(&[0, 4][..], 40, 5), (&[0], 65, 50)] {
        let all = |is_near| {
            let runs = (1..11).map(|seed| run(roots, is_near, seed));
            runs.fold([0; 4], |sum: [u64; 4], m| {
                let moved = [m.lines, m.cost, m.remote, m.steals];
                std::array::from_fn(|i| sum[i] + moved[i])
            })
        };
        let (flat, near) = (all(false), all(true));
        println!("families on CPUs {roots:?}: lines, cost, steals across nodes, steals");
        println!("  flat: {flat:?}\n  near: {near:?}");
        assert!(near[1] * 100 < flat[1] * cost, "it saves too little");
        assert!(near[2] * 100 < flat[2] * remote, "too many steals across nodes are left");
    }
}
