//! Text for a terminal of 80 columns: lines are broken at spaces. Pure.

use alloc::string::String;

/// Columns that are used: a terminal may wrap by itself after the 80th.
pub const COLUMNS: usize = 79;

/// Extra indentation of a continuation line.
const INDENT: usize = 4;

/// Every line of `text`, none of them wider than [`COLUMNS`], each with its end. A
/// continuation line is indented by four more than its first line.
pub fn fit(text: &str) -> String {
    let own_indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    text.lines().map(|line| fit_line(line, own_indent(line) + INDENT)).collect()
}

/// One line, broken where it must be, with its end. Continuation lines are indented by
/// `indent` columns. A word that is wider than a line stays whole.
pub fn fit_line(line: &str, indent: usize) -> String {
    let mut out = String::new();
    let (mut rest, mut room) = (line, COLUMNS);
    while let Some((head, tail)) = split(rest, room) {
        out.push_str(head);
        out.push('\n');
        out.extend(core::iter::repeat_n(' ', indent));
        (rest, room) = (tail, COLUMNS.saturating_sub(indent));
    }
    out.push_str(rest);
    out.push('\n');
    out
}

/// The part of `line` that fits into `room` columns, and the rest of it, without the
/// spaces between; `None` if all fits, or there is no space to break at.
fn split(line: &str, room: usize) -> Option<(&str, &str)> {
    line.char_indices().nth(room)?;
    let start = line.len() - line.trim_start().len();
    let fits = |at: &usize| line[..*at].chars().count() <= room;
    let mut spaces = line.match_indices(' ').map(|(at, _)| at).filter(|at| *at > start);
    let first = spaces.next()?;
    let last = spaces.take_while(fits).last().unwrap_or(first);
    let (head, tail) = (line[..last].trim_end(), line[last..].trim_start());
    (!tail.is_empty()).then_some((head, tail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn what_fits_is_left_alone() {
        for line in ["", "short", "  two  columns   ", &"x".repeat(COLUMNS)] {
            assert_eq!(fit(&(line.to_string() + "\n")), line.to_string() + "\n");
        }
        assert_eq!(fit("a\n\nb"), "a\n\nb\n");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_word_is_lost() {
        let words: Vec<_> = (0..60).map(|n| "w".repeat(n % 13 + 1) + &n.to_string()).collect();
        let text = fit(&("  ".to_string() + &words.join(" ")));
        assert!(text.lines().count() > 3);
        for (number, line) in text.lines().enumerate() {
            assert!(line.chars().count() <= COLUMNS, "{line:?}");
            let indent = line.len() - line.trim_start().len();
            assert_eq!(indent, if number == 0 { 2 } else { 6 });
        }
        let whole: Vec<_> = text.split_whitespace().collect();
        assert_eq!(whole, words);
    }

    #[test]
    fn letters_are_counted_and_not_bytes_and_long_words_stay_whole() {
        let line = "\u{fc}".repeat(COLUMNS);
        assert_eq!(fit(&line), line.clone() + "\n");
        let long = "y".repeat(200);
        assert_eq!(fit(&format!("{long} {long} z")), format!("{long}\n    {long}\n    z\n"));
        assert_eq!(fit_line(&format!("a {}", "b".repeat(78)), 30).lines().count(), 2);
    }
}
