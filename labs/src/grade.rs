//! Grading: pristine files with a student's regions in them, built and run in stages.
//!
//! The copy in `target/grade/tree` has every file of this tree; only the regions are the
//! student's. The stages, cheapest first: build, host tests, models under loom, the simulator,
//! machines that boot the kernel ([`crate::machine`]). Each run has a limit. A build error, a
//! panic, a crash and a run that does not end are verdicts about the student's code; an error of
//! this module means that the lab itself is broken.
//!
//! **A mistake is named once.** A test that comes `after` others is not judged when one of them
//! is lost, because it would find the same: it has no points, and no verdict. And the simulator
//! runs the whole scheduler, so it often finds what a model has found before. Its verdict is
//! charged to a test that is lost already, if that test lists it; else to the test that lists it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::allowed;
use crate::contest::Row;
use crate::copy;
use crate::lab::{Lab, Test};
use crate::lines::Lines;
use crate::region::{self, Bodies, Region};
use crate::stages::Run;

/// Bytes of a region: far more than a solution has.
const MAX_BODY: usize = 100_000;

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
    /// What it made of the workloads of a contest.
    pub contest: Vec<Row>,
    /// How long it took, stage by stage.
    pub took: Vec<(&'static str, Duration)>,
}

impl Report {
    /// The points and how many there are.
    pub fn score(&self) -> (u32, u32) {
        (self.tests.iter().map(Graded::score).sum(), self.tests.iter().map(|t| t.test.points).sum())
    }

    /// How long it took in all.
    pub fn took(&self) -> Duration {
        self.took.iter().map(|(_, time)| *time).sum()
    }

    /// The names of the lost tests.
    pub fn lost(&self) -> Vec<&str> {
        let lost = self.tests.iter().filter(|graded| !graded.losses.is_empty());
        lost.map(|graded| &*graded.test.name).collect()
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

    /// The tree of the lab.
    pub fn root(&self) -> &Path {
        &self.root
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
        let mut incomplete = None;
        for (name, body) in bodies.iter().filter(|(name, body)| reference.get(*name) != Some(body))
        {
            match allowed(lab, name, body) {
                Allowed::Yes => {}
                Allowed::No(said) => return Ok(refused(lab, said)),
                Allowed::IfRefused(said) => incomplete = Some(said),
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
        let mut run = Run {
            grader: self,
            lab,
            tree,
            lines,
            effort,
            incomplete,
            hangs: false,
            tests: ungraded(lab),
            contest: Vec::new(),
            took: Vec::new(),
        };
        let refused = run.all()?;
        let Run { tests, contest, took, .. } = run;
        let mut report = Report {
            lab: lab.number,
            title: lab.plan.title.clone(),
            tests,
            refused: None,
            notes: vec![],
            contest,
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

/// Whether a body may be compiled and run.
enum Allowed {
    Yes,
    /// Why not.
    No(String),
    /// It may be compiled, for the compiler says best what is wrong with it; if it compiles, it has
    /// this wrong.
    IfRefused(String),
}

fn allowed(lab: &Lab, name: &str, body: &str) -> Allowed {
    if body.len() > MAX_BODY {
        return Allowed::No(format!("region {name}: {} bytes are too many", body.len()));
    }
    let tokens = match allowed::tokens(name, body) {
        Ok(tokens) => tokens,
        Err(said) => return Allowed::IfRefused(said),
    };
    let is_asm = lab.plan.regions.iter().any(|region| region.name == *name && region.asm);
    let word = match is_asm {
        true => allowed::refused_asm(tokens),
        false => allowed::refused(tokens, &lab.plan.forbidden),
    };
    match word {
        Some(word) => Allowed::No(format!("region {name}: `{word}` is not allowed in a solution")),
        None => Allowed::Yes,
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
        contest: vec![],
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The wrong bodies are lost by what they do, and not by their words; so are stubs.
    #[test]
    fn all_bodies_of_the_labs_are_allowed() {
        let root = tool::tree::root();
        let mut bodies = 0;
        for lab in Lab::all(&root).expect("the labs") {
            let reference = lab.bodies_of(&root).expect("the regions");
            let file = lab.dir.join("variant/reference.rs");
            let variant = region::read_bodies(&fs::read_to_string(file).expect("a variant")).1;
            let wrong = lab.wrong().expect("wrong bodies").into_iter().map(|wrong| wrong.bodies);
            for of in wrong.chain([reference, variant, lab.stubs()]) {
                for (name, body) in of {
                    bodies += 1;
                    match allowed(&lab, &name, &body) {
                        Allowed::Yes => {}
                        // The kernel's own may plant mistakes.
                        Allowed::No(said) if said.contains("`planted`") => {}
                        Allowed::No(said) | Allowed::IfRefused(said) => {
                            panic!("lab {}: {said}\n{body}", lab.number)
                        }
                    }
                }
            }
        }
        assert!(bodies > 100, "{bodies} bodies: are they read?");
    }
}
