//! The stages of a grading: each builds what it runs, and runs it with a limit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::contest::Row;
use crate::grade::{Effort, Graded, Grader, Loss};
use crate::lab::{Lab, Package, Test};
use crate::lines::Lines;
use crate::machine;
use crate::process::{self, End, Ended};
use crate::story::Story;

/// Limits, far beyond what a right solution takes. Of builds in wall time: cargo starts compilers,
/// whose CPU time is not its own.
const BUILD_LIMIT: Duration = Duration::from_secs(1_800);
const HOST_LIMIT: Duration = Duration::from_secs(20);
const LOOM_LIMIT: Duration = Duration::from_secs(120);
const SIM_LIMIT: Duration = Duration::from_secs(120);
/// More seeds with `FULL=1`.
const FULL_SEEDS: u64 = 10;
/// Lines of a compiler's or a panic's message that are shown.
const MESSAGE_LINES: usize = 40;

/// One grading under way.
pub struct Run<'a> {
    pub grader: &'a Grader,
    pub lab: &'a Lab,
    pub tree: PathBuf,
    pub lines: Lines,
    pub effort: Effort,
    /// What is wrong with a region that the compiler should refuse.
    pub incomplete: Option<String>,
    /// The code did not end in some test. What was not run by then is not: it would wait for its
    /// limit again.
    pub hangs: bool,
    pub tests: Vec<Graded>,
    pub contest: Vec<Row>,
    pub took: Vec<(&'static str, Duration)>,
}

/// The programs that a build made, by the names of their tests.
type Programs = Vec<(String, PathBuf)>;

impl Run<'_> {
    /// All stages. What the compiler said, if it refused.
    pub fn all(&mut self) -> Result<Option<String>> {
        let refused = self.stages()?;
        self.settle();
        Ok(refused)
    }

    /// What an earlier test has found is not found again.
    fn settle(&mut self) {
        for i in 0..self.tests.len() {
            if !self.is_judged(i) {
                self.tests[i].losses.clear();
            }
        }
    }

    fn stages(&mut self) -> Result<Option<String>> {
        let begun = Instant::now();
        let built = self.build_host()?;
        self.took.push(("build", begun.elapsed()));
        let programs = match built {
            Ok(programs) => programs,
            Err(said) => return Ok(Some(said)),
        };
        if !programs.is_empty() && self.incomplete.is_some() {
            return Ok(self.incomplete.take());
        }
        let begun = Instant::now();
        self.host(&programs)?;
        self.took.push(("host tests", begun.elapsed()));
        let has_models = !self.effort.host_only && self.uses(|test| !test.loom.is_empty());
        if !self.hangs && has_models {
            let begun = Instant::now();
            if let Some(said) = self.loom()? {
                return Ok(Some(said));
            }
            self.took.push(("loom", begun.elapsed()));
        }
        if !self.hangs && self.uses(|test| !test.sim.is_empty()) {
            let begun = Instant::now();
            self.simulate(&programs)?;
            self.took.push(("simulator", begun.elapsed()));
        }
        let is_correct = self.tests.iter().all(|graded| graded.test.ranks || graded.is_passed());
        if is_correct && self.uses(|test| test.ranks) {
            self.run_contest(&programs)?;
        }
        if !self.effort.host_only && self.uses(|test| !test.guest.is_empty()) {
            return self.boot();
        }
        Ok(None)
    }

    /// Whether a test is to be judged: not if one that it comes after is lost.
    fn is_judged(&mut self, i: usize) -> bool {
        let is_lost = |name: &&String| {
            self.tests.iter().any(|graded| graded.test.name == **name && !graded.is_passed())
        };
        let waits_for = self.tests[i].test.after.iter().find(is_lost).cloned();
        let graded = &mut self.tests[i];
        graded.waits_for = waits_for.or(graded.waits_for.take());
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
        // Of unit tests all dependencies are those of the tree's own.
        let dir = match kind {
            "unit" => self.grader.root().join("target"),
            _ => self.grader.dir().join(kind),
        };
        cargo.arg("--target-dir").arg(dir);
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
        self.grader.dir().join("log").join(name)
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
                if self.note_hang(i, &ended, true) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Whether that run of a host test, or of a model, did not end; then it was the last, and tests
    /// of which something was not run have no verdict.
    fn note_hang(&mut self, i: usize, ended: &Ended, is_host: bool) -> bool {
        if !matches!(ended.end, End::Limit(_)) {
            return false;
        }
        self.hangs = true;
        let name = self.tests[i].test.name.clone();
        for (j, graded) in self.tests.iter_mut().enumerate().filter(|(j, _)| *j != i) {
            let test = &graded.test;
            let has_later = !(test.sim.is_empty() && test.guest.is_empty());
            let is_run = match is_host {
                true => j < i && test.loom.is_empty(),
                false => j < i || test.loom.is_empty(),
            };
            if graded.losses.is_empty() && (has_later || !is_run) {
                graded.waits_for.get_or_insert(name.clone());
            }
        }
        true
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
        process::run_student(&mut command, limit, &self.log(&format!("{file}-{function}")))
    }

    /// What went wrong in a run of one test.
    fn failure(&self, ended: &Ended, function: &str) -> Result<Option<String>> {
        // The harness has the last word; what the code prints before is nothing to go by.
        let last = ended.out.trim_end().lines().next_back().unwrap_or_default();
        if ended.is_ok() && last.starts_with("test result: ok. 1 passed; 0 failed;") {
            return Ok(None);
        }
        if ended.is_ok() && last.starts_with("test result: ok. 0 passed;") {
            bail!("there is no test {function}: lab.toml names one that the file does not have");
        }
        Ok(Some(match ended.end {
            End::Limit(limit) => {
                format!("did not end within {} s: some loop never ends", limit.as_secs())
            }
            End::Signal(signal) => process::crashed(signal),
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
                let environment = [("RUNNEXT_TEST", effort), ("RUNNEXT_STORY", "1")];
                let ended = self.run_test(&programs, file, function, LOOM_LIMIT, &environment)?;
                if let Some(said) = self.failure(&ended, function)? {
                    let (text, page) = match told_by_model(&ended.out) {
                        Some(told) => {
                            let story = Story::new(&told, &self.lines);
                            (story.text(), Some(self.page(&story, function)?))
                        }
                        None => (said, None),
                    };
                    let by = format!("model {function}");
                    self.tests[i].losses.push(Loss { by, text, page });
                    if self.note_hang(i, &ended, false) {
                        return Ok(None);
                    }
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
            machine::build(&self.tree, self.grader.root(), &self.log("build-guest"), BUILD_LIMIT)?;
        self.took.push(("build for the machine", begun.elapsed()));
        let kernel = match built {
            Ok(kernel) => kernel,
            Err(ended) => return Ok(Some(self.compiler_said(&ended))),
        };
        if self.incomplete.is_some() {
            return Ok(self.incomplete.take());
        }
        let begun = Instant::now();
        let image = machine::image(self.grader.root(), &kernel, self.grader.dir())?;
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

    /// The workloads of the lab, and of a teacher.
    fn run_contest(&mut self, programs: &Programs) -> Result<()> {
        let known = ["lab", "teacher"].into_iter();
        for file in known.filter(|file| programs.iter().any(|(name, _)| name == file)) {
            let ended = self.run_test(programs, file, "contest", HOST_LIMIT, &[])?;
            self.contest.extend(ended.out.lines().filter_map(Row::parse));
        }
        Ok(())
    }

    /// Writes the page of a story.
    fn page(&self, story: &Story, of: &str) -> Result<PathBuf> {
        let page = self.grader.dir().join(format!("lab{}-{of}.html", self.lab.number));
        fs::write(&page, story.page(self.lab.number, &self.lab.plan.title))?;
        Ok(page)
    }

    fn simulate(&mut self, programs: &Programs) -> Result<()> {
        let mut command = Command::new(program(programs, "story")?);
        let seeds = self.lab.plan.seeds * if self.effort.full { FULL_SEEDS } else { 1 };
        command.args(["--seeds", &seeds.to_string(), "--large", "1"]).current_dir(&self.tree);
        command.args(["--system", &self.lab.plan.system]);
        let ended = process::run_student(&mut command, SIM_LIMIT, &self.log("story"))?;
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
                let page = self.page(&story, &format!("seed{seed}"))?;
                (story.said.clone(), story.text(), Some(page))
            }
            None => {
                let said = match ended.end {
                    End::Limit(limit) => format!(
                        "did not end within {} s: a loop never ends and touches no shared memory",
                        limit.as_secs()
                    ),
                    End::Signal(signal) => process::crashed(signal),
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

/// The steps that a model printed when it failed.
fn told_by_model(out: &str) -> Option<Value> {
    let line = out.lines().find_map(|line| line.split_once("STORY ").map(|(_, told)| told))?;
    serde_json::from_str(line).ok()
}

/// A test of a program, alone.
fn test_command(programs: &Programs, file: &str, function: &str) -> Result<Command> {
    let mut command = Command::new(program(programs, file)?);
    command
        .args(["--exact", function, "--nocapture", "--test-threads=1"])
        .env("RUST_BACKTRACE", "0");
    Ok(command)
}
