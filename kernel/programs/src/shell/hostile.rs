//! Invariants for any typed bytes; for the host's fuzzer, the crate `fuzz`.

use super::complete::Names;
use super::line::{Editor, Entered, LINE_MAX};
use super::parse;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Types all bytes and checks: lines have no control characters and are not too long, a key's
/// output to the terminal has a limit, and a line that is refused is refused in one line. No
/// command is carried out. Returns whether a line was a command.
pub fn shell(bytes: &[u8]) -> bool {
    const MOST_SHOWN: usize = 2000;
    let commands = parse::names();
    let words = |command: &str| -> Vec<String> {
        match command {
            "help" => commands.iter().map(|name| name.to_string()).collect(),
            "trace" => ["start", "stop"].map(String::from).into(),
            "stack" | "kill" => (1..30).map(|g: u64| g.to_string()).collect(),
            _ => Vec::new(),
        }
    };
    let names = Names { commands: &commands, words: &words };
    let mut editor = Editor::new();
    let mut is_command = false;
    for &byte in bytes {
        let mut out = String::new();
        let entered = editor.push(byte, &names, &mut out);
        assert!(out.len() <= MOST_SHOWN, "{} bytes for {byte:#x}", out.len());
        // Some terminals take a control character beyond ASCII as the start of a sequence.
        assert!(!out.chars().any(|letter| letter.is_control() && !letter.is_ascii()), "{out:?}");
        let Entered::Line(line) = entered else { continue };
        assert!(line.len() <= LINE_MAX && !line.chars().any(char::is_control), "{line:?}");
        match parse::parse(&line) {
            Ok(command) => is_command |= command.is_some(),
            Err(complaint) => {
                let said = complaint.to_string();
                assert!(
                    said.chars().count() < 240 && !said.chars().any(char::is_control),
                    "{said:?}"
                );
            }
        }
    }
    is_command
}
