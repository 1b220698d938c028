//! What the timeline shows: pixels, rows, arrows, however many events.

use super::*;

#[test]
fn the_page_draws_gs_in_their_colours() {
    on_a_desk(|tab| {
        let counts = g_colours(tab);
        let used = counts.iter().filter(|&&count| count > 100).count();
        assert!(used >= 12, "{counts:?}");
        let facts = tab.text("#facts");
        for part in ["4 Ps", "events", "0 lost"] {
            assert!(facts.contains(part), "{part} in {facts}");
        }
        assert!(tab.text("#notes").contains("agree with the events"));
    });
}

#[test]
fn a_long_span_is_drawn_though_it_begins_beside_short_ones() {
    let mut stream = Encoder::new(Header { cpus: 1, hz: 1_000_000_000, zero: 0 });
    let start = |at, g| Event::new(at, g, Kind::Start, (Kind::Yield as u32) << 8);
    // Seven short ones within a thousandth of the whole, and one for the rest.
    let mut events: Vec<Event> = (0..7).map(|i| start(100 * u64::from(i), i + 1)).collect();
    events.extend([start(700, 8), Event::new(1_000_000, 8, Kind::Exit, 0)]);
    stream.events(0, 0, &events);
    on(&write("long", stream.bytes()), (1280, 900), |tab| {
        let own = tab.eval("colourOf(7)").as_u64().expect("an index") as usize;
        let counts = g_colours(tab);
        assert!(counts[own] > 20_000, "{counts:?}");
    });
}

#[test]
fn spans_are_found_by_halving_as_by_looking_at_all() {
    on_a_desk(|tab| {
        let wrong = tab.eval(
            "(() => {
                const row = rows[1], wrong = [];
                for (let i = 0; i < 500; i++) {
                    const t = (i * 7919 % 500) / 500 * whole.to, lo = i * 31 % 400;
                    const from = row.ids.findIndex((span, k) => k >= lo && spans.from[span] >= t);
                    const after = row.ids.findIndex((span) => spans.to[span] > t);
                    const all = row.ids.length, or = (k) => k < 0 ? all : k;
                    if (nextFrom(row, t, lo) !== or(from) || firstAfter(row, t) !== or(after)) wrong.push([t, lo]);
                    const busy = row.ids.reduce((sum, span) => sum + Math.max(0, Math.min(spans.to[span], t) - spans.from[span]), 0);
                    if (Math.abs(busyUntil(row, t) - busy) > 1) wrong.push(t);
                }
                return wrong;
            })()",
        );
        assert_eq!(wrong, json!([]));
    });
}

#[test]
fn rows_can_be_ms() {
    on_a_desk(|tab| {
        assert_eq!(tab.state()["rows"], 4);
        tab.click_on("#by-m");
        let state = tab.state();
        assert_eq!(state["byM"], true);
        assert!(number(&state["rows"]) > 4.0, "{state}: spare Ms as well");
        assert!(g_colours(tab).iter().filter(|&&count| count > 50).count() >= 12);
        tab.click_on("#by-p");
        assert_eq!(tab.state()["rows"], 4);
    });
}

#[test]
fn a_call_that_waits_is_a_line_in_the_row_of_its_m() {
    let mut stream = Encoder::new(Header { cpus: 1, hz: 1_000_000_000, zero: 0 });
    let events = [
        Event::new(0, 0, Kind::Mount, 1),
        Event::new(10, 7, Kind::Start, 1),
        Event::new(20, 7, Kind::Handoff, 2),
        Event::new(900_000, 7, Kind::Ready, 1),
        Event::new(900_010, 7, Kind::Start, 1),
        Event::new(900_010, 0, Kind::Mount, 1),
        Event::new(900_020, 7, Kind::Exit, 0),
    ];
    stream.events(0, 0, &events);
    on(&write("call", stream.bytes()), (1280, 900), |tab| {
        let own = tab.eval("colourOf(0)").as_u64().expect("an index") as usize;
        assert!(g_colours(tab)[own] < 200, "the P is free meanwhile");
        tab.click_on("#by-m");
        assert!(g_colours(tab)[own] > 1000, "the M is not");
    });
}

#[test]
fn arrows_are_drawn_when_they_are_few() {
    let page = write("many", &stream(Plan { cpus: 4, events: 50_000, seed: 12 }));
    on(&page, (1280, 900), |tab| {
        let count = |tab: &mut Tab<'_>, name: &str| {
            let pixels = tab.eval(&format!(
                "(() => {{
                    const canvas = document.querySelector('#timeline'), wanted = parseInt(colours.{name}.slice(1), 16);
                    const {{ data }} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
                    const near = (a, b) => Math.abs(a - b) < 40;
                    let n = 0;
                    for (let i = 0; i < data.length; i += 4) {{
                        n += near(data[i], wanted >> 16) && near(data[i + 1], wanted >> 8 & 255) && near(data[i + 2], wanted & 255);
                    }}
                    return n;
                }})()"
            ));
            number(&pixels)
        };
        let thefts = number(&tab.eval("trace.steals.n"));
        assert!(
            thefts > number(&tab.eval("mostSteals()")),
            "{thefts} thefts: too few to be too many"
        );
        assert_eq!(count(tab, "steal"), 0.0);
        tab.eval("runnext.show(trace.steals.at[1] - 5000, trace.steals.at[1] + 5000)");
        tab.settle();
        assert!(count(tab, "steal") > 20.0);
        assert!(count(tab, "wake") > 20.0);
    });
}

#[test]
fn an_empty_trace_is_a_page_all_the_same() {
    let stream = Encoder::new(Header { cpus: 2, hz: 1_000_000_000, zero: 0 });
    on(&write("empty", stream.bytes()), (1280, 900), |tab| {
        assert_eq!(tab.state()["rows"], 2);
        tab.click_on("#by-m");
        tab.click_on("#in");
        tab.key("n");
        assert!(tab.text("#waits").contains("none"));
        assert!(tab.text("#notes").contains("does not say how the program ended"));
    });
}

#[test]
fn a_million_events_load_and_every_step_is_drawn() {
    let page = write("million", &stream(Plan { cpus: 8, events: 1_000_000, seed: 4 }));
    on(&page, (1280, 900), |tab| {
        let state = tab.state();
        assert!(number(&state["spans"]) > 400_000.0, "{state}");
        assert!(g_colours(tab).iter().filter(|&&count| count > 100).count() >= 12);
        let mut last = number(&state["redraws"]);
        for step in 0..40 {
            wheel(tab, 300.0 + 10.0 * f64::from(step), 100.0, -100);
            let redraws = number(&tab.state()["redraws"]);
            assert!(redraws > last, "step {step} was not drawn");
            last = redraws;
        }
        let state = tab.state();
        assert!(width_of(&state) < number(&state["end"]) / 10_000.0, "{state}");
        tab.click_on("#by-m");
        assert!(number(&tab.state()["rows"]) >= 8.0);
    });
}

#[test]
fn names_from_the_machine_are_text_and_nothing_else() {
    let mut stream = Encoder::new(Header { cpus: 1, hz: 1_000_000_000, zero: 0 });
    stream.events(0, 0, &[Event::new(10, 7, Kind::Start, 1), Event::new(9000, 7, Kind::Exit, 0)]);
    let evil = "</script><img src=x onerror='document.title=1'>";
    stream.name(7, evil, evil);
    let page = write("evil", stream.bytes());
    on(&page, (1280, 900), |tab| {
        let place = show_span(tab, 0);
        let (x, y) = on_screen(tab, number(&place["x"]), number(&place["y"]));
        tab.click(x, y);
        assert!(tab.text("#details h3").contains("<img"), "{}", tab.text("#details h3"));
        assert!(tab.text("#tip").contains("<img"));
        assert_eq!(tab.eval("document.querySelectorAll('img').length"), 0);
        assert_eq!(tab.eval("document.title"), "skynet");
    });
}
