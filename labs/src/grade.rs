//! Grading: pristine files with a student's regions in them, built and run in stages.
//!
//! The copy in `target/grade/tree` has every file of this tree; only the regions are the
//! student's. The stages, cheapest first: build, host tests, models under loom, the simulator,
//! machines that boot the kernel ([`crate::machine`]).
//! Each run has a limit. A build error, a panic, a crash and a run that does not end are
//! verdicts about the student's code; an error of this module means that the lab itself is
//! broken.
//!
//! **A mistake is named once.** A test that comes `after` others is not judged when one of them
//! is lost, because it would find the same: it has no points, and no verdict. And the simulator runs the whole scheduler, so it often finds what a
//! model has found before. Its verdict is charged to a test that is lost already, if that test
//! lists it; else to the test that lists it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::copy;
use crate::lab::{Lab, Package, Test};
use crate::machine;
use crate::process::{self, End, Ended};
use crate::region::{self, Bodies, Region};
use crate::story::{self, Story};

/// Limits, far beyond what a right solution takes on a slow machine.
const BUILD_LIMIT: Duration = Duration::from_secs(900);
const HOST_LIMIT: Duration = Duration::from_secs(20);
const LOOM_LIMIT: Duration = Duration::from_secs(120);
const SIM_LIMIT: Duration = Duration::from_secs(120);
/// How long a failing model is traced.
const TRACE_LIMIT: Duration = Duration::from_secs(20);
/// More seeds with `FULL=1`.
const FULL_SEEDS: u64 = 10;
/// Lines of a compiler's or a panic's message that are shown.
const MESSAGE_LINES: usize = 40;

/// Words that a region may not have: they would reach around the tests.
const FORBIDDEN: [&str; 12] = [
    "extern crate",
    "std::",
    "asm!",
    "include!",
    "include_str!",
    "env!",
    "option_env!",
    "#[path",
    "cfg(",
    "cfg!",
    "sim::",
    "planted!",
];

/// How much is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effort {
    /// More seeds, models without a bound.
    pub full: bool,
    /// Host tests and the simulator only: no model, no boot.
    pub host_only: bool,
}

/// Why a test was lost.
#[derive(Clone, Debug)]
pub struct Loss {
    /// What found it: `host test fifo`, `simulator, seed 5`.
    pub by: String,
    /// What it said.
    pub text: String,
    /// A page with more.
    pub page: Option<PathBuf>,
}

/// A test with its verdict.
#[derive(Clone, Debug)]
pub struct Graded {
    /// The test.
    pub test: Test,
    /// Why it is lost; empty if it is passed.
    pub losses: Vec<Loss>,
    /// It was not run, because this test is lost.
    pub waits_for: Option<String>,
}

impl Graded {
    /// The points.
    pub fn score(&self) -> u32 {
        if self.is_passed() { self.test.points } else { 0 }
    }

    /// Whether it was run and passed.
    pub fn is_passed(&self) -> bool {
        self.losses.is_empty() && self.waits_for.is_none()
    }
}

/// A lab's verdict.
#[derive(Clone, Debug)]
pub struct Report {
    /// The lab's number.
    pub lab: u32,
    /// Its title.
    pub title: String,
    /// Each test.
    pub tests: Vec<Graded>,
    /// Why nothing was run: a build error, or a word that is not allowed.
    pub refused: Option<String>,
    /// What is worth knowing and costs nothing.
    pub notes: Vec<String>,
    /// How long it took, stage by stage.
    pub took: Vec<(&'static str, Duration)>,
}

impl Report {
    /// The points and how many there are.
    pub fn score(&self) -> (u32, u32) {
        (self.tests.iter().map(Graded::score).sum(), self.tests.iter().map(|t| t.test.points).sum())
    }

    /// The names of the lost tests.
    pub fn lost(&self) -> Vec<&str> {
        let lost = self.tests.iter().filter(|graded| !graded.losses.is_empty());
        lost.map(|graded| &*graded.test.name).collect()
    }
}

/// Where a student's lines are: for messages.
pub struct Lines {
    /// The regions in the tree that is graded, with the first line in the student's file.
    regions: Vec<(Region, usize)>,
    /// The files that the regions are in, as graded.
    files: Vec<(String, String)>,
}

impl Lines {
    fn new(tree: &Path, regions: Vec<(Region, usize)>) -> Self {
        let mut names: Vec<&PathBuf> = regions.iter().map(|(region, _)| &region.file).collect();
        names.dedup();
        let read = |file: &&PathBuf| fs::read_to_string(tree.join(file)).unwrap_or_default();
        let files = names.iter().map(|file| (file.to_string_lossy().into_owned(), read(file)));
        let files = files.collect();
        Lines { regions, files }
    }

    /// The line in the student's file, if the line of the graded file is in a region.
    pub fn theirs(&self, file: &str, line: usize) -> Option<usize> {
        let found = self.regions.iter().find(|(region, _)| {
            region.file.to_string_lossy().ends_with(file) && region.lines.contains(&line)
        });
        found.map(|(region, first)| line - region.lines.start + first)
    }

    /// The text of a line of the graded file, if a region is in that file.
    pub fn text(&self, file: &str, line: usize) -> Option<&str> {
        let (_, text) = self.files.iter().find(|(name, _)| name.ends_with(&format!("/{file}")))?;
        text.lines().nth(line.checked_sub(1)?).map(str::trim)
    }

    /// A message with `file:line` as in the student's file.
    fn translate(&self, text: &str) -> String {
        let mut out = String::new();
        for line in text.lines() {
            out.push_str(&self.translate_line(line));
            out.push('\n');
        }
        out
    }

    fn translate_line(&self, line: &str) -> String {
        for (region, _) in &self.regions {
            let file = region.file.to_string_lossy();
            let Some((before, after)) = line.split_once(&*format!("{file}:")) else { continue };
            let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
            let theirs = digits.parse().ok().and_then(|number| self.theirs(&file, number));
            if let Some(theirs) = theirs {
                return format!("{before}{file}:{theirs}{}", &after[digits.len()..]);
            }
        }
        line.into()
    }
}

/// Grades in one tree.
pub struct Grader {
    root: PathBuf,
    dir: PathBuf,
    _lock: File,
}

impl Grader {
    /// The grader of the source tree `root`; waits while another one is at work there.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(root: &Path) -> Result<Self> {
        let dir = root.join("target/grade");
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let lock = File::create(dir.join("lock"))?;
        lock.lock()?;
        Ok(Self { root: root.into(), dir, _lock: lock })
    }

    /// `target/grade`.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Grades a student's tree.
    ///
    /// # Errors
    /// The lab itself is broken, or a file cannot be read or written.
    pub fn grade_tree(&self, lab: &Lab, tree: &Path, effort: Effort) -> Result<Report> {
        let theirs = match lab.bodies_of(tree) {
            Ok(bodies) => bodies,
            Err(error) => return Ok(refused(lab, format!("{error:#}"))),
        };
        let found = region::find_all(tree, lab.number)?;
        self.grade(lab, &theirs, &found, effort)
    }

    /// Grades bodies; regions that are not named have the reference's.
    ///
    /// # Errors
    /// As above.
    pub fn grade_bodies(&self, lab: &Lab, bodies: &Bodies, effort: Effort) -> Result<Report> {
        let mut all = lab.bodies_of(&self.root)?;
        if let Some(name) = bodies.keys().find(|name| !all.contains_key(*name)) {
            bail!("lab {} has no region {name}", lab.number);
        }
        all.extend(bodies.clone());
        self.grade(lab, &all, &[], effort)
    }

    fn grade(
        &self,
        lab: &Lab,
        bodies: &Bodies,
        theirs: &[Region],
        effort: Effort,
    ) -> Result<Report> {
        let reference = lab.bodies_of(&self.root)?;
        for (name, body) in bodies.iter().filter(|(name, body)| reference.get(*name) != Some(body))
        {
            if let Some(word) = forbidden(body) {
                let said = format!("region {name}: `{word}` is not allowed in a solution");
                return Ok(refused(lab, said));
            }
        }
        let tree = self.prepare(lab, bodies)?;
        let regions = region::find_all(&tree, lab.number)?;
        let first = |region: &Region| {
            let own = theirs.iter().find(|other| other.name == region.name);
            own.map_or(region.lines.start, |own| own.lines.start)
        };
        let mine = regions.into_iter().filter(|region| bodies.contains_key(&region.name));
        let mine = mine.map(|region| (region.clone(), first(&region))).collect();
        let lines = Lines::new(&tree, mine);
        let mut run =
            Run { grader: self, lab, tree, lines, effort, tests: ungraded(lab), took: Vec::new() };
        let refused = run.all()?;
        let Run { tests, took, .. } = run;
        let mut report = Report {
            lab: lab.number,
            title: lab.plan.title.clone(),
            tests,
            refused: None,
            notes: vec![],
            took,
        };
        if let Some(said) = refused {
            report.refuse(said);
        }
        Ok(report)
    }

    /// Writes the tree that is graded.
    fn prepare(&self, lab: &Lab, bodies: &Bodies) -> Result<PathBuf> {
        let tree = self.dir.join("tree");
        let mut all = lab.hidden();
        all.extend(bodies.clone());
        let mut extra = Vec::new();
        for (to, bytes) in lab.files()? {
            copy::write(&tree.join(&to), &bytes)?;
            extra.push(to);
        }
        copy::sync(&self.root, &tree, &extra, |file, bytes| {
            if extra.iter().any(|own| own == file) {
                return Ok(None); // the lab's is there already
            }
            let is_source =
                file.starts_with("kernel") && file.extension().is_some_and(|e| e == "rs");
            Ok(Some(match std::str::from_utf8(&bytes) {
                Ok(text) if is_source && text.contains("// lab ") => {
                    region::replace(text, lab.number, &all).into_bytes()
                }
                _ => bytes,
            }))
        })?;
        Ok(tree)
    }
}

fn ungraded(lab: &Lab) -> Vec<Graded> {
    let ungraded = |test: &Test| Graded { test: test.clone(), losses: vec![], waits_for: None };
    lab.plan.tests.iter().map(ungraded).collect()
}

fn refused(lab: &Lab, said: String) -> Report {
    let mut report = Report {
        lab: lab.number,
        title: lab.plan.title.clone(),
        tests: ungraded(lab),
        refused: None,
        notes: vec![],
        took: vec![],
    };
    report.refuse(said);
    report
}

impl Report {
    fn refuse(&mut self, said: String) {
        for graded in &mut self.tests {
            let text = "not run".to_string();
            graded.losses = vec![Loss { by: "build".into(), text, page: None }];
        }
        self.refused = Some(said);
    }
}

/// The first word of the body that is not allowed; comments may have it.
fn forbidden(body: &str) -> Option<&'static str> {
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_string();
    let code: String = body.lines().map(|line| code(line) + "\n").collect();
    FORBIDDEN.into_iter().find(|word| code.contains(word))
}

/// One grading under way.
struct Run<'a> {
    grader: &'a Grader,
    lab: &'a Lab,
    tree: PathBuf,
    lines: Lines,
    effort: Effort,
    tests: Vec<Graded>,
    took: Vec<(&'static str, Duration)>,
}

/// The programs that a build made, by the names of their tests.
type Programs = Vec<(String, PathBuf)>;

impl Run<'_> {
    /// All stages. What the compiler said, if it refused.
    fn all(&mut self) -> Result<Option<String>> {
        let begun = Instant::now();
        let built = self.build_host()?;
        self.took.push(("build", begun.elapsed()));
        let programs = match built {
            Ok(programs) => programs,
            Err(said) => return Ok(Some(said)),
        };
        let begun = Instant::now();
        self.host(&programs)?;
        self.took.push(("host tests", begun.elapsed()));
        if !self.effort.host_only && self.uses(|test| !test.loom.is_empty()) {
            let begun = Instant::now();
            if let Some(said) = self.loom()? {
                return Ok(Some(said));
            }
            self.took.push(("loom", begun.elapsed()));
        }
        if self.uses(|test| !test.sim.is_empty()) {
            let begun = Instant::now();
            self.simulate(&programs)?;
            self.took.push(("simulator", begun.elapsed()));
        }
        if !self.effort.host_only && self.uses(|test| !test.guest.is_empty()) {
            return self.boot();
        }
        Ok(None)
    }

    /// Whether a test is to be run in this stage: not if one that it comes after is lost.
    fn is_judged(&mut self, i: usize) -> bool {
        let is_lost = |name: &&String| {
            self.tests.iter().any(|graded| graded.test.name == **name && !graded.is_passed())
        };
        let waits_for = self.tests[i].test.after.iter().find(is_lost).cloned();
        let graded = &mut self.tests[i];
        if graded.losses.is_empty() && waits_for.is_some() {
            graded.waits_for = waits_for;
        }
        graded.waits_for.is_none()
    }

    fn uses(&self, what: impl Fn(&Test) -> bool) -> bool {
        self.tests.iter().any(|graded| what(&graded.test))
    }

    /// Builds the host tests, and the simulator if the lab has verdicts of it.
    fn build_host(&self) -> Result<Result<Programs, String>> {
        if !self.uses(|test| !(test.host.is_empty() && test.sim.is_empty())) {
            return Ok(Ok(vec![]));
        }
        let mut targets: Vec<String> = vec!["lab".into()];
        let teacher = self.lab.teacher.as_ref().filter(|dir| dir.join("tests.rs").is_file());
        targets.extend(teacher.map(|_| "teacher".into()));
        match (self.lab.plan.package, &self.lab.plan.unit) {
            (_, Some(_)) => self.build("unit", &[], &[]),
            (Package::Runnext, None) => {
                self.build("loom", &targets, &[("RUSTFLAGS", "--cfg loom")])
            }
            (Package::Sched, None) => {
                targets.push("story".into());
                self.build("sim", &targets, &[("CARGO_PROFILE_DEV_OPT_LEVEL", "1")])
            }
        }
    }

    /// Builds tests of the lab's package; the programs, or what the compiler said.
    fn build(
        &self,
        kind: &str,
        targets: &[String],
        environment: &[(&str, &str)],
    ) -> Result<Result<Programs, String>> {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&self.tree);
        cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics", "-p"]);
        cargo.arg(self.lab.plan.package.name());
        cargo.arg("--target-dir").arg(self.grader.dir.join(kind));
        match kind {
            "loom" => cargo.arg("--profile=loom"),
            "unit" => cargo.arg("--lib"),
            _ => cargo.arg("--features=sim"),
        };
        cargo.args(targets.iter().map(|name| format!("--test={name}")));
        cargo
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_TARGET_DIR")
            .envs(environment.iter().copied());
        cargo.env("CARGO_TERM_COLOR", "never");
        let ended = process::run(&mut cargo, BUILD_LIMIT, &self.log(&format!("build-{kind}")))?;
        if !ended.is_ok() {
            return Ok(Err(self.compiler_said(&ended)));
        }
        let artifacts = ended.out.lines().filter_map(|line| serde_json::from_str(line).ok());
        let programs = artifacts.filter_map(|artifact: Value| {
            let program = artifact["executable"].as_str()?;
            Some((artifact["target"]["name"].as_str()?.to_string(), program.into()))
        });
        Ok(Ok(programs.collect()))
    }

    fn compiler_said(&self, ended: &Ended) -> String {
        if let End::Limit(limit) = ended.end {
            return format!("the build did not end within {} s", limit.as_secs());
        }
        let errors = ended.err.lines().skip_while(|line| !line.starts_with("error"));
        let shown: Vec<&str> = errors.take(MESSAGE_LINES).collect();
        match shown.is_empty() {
            true => ended.err.clone(),
            false => self.lines.translate(&shown.join("\n")),
        }
    }

    fn log(&self, name: &str) -> PathBuf {
        self.grader.dir.join("log").join(name)
    }

    fn host(&mut self, programs: &Programs) -> Result<()> {
        for i in 0..self.tests.len() {
            if !self.is_judged(i) {
                continue;
            }
            for name in self.tests[i].test.host.clone() {
                let (file, function) = self.lab.host_test(&name);
                let (file, function) = (&*file, &*function);
                let ended = self.run_test(programs, file, function, HOST_LIMIT, &[])?;
                if let Some(text) = self.failure(&ended, function)? {
                    let by = format!("host test {function}");
                    self.tests[i].losses.push(Loss { by, text, page: None });
                }
            }
        }
        Ok(())
    }

    fn run_test(
        &self,
        programs: &Programs,
        file: &str,
        function: &str,
        limit: Duration,
        environment: &[(&str, &str)],
    ) -> Result<Ended> {
        let mut command = test_command(programs, file, function)?;
        command.current_dir(&self.tree).envs(environment.iter().copied());
        process::run(&mut command, limit, &self.log(&format!("{file}-{function}")))
    }

    /// What went wrong in a run of one test.
    fn failure(&self, ended: &Ended, function: &str) -> Result<Option<String>> {
        if ended.is_ok() && ended.out.contains("1 passed") {
            return Ok(None);
        }
        if ended.out.contains("running 0 tests") {
            bail!("there is no test {function}: lab.toml names one that the file does not have");
        }
        Ok(Some(match ended.end {
            End::Limit(limit) => {
                format!("did not end within {} s: some loop never ends", limit.as_secs())
            }
            End::Signal(signal) => format!("crashed with signal {signal}"),
            End::Status(_) => self.panic_text(&ended.err),
        }))
    }

    /// The message of a panic, with the student's line numbers.
    fn panic_text(&self, err: &str) -> String {
        let lines = err.lines().skip_while(|line| !line.contains("panicked at"));
        let lines =
            lines.take_while(|line| !line.starts_with("note:") && !line.starts_with("stack"));
        let text: Vec<String> = lines
            .take(MESSAGE_LINES)
            .map(|line| match line.split_once("panicked at ") {
                Some((_, place)) => format!("panicked at {place}"),
                None => line.to_string(),
            })
            .collect();
        let text = text.join("\n");
        let text = self.lines.translate(text.trim_end());
        let mut text = text.trim_end().to_string();
        if text.contains("maximum number of branches") {
            text.push_str(
                "\nIn some interleaving a loop never ends, or it retries without spin_loop().",
            );
        }
        text
    }

    /// The models. What the compiler said, if it refused.
    fn loom(&mut self) -> Result<Option<String>> {
        let models: Vec<String> =
            self.tests.iter().flat_map(|graded| graded.test.loom.clone()).collect();
        let mut files: Vec<String> =
            models.iter().filter_map(|model| Some(model.split_once("::")?.0.to_string())).collect();
        files.sort();
        files.dedup();
        if files.is_empty() {
            return Ok(None);
        }
        let programs = match self.build("loom", &files, &[("RUSTFLAGS", "--cfg loom")])? {
            Ok(programs) => programs,
            Err(said) => return Ok(Some(said)),
        };
        let effort = if self.effort.full { "full" } else { "sample" };
        for i in 0..self.tests.len() {
            if !self.is_judged(i) {
                continue;
            }
            for model in self.tests[i].test.loom.clone() {
                let (file, function) =
                    model.split_once("::").context("a model is file::function")?;
                let environment = [("RUNNEXT_TEST", effort)];
                let ended = self.run_test(&programs, file, function, LOOM_LIMIT, &environment)?;
                if let Some(mut text) = self.failure(&ended, function)? {
                    let mut command = test_command(&programs, file, function)?;
                    command.current_dir(&self.tree);
                    text.push_str(&story::of_model(&last_iteration(command)?));
                    let by = format!("model {function}");
                    self.tests[i].losses.push(Loss { by, text, page: None });
                    break; // the next model of this test would say the same
                }
            }
        }
        Ok(None)
    }

    /// Builds the guest and boots it for each check. What the compiler said, if it refused.
    fn boot(&mut self) -> Result<Option<String>> {
        let boots: Vec<usize> = (0..self.tests.len())
            .filter(|&i| self.is_judged(i) && !self.tests[i].test.guest.is_empty())
            .collect();
        if boots.is_empty() {
            return Ok(None);
        }
        let begun = Instant::now();
        let built =
            machine::build(&self.tree, &self.grader.root, &self.log("build-guest"), BUILD_LIMIT)?;
        self.took.push(("build for the machine", begun.elapsed()));
        let kernel = match built {
            Ok(kernel) => kernel,
            Err(ended) => return Ok(Some(self.compiler_said(&ended))),
        };
        let begun = Instant::now();
        let image = machine::image(&self.grader.root, &kernel, &self.grader.dir)?;
        for i in boots {
            if !self.is_judged(i) {
                continue; // one before it was lost by now
            }
            for check in self.tests[i].test.guest.clone() {
                if let Some(said) = machine::boot(self.lab.number, &check, &kernel, &image)? {
                    let text = self.lines.translate(&said).trim_end().to_string();
                    let by = format!("machine {check}");
                    self.tests[i].losses.push(Loss { by, text, page: None });
                    break; // the next check of this test would say the same
                }
            }
        }
        self.took.push(("machines", begun.elapsed()));
        Ok(None)
    }

    fn simulate(&mut self, programs: &Programs) -> Result<()> {
        let mut command = Command::new(program(programs, "story")?);
        let seeds = self.lab.plan.seeds * if self.effort.full { FULL_SEEDS } else { 1 };
        command.args(["--seeds", &seeds.to_string(), "--large", "1"]).current_dir(&self.tree);
        command.args(["--system", &self.lab.plan.system]);
        let ended = process::run(&mut command, SIM_LIMIT, &self.log("story"))?;
        if ended.is_ok() && ended.out.contains("\npassed ") {
            return Ok(());
        }
        let told = ended.out.lines().last().filter(|line| line.starts_with('{'));
        let told = told.and_then(|line| serde_json::from_str::<Value>(line).ok());
        let at = ended.out.lines().rev().find_map(|line| line.strip_prefix("seed "));
        let (seed, cpus) = at.and_then(|at| at.split_once(' ')).unwrap_or(("?", "?"));
        let (said, text, page) = match told {
            Some(told) => {
                let story = Story::new(&told, &self.lines);
                let page = self.grader.dir.join(format!("lab{}-seed{seed}.html", self.lab.number));
                fs::write(&page, story.page(self.lab.number, &self.lab.plan.title))?;
                (story.said.clone(), story.text(), Some(page))
            }
            None => {
                let said = match ended.end {
                    End::Limit(limit) => format!(
                        "did not end within {} s: a loop never ends and touches no shared memory",
                        limit.as_secs()
                    ),
                    End::Signal(signal) => format!("crashed with signal {signal}"),
                    End::Status(status) => {
                        format!("ended with status {status}: {}", ended.err.trim())
                    }
                };
                (said.clone(), said, None)
            }
        };
        let by = format!("simulator, seed {seed} ({cpus} CPUs)");
        let i = self.charge(&said)?;
        self.tests[i].losses.push(Loss { by, text, page });
        Ok(())
    }

    /// The test that is lost for a verdict of the simulator.
    fn charge(&self, said: &str) -> Result<usize> {
        let lists = |graded: &Graded, any: bool| {
            let mut listed = graded.test.sim.iter();
            listed.any(|word| if any { word == "*" } else { word != "*" && said.contains(&**word) })
        };
        let all = || self.tests.iter().enumerate();
        let lost = || all().filter(|(_, graded)| !graded.losses.is_empty());
        let found = lost()
            .find(|(_, graded)| lists(graded, false))
            .or_else(|| lost().find(|(_, graded)| lists(graded, true)))
            .or_else(|| all().find(|(_, graded)| lists(graded, false)))
            .or_else(|| all().find(|(_, graded)| lists(graded, true)));
        found
            .map(|(i, _)| i)
            .with_context(|| format!("no test lists the simulator's verdict {said:?}"))
    }
}

fn program<'a>(programs: &'a Programs, name: &str) -> Result<&'a Path> {
    let found = programs.iter().find(|(known, _)| known == name);
    found.map(|(_, path)| &**path).with_context(|| format!("cargo built no test {name}"))
}

fn test_command(programs: &Programs, file: &str, function: &str) -> Result<Command> {
    let mut command = Command::new(program(programs, file)?);
    command
        .args(["--exact", function, "--nocapture", "--test-threads=1"])
        .env("RUST_BACKTRACE", "0");
    Ok(command)
}

/// What loom logs about the last iteration of a model that fails.
fn last_iteration(mut command: Command) -> Result<Vec<String>> {
    command.env("LOOM_LOG", "trace").env("LOOM_LOCATION", "1").env("NO_COLOR", "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().context("starting the model once more")?;
    let out = child.stdout.take().context("its output is a pipe")?;
    let begun = Instant::now();
    let mut lines: Vec<String> = Vec::new();
    let mut iteration = String::new();
    for line in BufReader::new(out).lines() {
        let Ok(line) = line else { break };
        // `TRACE iter{7}:thread{id=1}: …`
        let now = line.split_once("iter{").and_then(|(_, rest)| rest.split_once('}'));
        if let Some((now, _)) = now.filter(|(now, _)| *now != iteration) {
            iteration = now.to_string();
            lines.clear();
        }
        lines.push(line);
        if begun.elapsed() > TRACE_LIMIT || lines.len() > 100_000 {
            lines.clear();
            child.kill()?;
            break;
        }
    }
    child.wait()?;
    Ok(lines)
}
