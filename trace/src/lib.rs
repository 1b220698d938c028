//! Seeing it: from the machine's event stream to JSON, a page and a picture.
//!
//! - [`wire`] has the bytes of a stream, [`encode`] writes them, [`decode`] reads
//!   them, whatever they are;
//! - [`model`] says what the events mean: which G ran where, which G woke it; why a G
//!   waits is in [`reason`];
//! - [`check`] compares the events with what the machine has counted;
//! - [`chrome`] writes JSON for Perfetto, [`page`] one page with all in it (small
//!   by [`pack`]), [`picture`] an SVG; Gs have their colours from [`palette`];
//! - [`mod@compare`] puts two traces on one page, with what differs;
//! - [`simulate`] makes streams without a machine, by [`random`] numbers that are
//!   the same each time; [`mod@fuzz`] says what must hold when they are broken.
//!
//! `make trace` reaches these through the binary of this crate. Nothing here
//! depends on the kernel: what they share is the format.
//!
//! ```
//! use trace::{decode::decode, model::Model, page, simulate};
//!
//! let stream = simulate::stream(simulate::Plan { cpus: 4, events: 2000, seed: 1 });
//! let model = Model::new(&decode(&stream)?);
//! let facts = page::Facts { title: "skynet".into(), ..Default::default() };
//! assert!(page::draw(&model, &facts).starts_with("<!doctype html>"));
//! # Ok::<(), trace::decode::Unusable>(())
//! ```
#![forbid(unsafe_code)]

pub mod check;
pub mod chrome;
pub mod compare;
pub mod decode;
pub mod encode;
pub mod fuzz;
pub mod model;
pub mod pack;
pub mod page;
pub mod palette;
pub mod picture;
pub mod random;
pub mod reason;
pub mod simulate;
pub mod wire;
