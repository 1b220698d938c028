//! The event loop: what `echo` does, written for calls that never wait.
//!
//! Where waiting costs a thread, a server keeps one thread and asks its sources by turns: each
//! call returns at once, with an error if there is nothing yet, and where all sources say so the
//! loop waits for any of them to be ready. What a source has given so far cannot stay in local
//! variables, because the loop must go on to the next source: it is kept in a record, a *session*,
//! and callbacks that the loop calls for a byte, then for a line, take up where the last one ended.
//!
//! [`echo`](crate::echo) is the same service by a G that waits: `read_line` returns when there is a
//! line, and the loop over lines is a loop. Waiting costs it no M, so nothing is gained by turning
//! it inside out. Both print how many switches they took; `docs/seeds.md` compares them.
//!
//! This one knows plain ASCII, backspace, Ctrl-D and `exit`.

use crate::echo::switches;
use runnext::console::{self, InputError};
use runnext::prelude::*;

runnext::main!(echoloop, main);

/// How long the loop waits for its sources before it asks them again.
const PATIENCE: Duration = Duration::from_secs(1);

fn main() {
    let before = switches();
    println!("type a line; `exit` or Ctrl-D ends");
    match serve(&mut Session::new()) {
        Ok(turns) => {
            println!("{} of {} turns found nothing", turns.empty, turns.all);
            println!("{} switches", switches() - before);
        }
        Err(error) => {
            println!("echoloop: {error}");
            exit(1);
        }
    }
}

/// How often the loop went round, and how often its source had nothing.
#[derive(Default)]
struct Turns {
    all: usize,
    empty: usize,
}

/// The loop. A second source would be a second arm in it, and a session of its own.
fn serve(session: &mut Session) -> Result<Turns, InputError> {
    let mut turns = Turns::default();
    session.prompt();
    while !session.is_over {
        turns.all += 1;
        let mut bytes = [0; 64];
        match console::try_read(&mut bytes) {
            Ok(n) => bytes[..n].iter().for_each(|&byte| session.on_byte(byte)),
            Err(InputError::WouldBlock) => {
                turns.empty += 1;
                match console::wait_ready(PATIENCE) {
                    Ok(()) | Err(InputError::TimedOut) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(turns)
}

/// What one source has given so far.
struct Session {
    line: String,
    /// The byte before was a return, which a line feed may follow.
    after_return: bool,
    is_over: bool,
}

impl Session {
    const fn new() -> Self {
        Session { line: String::new(), after_return: false, is_over: false }
    }

    fn prompt(&self) {
        print!("> ");
    }

    fn on_byte(&mut self, byte: u8) {
        let after_return = core::mem::replace(&mut self.after_return, byte == b'\r');
        match byte {
            _ if self.is_over => {}
            b'\n' if after_return => {}
            b'\r' | b'\n' => {
                println!();
                self.on_line();
            }
            0x04 if self.line.is_empty() => {
                println!();
                self.is_over = true;
            }
            0x08 | 0x7f if self.line.pop().is_some() => print!("\x08 \x08"),
            b' '..=b'~' if self.line.len() < console::LINE_MAX => {
                self.line.push(byte.into());
                print!("{}", char::from(byte));
            }
            _ => {}
        }
    }

    fn on_line(&mut self) {
        let line = core::mem::take(&mut self.line);
        if line == "exit" {
            self.is_over = true;
        } else {
            println!("{line} ({} bytes)", line.len());
            self.prompt();
        }
    }
}
