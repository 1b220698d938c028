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
#![forbid(unsafe_code)]

use super::{GInfo, GState, MInfo, PInfo, Stats};
use crate::run::account::FullAccounting;
use crate::run::time::{Duration, Instant, sleep_until};
use crate::run::{MState, door, service, system};
use crate::watch;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Display, Write};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use sched::Priority;

/// When the first line was made, ns; that is its time 0.
static START_NS: AtomicU64 = AtomicU64::new(0);

/// Starts the G that prints a line every `period_ms`, if there is one; with `has_detail`, one for
/// every P, M and G, too.
pub(crate) fn begin(period_ms: Option<u32>, has_detail: bool) {
    let Some(period_ms) = period_ms else { return };
    let make = if has_detail { detail } else { line };
    let period = Duration::from_millis(period_ms.into());
    let print = move || {
        let mut next = Instant::now();
        let _ = time_zero(next.as_nanos());
        loop {
            make().lines().for_each(|line| crate::println!("{line}"));
            // If printing takes longer than the period: other Gs need the console, too.
            let now = Instant::now();
            next = if next + period <= now { now } else { next } + period;
            sleep_until(next);
        }
    };
    core::mem::forget(FullAccounting::begin()); // it prints for ever
    if let Err(error) = service::spawn("schedtrace", print) {
        log::warn!("schedtrace: {error}");
    }
}

/// The time origin of these lines: `now` of the first call.
fn time_zero(now_ns: u64) -> u64 {
    START_NS.compare_exchange(0, now_ns, Relaxed, Relaxed).err().unwrap_or(now_ns)
}

/// One line about the whole, without its end.
#[must_use]
pub fn line() -> String {
    let seen = Seen::now(Vec::new(), Vec::new());
    let [queued, slices] = [seen.each_p(|p| p.queued as u64), seen.each_p(|p| p.slices.into())];
    format!("{seen} [ {queued}] schedticks=[ {slices}]")
}

/// The whole, and a line for each P, for each M that is on a CPU or in a call, and for each G.
#[must_use]
pub fn detail() -> String {
    let mut ms = watch::ms();
    ms.sort_unstable_by_key(|m| m.id);
    Seen::now(ms, watch::gs()).detail()
}

struct Seen {
    ms_since_start: u64,
    stats: Stats,
    ms: Vec<MInfo>,
    gs: Vec<GInfo>,
}

impl Seen {
    fn now(ms: Vec<MInfo>, gs: Vec<GInfo>) -> Self {
        let now = door::now_ns();
        let ms_since_start = now.saturating_sub(time_zero(now)) / 1_000_000;
        Seen { ms_since_start, stats: watch::stats(), ms, gs }
    }

    fn ps(&self) -> &[PInfo] {
        &self.stats.cpus[..self.stats.gomaxprocs]
    }

    /// A number of each P that may run Gs, a space after each.
    fn each_p(&self, of: impl Fn(&PInfo) -> u64) -> String {
        self.ps().iter().map(|p| format!("{} ", of(p))).collect()
    }

    fn detail(&self) -> String {
        let off = "gcwaiting=false nmidlelocked=0 stopwait=0 sysmonwait=false";
        let mut text = format!("{self} {off}\n");
        // Writing to a string cannot fail.
        for (index, p) in self.ps().iter().enumerate() {
            let status = u8::from(!p.is_idle); // Go's _Pidle and _Prunning
            let _ = writeln!(
                text,
                "  P{index}: status={status} schedtick={} syscalltick={} m={} runqsize={} \
                 timerslen={}",
                p.slices, p.handoffs, p.m, p.queued, p.sleepers,
            );
        }
        let (spare, others): (Vec<_>, Vec<_>) =
            self.ms.iter().partition(|m| m.state == MState::Spare);
        let ps = self.ps();
        for m in others {
            let p = ps.iter().position(|p| p.m == m.id as u32 && m.state == MState::OnCpu);
            let on_p = p.and_then(|p| ps[p].g);
            let _ = writeln!(
                text,
                "  M{}: p={} curg={} mallocing=0 throwing=0 preemptoff= locks=0 dying=0 \
                 spinning=false blocked={} lockedg=nil",
                m.id,
                or_nil(p),
                or_nil(if m.state == MState::InCall { Some(m.g) } else { on_p }),
                m.state != MState::OnCpu || p.is_some_and(|p| ps[p].is_idle),
            );
        }
        if !spare.is_empty() {
            let _ = writeln!(text, "  {} more Ms: idle, on no CPU", spare.len());
        }
        for g in &self.gs {
            let status = match g.state {
                GState::Runnable => 1,
                GState::Running => 2,
                GState::InCall => 3,
                GState::Waiting => 4,
            };
            let wait = g.wait.map_or(String::new(), |wait| format!("{wait}"));
            let (id, m) = (g.id, or_nil(g.m));
            let _ = write!(text, "  G{id}: status={status}({wait}) m={m} lockedm=nil");
            let _ = match (g.priority, g.rank) {
                (Priority::Normal, Priority::Normal) => writeln!(text),
                (priority, rank) => writeln!(text, " priority={priority} rank={rank}"),
            };
        }
        text
    }
}

impl Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats { gomaxprocs, spinning, global, ms, cpus, .. } = &self.stats;
        let idle_ps = self.ps().iter().filter(|p| p.is_idle).count();
        // An M on the CPU of an idle P is idle, and so are spare Ms.
        let idle_ms = ms.spare as usize + idle_ps + (cpus.len() - gomaxprocs);
        write!(
            f,
            "SCHED {}ms: gomaxprocs={gomaxprocs} idleprocs={idle_ps} threads={} \
             spinningthreads={spinning} needspinning=0 idlethreads={idle_ms} runqueue={global}",
            self.ms_since_start, ms.created,
        )?;
        match system::running().name {
            "mpn" => Ok(()),
            name => write!(f, " system={name}"),
        }
    }
}

/// A number, or Go's word for none.
fn or_nil(number: Option<impl Display>) -> String {
    number.map_or("nil".into(), |number| format!("{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        let mut stats = Stats { gomaxprocs: 2, global: 4, ..Stats::default() };
        (stats.ms.created, stats.ms.spare) = (3, 1);
        let busy = PInfo { queued: 3, slices: 7, g: Some(17), ..PInfo::default() };
        let idle = PInfo { is_idle: true, slices: 1, m: 1, ..PInfo::default() };
        stats.cpus = vec![busy, PInfo { sleepers: 2, handoffs: 5, ..idle }];
        let m = |id, state| MInfo { id, state, stack: 0..0, g: 9 };
        let mut ms = vec![m(0, MState::OnCpu), m(1, MState::OnCpu), m(2, MState::InCall)];
        ms.extend((3..100).map(|id| m(id, MState::Spare)));
        Seen { ms_since_start: 12, stats, ms, gs: Vec::new() }
    }

    #[test]
    fn line_is_go_s_field_by_field() {
        assert_eq!(
            seen().to_string(),
            "SCHED 12ms: gomaxprocs=2 idleprocs=1 threads=3 spinningthreads=0 needspinning=0 \
             idlethreads=2 runqueue=4"
        );
        assert_eq!(seen().each_p(|p| p.queued as u64), "3 0 ");
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
    fn first_line_is_at_time_zero() {
        assert!(line().starts_with("SCHED 0ms: "), "{}", line());
    }
}
