//! How a reader moves: wheel, drag, keys, fingers.

use super::*;

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
fn nothing_glides_for_those_who_want_it_calm() {
    on_a_desk(|tab| {
        tab.prefer("prefers-reduced-motion", "reduce");
        let gliding = tab.eval("(document.querySelector('#in').click(), runnext.state().gliding)");
        assert_eq!(gliding, false);
    });
}
