//! The tool behind `make trace`.
//!
//! ```text
//! trace run [--out NAME] [options of `boot run`]   boots, traces, converts
//! trace convert STREAM [--out NAME] [--title T]    a stream that is there already
//! trace simulate [--cpus N] [--events N] [--seed N] [--out NAME]   without a machine
//! ```
//!
//! `NAME` is `target/trace` if not given; `.json`, `.html` and `.svg` go there, of
//! `run` also the stream as `.bin`.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use tool::args::Args;
use tool::tree::{self, shown};
use trace::check::{Agreement, compare};
use trace::model::Model;
use trace::picture::{grouped, time};
use trace::{chrome, decode, page, picture, simulate};

const USAGE: &str = "usage: trace run [--out NAME] [options of boot run]
       trace convert STREAM [--out NAME] [--title TITLE]
       trace simulate [--cpus N] [--events N] [--seed N] [--out NAME]";

/// Room in the ring of each CPU: 4 MiB. The debug console takes a byte at a time,
/// slower than events come; so the ring should have room for the whole of a short
/// run, or some are lost. `ARGS="events=…"` says otherwise.
const EVENTS: u32 = 1 << 18;

fn main() -> ExitCode {
    tool::end("trace", obey(Args::of_process(USAGE)))
}

fn obey(mut args: Args) -> Result<ExitCode> {
    match args.command()?.as_str() {
        "run" => run(args),
        "convert" => convert_file(args),
        "simulate" => simulate(args),
        _ => bail!("{USAGE}"),
    }
}

/// Boots with the debug console in a file, and converts the stream.
fn run(mut args: Args) -> Result<ExitCode> {
    let (mut out, mut program, mut rest) = (None, None, None);
    let mut options = Vec::new();
    while let Some(key) = args.next()? {
        let value = args.text()?;
        match &*key {
            "--out" => out = value,
            "--cmdline" => rest = value,
            _ => {
                if key == "--program" {
                    program.clone_from(&value);
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
    let boot = tree::find()?.join("target/debug/boot");
    let status = Command::new(&boot)
        .arg("run")
        .args(&options)
        // Before the rest, because words after a `--` are the program's.
        .args(["--cmdline", &format!("trace=stream events={EVENTS} {rest}")])
        .arg("--debugcon")
        .arg(&stream)
        .status()
        .with_context(|| format!("starting {} (make tool?)", boot.display()))?;
    let bytes = fs::read(&stream).with_context(|| format!("reading {}", stream.display()))?;
    let converted = convert(&bytes, &program, &out)?;
    Ok(match status.code() {
        Some(0) => converted,
        Some(code) => ExitCode::from(code as u8),
        None => ExitCode::FAILURE,
    })
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
    convert(&bytes, title.as_deref().unwrap_or(&stem), &path(out)?)
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
    convert(&simulate::stream(plan), "skynet (simulated)", &path(out)?)
}

/// Fails if the counters say something else than the events.
fn convert(bytes: &[u8], title: &str, out: &Path) -> Result<ExitCode> {
    let stream = decode::decode(bytes)?;
    let model = Model::new(&stream);
    let agreement = compare(&model);
    if let Some(dir) = out.parent() {
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    let file = |kind| out.with_extension(kind);
    let json = File::create(file("json")).context("creating the JSON file")?;
    chrome::write(&model, BufWriter::new(json)).context("writing the JSON file")?;
    let facts = page::Facts { title: title.into(), agreement: agreement.to_string() };
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
    model.warnings.lines().for_each(|line| println!("warning: {line}"));
}

/// The name of the files without their extensions.
fn path(out: Option<String>) -> Result<PathBuf> {
    match out {
        Some(name) => Ok(name.into()),
        None => Ok(tree::find()?.join("target/trace")),
    }
}
