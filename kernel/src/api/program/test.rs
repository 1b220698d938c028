//! The tests of a crate, each a program of its own in one boot: `make test APP=path`.
//!
//! [`tests!`](crate::tests) puts functions into a section of the image, as [`main!`](crate::main)
//! does with programs. An image that has tests runs [`RUNNER`] unless `program=` names another
//! program. It starts them one after the other, by name. So what ends a program ends one test only: a
//! panic of its main, a deadlock, an `exit`. A test that takes too long is stopped.
#![forbid(unsafe_code)]

use super::Program;
use super::run::start_program;
use crate::run::program::Ended;
use crate::run::share::Share;
use crate::run::time::Duration;
use crate::{args, exit, println};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// How long a test may take, unless `limit=` says otherwise.
const LIMIT_S: u64 = 60;

/// Runs the tests of this image; its arguments are `limit=<seconds>`, and parts of names.
pub(crate) const RUNNER: Program = Program::new("tests", || run(super::all_tests()));

/// Registers functions as tests, each of which is run as a program of its own by
/// `make test APP=path`: it fails if it panics, deadlocks, ends with a code that is not 0, or takes
/// longer than a minute (`LIMIT=`, in seconds).
///
/// As for any program, only a panic of the first G counts: join the others. Statics keep their
/// values from test to test.
///
/// ```
/// # #[cfg(all())] // In a crate: #[cfg(test)]
/// mod tests {
///     use runnext::prelude::*;
///
///     runnext::tests![a_value_arrives];
///
///     fn a_value_arrives() {
///         let (tx, rx) = chan::bounded(1);
///         tx.send(7).unwrap();
///         assert_eq!(rx.recv(), Ok(7));
///     }
/// }
/// ```
#[macro_export]
macro_rules! tests {
    ($($name:ident),+ $(,)?) => {
        $(const _: () = {
            const NAME: &str = concat!(module_path!(), "::", stringify!($name));
            #[used]
            #[unsafe(link_section = ".runnext.tests")]
            static TEST: $crate::program::Program = $crate::program::Program::new(NAME, $name);
            // For tools: see `main!`.
            const LINE: &[u8] =
                concat!(module_path!(), "::", stringify!($name), "\n").as_bytes();
            #[used]
            #[unsafe(link_section = ".runnext.testnames")]
            static LISTED: [u8; LINE.len()] = *LINE.first_chunk().unwrap();
        };)+
    };
}

fn run(tests: &[Program]) {
    let (limit, words) = read(args());
    let is_chosen =
        |test: &&Program| words.is_empty() || words.iter().any(|word| test.name().contains(word));
    let mut chosen: Vec<_> = tests.iter().filter(is_chosen).collect();
    chosen.sort_by_key(|test| test.name()); // they are linked in no order that the source shows
    let mut failed = 0;
    for test in &chosen {
        let verdict = match outcome(test, limit) {
            Ok(()) => "ok".to_string(),
            Err(why) => {
                failed += 1;
                format!("FAILED: {why}")
            }
        };
        println!("test {} ... {verdict}", test.name());
    }
    let (passed, left_out) = (chosen.len() - failed, tests.len() - chosen.len());
    println!("tests: {passed} passed, {failed} failed, {left_out} left out");
    if failed > 0 || passed == 0 {
        exit(1);
    }
}

/// The limit of a test and the parts of names that the arguments say.
fn read(args: &[String]) -> (Duration, Vec<&str>) {
    let seconds = |word: &String| word.strip_prefix("limit=")?.parse().ok();
    let limit_s = args.iter().find_map(seconds).unwrap_or(LIMIT_S);
    let words = args.iter().map(String::as_str).filter(|word| !word.starts_with("limit="));
    (Duration::from_secs(limit_s), words.collect())
}

/// Runs one test to its end, or stops it: when this returns, no G of it is left.
fn outcome(test: &Program, limit: Duration) -> Result<(), String> {
    let run =
        start_program(*test, Vec::new(), Share::DEFAULT).map_err(|error| error.to_string())?;
    match run.wait_until(limit) {
        Some(Ended::Code(0)) => Ok(()),
        Some(how) => Err(how.to_string()),
        None => {
            run.stop();
            let _ = run.wait();
            Err(format!("it took longer than {} s, and was stopped", limit.as_secs()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    #[test]
    fn each_way_to_end_has_its_verdict() {
        static GATE: sync::Semaphore = sync::Semaphore::new(0);
        let verdict =
            |main, limit_s| outcome(&Program::new("test", main), Duration::from_secs(limit_s));
        assert_eq!(verdict(|| (), 600), Ok(()));
        assert_eq!(verdict(|| panic!("no"), 600), Err("panicked".into()));
        let stopped = Err("it took longer than 0 s, and was stopped".into());
        assert_eq!(verdict(|| GATE.acquire(1), 0), stopped);
        GATE.release(1); // threads are not killed
    }

    #[test]
    fn arguments_are_a_limit_and_parts_of_names() {
        let words = |line: &str| line.split(' ').map(String::from).collect::<Vec<_>>();
        let args = words("a::b limit=5 c");
        assert_eq!(read(&args), (Duration::from_secs(5), vec!["a::b", "c"]));
        assert_eq!(read(&[]), (Duration::from_secs(LIMIT_S), vec![]));
    }
}
