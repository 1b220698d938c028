//! The line editor: [`Editor::push`] takes a byte and returns what the terminal should show. No
//! byte is rejected: unknown keys do nothing, and invalid UTF-8 becomes U+FFFD.

use alloc::string::String;
use arrayvec::ArrayVec;

/// Maximum length of a line, bytes.
pub const LINE_MAX: usize = 1024;

const CTRL_D: u8 = 0x04;
const BACKSPACE: u8 = 0x08;
const CTRL_U: u8 = 0x15;
const ESCAPE: u8 = 0x1b;
const DELETE: u8 = 0x7f;

/// The effect of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Typed {
    Nothing,
    /// The line has one character more.
    Added(char),
    /// So many of the last characters were erased.
    Erased(usize),
    /// The line is complete: take it.
    Line,
    End,
}

/// A line that is being typed.
pub struct Editor {
    line: String,
    /// The first bytes of a character of several.
    partial: ArrayVec<u8, 4>,
    keys: Keys,
}

/// The kind of the byte before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    Plain,
    /// A return, which a line feed may follow.
    Return,
    /// The beginning of an escape sequence, of an arrow key, say.
    Escape,
    /// As `Escape`, and then "[" or "O": a letter ends it.
    Sequence,
}

impl Editor {
    /// Nothing typed yet.
    pub const fn empty() -> Self {
        Editor { line: String::new(), partial: ArrayVec::new_const(), keys: Keys::Plain }
    }

    /// The line, when it is complete.
    pub fn take(&mut self) -> String {
        core::mem::take(&mut self.line)
    }

    /// Processes the next byte.
    pub fn push(&mut self, byte: u8) -> Typed {
        let before = core::mem::replace(&mut self.keys, Keys::Plain);
        let within = match (before, byte) {
            (Keys::Escape, b'[' | b'O') | (Keys::Sequence, b' '..=b'?') => Some(Keys::Sequence),
            (Keys::Escape | Keys::Sequence, b'@'..=b'~') => Some(Keys::Plain),
            (Keys::Return, b'\n') => Some(Keys::Plain),
            _ => None,
        };
        if let Some(keys) = within {
            self.keys = keys;
            return Typed::Nothing;
        }
        if byte >= 0x80 {
            return self.push_partial(byte);
        }
        self.partial.clear(); // an incomplete character is dropped
        match byte {
            b'\r' => {
                self.keys = Keys::Return;
                Typed::Line
            }
            b'\n' => Typed::Line,
            CTRL_D if self.line.is_empty() => Typed::End,
            BACKSPACE | DELETE => self.line.pop().map_or(Typed::Nothing, |_| Typed::Erased(1)),
            CTRL_U => Typed::Erased(core::mem::take(&mut self.line).chars().count()),
            ESCAPE => {
                self.keys = Keys::Escape;
                Typed::Nothing
            }
            b' '..=b'~' => self.add(char::from(byte)),
            _ => Typed::Nothing,
        }
    }

    fn push_partial(&mut self, byte: u8) -> Typed {
        self.partial.push(byte); // there is room: it is incomplete, so shorter than the longest
        let letter = match core::str::from_utf8(&self.partial) {
            Ok(text) => text.chars().next().unwrap_or(char::REPLACEMENT_CHARACTER),
            Err(error) if error.error_len().is_none() => return Typed::Nothing,
            Err(_) => char::REPLACEMENT_CHARACTER,
        };
        self.partial.clear();
        self.add(letter)
    }

    fn add(&mut self, letter: char) -> Typed {
        // It is echoed, and for some terminals a control character (U+009B) begins a sequence.
        if letter.is_control() || self.line.len() + letter.len_utf8() > LINE_MAX {
            return Typed::Nothing;
        }
        self.line.push(letter);
        Typed::Added(letter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Types all bytes: returns the effect of each, without the empty ones.
    fn typed(editor: &mut Editor, bytes: &[u8]) -> Vec<Typed> {
        let all = bytes.iter().map(|&byte| editor.push(byte));
        all.filter(|typed| *typed != Typed::Nothing).collect()
    }

    fn lines(bytes: &[u8]) -> Vec<String> {
        let mut editor = Editor::empty();
        let line = |&byte: &u8| (editor.push(byte) == Typed::Line).then(|| editor.take());
        bytes.iter().filter_map(line).collect()
    }

    #[test]
    fn return_line_feed_and_both_end_a_line_once() {
        assert_eq!(lines(b"a\rb\nc\r\nd\n\ne\r\r"), ["a", "b", "c", "d", "", "e", ""]);
    }

    #[test]
    fn backspace_takes_a_whole_character_back_and_stops_at_the_start() {
        assert_eq!(lines("ax\u{8}\u{fc}\u{7f}b\n".as_bytes()), ["ab"]);
        assert_eq!(lines(b"\x08\x08a\n"), ["a"]);
        let mut editor = Editor::empty();
        assert_eq!(
            typed(&mut editor, b"ab\x08"),
            [Typed::Added('a'), Typed::Added('b'), Typed::Erased(1)]
        );
        assert_eq!(typed(&mut editor, b"c\x15"), [Typed::Added('c'), Typed::Erased(2)]);
    }

    #[test]
    fn ctrl_d_ends_only_where_a_line_begins() {
        let mut editor = Editor::empty();
        assert_eq!(editor.push(CTRL_D), Typed::End);
        let _ = editor.push(b'a');
        assert_eq!(editor.push(CTRL_D), Typed::Nothing);
    }

    #[test]
    fn characters_of_several_bytes_are_shown_when_they_are_complete() {
        let mut editor = Editor::empty();
        let shown = typed(&mut editor, "gr\u{fc}\u{df} \u{1f600}".as_bytes());
        assert_eq!(shown.len(), 6);
        assert_eq!(shown[5], Typed::Added('\u{1f600}'));
    }

    #[test]
    fn what_is_not_utf8_is_replaced() {
        assert_eq!(lines(b"a\xffb\xe2\x28\xf0\x9f\n"), ["a\u{fffd}b("]);
    }

    #[test]
    fn keys_that_mean_nothing_here_do_nothing() {
        assert_eq!(lines(b"a\x1b[Ab\x1b[1;5Dc\x1bOPd\x1bxe\x00\x07\tf\n"), ["abcdef"]);
        assert_eq!(lines(b"\x1b[12\ra\n"), ["", "a"], "a sequence is not gone on with");
        assert_eq!(lines("a\u{9b}31m\u{80}b\n".as_bytes()), ["a31mb"]);
    }

    #[test]
    fn a_line_has_an_end_even_if_none_is_typed() {
        let mut editor = Editor::empty();
        for _ in 0..10 * LINE_MAX {
            let _ = editor.push(b'x');
            let _ = editor.push(0xc3);
            let _ = editor.push(0xbc);
        }
        assert!(editor.take().len() <= LINE_MAX);
    }

    #[test]
    fn any_bytes_in_any_order_are_taken() {
        let mut state = 1u64;
        let mut editor = Editor::empty();
        for _ in 0..if cfg!(miri) { 2_000 } else { 200_000 } {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if editor.push((state >> 56) as u8) == Typed::Line {
                assert!(editor.take().len() <= LINE_MAX);
            }
        }
    }
}
