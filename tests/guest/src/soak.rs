//! Everything at once, again and again: `program=soak -- 12`, or `-- 900s`.
//!
//! A round has all [`crews`] at work at the same time, and ends when the last of
//! their Gs has. Then the [`ledger`] is drawn up: what there is after so many
//! rounds. At the end it must balance: everything that was created has ended, and
//! the later rounds have grown nothing over the earlier ones.

mod crews;
mod ledger;

use crate::check::{self, checks, join_all};
use ledger::{Ledger, Marks, Scale};
use runnext::prelude::*;

runnext::main!(soak, main);

fn main() {
    check::run(checks![repeating_the_workload_grows_nothing]);
}

/// How long to go on: the program's first argument.
enum Until {
    Rounds(u64),
    Seconds(u64),
}

impl Until {
    fn said() -> Until {
        let word = args().first().map_or("12", String::as_str);
        let number = |word: &str| word.parse().expect("a number of rounds, or of seconds: 900s");
        match word.strip_suffix('s') {
            Some(seconds) => Until::Seconds(number(seconds)),
            None => Until::Rounds(number(word)),
        }
    }

    /// How much of it is over, in 1000.
    fn over(&self, rounds: u64, since: Instant) -> u64 {
        match self {
            Until::Rounds(n) => rounds * 1000 / n.max(&1),
            Until::Seconds(n) => (since.elapsed().as_millis() as u64) / n.max(&1),
        }
    }
}

/// The first half fills the pools, the second is judged.
fn repeating_the_workload_grows_nothing() {
    let (until, begun) = (Until::said(), Instant::now());
    let start = Ledger::draw_up();
    let (mut first, mut second) = (Marks::default(), Marks::default());
    let mut rounds = 0;
    while until.over(rounds, begun) < 1000 {
        let is_first = until.over(rounds, begun) < 500;
        round(rounds);
        rounds += 1;
        let now = Ledger::draw_up_when_quiet(&start);
        if is_first { &mut first } else { &mut second }.note(&now);
    }
    let end = Ledger::draw_up_when_quiet(&start);
    println!("SOAK {rounds} rounds on {} CPUs", num_cpus());
    end.print(&start, &first, &second);
    let gs = (end.created_since(&start) / rounds.max(1)) as usize;
    second.assert_bounded(&first, &Scale { gs, calls: crews::MAX_CALLS });
}

/// One round: all crews, and somebody who changes gomaxprocs under them.
fn round(number: u64) {
    let meddler = crews::meddler();
    let crews = crews::ALL.iter().map(|(name, crew)| {
        let crew = move || crew(number);
        Go::new().name(name).spawn(crew).expect("memory for a crew")
    });
    join_all(crews);
    meddler.dismiss();
}
