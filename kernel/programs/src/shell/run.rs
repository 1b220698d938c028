//! `run`: a program, until it ends or Ctrl-C is pressed; or in the background.
//!
//! The program has its own Gs: when it ends, all of them do. While the shell waits for it,
//! Ctrl-C goes to the shell, and all other typed bytes go to the program, or to the shell
//! when the program has ended. A program in the background ends by itself, or by a `kill` of
//! its first G, which has its name.

use super::commands::{programs, unknown};
use super::line::PROMPT;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use runnext::console::{self, InterruptKey};
use runnext::prelude::*;
use runnext::program::{self, Ended, Run, Share, StartError};

/// Runs the program to its end, and prints how it ended.
pub fn run(name: &str, share: Share, words: &[String], in_background: bool) {
    match program::start_with_share(name, words.to_vec(), share) {
        Ok(run) if in_background => leave(name, run),
        Ok(run) => attend(name, run),
        Err(StartError::Unknown) => unknown("program", name, &programs()),
        Err(error) => console::write(&format!("{name}: {error}\n")),
    }
}

/// Waits for the program here; Ctrl-C stops it.
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
        // `wait` would consume `run`, which the stopper G shares.
        if let Some(ended) = run.wait_until(Duration::from_secs(3600)) {
            break ended;
        }
    };
    drop(key); // ends the stopper
    if let Some(stopper) = stopper {
        drop(stopper.join());
    }
    if ended != Ended::Code(0) {
        console::write(&format!("{name}: {ended}\n"));
    }
}

/// Leaves the program running, and prints when it has ended.
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
