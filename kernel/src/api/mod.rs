//! api

pub mod blocking;
pub mod chan;
pub mod console;
pub mod disk;
pub mod fs;
pub mod go;
pub mod gref;
pub mod inspect;
pub(crate) mod machine;
pub mod program;
pub mod select;
pub mod stats;
pub mod sync;
pub mod tasks;
