//! Completion of a word, and the nearest known word. Pure.

use alloc::vec::Vec;

/// The known words.
pub struct Names<'a> {
    /// For the first word of a line.
    pub commands: &'a [&'a str],
    /// For the second, by the first.
    pub words: &'a dyn Fn(&str) -> &'a [&'a str],
}

/// The completions of a word.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion<'a> {
    /// The common prefix of all completions, after the typed part.
    pub rest: &'a str,
    /// The completions.
    pub candidates: Vec<&'a str>,
}

/// Completes the last word of `line`, which ends at the cursor.
pub fn complete<'a>(line: &str, names: &Names<'a>) -> Completion<'a> {
    let start = line.rfind(' ').map_or(0, |space| space + 1);
    let (before, word) = line.split_at(start);
    let mut earlier = before.split_whitespace();
    let known = match (earlier.next(), earlier.next()) {
        (None, _) => names.commands,
        (Some(command), None) => (names.words)(command),
        _ => &[],
    };
    let candidates: Vec<_> = known.iter().copied().filter(|name| name.starts_with(word)).collect();
    let rest = match &candidates[..] {
        [] => "",
        [first, others @ ..] => {
            let common = others.iter().map(|name| common(first, name)).min();
            &first[word.len()..common.unwrap_or(first.len())]
        }
    };
    Completion { rest, candidates }
}

/// The length of the common prefix of two words in bytes. They are ASCII.
fn common(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
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
        words: &|command| if command == "trace" { &["start", "stop"] } else { &[] },
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
