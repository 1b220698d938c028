//! The tool behind `make trace`.
//!
//! ```text
//! trace run [--out NAME] [--real 1] [options of `boot run`]   boots, traces, converts
//! trace compare --a NAME --b NAME [--out NAME]     two streams on one page
//! trace convert STREAM [--out NAME] [--title T]    a stream that is there already
//! trace simulate [--cpus N] [--events N] [--seed N] [--out NAME]   without a machine
//! ```
//!
//! `NAME` is `target/trace` if not given, and a name without a slash is in `target/`;
//! `.json`, `.html` and `.svg` go there, of `run` also the stream as `.bin`.
//!
//! # Virtual time
//!
//! `run` boots in virtual time: QEMU counts a nanosecond an instruction, and the CPUs take short turns,
//! so the trace shows the scheduler alone, and the same one every time. By the host's clock
//! (`--real 1`) eight virtual CPUs share the host's cores, and the trace shows the host's
//! scheduling as well; the page hatches it.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use tool::VIRTUAL_CLOCKS;
use tool::args::Args;
use tool::tree::{self, shown};
use trace::check::{self, Agreement};
use trace::compare::{self, Side};
use trace::model::{Model, findings};
use trace::picture::{grouped, time};
use trace::{chrome, decode, page, picture, simulate};

const USAGE: &str = "usage: trace run [--out NAME] [--real 1] [options of boot run]
       trace compare --a NAME --b NAME [--out NAME]
       trace convert STREAM [--out NAME] [--title TITLE]
       trace simulate [--cpus N] [--events N] [--seed N] [--out NAME]";

/// Room in the ring of each CPU: 4 MiB. The debug console takes a byte at a time,
/// slower than events come; so the ring should have room for the whole of a short
/// run, or some are lost. `ARGS="events=…"` says otherwise.
const EVENTS: u32 = 1 << 18;

/// What makes a run repeat, beside [`VIRTUAL_CLOCKS`]: turns of 80 µs for all CPUs together, 10 for
/// each of eight; and no screen, whose writes follow the host.
const VIRTUAL_WORDS: &str = "console=serial turns=80 seed=1";

fn main() -> ExitCode {
    tool::end("trace", obey(Args::of_process(USAGE)))
}

fn obey(mut args: Args) -> Result<ExitCode> {
    match args.command()?.as_str() {
        "run" => run(args),
        "compare" => compare_files(args),
        "convert" => convert_file(args),
        "simulate" => simulate(args),
        _ => bail!("{USAGE}"),
    }
}

/// Boots with the debug console in a file, and converts the stream.
fn run(mut args: Args) -> Result<ExitCode> {
    let (mut out, mut program, mut rest, mut real, mut smp) = (None, None, None, None, None);
    let mut options = Vec::new();
    while let Some(key) = args.next()? {
        let value = args.text()?;
        match &*key {
            "--out" => out = value,
            "--cmdline" => rest = value,
            "--real" => real = value,
            _ => {
                match &*key {
                    "--program" => program.clone_from(&value),
                    "--smp" => smp = value.as_deref().and_then(|smp| smp.parse().ok()),
                    "--uefi" if value.is_some() && real.is_none() => {
                        bail!("UEFI firmware does not start in virtual time: add REAL=1");
                    }
                    _ => {}
                }
                options.extend([key, value.unwrap_or_default()]);
            }
        }
    }
    let (program, rest) = (program.unwrap_or("runnext".into()), rest.unwrap_or_default());
    let out = path(out)?;
    let stream = out.with_extension("bin");
    // An earlier run's stream must not be taken for this run's.
    fs::remove_file(&stream).ok();
    let cpus = smp.unwrap_or(1);
    let (clock, words) = match real {
        Some(_) => (real_clock(cpus), String::new()),
        None => {
            options.extend(["--icount".into(), "shift=0,sleep=off".into()]);
            let words = format!("{VIRTUAL_CLOCKS} {VIRTUAL_WORDS}");
            ("virtual time: 1 ns is one instruction".into(), words)
        }
    };
    let boot = tree::find()?.join("target/debug/boot");
    let status = Command::new(&boot)
        .arg("run")
        .args(&options)
        // Before the rest, because words after a `--` are the program's.
        .args(["--cmdline", &format!("trace=stream events={EVENTS} {words} {rest}")])
        .arg("--debugcon")
        .arg(&stream)
        .status()
        .with_context(|| format!("starting {} (make tool?)", boot.display()))?;
    let bytes = fs::read(&stream).with_context(|| format!("reading {}", stream.display()))?;
    let converted = convert(&bytes, &program, &clock, &out)?;
    Ok(match status.code() {
        Some(0) => converted,
        Some(code) => ExitCode::from(code as u8),
        None => ExitCode::FAILURE,
    })
}

/// The clock of a run by the host's, with a warning if the host has too few cores for it.
fn real_clock(cpus: usize) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus > cores {
        let clock = format!("the host's clock, {cpus} CPUs on {cores} cores");
        println!(
            "warning: {clock}: the trace shows the host's scheduling too (hatched); \
             SMP={cores} or virtual time (without REAL=1) does not"
        );
        return clock;
    }
    "the host's clock".into()
}

/// Two streams on one page.
fn compare_files(mut args: Args) -> Result<ExitCode> {
    let (mut a, mut b, mut out) = (None, None, None);
    while let Some(key) = args.next()? {
        match &*key {
            "--a" => a = args.text()?,
            "--b" => b = args.text()?,
            "--out" => out = args.text()?,
            _ => return Err(args.unknown()),
        }
    }
    let (a, b) = a.zip(b).context(
        "two traces are compared: make trace OUT=before, a change, make trace OUT=after, \
         make compare A=before B=after",
    )?;
    let model = |name: &str| -> Result<Model> {
        let file = path(Some(name.into()))?.with_extension("bin");
        let bytes = fs::read(&file)
            .with_context(|| format!("reading {} (make trace OUT={name}?)", shown(&file)))?;
        Ok(Model::new(&decode::decode(&bytes)?))
    };
    let models = [model(&a)?, model(&b)?];
    let sides = [Side { name: &a, model: &models[0] }, Side { name: &b, model: &models[1] }];
    let page = path(Some(out.unwrap_or("compare".into())))?.with_extension("html");
    fs::write(&page, compare::draw(sides)).with_context(|| format!("writing {}", shown(&page)))?;
    print!("{}", compare::table(sides));
    println!("{}", shown(&page));
    Ok(ExitCode::SUCCESS)
}

fn convert_file(mut args: Args) -> Result<ExitCode> {
    let (mut stream, mut title, mut out) = (None, None, None);
    while let Some(word) = args.next()? {
        match &*word {
            "--out" => out = args.text()?,
            "--title" => title = args.text()?,
            _ if stream.is_none() && !word.starts_with('-') => stream = Some(word),
            _ => return Err(args.unknown()),
        }
    }
    let stream = stream.context(USAGE)?;
    let bytes = fs::read(&stream).with_context(|| format!("reading {stream}"))?;
    let stem = Path::new(&stream).file_stem().unwrap_or_default().to_string_lossy();
    convert(&bytes, title.as_deref().unwrap_or(&stem), "", &path(out)?)
}

fn simulate(mut args: Args) -> Result<ExitCode> {
    let mut plan = simulate::Plan { cpus: 8, events: 100_000, seed: 1 };
    let mut out = None;
    while let Some(key) = args.next()? {
        match &*key {
            "--out" => out = args.text()?,
            "--cpus" => plan.cpus = args.number()?.map_or(plan.cpus, |n| n as u32),
            "--events" => plan.events = args.number()?.map_or(plan.events, |n| n as usize),
            "--seed" => plan.seed = args.number()?.unwrap_or(plan.seed),
            _ => return Err(args.unknown()),
        }
    }
    convert(&simulate::stream(plan), "skynet (simulated)", "", &path(out)?)
}

/// Fails if the counters say something else than the events.
fn convert(bytes: &[u8], title: &str, clock: &str, out: &Path) -> Result<ExitCode> {
    let stream = decode::decode(bytes)?;
    let model = Model::new(&stream);
    let agreement = check::compare(&model);
    if let Some(dir) = out.parent() {
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    let file = |kind| out.with_extension(kind);
    let json = File::create(file("json")).context("creating the JSON file")?;
    chrome::write(&model, BufWriter::new(json)).context("writing the JSON file")?;
    let facts =
        page::Facts { title: title.into(), agreement: agreement.to_string(), clock: clock.into() };
    fs::write(file("html"), page::draw(&model, &facts)).context("writing the page")?;
    fs::write(file("svg"), picture::draw(&model, title)).context("writing the picture")?;
    report(&model, &agreement);
    for kind in ["json", "html", "svg"] {
        let path = file(kind);
        let bytes = fs::metadata(&path).map_or(0, |data| data.len());
        println!("{} ({:.1} MB)", shown(&path), bytes as f64 / 1e6);
    }
    let differs = matches!(agreement, Agreement::Differs(_));
    Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn report(model: &Model, agreement: &Agreement) {
    println!(
        "{} events in {} on {} CPUs, {} lost; {} Gs ran {} times, {} thefts, {:.0} % busy",
        grouped(model.events),
        time(model.end_ns),
        model.cpus.len(),
        grouped(model.lost),
        grouped(model.gs.len() as u64),
        grouped(model.num_spans() as u64),
        grouped(model.steals.len() as u64),
        model.share_run() * 100.0
    );
    println!("{agreement}");
    findings::find(model).iter().for_each(|finding| println!("{}", finding.text));
    model.warnings.lines().for_each(|line| println!("warning: {line}"));
}

/// The name of the files without their extensions.
fn path(out: Option<String>) -> Result<PathBuf> {
    match out {
        Some(name) if name.contains('/') => Ok(name.into()),
        Some(name) => Ok(tree::find()?.join("target").join(name)),
        None => Ok(tree::find()?.join("target/trace")),
    }
}
