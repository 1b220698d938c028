//! What a program sees.
//!
//! Starting Gs ([`go`]), channels and [`mod@select`], [`sync`], blocking calls, the console, disk
//! and files, programs, and what can be known of Gs and the machine ([`tasks`], [`mod@stats`],
//! [`inspect`]). Safe code that can name only this can neither break memory nor stop the kernel.
//! The unsafe code behind it is in `wait` and below.

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
