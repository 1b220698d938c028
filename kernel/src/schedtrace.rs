//! Snapshots of the scheduler in Go's format: `schedtrace=` and `scheddetail=`.
//!
//! Every so many milliseconds a line about the whole ([`line()`]), or several with one for each P,
//! M and G ([`detail`]). Names, order and numbers of states are those of Go's `GODEBUG=schedtrace`,
//! so that tools for its output can read this. Fields for what only Go has (a garbage collector,
//! threads that are locked to a G) have the value that Go prints while it is off; fields that
//! cannot be read from outside a P are left out (`gfreecnt`).
//!
//! An M that waits on its CPU for work counts as idle, as it does in Go, where it has released its
//! P; so do spare Ms on no CPU. The latter share one line: a program that once had a thousand
//! blocking calls leaves a thousand of them.
//!
//! Nothing is stopped for a snapshot: two numbers may be of two moments.
#![forbid(unsafe_code)]

use crate::schedule::{MInfo, MState, PInfo, SchedInfo};
use crate::tasks::{GInfo, GState};
use crate::time::{Duration, Instant, sleep_until};
use crate::{attendants, options, park, schedule, tasks};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Display, Write};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// When the first line was made, ns; that is its time 0.
static START_NS: AtomicU64 = AtomicU64::new(0);

/// Starts the G that prints, if the command line asks for it.
pub(crate) fn begin() {
    if options().schedtrace_ms.is_some()
        && let Err(error) = attendants::spawn("schedtrace", print_for_ever)
    {
        log::warn!("schedtrace: {error}");
    }
}

fn print_for_ever() {
    let period = Duration::from_millis(options().schedtrace_ms.unwrap_or(1_000).into());
    let mut next = Instant::now();
    let _ = time_zero(next.as_nanos());
    loop {
        let text = if options().scheddetail { detail() } else { line() };
        text.lines().for_each(|line| crate::println!("{line}"));
        next += period;
        let now = Instant::now();
        if next <= now {
            // Printing takes longer than the period: other Gs need the console, too.
            next = now + period;
        }
        sleep_until(next);
    }
}

/// The time origin of these lines: `now` of the first call.
fn time_zero(now_ns: u64) -> u64 {
    match START_NS.compare_exchange(0, now_ns, Relaxed, Relaxed) {
        Ok(_) => now_ns,
        Err(start_ns) => start_ns,
    }
}

/// One line about the whole, without its end.
///
/// ```
/// assert!(runnext::schedtrace::line().starts_with("SCHED "));
/// ```
#[must_use]
pub fn line() -> String {
    let seen = Seen::now(Vec::new(), Vec::new());
    let [queued, ticks] = [seen.ps(|p| p.queued as u64), seen.ps(|p| p.ticks.into())];
    format!("{seen} [ {queued}] schedticks=[ {ticks}]")
}

/// The whole, and a line for each P, for each M that is on a CPU or in a call, and for
/// each G.
///
/// ```
/// assert!(runnext::schedtrace::detail().contains("gcwaiting=false"));
/// ```
#[must_use]
pub fn detail() -> String {
    let mut ms = park::ms();
    ms.sort_unstable_by_key(|m| m.id);
    Seen::now(ms, tasks::gs()).detail()
}

/// A snapshot, taken at about one time.
struct Seen {
    ms_since_start: u64,
    sched: SchedInfo,
    ms: Vec<MInfo>,
    gs: Vec<GInfo>,
}

impl Seen {
    fn now(ms: Vec<MInfo>, gs: Vec<GInfo>) -> Self {
        let now = park::now_ns();
        let ms_since_start = now.saturating_sub(time_zero(now)) / 1_000_000;
        Seen { ms_since_start, sched: schedule::sched_info(), ms, gs }
    }

    /// A number of each P that runs Gs, a space after each.
    fn ps(&self, of: impl Fn(&PInfo) -> u64) -> String {
        self.sched.ps.iter().map(|p| format!("{} ", of(p))).collect()
    }

    fn detail(&self) -> String {
        let off = "gcwaiting=false nmidlelocked=0 stopwait=0 sysmonwait=false";
        let mut text = format!("{self} {off}\n");
        // Writing to a string cannot fail.
        for (index, p) in self.sched.ps.iter().enumerate() {
            let _ = writeln!(text, "  P{index}: {}", PLine(p));
        }
        let is_spare = |m: &&MInfo| m.state == MState::Spare;
        for m in self.ms.iter().filter(|m| !is_spare(m)) {
            let _ = writeln!(text, "  M{}: {}", m.id, self.m_line(m));
        }
        match self.ms.iter().filter(is_spare).count() {
            0 => {}
            spare => {
                let _ = writeln!(text, "  {spare} more Ms: idle, on no CPU");
            }
        }
        for g in &self.gs {
            let _ = writeln!(text, "  G{}: {}", g.id, GLine(g));
        }
        text
    }

    fn m_line(&self, m: &MInfo) -> String {
        let p = self.sched.ps.iter().position(|p| p.m == m.id as u32 && m.state == MState::OnCpu);
        let on_p = p.and_then(|p| self.sched.ps[p].g);
        let curg = if m.state == MState::InCall { Some(m.g) } else { on_p };
        format!(
            "p={} curg={} mallocing=0 throwing=0 preemptoff= locks=0 dying=0 spinning=false \
             blocked={} lockedg=nil",
            OrNil(p),
            OrNil(curg),
            m.state != MState::OnCpu || p.is_some_and(|p| self.sched.ps[p].is_idle),
        )
    }
}

impl Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SchedInfo { idle_ps, threads, spinning, idle_threads, global, .. } = self.sched;
        write!(
            f,
            "SCHED {}ms: gomaxprocs={} idleprocs={idle_ps} threads={threads} \
             spinningthreads={spinning} needspinning=0 idlethreads={idle_threads} runqueue={global}",
            self.ms_since_start,
            self.sched.ps.len(),
        )
    }
}

struct PLine<'a>(&'a PInfo);

impl Display for PLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PLine(p) = self;
        let status = u8::from(!p.is_idle); // Go's _Pidle and _Prunning
        write!(
            f,
            "status={status} schedtick={} syscalltick={} m={} runqsize={} timerslen={}",
            p.ticks, p.handoffs, p.m, p.queued, p.sleepers,
        )
    }
}

struct GLine<'a>(&'a GInfo);

impl Display for GLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GLine(g) = self;
        let status = match g.state {
            GState::Runnable => 1,
            GState::Running => 2,
            GState::InCall => 3,
            _ => 4,
        };
        write!(f, "status={status}(")?;
        if let Some(wait) = &g.wait {
            write!(f, "{wait}")?;
        }
        write!(f, ") m={} lockedm=nil", OrNil(g.m))
    }
}

/// A number, or Go's word for none.
struct OrNil<T>(Option<T>);

impl<T: Display> Display for OrNil<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(number) => number.fmt(f),
            None => f.write_str("nil"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        let busy =
            PInfo { is_idle: false, queued: 3, ticks: 7, m: 0, g: Some(17), ..PInfo::default() };
        let idle =
            PInfo { is_idle: true, ticks: 1, m: 1, sleepers: 2, handoffs: 5, ..PInfo::default() };
        let sched = SchedInfo {
            idle_ps: 1,
            threads: 3,
            spinning: 0,
            idle_threads: 2,
            global: 4,
            ps: vec![busy, idle],
        };
        let m = |id, state| MInfo { id, state, stack: 0..0, g: 9, calls: Vec::new() };
        let mut ms = vec![m(0, MState::OnCpu), m(1, MState::OnCpu), m(2, MState::InCall)];
        ms.extend((3..100).map(|id| m(id, MState::Spare)));
        Seen { ms_since_start: 12, sched, ms, gs: Vec::new() }
    }

    #[test]
    fn line_is_go_s_field_by_field() {
        assert_eq!(
            seen().to_string(),
            "SCHED 12ms: gomaxprocs=2 idleprocs=1 threads=3 spinningthreads=0 needspinning=0 \
             idlethreads=2 runqueue=4"
        );
        assert_eq!(seen().ps(|p| p.queued as u64), "3 0 ");
    }

    #[test]
    fn detail_has_a_line_for_each_p_and_m() {
        let detail = seen().detail();
        let lines: Vec<&str> = detail.lines().collect();
        assert!(lines[0].ends_with("gcwaiting=false nmidlelocked=0 stopwait=0 sysmonwait=false"));
        assert_eq!(lines[1], "  P0: status=1 schedtick=7 syscalltick=0 m=0 runqsize=3 timerslen=0");
        assert_eq!(lines[2], "  P1: status=0 schedtick=1 syscalltick=5 m=1 runqsize=0 timerslen=2");
        assert!(lines[3].starts_with("  M0: p=0 curg=17 ") && lines[3].contains("blocked=false"));
        assert!(lines[4].starts_with("  M1: p=1 curg=nil ") && lines[4].contains("blocked=true"));
        assert!(lines[5].starts_with("  M2: p=nil curg=9 ") && lines[5].contains("blocked=true"));
        assert_eq!(lines[6..], ["  97 more Ms: idle, on no CPU"]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "who runs is the address that a CPU has left")]
    fn first_line_is_at_time_zero() {
        assert!(line().starts_with("SCHED 0ms: "), "{}", line());
    }
}
