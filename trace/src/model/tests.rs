//! Tests of the model: short scripts of events, and what they mean.

use super::*;
use crate::decode::decode;
use crate::encode::Encoder;
use crate::wire::Event;

/// A stream of some CPUs whose counter counts nanoseconds.
fn model(cpus: &[&[(u64, u32, Kind, u32)]]) -> Model {
    let header = Header { cpus: cpus.len() as u32, hz: 1_000_000_000, zero: 0 };
    let mut stream = Encoder::new(header);
    for (cpu, events) in cpus.iter().enumerate() {
        let events: Vec<Event> =
            events.iter().map(|&(tsc, g, kind, arg)| Event::new(tsc, g, kind, arg)).collect();
        stream.events(cpu as u32, 0, &events);
    }
    stream.name(2, "leaf", "main.rs:3");
    stream.done(0);
    Model::new(&decode(stream.bytes()).expect("a stream"))
}

fn numbers(model: &Model, cpu: usize) -> Vec<(u32, u64, u64, Left)> {
    let number = |span: &Span| model.gs[span.g as usize].number;
    let spans = model.cpus[cpu].spans.iter();
    spans.map(|span| (number(span), span.time.from, span.time.to, span.left)).collect()
}

#[test]
fn a_start_ends_the_span_before_it() {
    let model = model(&[&[
        (10, 1, Kind::Start, 1),
        (20, 2, Kind::Start, 1 | 5 << 8 | 3 << 16), // 1 parked, for reason 3
        (30, 2, Kind::Exit, 0),
        (40, 3, Kind::Start, 1),
    ]]);
    let spans =
        [(1, 10, 20, Left::Parked(3)), (2, 20, 30, Left::Exited), (3, 40, 40, Left::StillRunning)];
    assert_eq!(numbers(&model, 0), spans);
    assert_eq!(model.cpus[0].counts.of(Kind::Park), 1);
    assert_eq!(model.cpus[0].counts.of(Kind::Start), 3);
    assert_eq!(model.gs[1].name, "leaf");
    assert_eq!((model.gs[1].run_ns, model.gs[1].ended), (10, Some(30)));
}

#[test]
fn a_wake_up_points_from_the_waker_to_the_start() {
    let model = model(&[
        &[(10, 1, Kind::Start, 1), (15, 2, Kind::Create, 0), (20, 2, Kind::Ready, 0)],
        &[(30, 2, Kind::Start, 1), (40, 2, Kind::Park, 4), (90, 2, Kind::Ready, 1)],
    ]);
    let woken = model.cpus[1].spans[0].woken.expect("a waker");
    assert_eq!(woken, Woken { at: 15, cpu: 0, by: Some(0), how: Wake::Created });
    assert_eq!(model.gs[1].queued_ns, 15);
    assert_eq!(model.gs[1].created, Some(15));
    assert_eq!(model.longest_queued[0].time, Interval { from: 15, to: 30 });
    let parked = model.longest_parked[0];
    assert_eq!((parked.time.ns(), parked.reason), (50, 4));
    let values: Vec<_> = model.runnable.iter().map(|point| (point.at, point.value)).collect();
    assert_eq!(values, [(15, 1), (30, 0), (90, 1)]);
}

#[test]
fn a_wake_up_that_overtakes_the_sleep_is_not_lost() {
    let model = model(&[
        &[(10, 2, Kind::Start, 1), (22, 2, Kind::Park, 4), (30, 2, Kind::Start, 1)],
        &[(5, 1, Kind::Start, 1), (20, 2, Kind::Ready, 0)],
    ]);
    let woken = model.cpus[0].spans[1].woken.expect("a waker");
    assert_eq!((woken.at, woken.cpu, woken.by), (20, 1, Some(0)));
    assert_eq!(model.cpus[0].spans[0].woken, None);
}

#[test]
fn halts_are_idle_and_counted() {
    let model = model(&[
        &[(10, 0, Kind::Halt, 0), (50, 0, Kind::Resume, 0)],
        &[(20, 0, Kind::Halt, 0), (60, 1, Kind::Start, 0)],
    ]);
    assert_eq!(model.cpus[0].idle, [Interval { from: 10, to: 50 }]);
    assert_eq!(model.cpus[1].idle, [Interval { from: 20, to: 60 }]);
    let values: Vec<_> = model.idle_ps.iter().map(|point| (point.at, point.value)).collect();
    assert_eq!(values, [(10, 1), (20, 2), (50, 1), (60, 0)]);
}

#[test]
fn a_cpu_that_goes_on_was_halted_before() {
    let model = model(&[
        &[(30, 0, Kind::WakeReceived, 0), (40, 0, Kind::Resume, 0), (50, 1, Kind::Start, 0)],
        &[(5, 1, Kind::Start, 0), (90, 1, Kind::Exit, 0)],
        &[(1, 0, Kind::Mount, 2)],
    ]);
    assert_eq!(model.cpus[0].idle, [Interval { from: 0, to: 40 }]);
    assert_eq!(model.cpus[1].idle, []);
    assert_eq!(model.cpus[2].idle, [Interval { from: 0, to: 90 }], "all the time");
    assert_eq!(model.idle_ps[0], Point { at: 0, value: 2 });
    assert_eq!(model.cpus[0].counts.of(Kind::Halt), 0, "it is no event");
}

#[test]
fn a_call_takes_its_m_along_and_comes_back_with_it() {
    let model = model(&[
        &[(0, 0, Kind::Mount, 10), (10, 1, Kind::Start, 1), (20, 1, Kind::Handoff, 12)],
        &[
            (0, 0, Kind::Mount, 11),
            (30, 1, Kind::Ready, 1),
            (40, 1, Kind::Start, 1),
            (40, 0, Kind::Mount, 10),
            (50, 1, Kind::Exit, 0),
        ],
    ]);
    assert_eq!(numbers(&model, 0), [(1, 10, 20, Left::InCall)]);
    assert_eq!(model.cpus[0].spans[0].m, 10);
    assert_eq!(model.cpus[1].spans[0].m, 10, "its own M, though mounted after the start");
    let on = |m| model.mounts.iter().find(|mount| mount.m == m && mount.cpu == 0);
    assert_eq!(on(10).expect("was there").time, Interval { from: 0, to: 20 });
    assert_eq!(on(12).expect("took over").time, Interval { from: 20, to: 50 });
    assert_eq!(model.gs[0].parked_ns, 10);
}

#[test]
fn steals_say_thief_victim_and_count() {
    let model = model(&[&[], &[(7, 9, Kind::Steal, 3 << 12 | 128)]]);
    let steal = Steal { at: 7, thief: 1, victim: 3, count: 128, g: Some(0) };
    assert_eq!(model.steals, [steal]);
}

#[test]
fn what_was_lost_is_not_made_up() {
    let header = Header { cpus: 1, hz: 1_000_000_000, zero: 0 };
    let mut stream = Encoder::new(header);
    stream.events(0, 0, &[Event::new(10, 1, Kind::Start, 0), Event::new(12, 0, Kind::Tick, 0)]);
    stream.events(0, 9, &[Event::new(90, 2, Kind::Start, 0), Event::new(95, 2, Kind::Exit, 0)]);
    let model = Model::new(&decode(stream.bytes()).expect("a stream"));
    assert_eq!(numbers(&model, 0), [(1, 10, 12, Left::Unseen), (2, 90, 95, Left::Exited)]);
    assert_eq!(model.cpus[0].gaps, [Gap { time: Interval { from: 12, to: 90 }, lost: 7 }]);
    assert_eq!(model.lost, 7);
}

#[test]
fn a_g_on_two_cpus_at_once_does_no_harm() {
    let model = model(&[
        &[(10, 1, Kind::Start, 0), (30, 1, Kind::Yield, 0), (40, 1, Kind::Exit, 0)],
        &[(20, 1, Kind::Start, 0), (25, 1, Kind::Yield, 0), (50, 1, Kind::Start, 0)],
    ]);
    assert_eq!(model.num_spans(), 3);
    let last = model.runnable.last().expect("it was runnable");
    assert_eq!(last.value, 0);
}

#[test]
fn a_g_that_starts_elsewhere_before_it_is_seen_to_leave_runs_there() {
    let model = model(&[
        &[(10, 2, Kind::Start, 1), (32, 3, Kind::Start, 1 | 5 << 8 | 4 << 16)],
        &[(5, 1, Kind::Start, 1), (20, 2, Kind::Ready, 0), (21, 1, Kind::Park, 1)],
        &[(30, 2, Kind::Start, 1), (60, 2, Kind::Park, 9), (90, 2, Kind::Ready, 1)],
    ]);
    let woken = model.cpus[2].spans[0].woken.expect("a waker");
    assert_eq!((woken.at, woken.cpu, woken.by), (20, 1, Some(0)));
    assert_eq!(model.longest_parked[0].time, Interval { from: 60, to: 90 });
    assert_eq!(model.longest_parked.len(), 1, "what the first CPU says late is no wait");
}

#[test]
fn a_halt_ends_where_events_are_missing() {
    let mut stream = Encoder::new(Header { cpus: 1, hz: 1_000_000_000, zero: 0 });
    stream.events(0, 0, &[Event::new(10, 0, Kind::Halt, 0), Event::new(15, 0, Kind::Tick, 0)]);
    stream.events(0, 3, &[Event::new(90, 0, Kind::Tick, 0)]);
    let model = Model::new(&decode(stream.bytes()).expect("a stream"));
    assert_eq!(model.cpus[0].idle, [Interval { from: 10, to: 15 }]);
}

#[test]
fn time_never_goes_back_on_a_cpu() {
    let model = model(&[&[(50, 1, Kind::Start, 0), (10, 1, Kind::Exit, 0)]]);
    assert_eq!(numbers(&model, 0), [(1, 50, 50, Left::Exited)]);
}

#[test]
fn the_clock_knows_its_limits() {
    let clock = |hz, zero| Clock(Header { cpus: 1, hz, zero });
    assert_eq!(clock(3_000_000_000, 100).ns(3_000_000_100), 1_000_000_000);
    assert_eq!(clock(1, 100).ns(99), 0, "before time 0");
    assert_eq!(clock(1, 0).ns(u64::MAX >> 1), MAX_NS);
    assert_eq!(clock(1_000_000_000, u64::MAX).ns(4), 5, "a counter that wraps");
}
