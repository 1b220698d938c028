//! What must hold whatever a stream is made of.
//!
//! [`check()`] converts bytes as `make trace` would. Nothing may panic, no span may
//! overlap another on its CPU, and nothing may grow beyond what the bytes justify.
//! Breaking good streams is the crate `fuzz`'s, with those of all other readers of
//! bytes: `make fuzz TARGET=trace`.
#![forbid(unsafe_code)]

use std::io;

use crate::model::Model;
use crate::simulate::{Plan, stream};
use crate::{check, chrome, decode, page, picture};

/// Converts a stream; panics if a promise is broken. Whether it was usable.
///
/// ```
/// assert!(trace::fuzz::check(&trace::fuzz::seeds()[0]));
/// assert!(!trace::fuzz::check(b"something else"));
/// ```
pub fn check(bytes: &[u8]) -> bool {
    let Ok(stream) = decode::decode(bytes) else { return false };
    assert!(stream.events() as usize * 16 <= bytes.len(), "more events than bytes");
    let model = Model::new(&stream);
    promises(&model);
    let _ = check::compare(&model).to_string();
    chrome::write(&model, io::sink()).expect("a sink takes all");
    let page = page::draw(&model, &page::Facts::default());
    let picture = picture::draw(&model, "fuzz");
    assert!(page.len() + picture.len() < 1_000_000 + 40 * bytes.len(), "too much of a page");
    true
}

/// Good streams, of one CPU and of several.
pub fn seeds() -> Vec<Vec<u8>> {
    let plans = [(1, 40), (2, 200), (3, 600), (6, 400)];
    plans.map(|(cpus, events)| stream(Plan { cpus, events, seed: u64::from(cpus) })).to_vec()
}

/// What every model keeps, whatever it was made of.
fn promises(model: &Model) {
    for cpu in &model.cpus {
        assert!(cpu.spans.iter().all(|span| span.time.from <= span.time.to));
        assert!(cpu.spans.windows(2).all(|two| two[0].time.to <= two[1].time.from));
        assert!(cpu.idle.windows(2).all(|two| two[0].to <= two[1].from));
        assert!(cpu.spans.iter().all(|span| (span.g as usize) < model.gs.len()));
    }
    let cpus = model.cpus.len();
    assert!(model.num_spans() as u64 <= model.events);
    assert!(model.gs.len() as u64 <= model.events);
    assert!(model.idle_ps.iter().all(|point| point.value as usize <= cpus));
    assert!(model.runnable.iter().all(|point| point.value as usize <= model.gs.len()));
    assert!(model.runnable.windows(2).all(|two| two[0].at < two[1].at));
    assert!(model.gs.windows(2).all(|two| two[0].number < two[1].number));
}
