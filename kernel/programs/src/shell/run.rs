//! `run`: a program, until it ends or Ctrl-C is pressed; or beside the shell.
//!
//! The program has Gs of its own kind: when it ends, all of them do. While the
//! shell waits for it, Ctrl-C is the shell's, and everything else that is typed is
//! the program's to read, or the shell's when it has ended. One that runs beside
//! it ends by itself, or by a `kill` of its first G, which has its name.

use super::commands::{programs, unknown};
use super::line::PROMPT;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use runnext::console::{self, InterruptKey};
use runnext::prelude::*;
use runnext::program::{self, Ended, Run, StartError};

/// Runs it to its end, and says which that was.
pub fn run(name: &str, words: &[String], in_background: bool) {
    match program::start(name, words.to_vec()) {
        Ok(run) if in_background => leave(name, run),
        Ok(run) => attend(name, run),
        Err(StartError::Unknown) => unknown("program", name, &programs()),
        Err(error) => console::write(&format!("{name}: {error}\n")),
    }
}

/// Waits for it here; Ctrl-C stops it.
fn attend(name: &str, run: Run) {
    let run = Arc::new(run);
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
    let stopper = stopper
        .inspect_err(|error| console::write(&format!("Ctrl-C will not stop {name}: {error}\n")))
        .ok();
    let ended = loop {
        // `wait` would take it from the one who stops it.
        if let Some(ended) = run.wait_timeout(Duration::from_secs(3600)) {
            break ended;
        }
    };
    drop(key); // which ends the stopper
    if let Some(stopper) = stopper {
        drop(stopper.join());
    }
    if ended != Ended::Code(0) {
        console::write(&format!("{name}: {ended}\n"));
    }
}

/// Lets it run, and says when it has ended.
fn leave(name: &str, run: Run) {
    console::write(&format!("{name} runs as program {}; `kill {name}` ends it\n", run.id()));
    let name = String::from(name);
    let waiter = Go::new().name("waiter").spawn(move || {
        let ended = run.wait();
        console::write(&format!("\r\x1b[K{name}: {ended}\n{PROMPT}"));
    });
    if let Err(error) = waiter {
        console::write(&format!("nobody will say when it has ended: {error}\n"));
    }
}
