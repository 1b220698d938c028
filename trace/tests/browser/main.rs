//! The page in a real browser: what a reader sees and does.
//!
//! Each test opens the page of a simulated run in a tab of a headless Chromium
//! (see `cdp`), does something with mouse, keys or fingers, and asks the page and
//! its pixels what came of it. None may leave a complaint on the console or a
//! request to anybody. Nothing is timed. Without Chromium they fail.

mod cdp;
mod drawing;
mod finding;
mod moving;
mod reading;

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
    write_titled(name, "skynet", bytes)
}

fn write_titled(name: &str, title: &str, bytes: &[u8]) -> PathBuf {
    let model = Model::new(&decode(bytes).expect("a stream"));
    let facts =
        Facts { title: title.into(), agreement: compare(&model).to_string(), ..Facts::default() };
    let file = tool::tree::scratch().join(format!("page-{name}.html"));
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

/// Not a test: draws the pictures of the documentation anew, of the stream that
/// `TRACE=` names, from `FROM=` to `TO=` (nanoseconds), or of a simulated one.
/// `cargo test -p trace --test browser -- --ignored pictures`
#[test]
#[ignore = "writes into docs/"]
fn pictures() {
    let docs = tool::tree::root().join("docs");
    let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let bytes = match given("TRACE") {
        Some(file) => fs::read(file).expect("a stream"),
        None => stream(Plan { cpus: 8, events: 40_000, seed: 1 }),
    };
    let title = given("TITLE").unwrap_or_else(|| "skynet (simulated)".into());
    let page = write_titled("docs", &title, &bytes);
    let [from, to] = [("FROM", "1302000"), ("TO", "1345000")]
        .map(|(name, usual)| given(name).unwrap_or_else(|| usual.into()));
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
            tab.eval(&format!("runnext.show({from}, {to})"));
            tab.settle();
            if size.0 > 500 {
                let middle = "hit(size.gutter + plot() * 0.65, yOf(rows.length >> 1) + 9)";
                let place = tab.eval(&format!("runnext.place(Math.max(0, {middle}))"));
                let (x, y) = on_screen(tab, number(&place["x"]), number(&place["y"]));
                tab.mouse("mouseMoved", x, y, json!({}));
            }
            save(tab, name);
        });
    }
}
