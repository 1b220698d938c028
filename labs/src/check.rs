//! The labs themselves are tested: a grader that calls a wrong solution right is worse than none.
//!
//! For each lab: the stub scores 0, the reference scores all, every wrong body loses exactly
//! the test that it names, the variant's reference scores all by the variant's tests, and the
//! reference does not.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::grade::{Effort, Grader, Report};
use crate::lab::Lab;
use crate::region;
use crate::report;

/// Wrong bodies that a lab must have.
const WRONG: usize = 4;

/// Checks all labs, or `only` one. `quick`: one wrong body a lab, no models and
/// no boots. Returns how many
/// checks passed and failed.
///
/// # Errors
/// A lab cannot be read or graded.
pub fn run(root: &Path, only: Option<u32>, quick: bool) -> Result<(u32, u32)> {
    let grader = Grader::new(root)?;
    let mut counts = (0, 0);
    let mut say = |name: String, begun: Instant, report: &Report, wanted: Option<&[&str]>| {
        let (score, of) = report.score();
        // None: everything.
        let is_right = match wanted {
            Some(wanted) => report.lost() == wanted && report.refused.is_none(),
            None => score == 0 && report.refused.is_none(),
        };
        let seconds = begun.elapsed().as_secs_f64();
        let lost = report.lost().join(", ");
        let word = if is_right { "ok  " } else { "FAIL" };
        println!("{word} {name:<44} {score:>3}/{of} lost: {lost:<24} {seconds:.1} s");
        if is_right {
            counts.0 += 1;
        } else {
            counts.1 += 1;
            let wanted = wanted.map_or("all".into(), |wanted| wanted.join(", "));
            println!("     it should lose: {wanted}\n{}", report::text(report, 1));
        }
    };
    for lab in Lab::all(root)? {
        if only.is_some_and(|number| number != lab.number) {
            continue;
        }
        let name = |what: &str| format!("lab {}: {what}", lab.number);
        let wrong = lab.wrong()?;
        if quick {
            let with_host = |loses: &str| {
                lab.plan.tests.iter().any(|test| test.name == loses && !test.host.is_empty())
            };
            // A lab that only boots is left to the long check.
            let sample = wrong.iter().find(|wrong| with_host(&wrong.loses));
            let Some(sample) = sample else { continue };
            let begun = Instant::now();
            let effort = Effort { host_only: true, full: false };
            let report = grader.grade_bodies(&lab, &sample.bodies, effort)?;
            say(name(&sample.name), begun, &report, Some(&[&sample.loses]));
            continue;
        }
        assert!(wrong.len() >= WRONG, "{}", name("too few wrong bodies"));
        let effort = Effort::default();
        let begun = Instant::now();
        let stubs = lab.plan.regions.iter().filter(|stub| !stub.hidden);
        let stubs = stubs.map(|stub| (stub.name.clone(), stub.stub.clone())).collect();
        say(name("stub"), begun, &grader.grade_bodies(&lab, &stubs, effort)?, None);
        let begun = Instant::now();
        say(name("reference"), begun, &grader.grade_tree(&lab, root, effort)?, Some(&[]));
        for wrong in &wrong {
            let begun = Instant::now();
            let report = grader.grade_bodies(&lab, &wrong.bodies, effort)?;
            say(name(&wrong.name), begun, &report, Some(&[&wrong.loses]));
        }
        let dir = lab.dir.join("variant");
        let variant = lab.clone().with_teacher(&dir)?;
        let file = dir.join("reference.rs");
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let (_, bodies) = region::read_bodies(&text);
        let begun = Instant::now();
        let report = grader.grade_bodies(&variant, &bodies, effort)?;
        say(name("variant's reference"), begun, &report, Some(&[]));
        let hidden = variant.plan.tests.iter().filter(|test| test.hidden).map(|test| &*test.name);
        let hidden: Vec<&str> = hidden.collect();
        let begun = Instant::now();
        let report = grader.grade_tree(&variant, root, effort)?;
        say(name("reference by the variant's tests"), begun, &report, Some(&hidden));
    }
    Ok(counts)
}
