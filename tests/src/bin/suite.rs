//! The runner behind `make test`, `make test-quick` and `make test-full`.
//!
//! Two lanes of stages run side by side, so that two cores are busy all the time: one builds
//! the kernels and boots machines, the other does all that needs no machine. Each stage prints
//! its time, and one that fails does not keep the next from running. At the end come the
//! stages with their times, the ten slowest tests, and `N passed, M failed`.
//!
//! What only `make test-full` does, and what samples it in `make test`:
//!
//! | promise | in `make test` |
//! |---|---|
//! | checks of `blocking`, `killing`, `poller`, `programs`, `scheduling`, `syncing`, `tasks`, `timers`, `watch` and the counts of `stress` on 2 and on 4 CPUs, of `disk` on 2 | the same on 1 and on 8 (`disk`: also on 4) |
//! | sixteen hogs from all Ps, seventeen from one; 300 CPUs in the MADT and destructors that do not end on 1 CPU | sixteen from one P, seventeen from all; the same on 8 CPUs |
//! | 20,000 full stacks leave nothing behind | 1,000 |
//! | two loom models (`two_parkers_and_one_submit`, `a_reader_and_two_writers`) with three preemptions | with two |
//! | the decisions and arrivals of `sched`, the simulated device and the readers of traces under Miri | the same natively; under Miri `sched`'s lists and the trace's ring |
//! | every wrong body of the labs, their stubs, references and variants | one wrong body a lab, without models and boots (lab 6 only boots) |
//! | everything else that is marked `ignored` (shapes, seeds, UEFI twins) | the test beside it on the usual machine |
//!
//! Host tools are built in the dev profile throughout, like a bare `cargo test`.

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, fs};

use anyhow::{Context, Result};
use tests::Effort;
use tests::results::{self, Stage};
use tests::stage::{self, Job, Kind};
use tool::args::Args;

/// The tool that carries a loader, a workspace of its own.
const LOADER: &str = "boot/loader/Cargo.toml";

/// Modules of the inner loop: those that boot few machines.
const QUICK: [&str; 3] = ["boot::", "selftest::", "harness::"];

/// More than there are cores: a test whose machine waits for a core, or for a boot that it
/// shares with other tests, must not keep others from starting.
const THREADS: &str = "--test-threads=24";

/// The stage before the suite itself.
const SET_UP: &str = "set-up";

/// How many of the slowest tests are named.
const SLOWEST: usize = 10;

const USAGE: &str = "usage: suite [--quick|--full]";

fn main() -> ExitCode {
    tool::end("suite", run(Args::of_process(USAGE)))
}

fn run(mut args: Args) -> Result<ExitCode> {
    let mut effort = Effort::Sample;
    while let Some(key) = args.next()? {
        match &*key {
            "--quick" => effort = Effort::Quick,
            "--full" => effort = Effort::Full,
            _ => return Err(args.unknown()),
        }
    }
    let out_dir = tests::out_dir();
    fs::create_dir_all(&out_dir).with_context(|| out_dir.display().to_string())?;
    let started = Instant::now();
    // Boots of this run only.
    fs::remove_file(results::boots_file()).ok();

    let mut stages: Vec<Stage> = set_up().into_iter().collect();
    stages.extend(stage::lanes(lanes(effort)));
    Ok(conclude(&stages, started))
}

fn lanes(effort: Effort) -> Vec<Vec<Job>> {
    let mut machines = vec![build(), machine_tests(effort)];
    let mut others = vec![format(), clippy(), clippy_bare(), host_tests()];
    if effort > Effort::Quick {
        machines.push(budgets());
        others.extend([miri(effort), loom(effort), thread_sanitizer(), simulation(), labs(effort)]);
        others.push(docs());
    }
    vec![machines, others]
}

fn format() -> Job {
    let job = Job::new("fmt", Kind::Check).cargo(&["fmt", "--all", "--check"]);
    let manifests = others().into_iter().chain([LOADER.into()]);
    manifests.fold(job, |job, manifest| {
        job.cargo(&["fmt", "--manifest-path", &manifest, "--", "--check"])
    })
}

fn clippy() -> Job {
    let host = [
        "clippy",
        "--workspace",
        "--exclude=programs",
        "--exclude=guest",
        "--exclude=workloads",
        "--all-targets",
        "--",
        "-Dwarnings",
    ];
    // Where its image tool is built, so that the loader's stages are built once.
    let loader = ["clippy", "--manifest-path", LOADER, "--features=bios"];
    let rest = ["--target-dir=target/loader-bios", "--", "-Dwarnings"];
    Job::new("clippy host", Kind::Check).cargo(&host).cargo(&[&loader[..], &rest].concat())
}

/// The same for the bare target, where other code is compiled. No code is generated, so the
/// toolchain's own `core` will do; in the dev profile, which has the
/// `cfg(debug_assertions)` code of the checked kernel.
fn clippy_bare() -> Job {
    let lint = |which: &[&str]| {
        let bare = ["--target", "x86_64-unknown-none", "--", "-Dwarnings"];
        let args = [&["clippy"][..], which, &bare];
        args.concat().into_iter().map(str::to_string).collect::<Vec<_>>()
    };
    // The guest by itself: what it needs of the kernel, programs must not have.
    let ours = ["programs", "workloads", "runnext", "sched"];
    let mut lines = vec![lint(&ours.map(|name| ["-p", name]).concat()), lint(&["-p", "guest"])];
    for manifest in others() {
        // In this workspace's directory, where the dependencies are checked already.
        lines.push(lint(&["--manifest-path", &manifest, "--target-dir", "target"]));
    }
    lines.iter().fold(Job::new("clippy kernel", Kind::Check), |job, line| {
        job.cargo(&line.iter().map(String::as_str).collect::<Vec<_>>())
    })
}

fn host_tests() -> Job {
    let test = ["test", "--no-fail-fast"];
    Job::new("host tests", Kind::Tests)
        .cargo(
            &[
                &test[..],
                // With one kernel for `fuzz` and `programs`.
                &[
                    "bench", "boot", "fuzz", "labs", "plugin", "programs", "runnext", "sched",
                    "tool", "trace",
                ]
                .map(|name| ["-p", name])
                .concat()[..],
            ]
            .concat(),
        )
        // Without its integration tests: those boot machines.
        .cargo(&[&test[..], &["-p", "tests", "--lib", "--bins"]].concat())
        .cargo(&[&test[..], &["-p", "tests", "--doc"]].concat())
}

fn docs() -> Job {
    Job::new("docs", Kind::Check).cargo_with(
        &[
            "doc",
            "--no-deps",
            "--document-private-items",
            "--workspace",
            "--exclude=programs",
            "--exclude=guest",
            "--exclude=workloads",
        ],
        &[("RUSTDOCFLAGS", "-Dwarnings")],
    )
}

/// Thousands of seeds, and eleven mistakes that must be found. Optimised a little,
/// in a directory of its own, because the feature and the level rebuild things.
fn simulation() -> Job {
    Job::new("simulation", Kind::Tests).cargo_with(
        &["test", "-p=sched", "--features=sim", "--test=sim", "--target-dir=target/sim"],
        &[("CARGO_PROFILE_DEV_OPT_LEVEL", "1")],
    )
}

/// One wrong body a lab, by host tests and the simulator; all of them, with models and boots, in
/// `make test-full`.
fn labs(effort: Effort) -> Job {
    let mut args = vec!["run", "--quiet", "-p", "labs", "--", "check"];
    if effort < Effort::Full {
        args.push("--quick");
    }
    Job::new("labs", Kind::Check).cargo(&args)
}

/// In a directory of its own, because the flag rebuilds everything. The two largest models
/// have one preemption less except in `make test-full`.
/// One model at a time: two side by side take three times the CPU seconds.
fn loom(effort: Effort) -> Job {
    Job::new("loom", Kind::Tests).cargo_with(
        &[
            "test",
            "--no-fail-fast",
            "-p=sched",
            "-p=runnext",
            "--test=loom_*",
            "--profile=loom",
            "--target-dir=target/loom",
            "--",
            "--test-threads=1",
        ],
        &[("RUSTFLAGS", "--cfg loom"), ("RUNNEXT_TEST", effort.word())],
    )
}

/// Gs are never freed, so what Miri would call a leak is the plan. Of the kernel
/// what programs see, with the unsafe code below it. `sched` has its unsafe code in one
/// place, its lists, which the tests of the library and `stress` go through.
fn miri(effort: Effort) -> Job {
    let miri = ["miri", "test", "--no-fail-fast"];
    let mut sched = vec!["-p=sched", "--lib", "--test=stress"];
    let kernel = ["-p=runnext", "--lib", "--", "--skip=arch::", "--skip=watch::backtrace::"];
    let run = ["job", "permit", "poller", "record", "ring", "task"];
    let mut parts = run.map(|file| format!("run::{file}::")).to_vec();
    let api = ["chan", "gref", "select", "sync"];
    parts.extend(api.map(|module| format!("api::{module}::")));
    parts.push("wait::".into());
    if effort == Effort::Full {
        sched.extend(["--test=arrivals", "--test=decisions"]);
        parts.extend(["check::simulated::", "watch::trace::"].map(String::from));
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let flags = [("MIRIFLAGS", "-Zmiri-strict-provenance -Zmiri-ignore-leaks")];
    // `virtio-drivers` makes pointers of integers.
    let virtio_flags = [("MIRIFLAGS", "-Zmiri-permissive-provenance -Zmiri-ignore-leaks")];
    Job::new("miri", Kind::Tests)
        .cargo_with(&[&miri[..], &sched].concat(), &flags)
        .cargo_with(&[&miri[..], &kernel, &parts].concat(), &flags)
        .cargo_with(&[&miri[..], &kernel, &["drivers::virtio::ring::"]].concat(), &virtio_flags)
}

/// With a standard library of its own, as the sanitizer must see every access.
fn thread_sanitizer() -> Job {
    Job::new("tsan", Kind::Tests).cargo_with(
        &[
            "test",
            "--no-fail-fast",
            "-p=sched",
            "--lib",
            "--tests",
            "-Zbuild-std",
            "--target=x86_64-unknown-linux-gnu",
            "--target-dir=target/tsan",
        ],
        &[("RUSTFLAGS", "-Zsanitizer=thread")],
    )
}

fn build() -> Job {
    Job::new("build", Kind::Check)
        // Each by itself: what the guest needs of the kernel, programs must not have.
        .cargo(&["kernel", "-p", "programs"])
        .cargo(&["kernel", "-p", "guest"])
        .cargo(&["checked", "-p", "guest"])
        .cargo(&["run", "-p", "boot", "--", "image"])
}

fn machine_tests(effort: Effort) -> Job {
    let mut args = vec!["test", "-p", "tests", "--test", "machine", "--", THREADS];
    match effort {
        Effort::Quick => args.extend(QUICK),
        Effort::Sample => {}
        Effort::Full => args.push("--include-ignored"),
    }
    // The place in the test says little; what the guest said is in the message.
    let environment = [("RUNNEXT_TEST", effort.word()), ("RUST_BACKTRACE", "0")];
    Job::new("machine tests", Kind::SlowTests).cargo_with(&args, &environment)
}

/// What an operation may cost, of those that are quick to measure. A figure that is
/// known to be over its budget fails only when it grows.
fn budgets() -> Job {
    Job::new("budgets", Kind::Check)
        .cargo(&["run", "--quiet", "-p", "bench", "--", "check", "--quick", "--known"])
}

/// Crates of their own that are linked with the kernel, outside the workspace.
fn others() -> Vec<String> {
    let root = boot::root();
    let examples = fs::read_dir(root.join("examples")).into_iter().flatten().flatten();
    let mut dirs: Vec<_> = examples.map(|entry| entry.path()).collect();
    dirs.sort();
    dirs.iter()
        .map(|dir| dir.join("Cargo.toml"))
        .filter(|manifest| manifest.is_file())
        .map(|manifest| manifest.to_string_lossy().into_owned())
        .collect()
}

/// What the set-up took, if it is known.
fn set_up_of(stages: &[Stage]) -> Duration {
    stages.iter().filter(|stage| stage.name == SET_UP).map(|stage| stage.took).sum()
}

/// What happened before us: `make` says when it started.
fn set_up() -> Option<Stage> {
    let started: u64 = env::var("RUNNEXT_STARTED").ok()?.parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let took = now.checked_sub(Duration::from_secs(started))?;
    println!("{SET_UP:<16} {:>7.1} s", took.as_secs_f64());
    Some(Stage { name: SET_UP.into(), took, ..Stage::default() })
}

fn conclude(stages: &[Stage], started: Instant) -> ExitCode {
    let boots = fs::read_to_string(results::boots_file()).unwrap_or_default();
    let file = tests::out_dir().join("results.json");
    if let Err(error) = results::write(&file, stages, &boots) {
        eprintln!("suite: {error:#}");
    }
    println!("\nstages");
    stages.iter().for_each(|stage| println!("  {}", stage::summary(stage)));
    let slowest = results::slowest(&boots, SLOWEST);
    if !slowest.is_empty() {
        println!("slowest tests                 of it CPU");
    }
    for test in slowest {
        println!("  {:>24.1} s {:>7.1} s  {}", test.seconds, test.cpu_seconds, test.name);
    }
    let before: Duration = set_up_of(stages);
    let total = before + started.elapsed();
    let cpu: Duration = stages.iter().map(|stage| stage.cpu).sum();
    let [total, cpu] = [total, cpu].map(|time| time.as_secs_f64());
    println!("  {:<16} {total:>7.1} s {cpu:>7.1} CPU s   logs in target/tests", "all");
    let (passed, failed) = results::totals(stages);
    println!("{passed} passed, {failed} failed");
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
