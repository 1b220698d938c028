//! What the way from an edit to the program's first output took, in CPU seconds.
//!
//! `make run FAST=1` prints it. The kernel has said the last line of its banner when
//! the program begins, so the first byte after that line is the program's; it is looked
//! for in a copy of what the serial port says. CPU time is what `/proc` counts for this
//! process, for its children that have ended (cargo with all its compilers), and for the
//! machine; where there is no `/proc` there is no figure.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What the last line of the kernel's banner begins with.
const LAST_OF_BANNER: &[u8] = b"\n    sched  ";

/// Watches one run.
#[derive(Debug)]
pub struct Cost {
    begun: Instant,
    /// The copy of what the serial port says.
    log: PathBuf,
    build: Duration,
    image: Duration,
    first_output: Option<(Duration, Duration)>,
}

impl Cost {
    /// Begins to count. `log` is where the machine's serial output will be.
    pub fn new(log: PathBuf) -> Self {
        let zero = Duration::ZERO;
        Self { begun: Instant::now(), log, build: zero, image: zero, first_output: None }
    }

    /// The kernel is built.
    pub fn built(&mut self) {
        self.build = own().unwrap_or_default();
    }

    /// The image is made.
    pub fn made_image(&mut self) {
        self.image = own().unwrap_or_default().saturating_sub(self.build);
    }

    /// Looks whether the program has said something, until it has. `pid` is QEMU's.
    pub fn look(&mut self, pid: u32) {
        if self.first_output.is_none() && fs::read(&self.log).is_ok_and(|log| has_output(&log)) {
            self.first_output = CpuTime::of(pid).map(|cpu| (cpu.own, self.begun.elapsed()));
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { build, image, .. } = self;
        let Some((machine, took)) = self.first_output else {
            return write!(f, "{:.1} CPU s to build, no output of a program", seconds(*build));
        };
        write!(
            f,
            "first output after {:.1} CPU s: {:.1} building, {:.1} image, {:.1} machine \
             ({:.1} s by the clock)",
            seconds(*build + *image + machine),
            seconds(*build),
            seconds(*image),
            seconds(machine),
            seconds(took)
        )
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

fn has_output(log: &[u8]) -> bool {
    let banner = log.windows(LAST_OF_BANNER.len()).position(|part| part == LAST_OF_BANNER);
    banner.is_some_and(|at| {
        let rest = &log[at + LAST_OF_BANNER.len()..];
        rest.iter().position(|&byte| byte == b'\n').is_some_and(|end| end + 1 < rest.len())
    })
}

/// CPU time of this process and its ended children.
fn own() -> Option<Duration> {
    CpuTime::of(std::process::id()).map(|cpu| cpu.own + cpu.children)
}

/// What a process had of the host's CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTime {
    /// All its threads.
    pub own: Duration,
    /// Its children that have ended and that it has waited for, with theirs.
    pub children: Duration,
}

impl CpuTime {
    /// That of the process `pid`; `None` where there is no such process, or no `/proc`. A
    /// process that has ended has it until its parent has waited for it.
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// proc(5): fields 14 to 17 are utime, stime, cutime and cstime in hundredths of a
    /// second. The name in field 2 may have spaces, so count from its closing bracket.
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
        let mut two = || {
            let mut one = || fields.next()?.parse::<u64>().ok();
            Some(Duration::from_millis((one()? + one()?) * 10))
        };
        Some(Self { own: two()?, children: two()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_begins_behind_the_banner() {
        let banner = b"runnext\n  machine  QEMU\n    sched  8 Ps\n";
        assert!(!has_output(&banner[..banner.len() - 1]));
        assert!(!has_output(banner));
        assert!(has_output(&[banner, &b"h"[..]].concat()));
    }

    #[test]
    fn times_are_read_behind_a_name_with_spaces() {
        let stat = "1 (a ) b) S 2 3 4 5 6 7 8 9 10 11 150 25 300 1 20 0";
        let millis = Duration::from_millis;
        let expected = CpuTime { own: millis(1750), children: millis(3010) };
        assert_eq!(CpuTime::parse(stat), Some(expected));
        assert_eq!(CpuTime::parse(""), None);
    }

    #[test]
    fn the_parts_are_the_whole() {
        let mut cost = Cost::new("none".into());
        cost.build = Duration::from_millis(5100);
        cost.image = Duration::from_millis(600);
        assert!(cost.to_string().starts_with("5.1 CPU s to build, no output"));
        cost.first_output = Some((Duration::from_millis(2700), Duration::from_millis(6200)));
        let said = "first output after 8.4 CPU s: 5.1 building, 0.6 image, 2.7 machine \
                    (6.2 s by the clock)";
        assert_eq!(cost.to_string(), said);
    }
}
