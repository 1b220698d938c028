//! Tour: short scenes, each a feature of the model, each proved.
//!
//! A scene says what to watch, shows numbers of this very run as evidence, and earns its
//! check mark by assertions about counts and order, never about time: an emulator's time is
//! not reliable. The numbers differ from run to run; the assertions do not. The program ends
//! with 1 if a scene failed.
//!
//! `program=tour -- fail` adds a scene that fails, to show what that looks like. At a
//! terminal (`terminal=on` on the command line, which `make run` adds) the
//! [shell](crate::shell) follows.

mod scenes;
mod stage;

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
    if runnext::console::is_terminal() && !crate::shell::is_running() {
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
    scenes::ALL.iter().enumerate().map(|(i, scene)| play(i + 1, scene)).sum()
}

/// Plays one scene; 1 if it failed. On a G of its own: its panic is a failure of the scene
/// and not the end of the tour.
fn play(number: usize, scene: &'static Scene) -> usize {
    println!("\n{number:2}. {}\n    {}", scene.title, scene.look);
    let played = go(move || {
        let mut stage = Stage::new();
        (scene.play)(&mut stage);
        stage.passed()
    });
    match played.join() {
        Ok(passed) => usize::from(!passed),
        Err(error) => {
            println!("    \u{2717} the scene itself: {error}");
            1
        }
    }
}
