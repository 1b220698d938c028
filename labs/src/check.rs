//! The labs themselves are tested: a grader that calls a wrong solution right is worse than none.
//!
//! For each lab: the stub scores 0, the reference scores all, every wrong body loses exactly
//! the test that it names, the variant's reference scores all by the variant's tests, and the
//! reference does not.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::grade::{Effort, Grader, Report};
use crate::lab::{Lab, Wrong};
use crate::region;
use crate::report;

/// Wrong bodies that a lab must have.
const WRONG: usize = 4;

/// Which labs are checked, and how far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope<'a> {
    /// This lab alone.
    pub lab: Option<u32>,
    /// What is called so alone: a wrong body, `stub`, `reference`, `variant`.
    pub name: Option<&'a str>,
    /// One wrong body a lab, no models and no boots.
    pub is_quick: bool,
}

/// What was found so far.
#[derive(Default)]
struct Counts {
    passed: u32,
    failed: u32,
}

impl Counts {
    /// One grading; `wanted` are the tests that it must lose, None for a score of 0.
    fn note(&mut self, name: &str, report: &Report, wanted: Option<&[&str]>) {
        let (score, of) = report.score();
        let is_right = match wanted {
            Some(wanted) => report.lost() == wanted && report.refused.is_none(),
            None => score == 0 && report.refused.is_none(),
        };
        let seconds = report.took().as_secs_f64();
        let lost = report.lost().join(", ");
        let word = if is_right { "ok  " } else { "FAIL" };
        println!("{word} {name:<44} {score:>3}/{of} lost: {lost:<24} {seconds:.1} s");
        if is_right {
            self.passed += 1;
        } else {
            self.failed += 1;
            let wanted = wanted.map_or("all".into(), |wanted| wanted.join(", "));
            println!("     it should lose: {wanted}\n{}", report::text(report, 1));
        }
    }
}

/// Checks the labs. Returns how many checks passed and failed.
///
/// # Errors
/// A lab cannot be read or graded.
pub fn run(root: &Path, scope: Scope<'_>) -> Result<(u32, u32)> {
    let grader = Grader::new(root)?;
    let mut counts = Counts::default();
    let labs = Lab::all(root)?;
    for lab in labs.iter().filter(|lab| scope.lab.is_none_or(|number| number == lab.number)) {
        match scope.is_quick {
            true => sample(&grader, lab, &mut counts)?,
            false => check(&grader, root, lab, scope, &mut counts)?,
        }
    }
    Ok((counts.passed, counts.failed))
}

/// One wrong body that a host test finds. A lab that only boots is left to the long check.
fn sample(grader: &Grader, lab: &Lab, counts: &mut Counts) -> Result<()> {
    let is_on_host = |wrong: &&Wrong| {
        lab.plan.tests.iter().any(|test| test.name == wrong.loses && !test.host.is_empty())
    };
    let wrong = lab.wrong()?;
    let Some(sample) = wrong.iter().find(is_on_host) else { return Ok(()) };
    let effort = Effort { host_only: true, full: false };
    let report = grader.grade_bodies(lab, &sample.bodies, effort)?;
    counts.note(&called(lab, &sample.name), &report, Some(&[&sample.loses]));
    Ok(())
}

fn called(lab: &Lab, what: &str) -> String {
    format!("lab {}: {what}", lab.number)
}

fn check(
    grader: &Grader,
    root: &Path,
    lab: &Lab,
    scope: Scope<'_>,
    counts: &mut Counts,
) -> Result<()> {
    let wants = |name: &str| scope.name.is_none_or(|wanted| name.contains(wanted));
    let effort = Effort::default();
    let wrong = lab.wrong()?;
    assert!(wrong.len() >= WRONG, "{}", called(lab, "too few wrong bodies"));
    if wants("stub") {
        let stubs = lab.plan.regions.iter().filter(|stub| !stub.hidden);
        let stubs = stubs.map(|stub| (stub.name.clone(), stub.stub.clone())).collect();
        counts.note(&called(lab, "stub"), &grader.grade_bodies(lab, &stubs, effort)?, None);
    }
    if wants("reference") {
        let report = grader.grade_tree(lab, root, effort)?;
        counts.note(&called(lab, "reference"), &report, Some(&[]));
    }
    for wrong in wrong.iter().filter(|wrong| wants(&wrong.name)) {
        let report = grader.grade_bodies(lab, &wrong.bodies, effort)?;
        counts.note(&called(lab, &wrong.name), &report, Some(&[&wrong.loses]));
    }
    if wants("variant") {
        let dir = lab.dir.join("variant");
        let variant = lab.clone().with_teacher(&dir)?;
        let file = dir.join("reference.rs");
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let (_, bodies) = region::read_bodies(&text);
        let report = grader.grade_bodies(&variant, &bodies, effort)?;
        counts.note(&called(lab, "variant's reference"), &report, Some(&[]));
        let hidden = variant.plan.tests.iter().filter(|test| test.hidden).map(|test| &*test.name);
        let hidden: Vec<&str> = hidden.collect();
        let report = grader.grade_tree(&variant, root, effort)?;
        counts.note(&called(lab, "reference by the variant's tests"), &report, Some(&hidden));
    }
    Ok(())
}
