//! init

pub(crate) mod banner;
pub(crate) mod cmdline;
pub(crate) mod handover;
