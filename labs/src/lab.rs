//! A lab: the folder `labs/NN-name`.
//!
//! | file | what it is |
//! |---|---|
//! | `lab.toml` | title, stubs of the regions, tests with points and hints |
//! | `README.md` | the text |
//! | `tests.rs` | host tests, compiled as the test `lab` of `kernel/sched` |
//! | `loom.rs` | if need be, models, compiled as its test `loom_lab` |
//! | `wrong/*.rs` | wrong bodies; each names the test that it must lose |
//! | `variant/` | another task in the same regions: a teacher's folder, as an example |
//!
//! A teacher's folder has the same files: tests of its `lab.toml` replace those of the same
//! name, `drop` removes tests, `tests.rs` is compiled as `teacher`, `loom.rs` as
//! `loom_teacher`; `reference.rs` has bodies that score 100.

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
    /// How many seeds the simulator runs.
    #[serde(default = "default_seeds")]
    pub seeds: u64,
    /// Tests of the lab that a teacher's folder removes.
    #[serde(default)]
    pub drop: Vec<String>,
    /// What is replaced in the source.
    #[serde(default, rename = "region")]
    pub regions: Vec<Stub>,
    /// What is graded, cheapest first.
    #[serde(default, rename = "test")]
    pub tests: Vec<Test>,
}

fn default_seeds() -> u64 {
    5_000
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
    /// Models, `file::function`, from the tests of `kernel/sched`.
    #[serde(default)]
    pub loom: Vec<String>,
    /// Verdicts of the simulator that this test is lost for: parts of their words, `*` for any
    /// that no other test has.
    #[serde(default)]
    pub sim: Vec<String>,
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
