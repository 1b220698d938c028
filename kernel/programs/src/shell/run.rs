//! `run`: a program, until it ends or Ctrl-C is pressed.
//!
//! The program has Gs of its own kind: when it ends, all of them do. While it
//! runs, Ctrl-C is the shell's, and everything else that is typed is the program's
//! to read, or the shell's when it has ended.

use super::commands::{programs, unknown};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use runnext::console::{self, InterruptKey};
use runnext::prelude::*;
use runnext::program::{self, Ended, StartError};

/// Runs it to its end, and says which that was.
pub fn run(name: &str, words: &[String]) {
    let run = match program::start(name, words.to_vec()) {
        Ok(run) => Arc::new(run),
        Err(StartError::Unknown) => return unknown("program", name, &programs()),
        Err(error) => return console::write(&format!("{name}: {error}\n")),
    };
    let key = InterruptKey::catch();
    let stopper = Go::new().name("ctrl-c").spawn({
        let run = run.clone();
        move || {
            while InterruptKey::wait() {
                console::write("^C\n");
                run.stop();
            }
        }
    });
    let ended = loop {
        // There is no end to be waited for without one; and one is enough.
        if let Some(ended) = run.wait_timeout(Duration::from_secs(3600)) {
            break ended;
        }
    };
    drop(key); // which ends the stopper
    if let Ok(stopper) = stopper {
        drop(stopper.join());
    }
    if ended != Ended::Code(0) {
        console::write(&format!("{name}: {ended}\n"));
    }
}
