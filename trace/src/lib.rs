//! Seeing it: from the machine's event stream to JSON, a page and a picture.
//!
//! - [`wire`] has the bytes of a stream, [`encode`] writes them, [`decode`] reads
//!   them, whatever they are;
//! - [`model`] says what the events mean: who ran where, who woke whom;
//! - [`check`] compares them with what the machine has counted.
//!
//! `make trace` reaches these through the binary of this crate.
#![forbid(unsafe_code)]

pub mod check;
pub mod decode;
pub mod encode;
pub mod model;
pub mod wire;
