//! Shell: a G that reads commands from the serial line and carries them out.
//!
//! The G waits in the poller for the serial port; while it waits it has neither CPU nor M.
//! Typed bytes go through [`mod@line`] (editing, history, completion) to [`parse`], and
//! [`commands`] carries out the resulting command. No input can stop the machine, except the
//! commands that do: the first two are pure and take any bytes, and a command that panics is
//! reported and over.
//!
//! Editing and parsing need a little memory, and when a program has taken all of it they get
//! none: then the shell's G ends, as any G does. So main is not that G. It starts one, waits
//! for its end, prints why, and starts the next a little later ([`keep_one`]); main itself
//! needs no more memory than it has had before.
//!
//! The shell's output goes to the serial line alone. It does not go to the screen, which
//! shows the output of programs and kernel, nor to `dmesg`.

mod bench;
mod commands;
mod complete;
mod fit;
#[cfg(not(target_os = "none"))]
pub mod hostile;
mod keys;
mod line;
mod parse;
mod run;
mod top;

use alloc::string::String;
use complete::Names;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use line::{Editor, Entered};
use runnext::console::{self, InputError};
use runnext::prelude::*;

runnext::main!(shell, main);

fn main() {
    if is_running() {
        console::write("you are in a shell already\n");
        exit(1);
    }
    main_after(0);
}

/// The shell, after a program that would have ended with `code`: the machine ends with that
/// code when it is switched off.
pub fn main_after(code: u32) {
    CODE.store(code, Relaxed);
    MAIN.store(current().id(), Relaxed);
    IS_RUNNING.store(true, Relaxed);
    let ended = keep_one();
    IS_RUNNING.store(false, Relaxed);
    if let Err(error) = ended {
        println!("shell: {error}");
        exit(code.max(1));
    }
}

/// Whether a shell runs already.
pub fn is_running() -> bool {
    IS_RUNNING.load(Relaxed)
}

/// Whether the line is a command.
#[cfg(test)]
pub fn is_command(line: &str) -> bool {
    matches!(parse::parse(line), Ok(Some(_)))
}

static IS_RUNNING: AtomicBool = AtomicBool::new(false);
/// The G that waits for the shell's end.
static MAIN: AtomicU64 = AtomicU64::new(0);
/// The shell's own G.
static SHELL: AtomicU64 = AtomicU64::new(0);
/// The exit code of the machine.
static CODE: AtomicU32 = AtomicU32::new(0);

/// The pause between the end of a shell and the start of the next.
const PAUSE: Duration = Duration::from_millis(500);

/// Whether that G is the shell, or main, which waits for it.
fn is_own(g: u64) -> bool {
    [&MAIN, &SHELL].map(|own| own.load(Relaxed)).contains(&g)
}

/// Runs a shell on a G, and when it fails another one.
///
/// # Errors
/// There is no input to read from.
fn keep_one() -> Result<(), InputError> {
    loop {
        match Go::new().name("shell").spawn(interact).map(JoinHandle::join) {
            Ok(Ok(ended)) => return ended,
            // This needs no memory: a short text is printed from the stack.
            Ok(Err(error)) => println!("the shell failed, and begins again: {error}"),
            Err(_) => {} // no memory for a G yet
        }
        sleep(PAUSE);
    }
}

/// Reads commands and carries them out, for ever: `poweroff` and `reboot` do not return.
///
/// # Errors
/// There is no input to read from.
fn interact() -> Result<(), InputError> {
    SHELL.store(current().id(), Relaxed);
    console::write("`help` lists the commands; Tab completes, the arrow keys recall.\n");
    let mut editor = Editor::new();
    let commands = parse::names();
    let names = Names { commands: &commands, words: &commands::words };
    let mut out = String::new();
    editor.prompt(&mut out);
    loop {
        console::write(&core::mem::take(&mut out));
        let mut byte = [0];
        console::read(&mut byte)?;
        match editor.push(byte[0], &names, &mut out) {
            Entered::Nothing => continue,
            Entered::End => out.push_str("\n`poweroff` ends the machine\n"),
            Entered::Line(line) => {
                console::write(&core::mem::take(&mut out));
                obey(&line);
            }
        }
        editor.prompt(&mut out);
    }
}

/// Carries out a line, or reports its error.
fn obey(line: &str) {
    let command = match parse::parse(line) {
        Ok(None) => return,
        Ok(Some(command)) => command,
        Err(complaint) => return console::write(&format!("{complaint}\n")),
    };
    // On a G of its own: its panic does not end the shell.
    match Go::new().name("command").spawn(move || commands::obey(&command)) {
        Ok(command) => {
            if let Err(error) = command.join() {
                console::write(&format!("the command failed: {error}\n"));
            }
        }
        Err(error) => console::write(&format!("no G for this command: {error}\n")),
    }
}
