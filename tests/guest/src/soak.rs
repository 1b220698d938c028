//! Everything at once, again and again: `program=soak -- 12 disk`, or `-- 900s`.
//!
//! First the pools are filled ([`fill`]). A round has all [`crews`] at work at the
//! same time, and ends when the last of their Gs has. Then the whole machine is
//! stopped and counted (`runnext::invariant`), and the [`ledger`] is drawn up: what
//! there is after so many rounds. Everything that was created must have ended, and
//! the later rounds must have grown nothing over the earlier ones. With the word
//! `disk`, one must be there.

mod crews;
mod fill;
mod ledger;

use crate::check::{self, checks, join_all};
use ledger::{Ledger, Marks};
use runnext::internals::invariant;
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
    let until = Until::said();
    fill::all();
    let (start, begun) = (Ledger::draw_up(), Instant::now());
    let (mut first, mut second) = (Marks::default(), Marks::default());
    let mut rounds = 0;
    // At least a round in each half, however little time there is.
    let mut is_second = false;
    while !is_second || until.over(rounds, begun) < 1000 {
        is_second = rounds > 0 && until.over(rounds, begun) >= 500;
        round(rounds);
        rounds += 1;
        let now = Ledger::draw_up_when_quiet(&start);
        nothing_is_adrift(&start);
        if is_second { &mut second } else { &mut first }.note(&now);
    }
    let end = Ledger::draw_up_when_quiet(&start);
    println!("SOAK {rounds} rounds on {} CPUs", num_cpus());
    end.print(&start, &first, &second);
    let gs = (end.created_since(&start) / rounds) as usize;
    assert!(gs < fill::GS, "{gs} Gs a round: the pools were not filled for so many");
    end.assert_balanced(&start, rounds);
    second.assert_bounded(&first, end.abandoned_since(&start));
}

/// The machine is sound, and every stack is in use or kept to be used again: one that
/// is neither is lost, and would be one more every round.
fn nothing_is_adrift(start: &Ledger) {
    let found = invariant::check().expect("memory for a G on each CPU");
    let census = found.unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(census.adrift, 0, "stacks that nobody has, and that are kept nowhere");
    Ledger::draw_up_when_quiet(start); // the checker's own Gs are gone
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
