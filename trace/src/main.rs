//! The tool behind `make trace`.
//!
//! ```text
//! trace run [--out NAME] [options of `boot run`]   boots, traces, converts
//! trace convert STREAM [--out NAME] [--title T]    a stream that is there already
//! trace simulate [--cpus N] [--events N] [--seed N] [--out NAME]   without a machine
//! ```
//!
//! `NAME` is `target/trace` if not given; `.json`, `.html` and `.svg` go there, of
//! `run` also the stream as `.bin`. Options may come from make with an empty
//! value, which is like not giving them.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use trace::check::{Agreement, compare};
use trace::model::Model;
use trace::picture::{grouped, time};
use trace::words::{number, option};
use trace::{chrome, decode, page, picture, simulate};

const USAGE: &str = "usage: trace run [--out NAME] [options of boot run]
       trace convert STREAM [--out NAME] [--title TITLE]
       trace simulate [--cpus N] [--events N] [--seed N] [--out NAME]";

/// Room in the ring of each CPU: 4 MiB. The debug console takes a byte at a time,
/// slower than events come; so the ring should have room for the whole of a short
/// run, or some are lost. `ARGS="events=…"` says otherwise.
const EVENTS: u32 = 1 << 18;

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let command = if words.is_empty() { String::new() } else { words.remove(0) };
    let done = match command.as_str() {
        "run" => run(words),
        "convert" => convert_file(words),
        "simulate" => simulate(words),
        _ => Err(anyhow::anyhow!("{USAGE}")),
    };
    done.unwrap_or_else(|error| {
        eprintln!("trace: {error:#}");
        ExitCode::FAILURE
    })
}

/// Boots with the debug console in a file, and converts what comes.
fn run(mut words: Vec<String>) -> Result<ExitCode> {
    let out = out(&mut words)?;
    let stream = out.with_extension("bin");
    // What an earlier run has left is not this run's.
    fs::remove_file(&stream).ok();
    let program = option(&mut words.clone(), "--program")?.unwrap_or_else(|| "runnext".into());
    let rest = option(&mut words, "--cmdline")?.unwrap_or_default();
    let boot = tree::find()?.join("target/debug/boot");
    let status = Command::new(&boot)
        .arg("run")
        .args(&words)
        // First, for words after a `--` are the program's, and later ones win.
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

fn convert_file(mut words: Vec<String>) -> Result<ExitCode> {
    let out = out(&mut words)?;
    let title = option(&mut words, "--title")?;
    let [stream] = words.as_slice() else { bail!("{USAGE}") };
    let bytes = fs::read(stream).with_context(|| format!("reading {stream}"))?;
    let stem = Path::new(stream).file_stem().unwrap_or_default().to_string_lossy();
    convert(&bytes, title.as_deref().unwrap_or(&stem), &out)
}

fn simulate(mut words: Vec<String>) -> Result<ExitCode> {
    let out = out(&mut words)?;
    let plan = simulate::Plan {
        cpus: number(&mut words, "--cpus")?.unwrap_or(8) as u32,
        events: number(&mut words, "--events")?.unwrap_or(100_000) as usize,
        seed: number(&mut words, "--seed")?.unwrap_or(1),
    };
    nothing_left(&words)?;
    convert(&simulate::stream(plan), "skynet (simulated)", &out)
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

fn out(words: &mut Vec<String>) -> Result<PathBuf> {
    let name = option(words, "--out")?;
    match name {
        Some(name) => Ok(name.into()),
        None => Ok(tree::find()?.join("target/trace")),
    }
}

fn nothing_left(words: &[String]) -> Result<()> {
    match words.first() {
        Some(word) => bail!("unknown option {word}\n{USAGE}"),
        None => Ok(()),
    }
}

/// Shorter to read, and right to type from where the user is.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).display().to_string()
}
