//! The line that is being typed: editing, history, completion, redrawing. Pure.
//!
//! `editline` keeps the text, the cursor and the older lines; [`keys`](super::keys) decodes
//! the keys; [`complete`] completes words. This file combines them and produces the output
//! for the terminal. That is at least 80 columns wide; a longer line is shown in part, around
//! the cursor. Any letter can be typed. Each counts as a column, which is wrong for the wide
//! ones of East Asia and for accents that stand alone: such a line is shown slightly off, and
//! entered as it was typed.
//!
//! `editline` counts bytes; here the cursor is always between two letters.

use super::complete::{self, Names};
use super::keys::{Decoder, Key};
use alloc::string::String;
use core::fmt::Write;
use editline::{History, LineBuffer};

/// The longest line, bytes.
pub const LINE_MAX: usize = 512;
/// How many older lines are kept.
pub const HISTORY_MAX: usize = 100;
/// The text before the line.
pub const PROMPT: &str = "runnext> ";
/// Columns of the terminal that are used.
const COLUMNS: usize = 79;

/// The result of a byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entered {
    /// No line yet.
    Nothing,
    /// A line.
    Line(String),
    /// Ctrl-D where a line begins.
    End,
}

/// The line being typed, and the older ones.
pub struct Editor {
    keys: Decoder,
    line: LineBuffer,
    history: History,
    /// The first column of the line that is shown.
    first: usize,
}

impl Editor {
    /// An empty line.
    pub fn new() -> Self {
        let line = LineBuffer::new(LINE_MAX);
        Editor { keys: Decoder::new(), line, history: History::new(HISTORY_MAX), first: 0 }
    }

    /// Takes a byte. Output for the terminal is appended to `out`.
    pub fn push(&mut self, byte: u8, names: &Names<'_>, out: &mut String) -> Entered {
        let Some(key) = self.keys.push(byte) else { return Entered::Nothing };
        match key {
            Key::Enter => return Entered::Line(self.enter(out)),
            Key::EndOfInput if self.line.is_empty() => return Entered::End,
            Key::Interrupt => {
                self.line.clear();
                self.history.reset_view();
                out.push_str("^C\n");
                self.prompt(out);
            }
            Key::Char(letter) => self.insert(letter, out),
            Key::Tab => self.complete(names, out),
            Key::Clear => {
                out.push_str("\x1b[H\x1b[2J");
                self.redraw(out);
            }
            key if self.edit(key) => self.redraw(out),
            _ => out.push('\x07'),
        }
        Entered::Nothing
    }

    /// Shows the prompt and the typed text, on a line of its own.
    pub fn prompt(&mut self, out: &mut String) {
        self.first = 0;
        self.redraw(out);
    }

    fn text(&self) -> &str {
        self.line.as_str().unwrap_or_default() // letters come and go as a whole
    }

    fn enter(&mut self, out: &mut String) -> String {
        out.push('\n');
        let line = String::from(self.text());
        self.history.add(&line);
        self.history.reset_view();
        self.line.clear();
        self.first = 0;
        line
    }

    /// The column of the cursor, from the line's beginning.
    fn column(&self) -> usize {
        self.text()[..self.line.cursor_pos()].chars().count()
    }

    fn insert(&mut self, letter: char, out: &mut String) {
        if self.line.len() + letter.len_utf8() > LINE_MAX {
            return out.push('\x07');
        }
        self.line.insert_char(letter);
        let is_at_end = self.line.cursor_pos() == self.line.len();
        if is_at_end && PROMPT.len() + self.column() - self.first < COLUMNS {
            out.push(letter); // the common case
        } else {
            self.redraw(out);
        }
    }

    /// Moves, deletes, or fetches an older line. False if that is not possible.
    fn edit(&mut self, key: Key) -> bool {
        let line = &mut self.line;
        match key {
            Key::Left => {
                let has_moved = line.move_cursor_left();
                while is_inside(line) && line.move_cursor_left() {}
                has_moved
            }
            Key::Right => {
                let has_moved = line.move_cursor_right();
                while is_inside(line) && line.move_cursor_right() {}
                has_moved
            }
            Key::Home => line.move_cursor_to_start() > 0,
            Key::End => line.move_cursor_to_end() > 0,
            Key::WordLeft => line.move_cursor_word_left() > 0,
            Key::WordRight => line.move_cursor_word_right() > 0,
            Key::Backspace => {
                let (cursor, bytes) = (line.cursor_pos(), line.as_bytes());
                let letter = bytes[..cursor].iter().rev().take_while(|byte| is_tail(**byte));
                let tails = letter.count();
                (0..=tails).all(|_| line.delete_before_cursor())
            }
            Key::Delete | Key::EndOfInput => {
                let has_gone = line.delete_at_cursor();
                while is_inside(line) && line.delete_at_cursor() {}
                has_gone
            }
            Key::DeleteWord => line.delete_word_left() > 0,
            Key::DeleteToStart => {
                core::iter::from_fn(|| line.delete_before_cursor().then_some(())).count() > 0
            }
            Key::DeleteToEnd => {
                core::iter::from_fn(|| line.delete_at_cursor().then_some(())).count() > 0
            }
            Key::Up | Key::Down => self.recall(key),
            _ => false,
        }
    }

    fn recall(&mut self, key: Key) -> bool {
        let current = String::from(self.text());
        let found = match key {
            Key::Up => self.history.previous(&current),
            _ => self.history.next_entry(),
        };
        found.map(|line| self.line.load(line)).is_some()
    }

    /// Completes the word before the cursor, or shows its completions.
    fn complete(&mut self, names: &Names<'_>, out: &mut String) {
        let before = &self.text()[..self.line.cursor_pos()];
        let found = complete::complete(before, names);
        if found.rest.is_empty() && found.candidates.len() != 1 {
            if found.candidates.is_empty() {
                return out.push('\x07');
            }
            out.push('\n');
            found.candidates.iter().for_each(|name| {
                let _ = write!(out, "{name}  ");
            });
            out.push('\n');
            return self.prompt(out);
        }
        let end = if found.candidates.len() == 1 { " " } else { "" };
        for letter in found.rest.chars().chain(end.chars()) {
            if self.line.len() + letter.len_utf8() <= LINE_MAX {
                self.line.insert_char(letter);
            }
        }
        self.redraw(out);
    }

    /// Redraws prompt and line, and places the cursor.
    fn redraw(&mut self, out: &mut String) {
        let room = COLUMNS - PROMPT.len();
        let cursor = self.column();
        // Scrolls by the least that makes the cursor visible.
        self.first = self.first.min(cursor).max((cursor + 1).saturating_sub(room));
        let _ = write!(out, "\r{PROMPT}");
        let before = out.chars().count();
        out.extend(self.text().chars().skip(self.first).take(room));
        let end = self.first + out.chars().count() - before;
        out.push_str("\x1b[K");
        if end > cursor {
            let _ = write!(out, "\x1b[{}D", end - cursor);
        }
    }
}

/// Whether the cursor is inside a multi-byte letter.
fn is_inside(line: &LineBuffer) -> bool {
    line.as_bytes().get(line.cursor_pos()).is_some_and(|byte| is_tail(*byte))
}

/// Whether this is a continuation byte of a letter.
fn is_tail(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const NAMES: Names<'static> = Names {
        commands: &["help", "halt", "run"],
        words: &|command| match command {
            "run" => ["hello", "hog"].map(String::from).into(),
            _ => Vec::new(),
        },
    };

    /// Types all bytes; returns the lines that were entered.
    fn lines(bytes: &[u8]) -> Vec<String> {
        let (mut editor, mut out) = (Editor::new(), String::new());
        let entered = bytes.iter().map(|&byte| editor.push(byte, &NAMES, &mut out));
        entered
            .filter_map(|e| if let Entered::Line(line) = e { Some(line) } else { None })
            .collect()
    }

    /// The text of a one-line terminal, and its cursor.
    fn screen(bytes: &[u8]) -> (String, usize) {
        let (mut editor, mut out) = (Editor::new(), String::new());
        editor.prompt(&mut out);
        for &byte in bytes {
            editor.push(byte, &NAMES, &mut out);
        }
        let (mut cells, mut at) = (Vec::<char>::new(), 0);
        let mut letters = out.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\r' => at = 0,
                '\n' => {
                    cells.clear();
                    at = 0;
                }
                '\x07' => {}
                '\x1b' => {
                    let sequence: String = letters
                        .by_ref()
                        .take_while(|c| !matches!(c, 'K' | 'D' | 'H' | 'J'))
                        .collect();
                    match sequence.strip_prefix('[').map(str::parse::<usize>) {
                        Some(Ok(n)) => at -= n,
                        _ => cells.truncate(at),
                    }
                }
                letter => {
                    cells.truncate(at.max(cells.len()));
                    if at == cells.len() {
                        cells.push(letter)
                    } else {
                        cells[at] = letter
                    }
                    at += 1;
                }
            }
            assert!(at < 80, "it never wraps");
        }
        (cells.into_iter().collect(), at)
    }

    #[test]
    fn keys_edit_where_the_cursor_is() {
        assert_eq!(lines(b"hlp\x1b[D\x1b[De\r"), ["help"]);
        assert_eq!(lines(b"xhelp\x01\x1b[3~\r"), ["help"]);
        assert_eq!(lines(b"help me\x17\x7f\r"), ["help"]);
        assert_eq!(lines(b"junk\x15help\x1b[D\x1b[D\x0b\x05lp\r"), ["help"]);
        assert_eq!(lines(b"help x\x1b[1;5D\x1b[1;5Dx\x1b[H\x04\r"), ["help x"]);
    }

    #[test]
    fn letters_of_several_bytes_are_edited_as_one() {
        let lines = |text: &str| lines(text.as_bytes());
        assert_eq!(lines("gr\u{fc}\u{df}e\r"), ["gr\u{fc}\u{df}e"]);
        assert_eq!(lines("a\u{20ac}\u{1f600}\x7f\x7fb\r"), ["ab"]);
        assert_eq!(lines("\u{20ac}b\x1b[D\x1b[Da\x1b[C\u{fc}\r"), ["a\u{20ac}\u{fc}b"]);
        assert_eq!(lines("x\u{fc}y\x01\x1b[C\x1b[3~\r"), ["xy"]);
        assert_eq!(lines("a \u{fc}\u{fc} b\x17\x17c\r"), ["a c"]);
        assert_eq!(lines("a \u{fc}x\x1b[1;5Dy\x15z\r").len(), 1);
        assert_eq!(screen("\u{fc}\u{20ac}\x1b[D".as_bytes()).1, PROMPT.len() + 1);
        let full = "\u{20ac}".repeat(LINE_MAX);
        assert_eq!(lines(&(full + "\r"))[0].len(), LINE_MAX / 3 * 3, "no half letter");
    }

    #[test]
    fn what_is_shown_is_what_will_be_entered() {
        let long: Vec<u8> = (0..200).map(|i| b'a' + i % 23).collect();
        let wide = "\u{fc}\u{20ac}x".repeat(50).into_bytes();
        for typed in [&b"help"[..], b"hep\x1b[Dl", b"h\x01\x1b[C\x7fx", &long, &wide] {
            let (shown, cursor) = screen(typed);
            let mut all = typed.to_vec();
            all.push(b'\r');
            let entered = &lines(&all)[0];
            assert!(shown.starts_with(PROMPT), "{shown:?}");
            assert!(entered.ends_with(&shown[PROMPT.len()..]), "{shown:?} of {entered:?}");
            assert!(cursor <= shown.len());
        }
        assert_eq!(screen(b"ab\x1b[D").1, PROMPT.len() + 1);
    }

    #[test]
    fn older_lines_come_back_and_the_new_one_is_kept() {
        assert_eq!(lines(b"one\rtwo\r\x1b[A\x1b[A\r"), ["one", "two", "one"]);
        assert_eq!(lines(b"one\rnew\x1b[A\x1b[B\r"), ["one", "new"]);
        assert_eq!(lines(b"\x1b[A\x1b[Bx\r"), ["x"], "none is there");
    }

    #[test]
    fn a_tab_goes_on_as_far_as_it_is_certain() {
        assert_eq!(lines(b"ru\thel\t\r"), ["run hello "]);
        assert_eq!(lines(b"h\ta\t\r"), ["halt "], "of two the second letter is asked for");
        assert_eq!(lines(b"run h\to\t\r"), ["run hog "]);
        assert_eq!(lines(b"zzz\t\r"), ["zzz"]);
    }

    #[test]
    fn ctrl_c_gives_a_line_up_and_ctrl_d_ends_only_where_one_begins() {
        assert_eq!(lines(b"junk\x03help\r"), ["help"]);
        let (mut editor, mut out) = (Editor::new(), String::new());
        assert_eq!(editor.push(4, &NAMES, &mut out), Entered::End);
        editor.push(b'a', &NAMES, &mut out);
        assert_eq!(editor.push(4, &NAMES, &mut out), Entered::Nothing);
    }

    #[test]
    fn any_bytes_in_any_order_are_taken() {
        let mut state = 1u64;
        let (mut editor, mut out) = (Editor::new(), String::new());
        for _ in 0..if cfg!(miri) { 2_000 } else { 200_000 } {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            out.clear();
            if let Entered::Line(line) = editor.push((state >> 56) as u8, &NAMES, &mut out) {
                assert!(line.len() <= LINE_MAX);
            }
            assert!(out.len() < 400, "{out:?}");
        }
    }
}
