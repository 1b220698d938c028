//! What stands out in a trace, in sentences.
//!
//! Each finding is about the scheduler: times in which the host was elsewhere are taken out
//! first, and said apart. A finding says what was seen, with its figures; why it is so is for the
//! reader to find (a pinned G, for one, waits for its own CPU beside idle ones).

use super::elsewhere::within;
use super::{Cpu, Interval, Left, Model, Point, Span};
use crate::picture::{grouped, time};
use crate::wire::{DISTANCES, Kind};

/// How long a G may run while others wait: the kernel's `slice`.
pub const SLICE_NS: u64 = 10_000_000;

/// A sentence, and whether it is bad news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// In words.
    pub text: String,
    /// Whether something is wrong.
    pub is_bad: bool,
}

impl Finding {
    fn bad(text: String) -> Finding {
        Finding { text, is_bad: true }
    }
}

/// All findings of `model`; at least one.
///
/// ```
/// use trace::model::{Model, findings::find};
/// assert!(!find(&Model::default())[0].is_bad);
/// ```
pub fn find(model: &Model) -> Vec<Finding> {
    let mut found: Vec<Finding> =
        [host(model), waits(model), long_runs(model), lost(model)].into_iter().flatten().collect();
    found.extend(distances(model));
    if !found.iter().any(|one| one.is_bad) {
        let text = "No G waited longer than a slice while a P was idle, and none ran longer than \
                    two slices while others waited.";
        found.push(Finding { text: text.into(), is_bad: false });
    }
    found
}

/// How far Gs and wake-ups went; nothing where all CPUs are equally far.
fn distances(model: &Model) -> Option<Finding> {
    let level = |(from, to): (u32, u32)| {
        let row = model.distances.get(from as usize)?;
        Some(usize::from(*row.get(to as usize)?))
    };
    let by_distance = |pairs: &mut dyn Iterator<Item = (u32, u32)>| {
        let mut counts = [0u64; DISTANCES.len()];
        pairs.filter_map(level).for_each(|level| counts[level] += 1);
        let named = counts.iter().zip(DISTANCES).filter(|(n, _)| **n > 0);
        let named: Vec<String> = named.map(|(n, name)| format!("{} {name}", grouped(*n))).collect();
        if named.is_empty() { "none".into() } else { named.join(", ") }
    };
    model.distances.iter().find(|row| !row.is_empty())?;
    let steals = by_distance(&mut model.steals.iter().map(|steal| (steal.thief, steal.victim)));
    let sent = model.instants.iter().filter(|instant| instant.kind == Kind::WakeSent);
    let wakes = by_distance(&mut sent.map(|instant| (instant.cpu, instant.arg)));
    let text =
        format!("By distance between the two CPUs: steals {steals}; interrupts sent {wakes}.");
    Some(Finding { text, is_bad: false })
}

fn host(model: &Model) -> Option<Finding> {
    let share = model.share_elsewhere();
    let longest = model.cpus.iter().flat_map(|cpu| &cpu.elsewhere).max_by_key(|one| one.ns())?;
    let text = format!(
        "The host was elsewhere for {:.1} % of the CPUs' time, {} at the longest (hatched): a G \
         that seems to run or to wait there does not, and the scheduler has no part in it.",
        share * 100.0,
        time(longest.ns())
    );
    Some(Finding { text, is_bad: share > 0.05 })
}

/// Gs that were runnable for longer than a slice while a P was idle for as long.
fn waits(model: &Model) -> Option<Finding> {
    let idle = idle_ps(model);
    let idle = Area::new(&idle);
    let mut gs = 0u64;
    let mut most_idle = 0u32;
    let mut longest = (0, 0);
    for (number, waits) in queue_waits(model) {
        let mut is_late = false;
        for wait in waits {
            if wait.ns() > SLICE_NS && idle.within(wait) >= u128::from(SLICE_NS) {
                is_late = true;
                most_idle = most_idle.max(idle.most(wait));
                longest = longest.max((wait.ns(), number));
            }
        }
        gs += u64::from(is_late);
    }
    (gs > 0).then(|| {
        Finding::bad(format!(
            "{} waited more than a slice for a P while {} idle; the longest, G{}, for {}.",
            count(gs, "G"),
            if most_idle == 1 { "a P was".into() } else { format!("up to {most_idle} Ps were") },
            longest.1,
            time(longest.0)
        ))
    })
}

/// Gs that ran for more than two slices at a stretch while others were runnable.
fn long_runs(model: &Model) -> Option<Finding> {
    let runnable = Area::new(&model.runnable);
    let mut count_of = 0u64;
    let mut longest = (0, 0);
    for cpu in &model.cpus {
        for span in &cpu.spans {
            let ran = span.time.ns().saturating_sub(within(&cpu.elsewhere, span.time));
            // All the while, and not only at its end.
            let others = runnable.within(span.time) >= u128::from(span.time.ns());
            if ran > 2 * SLICE_NS && others {
                count_of += 1;
                longest = longest.max((ran, model.gs[span.g as usize].number));
            }
        }
    }
    (count_of > 0).then(|| {
        Finding::bad(format!(
            "{} ran for more than two slices at a stretch while other Gs waited; the longest, G{}, for {}.",
            count(count_of, "G"),
            longest.1,
            time(longest.0)
        ))
    })
}

fn lost(model: &Model) -> Option<Finding> {
    (model.lost > 0).then(|| {
        Finding::bad(format!(
            "{} of {} events are missing (hatched): ARGS=\"events=…\" makes room for more.",
            grouped(model.lost),
            grouped(model.lost.saturating_add(model.events))
        ))
    })
}

fn count(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// The times in which each G was runnable and did not run, with its number.
fn queue_waits(model: &Model) -> impl Iterator<Item = (u32, Vec<Interval>)> {
    let mut spans: Vec<&Span> = model.cpus.iter().flat_map(|cpu| &cpu.spans).collect();
    spans.sort_by_key(|span| (span.g, span.time.from));
    let lives: Vec<(u32, Vec<Interval>)> = spans
        .chunk_by(|a, b| a.g == b.g)
        .map(|own| {
            let before = std::iter::once(None).chain(own.iter().map(Some));
            let waits = own.iter().zip(before).filter_map(|(span, before)| {
                let requeued = before.filter(|before| {
                    matches!(before.left, Left::Yielded | Left::Preempted | Left::Displaced)
                });
                let from =
                    requeued.map(|before| before.time.to).or(span.woken.map(|woken| woken.at))?;
                Some(Interval { from, to: span.time.from.max(from) })
            });
            (model.gs[own[0].g as usize].number, waits.collect())
        })
        .collect();
    lives.into_iter()
}

/// How many Ps were halted while their CPUs ran, at each change.
fn idle_ps(model: &Model) -> Vec<Point> {
    let mut changes: Vec<(u64, i32)> = Vec::new();
    for Cpu { idle, elsewhere, .. } in &model.cpus {
        for halt in idle {
            let mut from = halt.from;
            let first = elsewhere.partition_point(|one| one.to <= halt.from);
            let cuts = elsewhere[first..].iter().take_while(|one| one.from < halt.to);
            for cut in cuts {
                changes.extend([(from, 1), (cut.from.max(from), -1)]);
                from = cut.to.min(halt.to);
            }
            changes.extend([(from, 1), (halt.to, -1)]);
        }
    }
    changes.sort_unstable();
    let mut value = 0i32;
    let mut points: Vec<Point> = Vec::new();
    for (at, step) in changes {
        value += step;
        let now = Point { at, value: value.max(0) as u32 };
        match points.last_mut() {
            Some(last) if last.at == at => *last = now,
            _ => points.push(now),
        }
    }
    points
}

/// A count over time, and its integral.
struct Area<'a> {
    points: &'a [Point],
    /// Count times nanoseconds, up to each point.
    sums: Vec<u128>,
}

impl Area<'_> {
    fn new(points: &[Point]) -> Area<'_> {
        let mut sum = 0;
        let steps = points.windows(2).map(|pair| {
            sum += u128::from(pair[0].value) * u128::from(pair[1].at.saturating_sub(pair[0].at));
            sum
        });
        Area { points, sums: std::iter::once(0).chain(steps).collect() }
    }

    fn until(&self, at: u64) -> u128 {
        match self.points.partition_point(|point| point.at <= at).checked_sub(1) {
            Some(i) => {
                let point = self.points[i];
                self.sums[i] + u128::from(point.value) * u128::from(at - point.at)
            }
            None => 0,
        }
    }

    fn within(&self, time: Interval) -> u128 {
        self.until(time.to).saturating_sub(self.until(time.from))
    }

    /// The highest count in `time`.
    fn most(&self, time: Interval) -> u32 {
        let first = self.points.partition_point(|point| point.at <= time.from).saturating_sub(1);
        let inside = self.points[first..].iter().take_while(|point| point.at < time.to);
        inside.map(|point| point.value).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use crate::encode::Encoder;
    use crate::wire::{Event, Header, Kind};

    const MS: u64 = 1_000_000;

    /// Two CPUs whose counters count nanoseconds; events by milliseconds.
    fn findings(events: [&[(u64, u32, Kind, u32)]; 2]) -> Vec<Finding> {
        let mut stream = Encoder::new(Header { cpus: 2, hz: 1_000_000_000, zero: 0 });
        for (cpu, list) in events.into_iter().enumerate() {
            let list: Vec<Event> =
                list.iter().map(|&(ms, g, kind, arg)| Event::new(ms * MS, g, kind, arg)).collect();
            stream.events(cpu as u32, 0, &list);
        }
        find(&Model::new(&decode(stream.bytes()).expect("a stream")))
    }

    #[test]
    fn steals_and_wakes_are_told_by_distance_where_there_is_one() {
        let mut stream = Encoder::new(Header { cpus: 3, hz: 1_000_000_000, zero: 0 });
        let steal = |at, victim: u32| Event::new(at, 1, Kind::Steal, victim << 12 | 1);
        let wake = |at, cpu| Event::new(at, 0, Kind::WakeSent, cpu);
        stream.events(0, 0, &[steal(1, 1), steal(2, 2), steal(3, 1), steal(4, 99), wake(5, 2)]);
        let said = |stream: &Encoder| {
            texts(&find(&Model::new(&decode(stream.bytes()).expect("a stream"))))
        };
        assert!(!said(&stream).contains("distance"), "all are equally far");
        stream.distances(0, &[0, 1, 4]);
        let told = "false By distance between the two CPUs: steals 2 cache, 1 remote; interrupts \
                    sent 1 remote.";
        assert!(said(&stream).contains(told), "{}", said(&stream));
        for odd in [&[0, 1][..], &[0, 1, 5], &[]] {
            let mut stream = Encoder::new(Header { cpus: 3, hz: 1_000_000_000, zero: 0 });
            stream.distances(0, odd);
            assert_eq!(decode(stream.bytes()).expect("a stream").distances[0], [0; 0]);
        }
    }

    fn texts(findings: &[Finding]) -> String {
        findings.iter().map(|one| format!("{} {}\n", one.is_bad, one.text)).collect()
    }

    #[test]
    fn a_g_that_waits_beside_an_idle_p_is_named() {
        let said = texts(&findings([
            &[
                (0, 1, Kind::Start, 0),
                (1, 2, Kind::Create, 0),
                (15, 1, Kind::Exit, 0),
                (16, 2, Kind::Start, 0),
                (17, 2, Kind::Exit, 0),
            ],
            &[(0, 0, Kind::Halt, 0), (40, 0, Kind::Resume, 0)],
        ]));
        assert!(
            said.contains("true 1 G waited more than a slice for a P while a P was idle"),
            "{said}"
        );
        assert!(said.contains("G2, for 15 ms"), "{said}");
        assert!(!said.contains("No G waited"), "{said}");
    }

    #[test]
    fn a_p_whose_cpu_did_not_run_is_not_idle() {
        let said = texts(&findings([
            &[
                (0, 1, Kind::Start, 0),
                (1, 2, Kind::Create, 0),
                (1, 0, Kind::WakeSent, 1),
                (15, 1, Kind::Exit, 0),
            ],
            &[
                (0, 0, Kind::Halt, 0),
                (41, 0, Kind::WakeReceived, 0),
                (41, 0, Kind::Resume, 0),
                (41, 2, Kind::Start, 0),
                (42, 2, Kind::Exit, 0),
            ],
        ]));
        assert!(
            said.contains("true The host was elsewhere for 47.6 % of the CPUs' time, 40 ms"),
            "{said}"
        );
        assert!(!said.contains("waited more"), "{said}");
    }

    #[test]
    fn a_g_that_runs_beyond_its_slice_is_named_unless_the_host_was_elsewhere() {
        let run = |late_us| {
            let hog: &[_] = &[
                (0, 1, Kind::Start, 0),
                (0, 2, Kind::Create, 0),
                (50, 0, Kind::Tick, late_us),
                (50, 1, Kind::Expire, 0),
                (50, 2, Kind::Start, 0),
                (51, 2, Kind::Exit, 0),
            ];
            texts(&findings([hog, &[(0, 3, Kind::Start, 0), (5, 3, Kind::Exit, 0)]]))
        };
        let said = run(0);
        assert!(said.contains("1 G ran for more than two slices at a stretch"), "{said}");
        assert!(said.contains("G1, for 50 ms"), "{said}");
        let said = run(40_000);
        assert!(!said.contains("more than two slices at"), "{said}");
        assert!(said.contains("40 ms at the longest"), "{said}");
    }

    #[test]
    fn a_quiet_trace_says_so() {
        let said = texts(&findings([
            &[(0, 1, Kind::Start, 0), (5, 1, Kind::Exit, 0)],
            &[(0, 0, Kind::Halt, 0), (5, 0, Kind::Resume, 0)],
        ]));
        assert!(said.starts_with("false No G waited"), "{said}");
    }
}
