//! The command line: `key=value` words, none of them trusted.
