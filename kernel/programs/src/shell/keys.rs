//! From bytes to keys: the byte sequences of a terminal, and their meaning. Pure.
//!
//! A terminal sends most keys as a byte, letters beyond ASCII as several (UTF-8), and some
//! keys as a sequence that begins with an escape. [`Decoder::push`] takes byte after byte and
//! returns keys. No byte is refused, whatever came before, and a sequence has at most
//! [`SEQUENCE_MAX`] bytes: an unknown one is [`Key::Other`].

/// The longest sequence that is followed to its end.
const SEQUENCE_MAX: u8 = 16;

/// A key, by its effect on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character that is no control character, of one byte or several (UTF-8).
    Char(char),
    /// Return, line feed, or both: once.
    Enter,
    /// Complete the word.
    Tab,
    /// One to the left; Ctrl-B.
    Left,
    /// One to the right; Ctrl-F.
    Right,
    /// An older line; Ctrl-P.
    Up,
    /// A newer line; Ctrl-N.
    Down,
    /// To the beginning; Ctrl-A.
    Home,
    /// To the end; Ctrl-E.
    End,
    /// A word to the left: Ctrl-Left, Alt-B.
    WordLeft,
    /// A word to the right: Ctrl-Right, Alt-F.
    WordRight,
    /// Deletes the letter before the cursor.
    Backspace,
    /// Deletes the letter under the cursor.
    Delete,
    /// Deletes the word before the cursor: Ctrl-W, Alt-Backspace.
    DeleteWord,
    /// Deletes all before the cursor: Ctrl-U.
    DeleteToStart,
    /// Deletes all from the cursor on: Ctrl-K.
    DeleteToEnd,
    /// Discards this line, or stops the running program: Ctrl-C.
    Interrupt,
    /// End of input, or as [`Key::Delete`]: Ctrl-D.
    EndOfInput,
    /// Shows the line on an empty screen: Ctrl-L.
    Clear,
    /// Any other key.
    Other,
}

/// The position of the next byte in a sequence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Plain,
    /// After a return, which a line feed may follow.
    Return,
    Escape,
    /// After `ESC [` or `ESC O`: so many bytes ago, with this number so far, and whether a
    /// modifier key was held.
    Sequence {
        length: u8,
        number: u8,
        is_modified: bool,
    },
}

/// Bytes in, keys out.
pub struct Decoder {
    state: State,
    /// The first bytes of a multi-byte character, and how many there are.
    partial: [u8; 4],
    partial_len: usize,
}

impl Decoder {
    /// At the beginning of a key.
    pub const fn new() -> Self {
        Decoder { state: State::Plain, partial: [0; 4], partial_len: 0 }
    }

    /// Takes the next byte; returns the key that it completes.
    pub fn push(&mut self, byte: u8) -> Option<Key> {
        let before = core::mem::replace(&mut self.state, State::Plain);
        match (before, byte) {
            (State::Return, b'\n') => None,
            (State::Sequence { length, number, is_modified }, _) => {
                self.in_sequence(byte, length, number, is_modified)
            }
            (State::Escape, b'[' | b'O') => {
                self.state = State::Sequence { length: 0, number: 0, is_modified: false };
                None
            }
            (State::Escape, b'b') => Some(Key::WordLeft),
            (State::Escape, b'f') => Some(Key::WordRight),
            (State::Escape, 0x08 | 0x7f) => Some(Key::DeleteWord),
            (State::Escape, b' '..=b'~') => Some(Key::Other),
            _ => self.plain(byte),
        }
    }

    fn plain(&mut self, byte: u8) -> Option<Key> {
        if byte >= 0x80 {
            return self.of_several(byte);
        }
        self.partial_len = 0; // an unfinished character is dropped
        Some(match byte {
            b'\r' => {
                self.state = State::Return;
                Key::Enter
            }
            0x1b => {
                self.state = State::Escape;
                return None;
            }
            b'\n' => Key::Enter,
            b'\t' => Key::Tab,
            0x01 => Key::Home,
            0x02 => Key::Left,
            0x03 => Key::Interrupt,
            0x04 => Key::EndOfInput,
            0x05 => Key::End,
            0x06 => Key::Right,
            0x08 | 0x7f => Key::Backspace,
            0x0b => Key::DeleteToEnd,
            0x0c => Key::Clear,
            0x0e => Key::Down,
            0x10 => Key::Up,
            0x15 => Key::DeleteToStart,
            0x17 => Key::DeleteWord,
            b' '..=b'~' => Key::Char(char::from(byte)),
            _ => Key::Other,
        })
    }

    /// A byte of a multi-byte character. Invalid UTF-8 is [`Key::Other`].
    fn of_several(&mut self, byte: u8) -> Option<Key> {
        self.partial[self.partial_len] = byte;
        self.partial_len += 1;
        let key = match core::str::from_utf8(&self.partial[..self.partial_len]) {
            Ok(text) => text.chars().find(|letter| !letter.is_control()).map(Key::Char),
            // Its end is missing, so it is shorter than the longest character.
            Err(error) if error.error_len().is_none() => return None,
            Err(_) => None,
        };
        self.partial_len = 0;
        Some(key.unwrap_or(Key::Other))
    }

    /// Numbers, semicolons, and at last a letter or `~`.
    fn in_sequence(&mut self, byte: u8, length: u8, number: u8, is_modified: bool) -> Option<Key> {
        let (number, is_modified) = match byte {
            b'0'..=b'9' if !is_modified => {
                (number.saturating_mul(10).saturating_add(byte - b'0'), false)
            }
            b'0'..=b'9' => (number, true),
            b';' => (number, true),
            b' '..=b'/' | b':'..=b'?' => (number, is_modified),
            b'@'..=b'~' => return Some(meaning(byte, number, is_modified)),
            // Not a byte of a sequence: the sequence ends here, and this byte is a key of its
            // own.
            _ => return self.plain(byte),
        };
        if length < SEQUENCE_MAX {
            self.state = State::Sequence { length: length + 1, number, is_modified };
        }
        None
    }
}

/// The key of a complete sequence.
fn meaning(last: u8, number: u8, is_modified: bool) -> Key {
    match (last, number) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) if is_modified => Key::WordRight,
        (b'D', _) if is_modified => Key::WordLeft,
        (b'C', _) => Key::Right,
        (b'D', _) => Key::Left,
        (b'H', _) | (b'~', 1 | 7) => Key::Home,
        (b'F', _) | (b'~', 4 | 8) => Key::End,
        (b'~', 3) => Key::Delete,
        _ => Key::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut decoder = Decoder::new();
        bytes.iter().filter_map(|&byte| decoder.push(byte)).collect()
    }

    #[test]
    fn return_line_feed_and_both_are_one_enter() {
        assert_eq!(keys(b"\r"), [Key::Enter]);
        assert_eq!(keys(b"\n"), [Key::Enter]);
        assert_eq!(keys(b"\r\n\r\r"), [Key::Enter; 3]);
    }

    #[test]
    fn arrows_and_the_keys_above_them_are_known_from_all_usual_terminals() {
        assert_eq!(keys(b"\x1b[A\x1bOB\x1b[C\x1b[D"), [Key::Up, Key::Down, Key::Right, Key::Left]);
        assert_eq!(keys(b"\x1b[H\x1bOH\x1b[1~\x1b[7~"), [Key::Home; 4]);
        assert_eq!(keys(b"\x1b[F\x1bOF\x1b[4~\x1b[8~"), [Key::End; 4]);
        assert_eq!(keys(b"\x1b[3~"), [Key::Delete]);
        assert_eq!(keys(b"\x1b[1;5D\x1bb"), [Key::WordLeft; 2]);
        assert_eq!(keys(b"\x1b[1;5C\x1bf"), [Key::WordRight; 2]);
    }

    #[test]
    fn a_sequence_without_an_end_does_not_swallow_what_follows() {
        assert_eq!(keys(b"\x1b[12\r"), [Key::Enter]);
        let mut bytes = b"\x1b[".to_vec();
        bytes.extend([b'9'; 100]);
        bytes.extend(b"a");
        assert!(keys(&bytes).ends_with(&[Key::Char('9'), Key::Char('a')]));
        assert_eq!(keys(b"\x1b\x1b[A"), [Key::Up], "the second escape begins anew");
    }

    #[test]
    fn letters_of_several_bytes_are_one_key_each() {
        let text = "gr\u{fc}\u{df} \u{20ac}\u{1f600}";
        let letters: Vec<_> = text.chars().map(Key::Char).collect();
        assert_eq!(keys(text.as_bytes()), letters);
    }

    #[test]
    fn what_is_not_utf8_is_other_and_does_not_swallow_what_follows() {
        assert_eq!(keys(b"\xc3\r"), [Key::Enter], "a letter that is cut short");
        assert_eq!(keys(b"\xe2\x82a"), [Key::Char('a')]);
        assert_eq!(keys(b"\xff\xc3\xbc"), [Key::Other, Key::Char('\u{fc}')]);
        assert_eq!(keys(b"\xc2\x9b"), [Key::Other], "a control character beyond ASCII");
    }

    #[test]
    fn what_is_no_key_is_other() {
        assert_eq!(keys(b"\x00\xff\x1b[Z\x1bx"), [Key::Other; 4]);
    }
}
