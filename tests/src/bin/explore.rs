//! `make explore PROGRAM=x|APP=path SEEDS=1000`: looks for an interleaving that fails.
//!
//! Prints how far it is, and of the first seed that fails: what became of it, the simplest
//! run that fails in the same way, the machine's last lines, its trace as a page, and the
//! command that repeats it. The exit status is 1 then, and 0 if no seed fails.

use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use boot::kernel::{Source, programs};
use boot::qemu::Firmware;
use boot::{image, places::Places, places::pass_on};
use tests::explore::{Case, Explorer, Found, LIMIT_S};
use tool::args::Args;
use tool::tree::{self, shown};
use trace::{check, decode, model::Model, page};

const USAGE: &str = "usage: explore [--program NAME] [--app PATH] [--seeds N] [--first N] \
     [--smp N] [--mem SIZE] [--limit SECONDS] [--cmdline WORDS]";
/// Seeds between two lines of progress.
const CHUNK: u64 = 100;

fn main() -> ExitCode {
    tool::end("explore", explore(Args::of_process(USAGE)))
}

fn explore(mut args: Args) -> Result<ExitCode> {
    tree::find()?;
    let (mut program, mut app, mut words, mut mem) = (None, None, None, None);
    let (mut seeds, mut first, mut cpus, mut limit_s) = (1000, 1, 4, LIMIT_S);
    while let Some(key) = args.next()? {
        match &*key {
            "--program" => program = args.text()?,
            "--app" => app = args.text()?,
            "--cmdline" => words = args.text()?,
            "--mem" => mem = args.text()?,
            "--seeds" => seeds = args.number()?.unwrap_or(seeds),
            "--first" => first = args.number()?.unwrap_or(first),
            "--smp" => cpus = args.number()?.unwrap_or(cpus),
            "--limit" => limit_s = args.number()?.unwrap_or(limit_s),
            _ => return Err(args.unknown()),
        }
    }
    if program.is_none() && app.is_none() {
        bail!("which program? make explore PROGRAM=tickets, or APP=<path of a crate>");
    }
    if seeds == 0 || cpus == 0 || cpus > 255 {
        bail!("SEEDS= is at least 1, SMP= from 1 to 255");
    }
    let source = app.as_ref().map_or(Source::Standard, |path| Source::App(path.into()));
    let kernel = source.build()?;
    if let (Some(program), Some(known)) = (&program, programs(&kernel)?)
        && !known.contains(program)
    {
        bail!("PROGRAM={program}: this image has {}", known.join(", "));
    }
    let cmdline = boot::root().join("boot/cmdline.txt");
    let dir = boot::target_dir();
    let name = source.image_name();
    let image = image::build(Firmware::Bios, &kernel, &cmdline, &dir, name)?;
    let explorer = Explorer {
        kernel,
        image,
        program,
        words: words.unwrap_or_default(),
        cpus: cpus as usize,
        mem: mem.unwrap_or("1G".into()),
        limit_s,
        name: "explore".into(),
    };
    let what = explorer.program.clone().or(app.clone()).unwrap_or_default();
    // The words of a run that was found: that one, and no other.
    let is_repeat = explorer.words.split(' ').take_while(|&word| word != "--").any(is_seed);
    let cases: Vec<_> = match is_repeat {
        true => vec![Case::of(first, explorer.cpus)],
        false => (first..first + seeds).map(|seed| Case::of(seed, explorer.cpus)).collect(),
    };
    if !is_repeat {
        let last = first + seeds - 1;
        println!("exploring {what} on {cpus} CPUs in virtual time, seeds {first} to {last}");
    }
    let (started, mut runs) = (Instant::now(), 0);
    for chunk in cases.chunks(CHUNK as usize) {
        let (tried, found) = explorer.first(chunk, None)?;
        runs += tried;
        if let Some(found) = found {
            let seed = found.case.seed;
            if is_repeat {
                println!("{what}: {}", found.failure);
                return report(&explorer, &found, None, &what);
            }
            println!("seed {seed}: {}", found.failure);
            println!("shrinking: fewer CPUs, no chaos, longer turns…");
            let (tried, found) = explorer.shrink(found)?;
            println!("after {tried} more runs: {}", found.case);
            let command = command(&explorer, app.as_deref(), &found.case);
            return report(&explorer, &found, Some(command), &what);
        }
        let rate = runs as f64 / started.elapsed().as_secs_f64();
        println!("{runs} seeds, none failed ({rate:.1} a second)");
    }
    Ok(ExitCode::SUCCESS)
}

fn is_seed(word: &str) -> bool {
    word.starts_with("seed=")
}

/// The command that runs one case again.
fn command(explorer: &Explorer, app: Option<&str>, case: &Case) -> String {
    let program = explorer.program.as_ref().map(|name| format!(" PROGRAM={name}"));
    let app = app.map(|path| format!(" APP={path}"));
    let words = format!("{case} {}", explorer.words);
    format!(
        "make explore{}{} SMP={} MEM={} ARGS=\"{}\"",
        app.unwrap_or_default(),
        program.unwrap_or_default(),
        explorer.cpus,
        explorer.mem,
        words.trim()
    )
}

fn report(
    explorer: &Explorer,
    found: &Found,
    command: Option<String>,
    what: &str,
) -> Result<ExitCode> {
    let places = Places::of(&explorer.kernel, &boot::root());
    let said = found.outcome.to_string();
    pass_on(&places, said.as_bytes(), std::io::stdout().lock()).context("writing the report")?;
    println!();
    match decode::decode(&found.events) {
        Ok(stream) => {
            let model = Model::new(&stream);
            let facts = page::Facts {
                title: format!("{what}: {} ({})", found.failure, found.case),
                agreement: check::compare(&model).to_string(),
                clock: "virtual time: 1 ns is one instruction".into(),
            };
            let file = boot::target_dir().join("explore.html");
            fs::write(&file, page::draw(&model, &facts)).context("writing the page")?;
            println!("its trace:   {}", shown(&file));
        }
        Err(why) => println!("its trace cannot be read: {why}"),
    }
    if let Some(command) = command {
        println!("to repeat it: {command}");
    }
    Ok(ExitCode::FAILURE)
}
