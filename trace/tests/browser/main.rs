//! The page in a real browser: what a reader sees and does.
//!
//! Each test opens the page of a simulated run in a tab of a headless Chromium
//! (see `cdp`), does something with mouse, keys or fingers, and asks the page and
//! its pixels what came of it. None may leave a complaint on the console or a
//! request to anybody. Nothing is timed. Without Chromium they fail.

mod cdp;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cdp::{Tab, browser, number};
use serde_json::{Value, json};
use trace::check::compare;
use trace::decode::decode;
use trace::encode::Encoder;
use trace::model::Model;
use trace::page::{Facts, draw};
use trace::simulate::{Plan, stream};
use trace::wire::{Event, Header, Kind};

/// A run of 20,000 events on 4 CPUs.
fn usual_page() -> &'static Path {
    static PAGE: OnceLock<PathBuf> = OnceLock::new();
    PAGE.get_or_init(|| write("usual", &stream(Plan { cpus: 4, events: 20_000, seed: 11 })))
}

fn write(name: &str, bytes: &[u8]) -> PathBuf {
    let model = Model::new(&decode(bytes).expect("a stream"));
    let facts = Facts { title: "skynet".into(), agreement: compare(&model).to_string() };
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}.html"));
    fs::write(&file, draw(&model, &facts)).expect("room for a page");
    file
}

/// Opens the usual page on a desk, does something, and looks for complaints.
fn on_a_desk(test: impl FnOnce(&mut Tab<'_>)) {
    on(usual_page(), (1280, 900), test);
}

fn on(page: &Path, (width, height): (u32, u32), test: impl FnOnce(&mut Tab<'_>)) {
    let mut browser = browser();
    let mut tab = browser.open(page, width, height);
    test(&mut tab);
    let complaints = tab.close();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

fn width_of(state: &Value) -> f64 {
    number(&state["to"]) - number(&state["from"])
}

/// Where a point of the timeline is on the screen.
fn on_screen(tab: &mut Tab<'_>, x: f64, y: f64) -> (f64, f64) {
    let box_ = tab.eval(
        "(({ x, y }) => [x, y])(document.querySelector('#timeline').getBoundingClientRect())",
    );
    (number(&box_[0]) + x, number(&box_[1]) + y)
}

/// Zooms in on a span of the middle, so that it is wide, and says where it is.
fn show_span(tab: &mut Tab<'_>, span: u32) -> Value {
    tab.eval(&format!(
        "(({{ from, to }}) => runnext.show(from - 4 * (to - from), to + 4 * (to - from)))(runnext.place({span}))"
    ));
    tab.settle();
    tab.eval(&format!("runnext.place({span})"))
}

fn wheel(tab: &mut Tab<'_>, x: f64, y: f64, by: i32) {
    let (x, y) = on_screen(tab, x, y);
    tab.mouse("mouseWheel", x, y, json!({ "deltaX": 0, "deltaY": by }));
    tab.settle();
}

/// How many pixels of the timeline have each of the colours of Gs, in `rows` of it.
fn g_colours(tab: &mut Tab<'_>) -> Vec<u64> {
    let counts = tab.eval(
        "(() => {
            const canvas = document.querySelector('#timeline');
            const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            const counts = new Map(colours.g.map((colour) => [parseInt(colour.slice(1), 16), 0]));
            for (let i = 0; i < data.length; i += 4) {
                const colour = data[i] << 16 | data[i + 1] << 8 | data[i + 2];
                if (counts.has(colour)) counts.set(colour, counts.get(colour) + 1);
            }
            return [...counts.values()];
        })()",
    );
    counts.as_array().expect("a list").iter().map(|n| n.as_u64().unwrap_or(0)).collect()
}

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
fn the_wheel_zooms_where_the_cursor_is() {
    on_a_desk(|tab| {
        let before = tab.state();
        let at = number(&tab.eval("runnext.timeAt(700)"));
        for _ in 0..5 {
            wheel(tab, 700.0, 80.0, -120);
        }
        let after = tab.state();
        assert!(width_of(&after) < width_of(&before) / 4.0, "{before} {after}");
        let now = number(&tab.eval("runnext.timeAt(700)"));
        assert!((now - at).abs() < width_of(&after) / 500.0, "{at} became {now}");
        wheel(tab, 700.0, 80.0, 120);
        assert!(width_of(&tab.state()) > width_of(&after));
    });
}

#[test]
fn a_drag_moves_in_time() {
    on_a_desk(|tab| {
        tab.eval("runnext.show(1e6, 2e6)");
        let (x, y) = on_screen(tab, 600.0, 60.0);
        let button = json!({ "button": "left", "buttons": 1, "clickCount": 1 });
        tab.mouse("mousePressed", x, y, button.clone());
        for step in 1..=4 {
            tab.mouse("mouseMoved", x - 50.0 * f64::from(step), y, button.clone());
        }
        tab.mouse("mouseReleased", x - 200.0, y, button);
        let state = tab.state();
        let moved = (number(&state["from"]) - 1e6) / 1e6;
        assert!((0.1..0.3).contains(&moved), "{state}");
        assert_eq!(state["g"], 0, "a drag chooses nothing");
    });
}

#[test]
fn what_is_under_the_cursor_is_said() {
    on_a_desk(|tab| {
        for span in [300, 2000, 5000] {
            let place = show_span(tab, span);
            let (x, y) = on_screen(tab, number(&place["x"]), number(&place["y"]));
            tab.mouse("mouseMoved", x, y, json!({}));
            let tip = tab.text("#tip");
            assert!(tip.starts_with(&format!("G{} ", place["g"])), "{tip} for {place}");
            assert!(tip.contains("then"), "{tip}");
        }
        let (x, y) = on_screen(tab, 3.0, 3.0);
        tab.mouse("mouseMoved", x, y, json!({}));
        assert_eq!(tab.eval("document.querySelector('#tip').hidden"), true);
    });
}

#[test]
fn a_click_shows_the_details_and_who_woke_it() {
    on_a_desk(|tab| {
        let place = show_span(tab, 2000);
        let (x, y) = on_screen(tab, number(&place["x"]), number(&place["y"]));
        tab.click(x, y);
        assert_eq!(tab.state()["g"], place["g"]);
        let details = tab.text("#details");
        for part in [&format!("G{}", place["g"]), "spawned at", "skynet.rs:44", "waited", "by "] {
            assert!(details.contains(part), "{part} in {details}");
        }
        let waker = tab.text("#details dd button");
        tab.click_on("#details dd button");
        let chosen = tab.state()["g"].clone();
        assert!(waker.starts_with(&format!("G{chosen} ")), "{waker}, but {chosen} is chosen");
        assert!(tab.eval("document.querySelector('#live').textContent").as_str() > Some("G"));
    });
}

#[test]
fn a_g_is_found_by_number_and_shown_whole() {
    on_a_desk(|tab| {
        tab.eval("runnext.show(0, 1e5)");
        tab.key("/");
        tab.type_text("g1");
        tab.key("Enter");
        let state = tab.state();
        assert_eq!(state["g"], 1);
        let (first, last) = (tab.eval("[...spansOf(0)][0]"), tab.eval("[...spansOf(0)].at(-1)"));
        let [first, last] = [first, last].map(|span| tab.eval(&format!("runnext.place({span})")));
        assert!(number(&state["from"]) <= number(&first["from"]));
        assert!(number(&state["to"]) >= number(&last["to"]));
        let outside = g_colours(tab);
        let own = tab.eval("colourOf(0)").as_u64().expect("an index") as usize;
        let most = outside.iter().enumerate().max_by_key(|&(_, &count)| count).map(|(i, _)| i);
        assert_eq!(most, Some(own), "the others are dimmed: {outside:?}");
    });
}

#[test]
fn a_g_is_found_by_name_and_a_wrong_name_says_so() {
    on_a_desk(|tab| {
        tab.click_on("#search");
        tab.type_text("NOD");
        let list = tab.text("#found");
        assert_eq!(list.matches("node").count(), 8, "{list}");
        tab.key("ArrowDown");
        tab.key("Enter");
        assert!(tab.text("#details h3").contains("node"));
        tab.key("/");
        tab.type_text("zzz");
        assert!(tab.text("#found").contains("no such G"));
        tab.key("Escape");
        assert_eq!(tab.eval("document.querySelector('#found').hidden"), true);
    });
}

#[test]
fn keys_do_what_the_help_says() {
    on_a_desk(|tab| {
        tab.eval("document.querySelector('#timeline').focus()");
        let whole = width_of(&tab.state());
        tab.key("+");
        tab.key("+");
        let state = tab.state();
        assert!((width_of(&state) / whole - 0.25).abs() < 0.01, "{state}");
        tab.key("ArrowRight");
        assert!(number(&tab.state()["from"]) > number(&state["from"]));
        tab.key("ArrowLeft");
        assert!((number(&tab.state()["from"]) - number(&state["from"])).abs() < 10.0);
        tab.key("Home");
        assert_eq!(number(&tab.state()["from"]), 0.0);
        tab.key("End");
        let state = tab.state();
        assert!((number(&state["to"]) - number(&state["end"])).abs() < 1.0, "{state}");
        tab.key("-");
        tab.key("0");
        assert!((width_of(&tab.state()) / number(&state["end"]) - 1.0).abs() < 0.05);
        tab.key("?");
        assert_eq!(tab.eval("document.querySelector('#help-box').open"), true);
        tab.key("Escape");
    });
}

#[test]
fn n_and_p_go_through_the_spans_of_a_g() {
    on_a_desk(|tab| {
        tab.key("/");
        tab.type_text("1");
        tab.key("Enter");
        let first = tab.state()["span"].clone();
        tab.key("n");
        tab.key("n");
        let third = tab.state();
        assert_eq!(third["g"], 1);
        let place = tab.eval(&format!("runnext.place({})", third["span"]));
        assert!(number(&third["from"]) <= number(&place["from"]), "it is visible");
        assert!(number(&third["to"]) >= number(&place["to"]), "it is visible");
        tab.key("p");
        tab.key("p");
        assert_eq!(tab.state()["span"], first);
        tab.key("p");
        assert_eq!(tab.state()["span"], first, "there is none before the first");
        tab.key("ArrowDown");
        assert_ne!(tab.state()["span"], first);
        tab.key("Escape");
        assert_eq!(tab.state()["span"], -1);
    });
}

#[test]
fn the_table_of_waits_leads_there() {
    on_a_desk(|tab| {
        tab.click_on("#waits tr:nth-child(2) button");
        let state = tab.state();
        let (from, length) = (
            number(&tab.eval("trace.waits.queued.from[1]")),
            number(&tab.eval("trace.waits.queued.length[1]")),
        );
        assert!(number(&state["from"]) < from && number(&state["to"]) > from + length, "{state}");
        assert!(width_of(&state) < 3.0 * length + 10_000.0, "{state}");
        assert_eq!(state["g"], tab.eval("gs.number[trace.waits.queued.g[1]]"));
        tab.click_on("#parked");
        assert!(tab.text("#waits").contains("join"), "{}", tab.text("#waits"));
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
fn a_phone_shows_all_of_it_and_fingers_zoom() {
    on(usual_page(), (390, 844), |tab| {
        let wide = tab.eval("document.documentElement.scrollWidth");
        assert!(number(&wide) <= 390.0, "{wide} pixels wide");
        assert!(g_colours(tab).iter().filter(|&&count| count > 50).count() >= 12);
        let small = tab.eval(
            "[...document.querySelectorAll('button')].filter((b) => b.offsetParent && b.getBoundingClientRect().height < 24).length",
        );
        assert_eq!(small, 0, "buttons too small for a finger");
        let before = width_of(&tab.state());
        let (x, y) = on_screen(tab, 200.0, 80.0);
        let touch = |tab: &mut Tab<'_>, kind: &str, apart: f64| {
            let points = match kind {
                "touchEnd" => json!([]),
                _ => {
                    json!([{ "x": x - apart, "y": y, "id": 1 }, { "x": x + apart, "y": y, "id": 2 }])
                }
            };
            tab.call("Input.dispatchTouchEvent", json!({ "type": kind, "touchPoints": points }));
        };
        touch(tab, "touchStart", 20.0);
        for apart in [40.0, 60.0, 80.0] {
            touch(tab, "touchMove", apart);
        }
        touch(tab, "touchEnd", 0.0);
        let after = width_of(&tab.state());
        assert!(after < before / 2.0, "{before} became {after}");
    });
}

#[test]
fn dark_and_light_follow_the_system_and_the_button() {
    on_a_desk(|tab| {
        let background = |tab: &mut Tab<'_>| {
            tab.settle();
            let pixel = "[...document.querySelector('#timeline').getContext('2d').getImageData(1, 1, 1, 1).data].slice(0, 3)";
            let sum =
                |list: Value| list.as_array().map_or(0.0, |l| l.iter().map(number).sum::<f64>());
            sum(tab.eval(pixel))
        };
        tab.prefer("prefers-color-scheme", "light");
        assert!(background(tab) > 700.0);
        tab.prefer("prefers-color-scheme", "dark");
        assert!(background(tab) < 120.0);
        tab.click_on("#theme");
        assert!(background(tab) > 700.0, "the button overrules the system");
        tab.eval("localStorage.clear()");
    });
}

#[test]
fn text_can_be_read_in_both_modes() {
    on_a_desk(|tab| {
        for mode in ["light", "dark"] {
            tab.prefer("prefers-color-scheme", mode);
            let worst = tab.eval(
                "(() => {
                    const style = getComputedStyle(document.documentElement);
                    const light = (name) => {
                        const hex = style.getPropertyValue('--' + name).trim().slice(1);
                        const [r, g, b] = [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
                            .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
                        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
                    };
                    const contrast = ([a, b]) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
                    const pairs = [['ink', 'card'], ['ink', 'page'], ['ink', 'row'], ['soft', 'card'], ['soft', 'page'], ['soft', 'row'],
                        ['accent', 'card'], ['pressed-ink', 'pressed'], ['accent-ink', 'accent'], ['lost', 'page'], ['steal', 'card'], ['wake', 'card']];
                    return Math.min(...pairs.map(contrast));
                })()",
            );
            assert!(number(&worst) >= 4.5, "{mode}: {worst}");
        }
    });
}

#[test]
fn everything_that_can_be_pressed_has_a_name() {
    on_a_desk(|tab| {
        let tree = tab.call("Accessibility.getFullAXTree", json!({}));
        let nodes = tree["nodes"].as_array().expect("a tree");
        let mut pressed = 0;
        for node in nodes {
            let role = node["role"]["value"].as_str().unwrap_or("");
            if ["button", "searchbox", "combobox", "application", "region"].contains(&role) {
                let name = node["name"]["value"].as_str().unwrap_or("");
                assert!(!name.trim().is_empty(), "{node}");
                pressed += 1;
            }
        }
        assert!(pressed > 10, "{pressed}");
    });
}

#[test]
fn nothing_glides_for_those_who_want_it_calm() {
    on_a_desk(|tab| {
        tab.prefer("prefers-reduced-motion", "reduce");
        let gliding = tab.eval("(document.querySelector('#in').click(), runnext.state().gliding)");
        assert_eq!(gliding, false);
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

/// Not a test: draws the pictures of the documentation anew.
/// `cargo test -p trace --test browser -- --ignored pictures`
#[test]
#[ignore = "writes into docs/"]
fn pictures() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = write("docs", &stream(Plan { cpus: 8, events: 40_000, seed: 1 }));
    let save = |tab: &mut Tab<'_>, name: &str| {
        tab.settle();
        fs::write(docs.join(name), tab.screenshot()).expect("room for a picture");
    };
    for (name, mode, size) in [
        ("trace.png", "light", (1280, 1000)),
        ("trace-dark.png", "dark", (1280, 1000)),
        ("trace-phone.png", "light", (390, 844)),
    ] {
        on(&page, size, |tab| {
            tab.prefer("prefers-color-scheme", mode);
            tab.eval("runnext.show(1.302e6, 1.345e6)");
            tab.settle();
            if size.0 > 500 {
                let place = tab.eval("runnext.place(hit(xOf(1.33e6), yOf(4) + 9))");
                let (x, y) = on_screen(tab, number(&place["x"]), number(&place["y"]));
                tab.mouse("mouseMoved", x, y, json!({}));
            }
            save(tab, name);
        });
    }
}
