//! The whole machine, from outside.
