//! Whether it can be read: dark and light, contrast, names for screen readers.

use super::*;

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
