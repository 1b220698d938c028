//! A lab: the folder `labs/NN-name`.
//!
//! | file | what it is |
//! |---|---|
//! | `lab.toml` | title, stubs of the regions, tests with points and hints |
//! | `README.md` | the text |
//! | `tests.rs` | host tests: the test `lab` of the lab's package, or a module's `tests` |
//! | `loom.rs` | if need be, models, compiled as its test `loom_lab` |
//! | `guest.rs` | if need be, what is booted: the tests' guest with this as its `main.rs` |
//! | `wrong/*.rs` | wrong bodies; each names the test that it must lose |
//! | `variant/` | another task in the same regions: a teacher's folder, as an example |
//!
//! A teacher's folder has the same files: tests of its `lab.toml` replace those of the same
//! name, `drop` removes tests, `tests.rs` is compiled as `teacher`, `loom.rs` as
//! `loom_teacher`; `guest.rs` is the module `teacher` of the lab's guest and has a program of that
//! name; `reference.rs` has bodies that score 100.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::region::{self, Bodies};

/// A lab.
#[derive(Clone, Debug)]
pub struct Lab {
    /// Its number.
    pub number: u32,
    /// Its folder.
    pub dir: PathBuf,
    /// Its description.
    pub plan: Plan,
    /// The teacher's folder, if one was named.
    pub teacher: Option<PathBuf>,
}

/// `lab.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its name for people.
    pub title: String,
    /// Where the tests are compiled.
    #[serde(default)]
    pub package: Package,
    /// A file of unit tests that `tests.rs` replaces, as `kernel/src/run/preempt/tests.rs`: for
    /// what only its own module sees.
    #[serde(default)]
    pub unit: Option<PathBuf>,
    /// How many seeds the simulator runs.
    #[serde(default = "default_seeds")]
    pub seeds: u64,
    /// The scheduling system that the simulator runs.
    #[serde(default = "default_system")]
    pub system: String,
    /// Tests of the lab that a teacher's folder removes.
    #[serde(default)]
    pub drop: Vec<String>,
    /// Names that a solution may not have, as the counters by which it is judged.
    #[serde(default)]
    pub forbidden: Vec<String>,
    /// What is replaced in the source.
    #[serde(default, rename = "region")]
    pub regions: Vec<Stub>,
    /// What is graded, cheapest first.
    #[serde(default, rename = "test")]
    pub tests: Vec<Test>,
}

fn default_system() -> String {
    "mpn".into()
}

fn default_seeds() -> u64 {
    5_000
}

/// A package with the tests of a lab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Package {
    /// The decisions, which the simulator runs, too.
    #[default]
    Sched,
    /// The kernel. Its host tests take single files of it and are built as its models are.
    Runnext,
}

impl Package {
    /// Its name for cargo.
    pub fn name(self) -> &'static str {
        match self {
            Package::Sched => "sched",
            Package::Runnext => "runnext",
        }
    }

    /// Where its integration tests are.
    pub fn tests(self) -> &'static Path {
        Path::new(match self {
            Package::Sched => "kernel/sched/tests",
            Package::Runnext => "kernel/tests",
        })
    }
}

/// A region of the hand-out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stub {
    /// Its name in the markers.
    pub name: String,
    /// The body in the hand-out.
    pub stub: String,
    /// Not the student's to write: it would show the answer, and has the stub's body in the
    /// hand-out and in grading.
    #[serde(default)]
    pub hidden: bool,
    /// Its lines are strings of assembly, and nothing else.
    #[serde(default)]
    pub asm: bool,
}

/// A test: passed or lost as a whole.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// Its name, one word.
    pub name: String,
    /// What it is worth.
    pub points: u32,
    /// What it demands, in a sentence.
    pub says: String,
    /// Functions of `tests.rs`; `teacher::f` is in that of the teacher's folder.
    #[serde(default)]
    pub host: Vec<String>,
    /// Models, `file::function`, from the tests of the lab's package.
    #[serde(default)]
    pub loom: Vec<String>,
    /// Checks of `guest.rs`: `name@2 chaos=7` is on 2 CPUs with that word for the kernel;
    /// `teacher::name@2` is in that of the teacher's folder.
    #[serde(default)]
    pub guest: Vec<String>,
    /// Verdicts of the simulator that this test is lost for: parts of their words, `*` for any
    /// that no other test has.
    #[serde(default)]
    pub sim: Vec<String>,
    /// It is about a contest: a system that loses it alone is ranked all the same.
    #[serde(default)]
    pub ranks: bool,
    /// Tests without which this one is not judged, because it would find the same.
    #[serde(default)]
    pub after: Vec<String>,
    /// What helps, one step after the other.
    #[serde(default)]
    pub hints: Vec<String>,
    /// A teacher's test, which the student does not see.
    #[serde(skip)]
    pub hidden: bool,
}

/// A wrong body.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// The name of its file.
    pub name: String,
    /// The test that it must lose.
    pub loses: String,
    /// The bodies of its regions; the others are the reference's.
    pub bodies: Bodies,
}

impl Lab {
    /// All labs of the tree, by number.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn all(root: &Path) -> Result<Vec<Lab>> {
        let dir = root.join("labs");
        let entries = fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
        let mut labs = Vec::new();
        for dir in entries.flatten().map(|entry| entry.path()) {
            let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let number = name.split_once('-').and_then(|(number, _)| number.parse().ok());
            if let Some(number) = number.filter(|_| dir.join("lab.toml").is_file()) {
                let plan = read_plan(&dir)?;
                labs.push(Lab { number, dir, plan, teacher: None });
            }
        }
        labs.sort_by_key(|lab| lab.number);
        Ok(labs)
    }

    /// The lab of this number.
    ///
    /// # Errors
    /// There is none.
    pub fn open(root: &Path, number: u32) -> Result<Lab> {
        let all = Lab::all(root)?;
        let known: Vec<String> = all.iter().map(|lab| lab.number.to_string()).collect();
        let found = all.into_iter().find(|lab| lab.number == number);
        found.with_context(|| {
            format!("there is no lab {number}; LAB is one of {}", known.join(", "))
        })
    }

    /// The lab with the tests of a teacher's folder.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn with_teacher(mut self, dir: &Path) -> Result<Lab> {
        let theirs = read_plan(dir)?;
        self.plan.tests.retain(|test| !theirs.drop.contains(&test.name));
        self.plan.tests.retain(|test| theirs.tests.iter().all(|other| other.name != test.name));
        let hidden = theirs.tests.into_iter().map(|test| Test { hidden: true, ..test });
        self.plan.tests.extend(hidden);
        self.teacher = Some(dir.into());
        Ok(self)
    }

    /// The files that the lab and a teacher add to the tree that is graded.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn files(&self) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        let own = |name: &str| fs::read(self.dir.join(name)).ok();
        let teachers =
            |name: &str| self.teacher.as_ref().and_then(|dir| fs::read(dir.join(name)).ok());
        let mut files = Vec::new();
        let tests = self.plan.package.tests();
        match &self.plan.unit {
            Some(unit) => {
                let mut text = own("tests.rs").context("a lab with `unit` has tests.rs")?;
                if let Some(more) = teachers("tests.rs") {
                    let more = String::from_utf8_lossy(&more).replace("//!", "//");
                    text.extend(format!("mod teacher {{\nuse super::*;\n{more}}}\n").into_bytes());
                }
                files.push((unit.clone(), text));
            }
            None => {
                files.extend(own("tests.rs").map(|text| (tests.join("lab.rs"), text)));
                files.extend(teachers("tests.rs").map(|text| (tests.join("teacher.rs"), text)));
            }
        }
        files.extend(own("loom.rs").map(|text| (tests.join("loom_lab.rs"), text)));
        files.extend(teachers("loom.rs").map(|text| (tests.join("loom_teacher.rs"), text)));
        if let Some(mut guest) = own("guest.rs") {
            let dir = Path::new("tests/guest/src");
            if let Some(text) = teachers("guest.rs") {
                guest.extend(b"\nmod teacher;\n");
                files.push((dir.join("teacher.rs"), text));
            }
            files.push((dir.join("main.rs"), guest));
            let runner = self.dir.with_file_name("guest.rs");
            let runner = fs::read(&runner).with_context(|| runner.display().to_string())?;
            files.push((dir.join("lab.rs"), runner));
        }
        files.sort();
        Ok(files)
    }

    /// The program and the function of a host test.
    pub fn host_test(&self, name: &str) -> (String, String) {
        match &self.plan.unit {
            Some(unit) => {
                let path = unit.strip_prefix("kernel/src").unwrap_or(unit).with_extension("");
                let module: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
                ("runnext".into(), format!("{}::{name}", module.join("::")))
            }
            None => {
                let (file, function) = name.split_once("::").unwrap_or(("lab", name));
                (file.into(), function.into())
            }
        }
    }

    /// What replaces the regions in a hand-out.
    pub fn stubs(&self) -> Bodies {
        self.plan.regions.iter().map(|stub| (stub.name.clone(), stub.stub.clone())).collect()
    }

    /// What replaces regions that are not the student's.
    pub fn hidden(&self) -> Bodies {
        let hidden = self.plan.regions.iter().filter(|stub| stub.hidden);
        hidden.map(|stub| (stub.name.clone(), stub.stub.clone())).collect()
    }

    /// The bodies of a student's tree.
    ///
    /// # Errors
    /// A region is not in the tree.
    pub fn bodies_of(&self, tree: &Path) -> Result<Bodies> {
        let found = region::find_all(tree, self.number)?;
        let mut bodies = Bodies::new();
        for stub in self.plan.regions.iter().filter(|stub| !stub.hidden) {
            let region = found.iter().find(|region| region.name == stub.name);
            let region = region.with_context(|| {
                format!(
                    "{}: no region `// lab {} begin: {}`; do not edit or remove the marker lines",
                    tree.display(),
                    self.number,
                    stub.name
                )
            })?;
            bodies.insert(stub.name.clone(), region.body.clone());
        }
        Ok(bodies)
    }

    /// The wrong bodies that the lab ships.
    ///
    /// # Errors
    /// One cannot be read, or names no test of the lab.
    pub fn wrong(&self) -> Result<Vec<Wrong>> {
        let Ok(entries) = fs::read_dir(self.dir.join("wrong")) else { return Ok(vec![]) };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        files.iter().map(|file| self.read_wrong(file)).collect()
    }

    fn read_wrong(&self, file: &Path) -> Result<Wrong> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let (head, bodies) = region::read_bodies(&text);
        let loses = head.lines().find_map(|line| line.strip_prefix("// loses: "));
        let loses = loses.map(str::trim).unwrap_or_default().to_string();
        if !self.plan.tests.iter().any(|test| test.name == loses) {
            bail!("{}: `// loses:` names no test of the lab: {loses:?}", file.display());
        }
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Wrong { name, loses, bodies })
    }
}

fn read_plan(dir: &Path) -> Result<Plan> {
    let file = dir.join("lab.toml");
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    toml::from_str(&text).with_context(|| file.display().to_string())
}
