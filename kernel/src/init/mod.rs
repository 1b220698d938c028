//! The steps of `start`: what the loader hands over, the command line, the banner.

pub(crate) mod banner;
pub(crate) mod cmdline;
pub(crate) mod handover;
