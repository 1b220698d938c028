//! Checks CPU shares of programs: each gets CPU time as its share says, whatever its Gs do.
//!
//! `shares` starts the others of this file. CPU time is what the kernel has counted for their Gs.
//! In virtual time, with hogs that end their turns.

use crate::check::{self, checks};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use runnext::prelude::*;
use runnext::program::{Ended, ProgramId, Run, Share, ShareError, StartError};
use runnext::program::{start, start_with_share};
use runnext::system;
use runnext::tasks;

runnext::main!(shares, main);
runnext::main!(s_hogs, s_hogs);
runnext::main!(s_others, s_hogs);
runnext::main!(s_yields, s_yields);
runnext::main!(s_starts, s_starts);

/// Slices of each CPU that a check measures; the command line says `slice=1ms`.
const SLICES: u32 = 200;

fn main() {
    check::run(checks![
        programs_at_300_and_100_get_three_to_one,
        a_program_that_comes_late_does_not_catch_up,
        a_program_that_yields_wins_nothing_and_loses_nothing,
        a_program_that_starts_gs_wins_nothing,
        a_program_with_the_least_share_is_stopped_at_once,
        a_report_shows_the_share_of_a_g,
        without_another_share_no_g_has_a_lane,
    ]);
}

/// The Gs of `s_starts` so far.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// Four hogs for each CPU.
fn s_hogs() {
    for _ in 1..4 * num_cpus() {
        let _hog = go(hog);
    }
    hog();
}

fn hog() {
    loop {
        check::spin();
    }
}

/// As many Gs, each of which yields twenty times in a slice.
fn s_yields() {
    let yields = || loop {
        check::spin();
        yield_now();
    };
    for _ in 1..4 * num_cpus() {
        let _yields = go(yields);
    }
    yields();
}

/// As many chains of Gs, each of which starts the next and ends.
fn s_starts() {
    fn link() {
        check::spin();
        STARTED.fetch_add(1, Relaxed);
        let _next = go(link);
    }
    for _ in 0..4 * num_cpus() {
        let _first = go(link);
    }
    park();
}

fn share(share: u16) -> Share {
    Share::new(share).expect("in range")
}

fn begin(name: &str, its: u16) -> Run {
    start_with_share(name, Vec::new(), share(its)).expect("memory, and a lane")
}

/// CPU time of all Gs of a program.
fn used_ns(of: ProgramId) -> u64 {
    tasks::gs().iter().filter(|g| g.program == of).map(|g| g.cpu_ns).sum()
}

/// What two programs use from here on, in that many slices of each CPU.
fn measured<const N: usize>(use_of: [&dyn Fn() -> u64; N]) -> [u64; N] {
    let before = use_of.map(|use_of| use_of());
    sleep(Duration::from_millis(1) * SLICES);
    let after = use_of.map(|use_of| use_of());
    core::array::from_fn(|i| after[i] - before[i])
}

fn ends(runs: impl IntoIterator<Item = Run>) {
    for run in runs {
        run.stop();
        assert_eq!(run.wait(), Ended::Stopped);
    }
}

/// The first has so many per cent, within one.
#[track_caller]
fn assert_percent([first, second]: [u64; 2], percent: f64) {
    let sum = (first + second) as f64;
    let had = first as f64 * 100.0 / sum;
    println!("SHARES {had:.2} of {percent}: {first} and {second}");
    let cpus = gomaxprocs() as f64;
    assert!(sum >= 0.9e6 * f64::from(SLICES) * cpus, "the CPUs had other work: {sum}");
    assert!((had - percent).abs() <= 1.0, "{had} per cent, not {percent}");
}

/// One was started when no shares were in force: each of its Gs runs once before it has its lane, and
/// what it had until then is paid back first.
fn programs_at_300_and_100_get_three_to_one() {
    let less = start("s_others", Vec::new()).expect("memory");
    sleep(Duration::from_millis(20));
    let more = begin("s_hogs", 300);
    sleep(Duration::from_millis(150));
    let used = measured([&|| used_ns(more.id()), &|| used_ns(less.id())]);
    assert_percent(used, 75.0);
    ends([more, less]);
}

fn a_program_that_comes_late_does_not_catch_up() {
    let first = begin("s_hogs", 200);
    sleep(Duration::from_millis(300));
    let late = begin("s_others", 300);
    sleep(Duration::from_millis(5));
    let used = measured([&|| used_ns(first.id()), &|| used_ns(late.id())]);
    assert_percent(used, 40.0);
    ends([first, late]);
}

fn a_program_that_yields_wins_nothing_and_loses_nothing() {
    let yields = begin("s_yields", 100);
    let hogs = begin("s_hogs", 300);
    sleep(Duration::from_millis(20));
    let used = measured([&|| used_ns(yields.id()), &|| used_ns(hogs.id())]);
    assert_percent(used, 25.0);
    ends([yields, hogs]);
}

/// A G that has ended is in no report: the other program has the rest of all CPU time, and with it
/// what the kernel takes to start, end and switch the Gs of both, up to four per cent here.
fn a_program_that_starts_gs_wins_nothing() {
    let hogs = begin("s_yields", 300);
    let starts = begin("s_starts", 100);
    sleep(Duration::from_millis(20));
    let all_ns = || Instant::now().as_nanos() * gomaxprocs() as u64;
    let [other, all, links] =
        measured([&|| used_ns(hogs.id()), &all_ns, &|| STARTED.load(Relaxed)]);
    assert!(links > 0, "no G was started");
    let percent = other as f64 * 100.0 / all as f64;
    println!("SHARES {percent:.2} of 75 beside starts");
    assert!((71.0..=76.0).contains(&percent), "{percent} per cent, not 75");
    ends([hogs, starts]);
}

/// At its share, the Gs of the second would have a slice in ten seconds.
fn a_program_with_the_least_share_is_stopped_at_once() {
    let most = begin("s_hogs", 10_000);
    let least = begin("s_yields", 1);
    sleep(Duration::from_millis(50));
    let before = Instant::now();
    least.stop();
    assert_eq!(least.wait(), Ended::Stopped);
    let took = Instant::now() - before;
    println!("SHARES stopped after {} ms", took.as_millis());
    assert!(took < Duration::from_secs(1), "{took:?}");
    ends([most]);
}

fn a_report_shows_the_share_of_a_g() {
    let run = begin("s_hogs", 250);
    sleep(Duration::from_millis(5));
    let gs = tasks::gs();
    let of = |program| gs.iter().filter(move |g| g.program == program);
    assert!(of(run.id()).count() > 0 && of(run.id()).all(|g| g.share == Some(share(250))));
    assert!(of(ProgramId::BOOT).all(|g| g.share.is_none()), "the booted one is outside");
    assert!(of(ProgramId::KERNEL).all(|g| g.share.is_none()));
    ends([run]);
}

/// Programs that have run before leave nothing: the ring serves new ones.
fn without_another_share_no_g_has_a_lane() {
    let [one, other] = ["s_hogs", "s_yields"].map(|name| start(name, Vec::new()).expect("memory"));
    sleep(Duration::from_millis(20));
    let queued: usize = stats().cpus.iter().map(|cpu| cpu.queued).sum();
    assert!(queued > 0, "Gs that yield wait in rings");
    ends([one, other]);
}

/// For `systems`: what a program is told that asks for a share.
pub fn a_share_is_refused_unless_it_is_promised() {
    let asked = start_with_share("s_hogs", Vec::new(), share(300));
    match system::running().promises.shares {
        true => ends([asked.expect("it is promised")]),
        false => {
            let refused = asked.expect_err("it is not promised");
            assert_eq!(refused, StartError::Share(ShareError::Unpromised));
            let usual = start_with_share("p_returns", Vec::new(), Share::DEFAULT);
            assert_eq!(usual.map(Run::wait), Ok(Ended::Code(0)));
        }
    }
}
