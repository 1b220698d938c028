//! Tour: short scenes, each a feature of the model, each proved.
//!
//! A scene says what to watch, shows numbers of this very run as evidence, and earns its
//! check mark by assertions about counts and order, never about time: an emulator's time is
//! not reliable. The numbers differ from run to run; the assertions do not. The program ends
//! with 1 if a scene failed.
//!
//! `program=tour -- fail` adds a scene that fails, to show what that looks like.
//!
//! At a terminal (`terminal=on` on the command line, which `make run` adds) the tour waits
//! after each scene, shows where to read and what to try ([`hints`]), and the
//! [shell](crate::shell) follows. Without a terminal it runs through.

mod hints;
mod inversion;
mod scenes;
mod stage;

use hints::Hint;
use runnext::console;
use runnext::prelude::*;
use stage::Stage;

runnext::main!(tour, main);

fn main() {
    let mut failed = tour();
    if args().iter().any(|word| word == "fail") {
        failed += play(scenes::ALL.len() + 1, &FAILS);
    }
    match failed {
        0 => println!("\nall of it holds"),
        n => println!("\n{n} of the scenes failed"),
    }
    let code = u32::from(failed > 0);
    if console::is_terminal() && !crate::shell::is_running() {
        println!();
        crate::shell::main_after(code);
    }
    exit(code);
}

/// A scene: a feature of the model.
pub struct Scene {
    title: &'static str,
    /// What to watch.
    look: &'static str,
    play: fn(&mut Stage),
}

/// A scene that fails by design.
const FAILS: Scene = Scene {
    title: "A scene that fails",
    look: "it was asked for by `-- fail`; the program ends with 1",
    play: |stage| stage.check(false, "two and two are five"),
};

/// Plays all scenes; returns how many failed.
fn tour() -> usize {
    let (cpus, ps) = (num_cpus(), gomaxprocs());
    println!("\nA tour of G, M and P. CPUs: {cpus}; Ps that run Gs: {ps}");
    let mut failed = 0;
    for (scene, number) in scenes::ALL.iter().zip(1..) {
        failed += play(number, scene);
        let is_last = number == scenes::ALL.len();
        let hint = hints::of(scene.title).filter(|_| console::is_terminal());
        if hint.is_some_and(|hint| !goes_on(hint, is_last) && !is_last) {
            println!("\nleft after scene {number} of {}; `run tour` plays all", scenes::ALL.len());
            break;
        }
    }
    failed
}

/// Shows the hint, and waits for a key: whether the next scene is to be played. Without input the
/// tour runs through.
fn goes_on(hint: &Hint, is_last: bool) -> bool {
    const CTRL_C: u8 = 3;
    const CTRL_D: u8 = 4;
    let keys = if is_last { "Enter" } else { "Enter: next scene   q: shell" };
    console::write(&format!(
        "\n      read  {}\n      try   {}\n    {DIM}{keys}{PLAIN} ",
        hint.read, hint.run
    ));
    let goes_on = loop {
        let mut byte = [0];
        match (console::read(&mut byte), byte[0]) {
            (Err(_), _) | (_, b'\r' | b'\n' | b' ') => break true,
            (_, b'q' | b'Q' | CTRL_C | CTRL_D) => break false,
            _ => {}
        }
    };
    console::write("\r\x1b[K");
    goes_on
}

/// How a terminal begins and ends a colour. Only the serial line gets them, and only if it is one.
const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[m";

/// Prints a line, at a terminal in that colour.
fn print_in(color: &str, line: impl core::fmt::Display) {
    if console::is_terminal() {
        console::write(color);
    }
    println!("{line}");
    if console::is_terminal() {
        console::write(PLAIN);
    }
}

/// Plays one scene; 1 if it failed. On a G of its own: its panic is a failure of the scene
/// and not the end of the tour.
fn play(number: usize, scene: &'static Scene) -> usize {
    println!();
    print_in(BOLD, format_args!("{number:2}. {}", scene.title));
    println!("    {}", scene.look);
    let played = go(move || {
        let mut stage = Stage::new();
        (scene.play)(&mut stage);
        stage.passed()
    });
    match played.join() {
        Ok(passed) => usize::from(!passed),
        Err(error) => {
            print_in(RED, format_args!("    \u{2717} the scene itself: {error}"));
            1
        }
    }
}
