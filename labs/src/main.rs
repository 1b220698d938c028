//! The tool behind `make handout`, `make grade`, `make grade-all` and `make grade-check`.
//!
//! ```text
//! labs list                                                     the labs
//! labs handout --lab N --out DIR [--teacher DIR]                a tree for students
//! labs grade [--lab N] [--submission DIR] [--teacher DIR] [--hint N] [--full 1]
//! labs grade-all --lab N --submissions DIR [--teacher DIR] [--full 1]
//! labs contest [--lab N] --submissions DIR [--teacher DIR]      which system is best?
//! labs check [--lab N] [--quick] [--test NAME]                  are the labs right?
//! labs verdict --test NAME                                      of the last `grade`
//! ```
//!
//! What a lab is: [`lab`]. How it is graded: [`grade`].
#![forbid(unsafe_code)]

mod allowed;
mod check;
mod contest;
mod copy;
mod grade;
mod handout;
mod lab;
mod lines;
mod machine;
mod process;
mod region;
mod report;
mod stages;
mod story;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tool::args::Args;
use tool::tree::{self, shown};

use grade::{Effort, Grader, Report};
use handout::Handout;
use lab::Lab;

const USAGE: &str =
    "usage: labs list | check [--lab N] [--quick] [--test NAME] | verdict --test NAME
       labs handout --lab N --out DIR [--teacher DIR]
       labs grade [--lab N] [--submission DIR] [--teacher DIR] [--hint N] [--full 1]
       labs grade-all --lab N --submissions DIR [--teacher DIR] [--full 1]
       labs contest [--lab N] --submissions DIR [--teacher DIR]";

/// The lab with the contest.
const CONTEST: u32 = 8;

fn main() -> ExitCode {
    tool::end("labs", run(Args::of_process(USAGE)))
}

/// The options of all commands.
#[derive(Default)]
struct Options {
    lab: Option<u32>,
    out: Option<PathBuf>,
    teacher: Option<PathBuf>,
    submission: Option<PathBuf>,
    submissions: Option<PathBuf>,
    hint: usize,
    full: bool,
    quick: bool,
    test: Option<String>,
}

fn run(mut args: Args) -> Result<ExitCode> {
    let command = args.command()?;
    let mut options = Options { hint: 1, ..Options::default() };
    while let Some(key) = args.next()? {
        match &*key {
            "--lab" => options.lab = args.number()?.map(|number| number as u32),
            "--out" => options.out = args.text()?.map(PathBuf::from),
            "--teacher" => options.teacher = args.text()?.map(PathBuf::from),
            "--submission" => options.submission = args.text()?.map(PathBuf::from),
            "--submissions" => options.submissions = args.text()?.map(PathBuf::from),
            "--hint" => options.hint = args.number()?.unwrap_or(1) as usize,
            "--full" => options.full = args.text()?.is_some(),
            "--quick" => options.quick = true,
            "--test" => options.test = args.text()?,
            _ => return Err(args.unknown()),
        }
    }
    let root = tree::find()?;
    match &*command {
        "list" => list(&root),
        "handout" => hand_out(&root, &options),
        "grade" => grade_one(&root, &options),
        "grade-all" => grade_all(&root, &options),
        "contest" => {
            let options = Options { lab: options.lab.or(Some(CONTEST)), ..options };
            let dir = options.submissions.as_deref().context("which folder? (SUBMISSIONS=dir)")?;
            let (grader, lab) = (Grader::new(&root)?, open(&root, &options)?);
            print!("{}", contest::run(&grader, &lab, dir)?);
            Ok(ExitCode::SUCCESS)
        }
        "check" => {
            let name = options.test.as_deref();
            let scope = check::Scope { lab: options.lab, name, is_quick: options.quick };
            let (passed, failed) = check::run(&root, scope)?;
            println!("{passed} passed, {failed} failed");
            Ok(status(failed == 0))
        }
        "verdict" => verdict(&root, options.test.as_deref().context(USAGE)?),
        _ => bail!("unknown command {command}\n\n{USAGE}"),
    }
}

fn status(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn open(root: &Path, options: &Options) -> Result<Lab> {
    let number = options.lab.or_else(|| handout::current(root)).context("which lab? (LAB=2)")?;
    let lab = Lab::open(root, number)?;
    match &options.teacher {
        None => Ok(lab),
        Some(dir) => lab.with_teacher(dir),
    }
}

fn list(root: &Path) -> Result<ExitCode> {
    for lab in Lab::all(root)? {
        println!("{} {:<30} {}", lab.number, lab.plan.title, shown(&lab.dir.join("README.md")));
    }
    Ok(ExitCode::SUCCESS)
}

fn hand_out(root: &Path, options: &Options) -> Result<ExitCode> {
    let lab = open(root, options)?;
    let out = options.out.as_deref().context("where to? (OUT=dir)")?;
    handout::write(root, &lab, out)?;
    let dir = lab.dir.strip_prefix(root).unwrap_or(&lab.dir);
    println!("{}: begin with {}, then `make grade`", shown(out), dir.join("README.md").display());
    Ok(ExitCode::SUCCESS)
}

fn grade_one(root: &Path, options: &Options) -> Result<ExitCode> {
    let lab = open(root, options)?;
    let grader = Grader::new(root)?;
    let tree = options.submission.as_deref().map_or(root.to_path_buf(), handout::top_of);
    let report = graded(&grader, &lab, &tree, options)?;
    print!("{}", report::text(&report, options.hint));
    let file = grader.dir().join("results.json");
    fs::write(&file, format!("{:#}\n", report::json(&report)))?;
    let (score, of) = report.score();
    Ok(status(score == of))
}

fn graded(grader: &Grader, lab: &Lab, tree: &Path, options: &Options) -> Result<Report> {
    let effort = Effort { full: options.full, host_only: false };
    let mut report = grader.grade_tree(lab, tree, effort)?;
    if let Some(handout) = Handout::of(tree) {
        let edited = handout.edited(tree, lab);
        if !edited.is_empty() {
            let more = if edited.len() > 5 { ", …" } else { "" };
            let names = edited.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
            report.notes.push(format!(
                "edited outside the marked regions, which a teacher's grading does not see: {names}{more}"
            ));
        }
    }
    Ok(report)
}

fn grade_all(root: &Path, options: &Options) -> Result<ExitCode> {
    let lab = open(root, options)?;
    let dir = options.submissions.as_deref().context("which folder? (SUBMISSIONS=dir)")?;
    let entries = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let paths = entries.flatten().map(|entry| entry.path());
    let (mut trees, mut others): (Vec<PathBuf>, Vec<PathBuf>) = paths.partition(|p| p.is_dir());
    trees.sort();
    others.sort();
    if trees.is_empty() {
        bail!("{} has no folders: each submission is one", dir.display());
    }
    let grader = Grader::new(root)?;
    let names: Vec<&str> = lab.plan.tests.iter().map(|test| &*test.name).collect();
    let (mut csv, mut all) = (report::csv_head(&names), Vec::new());
    for tree in &trees {
        let name = report::name_of(tree);
        // What goes wrong with one is in its row, and the next has its turn.
        match graded(&grader, &lab, &handout::top_of(tree), options) {
            Ok(report) => {
                let (score, of) = report.score();
                println!("{name:<32} {score:>3}/{of}  lost: {}", report.lost().join(", "));
                csv.push_str(&report::csv_row(&name, &report));
                let mut row = report::json(&report);
                row["submission"] = json!(name);
                all.push(row);
            }
            Err(error) => {
                println!("{name:<32} not graded: {error:#}");
                csv.push_str(&report::csv_row_of_error(&name, &lab, &format!("{error:#}")));
                all.push(json!({ "submission": name, "error": format!("{error:#}") }));
            }
        }
    }
    for file in &others {
        println!("{:<32} not graded: it is no folder; unpack it", report::name_of(file));
    }
    let file = |ext: &str| grader.dir().join(format!("lab{}-all.{ext}", lab.number));
    fs::write(file("csv"), csv)?;
    fs::write(file("json"), format!("{:#}\n", Value::Array(all)))?;
    println!("{}\n{}", shown(&file("csv")), shown(&file("json")));
    Ok(ExitCode::SUCCESS)
}

/// For GitHub Classroom: whether one test of the last grading was passed.
fn verdict(root: &Path, test: &str) -> Result<ExitCode> {
    let file = root.join("target/grade/results.json");
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let results: Value = serde_json::from_str(&text)?;
    let tests = results["tests"].as_array().into_iter().flatten();
    let found = tests.into_iter().find(|result| result["extra_data"]["test"] == test);
    let found = found.with_context(|| format!("no test {test} in {}", shown(&file)))?;
    println!("{}", found["output"].as_str().unwrap_or_default());
    Ok(status(found["status"] == "passed"))
}
