//! Bodies that attract each other: a G for each, in step by a barrier.
//!
//! In each step all Gs read where all bodies are, and meet; then each moves its own, and they meet
//! again. The lock is there for the compiler: after the barrier no reader is left that it could wait
//! for. Floats are computed without hardware, so this is no benchmark.

use runnext::prelude::*;
use runnext::sync::{Barrier, RwLock};

runnext::main!(nbody, main);

const STEPS: usize = 100;
const DT: f64 = 0.01;
const BODIES: usize = 4;

#[derive(Clone, Copy)]
struct Body {
    at: [f64; 2],
    speed: [f64; 2],
    mass: f64,
}

const fn body(at: [f64; 2], speed: [f64; 2], mass: f64) -> RwLock<Body> {
    RwLock::new(Body { at, speed, mass })
}

/// A heavy one, and three on circles around it.
static BODY: [RwLock<Body>; BODIES] = [
    body([0.0, 0.0], [0.0, 0.0], 100.0),
    body([4.0, 0.0], [0.0, 5.0], 0.1),
    body([0.0, 9.0], [-3.333, 0.0], 0.1),
    body([-16.0, 0.0], [0.0, -2.5], 0.1),
];

static STEP: Barrier = Barrier::new(BODIES);

fn main() {
    let before = energy();
    let gs: Vec<_> = (0..BODIES).map(|n| go(move || (0..STEPS).for_each(|_| step(n)))).collect();
    gs.into_iter().for_each(|g| g.join().expect("no panic"));
    let change = ((energy() - before) / before).abs();
    assert!(change < 1e-3, "the energy has changed by {change}");
    println!("{BODIES} bodies, {STEPS} steps: the energy is what it was, to a thousandth");
}

fn all() -> [Body; BODIES] {
    BODY.each_ref().map(|body| *body.read().expect("no panic"))
}

fn step(n: usize) {
    let bodies = all();
    let mut body = bodies[n];
    for other in (0..BODIES).filter(|&other| other != n).map(|other| bodies[other]) {
        let [x, y] = [other.at[0] - body.at[0], other.at[1] - body.at[1]];
        let pull = other.mass / x.hypot(y).powi(3);
        body.speed = [body.speed[0] + x * pull * DT, body.speed[1] + y * pull * DT];
    }
    body.at = [body.at[0] + body.speed[0] * DT, body.at[1] + body.speed[1] * DT];
    STEP.wait(); // all have read
    *BODY[n].write().expect("no panic") = body;
    STEP.wait(); // all have moved
}

fn energy() -> f64 {
    let bodies = all();
    let mut sum = 0.0;
    for (n, one) in bodies.iter().enumerate() {
        sum += 0.5 * one.mass * (one.speed[0].powi(2) + one.speed[1].powi(2));
        for other in &bodies[n + 1..] {
            let apart = (one.at[0] - other.at[0]).hypot(one.at[1] - other.at[1]);
            sum -= one.mass * other.mass / apart;
        }
    }
    sum
}
