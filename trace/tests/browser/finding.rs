//! What a reader learns: hovering, details, search, the table of waits.

use super::*;

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
