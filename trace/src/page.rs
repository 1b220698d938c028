//! `trace.html`: one page that needs nothing else, however many events.
//!
//! The page is written by hand in `page/`: markup, style and a script in parts,
//! which are put together here with the packed model in their midst. It asks no
//! network for anything and says so in its content policy. The script draws on a
//! canvas; its parts are
//!
//! - `data.js`, the columns of `pack` as arrays;
//! - `view.js`, what is visible and what is chosen;
//! - `draw.js` and `draw-more.js`, the picture;
//! - `input.js`, mouse, touch and keys;
//! - `ui.js`, all that is around the timeline.
#![forbid(unsafe_code)]

use crate::chrome::quoted;
use crate::model::{Model, findings};
use crate::{pack, palette, reason};

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPTS: [&str; 6] = [
    include_str!("page/data.js"),
    include_str!("page/view.js"),
    include_str!("page/draw.js"),
    include_str!("page/draw-more.js"),
    include_str!("page/input.js"),
    include_str!("page/ui.js"),
];

/// What the model does not know.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What the page is called.
    pub title: String,
    /// What came of the comparison with the counters, in words.
    pub agreement: String,
    /// Whose clock the times are by; may be empty.
    pub clock: String,
}

/// The whole page.
///
/// ```
/// use trace::{model::Model, page};
/// let facts = page::Facts { title: "skynet <3".into(), ..Default::default() };
/// let page = page::draw(&Model::default(), &facts);
/// assert!(page.contains("<title>skynet &lt;3</title>"));
/// ```
pub fn draw(model: &Model, facts: &Facts) -> String {
    let packed = pack::pack(model);
    let parts = [
        ("{{TITLE}}", escaped(&facts.title)),
        ("{{STYLE}}", STYLE.into()),
        ("{{META}}", meta(model, facts, &packed.texts)),
        ("{{DATA}}", pack::base64(&packed.bytes)),
        ("{{SCRIPT}}", SCRIPTS.concat()),
    ];
    // In the order of the page, each once: what is put in is not looked at again.
    let mut page = String::new();
    let mut rest = PAGE;
    for (mark, text) in parts {
        let (before, after) = rest.split_once(mark).expect("the page has every mark, in order");
        page.reserve(before.len() + text.len());
        page += before;
        page += &text;
        rest = after;
    }
    page + rest
}

fn meta(model: &Model, facts: &Facts, texts: &[String]) -> String {
    let list = |texts: &mut dyn Iterator<Item = String>| {
        texts.map(|text| quoted(&text)).collect::<Vec<_>>().join(",")
    };
    let fixed = |texts: &[&str]| list(&mut texts.iter().map(ToString::to_string));
    let findings: Vec<String> = findings::find(model)
        .iter()
        .map(|one| format!("{{\"text\":{},\"bad\":{}}}", quoted(&one.text), one.is_bad))
        .collect();
    format!(
        "{{\"title\":{},\"agreement\":{},\"events\":{},\"lost\":{},\"exit\":{},\"busy\":{:.4},\
         \"elsewhere\":{:.4},\"clock\":{},\"findings\":[{}],\"warnings\":[{}],\"reasons\":[{}],\"texts\":[{}],\
         \"colours\":{{\"light\":[{}],\"dark\":[{}]}}}}",
        quoted(&facts.title),
        quoted(&facts.agreement),
        model.events,
        model.lost,
        model.exit.map_or("null".into(), |code| code.to_string()),
        model.share_run(),
        model.share_elsewhere(),
        quoted(&facts.clock),
        findings.join(","),
        list(&mut model.warnings.lines()),
        fixed(reason::all()),
        list(&mut texts.iter().cloned()),
        fixed(&palette::LIGHT),
        fixed(&palette::DARK),
    )
}

/// `text` for the inside of an element of HTML or SVG.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            // XML knows no other control characters, not even escaped.
            other if other.is_control() && other != '\n' => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use crate::encode::Encoder;
    use crate::wire::{Event, Header, Kind};

    /// The page of a G with that name.
    fn page(name: &str) -> String {
        let mut stream = Encoder::new(Header { cpus: 1, hz: 1, zero: 0 });
        stream.events(0, 0, &[Event::new(1, 9, Kind::Start, 0)]);
        stream.name(9, name, "x.rs:1");
        let model = Model::new(&decode(stream.bytes()).expect("a stream"));
        draw(&model, &Facts::default())
    }

    #[test]
    fn no_name_of_a_g_can_end_the_script() {
        let scripts = |page: &str| page.matches("</script>").count();
        assert_eq!(scripts(&page("</script><script>alert(1)")), scripts(&page("leaf")));
        assert!(page("{{SCRIPT}}").contains("\"{{SCRIPT}}\""), "marks in names stay names");
    }

    #[test]
    fn the_page_asks_for_nothing_from_outside() {
        let page = page("leaf");
        for word in ["http:", "https:", "//cdn", "@import", "url(", "src=\"", "fetch("] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}
