//! What the tour says after a scene at a terminal: the file to read, and one thing to try.
//!
//! By the scene's title, so that a scene is told in one place and the way on from it in another.

/// The way on from a scene.
pub struct Hint {
    title: &'static str,
    /// The file in which the feature begins.
    pub read: &'static str,
    /// One thing to try: a line for the shell, or for the host if it begins with `make`.
    pub run: &'static str,
}

/// The hint for the scene of that title.
pub fn of(title: &str) -> Option<&'static Hint> {
    HINTS.iter().find(|hint| hint.title == title)
}

#[rustfmt::skip]
static HINTS: &[Hint] = &[
    Hint { title: "System", read: "kernel/sched/src/system/mod.rs", run: "make run ARGS=system=shared" },
    Hint { title: "Gs are cheap", read: "kernel/src/run/spawn.rs", run: "make run PROGRAM=million MEM=6G" },
    Hint { title: "Stealing", read: "kernel/sched/src/runq.rs", run: "run fanout" },
    Hint { title: "Near and far", read: "kernel/sched/src/near.rs", run: "top" },
    Hint { title: "Preemption", read: "kernel/src/run/preempt.rs", run: "run hog 60 &" },
    Hint { title: "Run next", read: "kernel/sched/src/p.rs", run: "bench pingpong" },
    Hint { title: "Blocking calls", read: "kernel/src/run/call.rs", run: "run blocking" },
    Hint { title: "Poller", read: "kernel/src/run/poller.rs", run: "run echo hogs" },
    Hint { title: "Timers", read: "kernel/src/run/timer.rs", run: "irq" },
    Hint { title: "Channels", read: "kernel/src/api/chan/mod.rs", run: "run pipeline" },
    Hint { title: "Select", read: "kernel/src/api/select/mod.rs", run: "run primes" },
    Hint { title: "Mutex", read: "kernel/src/wait/mutex.rs", run: "bench mutex" },
    Hint { title: "Priorities", read: "kernel/src/run/priority.rs", run: "nice main background" },
    Hint { title: "Panic", read: "kernel/src/run/unwind.rs", run: "dmesg 30" },
    Hint { title: "GOMAXPROCS", read: "kernel/sched/src/proc.rs", run: "gomaxprocs 1" },
    Hint { title: "Deadlock", read: "kernel/src/fail/deadlock.rs", run: "run deadlock" },
    Hint { title: "Accounting", read: "kernel/src/run/account.rs", run: "sched -v" },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::vec::Vec;

    #[test]
    fn every_scene_has_a_hint_and_every_hint_a_scene() {
        let scenes: Vec<_> = super::super::scenes::ALL.iter().map(|scene| scene.title).collect();
        let hints: Vec<_> = HINTS.iter().map(|hint| hint.title).collect();
        assert_eq!(scenes, hints, "one for each scene, in their order");
    }

    #[test]
    fn what_is_to_be_read_is_there_and_what_is_to_be_tried_can_be() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        for Hint { title, read, run } in HINTS {
            assert!(root.join(read).is_file(), "{title}: {read}");
            if run.starts_with("make run ") {
                continue;
            }
            assert!(crate::shell::is_command(run), "{title}: {run}");
            if let Some(words) = run.strip_prefix("run ") {
                let program = words.split(' ').next().unwrap_or_default();
                assert!(programs.join(program).with_extension("rs").is_file(), "{title}: {run}");
            }
        }
    }
}
