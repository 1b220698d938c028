//! Completion of a word, and the nearest known word. Pure.

use alloc::string::String;
use alloc::vec::Vec;

/// The known words.
pub struct Names<'a> {
    /// For the first word of a line.
    pub commands: &'a [&'a str],
    /// For the second, by the first: asked at each Tab, as Gs come and go.
    pub words: &'a dyn Fn(&str) -> Vec<String>,
}

/// The most completions that one Tab collects: of a million Gs a screen is enough.
const MOST: usize = 100;

/// The completions of a word.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion {
    /// The common prefix of all completions, after the typed part.
    pub rest: String,
    /// The completions.
    pub candidates: Vec<String>,
}

/// Completes the last word of `line`, which ends at the cursor.
pub fn complete(line: &str, names: &Names<'_>) -> Completion {
    let start = line.rfind(' ').map_or(0, |space| space + 1);
    let (before, word) = line.split_at(start);
    let mut earlier = before.split_whitespace();
    let known = match (earlier.next(), earlier.next()) {
        (None, _) => names.commands.iter().map(|name| String::from(*name)).collect(),
        (Some(command), None) => (names.words)(command),
        _ => Vec::new(),
    };
    let candidates = known.into_iter().filter(|name| name.starts_with(word)).take(MOST);
    let candidates: Vec<_> = candidates.collect();
    let rest = match &candidates[..] {
        [] => String::new(),
        [first, others @ ..] => {
            let common = others.iter().map(|name| common(first, name)).min();
            first[word.len()..common.unwrap_or(first.len())].into()
        }
    };
    Completion { rest, candidates }
}

/// The length of the common prefix of two words in bytes, of whole letters.
fn common(a: &str, b: &str) -> usize {
    let letters = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
    letters.map(|(letter, _)| letter.len_utf8()).sum()
}

/// The known word that is nearest to `word`, if one is near.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let allowed = |name: &str| word.len().min(name.len()) / 3 + 1;
    let scored = known.iter().map(|name| (distance(word, name), *name));
    scored.filter(|(distance, name)| *distance <= allowed(name)).min().map(|(_, name)| name)
}

/// How many letters must be inserted, deleted, changed or swapped with their neighbour to get
/// from one word to the other. Of long words, the beginnings count.
fn distance(a: &str, b: &str) -> usize {
    const LONGEST: usize = 24;
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let (a, b) = (&a[..a.len().min(LONGEST)], &b[..b.len().min(LONGEST)]);
    let mut rows = [[0; LONGEST + 1]; LONGEST + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut best = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names<'static> = Names {
        commands: &["run", "reboot", "trace"],
        words: &|command| match command {
            "trace" => ["start", "stop"].map(String::from).into(),
            "stack" => (1..=200).map(|g| std::format!("{g}")).collect(),
            "kill" => ["\u{e4}", "\u{e9}"].map(String::from).into(),
            _ => Vec::new(),
        },
    };

    #[test]
    fn a_word_is_completed_as_far_as_all_candidates_agree() {
        assert_eq!(complete("ru", &NAMES).rest, "n");
        assert_eq!(complete("r", &NAMES).rest, "");
        assert_eq!(complete("r", &NAMES).candidates, ["run", "reboot"]);
        assert_eq!(complete("trace s", &NAMES).rest, "t");
        assert_eq!(complete("trace st", &NAMES).candidates, ["start", "stop"]);
        assert_eq!(complete("trace start s", &NAMES).candidates, [""; 0]);
        assert_eq!(complete("", &NAMES).candidates.len(), 3);
        assert_eq!(complete("stack ", &NAMES).candidates.len(), MOST, "no more than fit");
        assert_eq!(complete("stack 20", &NAMES).candidates, ["20", "200"]);
        assert_eq!(complete("kill ", &NAMES).rest, "", "no half letter");
    }

    #[test]
    fn a_slip_finds_the_word_and_nonsense_none() {
        let known = ["help", "sched", "gomaxprocs", "poweroff"];
        assert_eq!(nearest("hlep", &known), Some("help"));
        assert_eq!(nearest("gomaxproc", &known), Some("gomaxprocs"));
        assert_eq!(nearest("shed", &known), Some("sched"));
        assert_eq!(nearest("xyzzy", &known), None);
        assert_eq!(nearest(&"z".repeat(1000), &known), None);
    }
}
