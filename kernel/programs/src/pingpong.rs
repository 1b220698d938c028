//! Two Gs and a ball: the cost of a hand-over between Gs.
//!
//! `program=pingpong -- 100000` plays so many rounds. Each round is two sends and two
//! receives on channels without a buffer, so each G waits for the other.

use core::time::Duration;
use runnext::prelude::*;

runnext::main!(pingpong, main);

const ROUNDS: u64 = 100_000;

fn main() {
    let rounds = args().first().and_then(|word| word.parse().ok()).unwrap_or(ROUNDS);
    let (ping, pings) = chan::rendezvous();
    let (pong, pongs) = chan::rendezvous();
    // The second player ends when the first has dropped its sender.
    let second = go(move || pings.iter().try_for_each(|ball: u64| pong.send(ball + 1)));

    let start = Instant::now();
    let mut ball = 0;
    for _ in 0..rounds {
        ping.send(ball).expect("the other player is there");
        ball = pongs.recv().expect("the other player is there");
    }
    let took_ns = start.elapsed().as_nanos() as u64;

    drop(ping);
    second.join().expect("no panic").expect("we were there until the end");
    assert_eq!(ball, rounds, "the ball was lost");
    let took = Duration::from_nanos(took_ns);
    println!("{rounds} rounds in {took:?}, {} ns a round", took_ns / rounds.max(1));
}
