//! What was odd about the tables, a line each.
//!
//! Reading never logs by itself: it collects lines in a [`Report`], which is bounded so that a
//! table full of nonsense cannot fill the heap or the console.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use log::Level;

/// The most lines that are kept; the rest are only counted.
pub const MAX_NOTICES: usize = 64;

/// A line for the log. A table is named by its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The level to log it with.
    pub level: Level,
    text: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Collects notices while tables are read.
#[derive(Default)]
pub(super) struct Report {
    notices: Vec<Notice>,
    dropped: usize,
    /// What is counted instead of listed: level, words before and after the number, number.
    tallies: Vec<(Level, &'static str, &'static str, usize)>,
}

impl Report {
    pub(super) fn warn(&mut self, text: fmt::Arguments<'_>) {
        self.add(Level::Warn, text);
    }

    pub(super) fn info(&mut self, text: fmt::Arguments<'_>) {
        self.add(Level::Info, text);
    }

    /// A table cannot be used, and is treated as missing.
    pub(super) fn ignored(&mut self, table: &str, why: &str) {
        self.warn(format_args!("table {table} ignored: {why}"));
    }

    /// An entry of a table, by its first byte, has a wrong length.
    pub(super) fn bad_entry(&mut self, table: &str, at: usize, effect: &str) {
        self.warn(format_args!("table {table}: broken entry at byte {at}: {effect}"));
    }

    fn add(&mut self, level: Level, text: fmt::Arguments<'_>) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push(Notice { level, text: text.to_string() });
        } else {
            self.dropped += 1;
        }
    }

    /// Counts one more of a kind; the line at the end has the number between `before` and `after`.
    pub(super) fn tally(&mut self, level: Level, before: &'static str, after: &'static str) {
        let known = self.tallies.iter_mut().find(|tally| (tally.1, tally.2) == (before, after));
        match known {
            Some(tally) => tally.3 += 1,
            None => self.tallies.push((level, before, after, 1)),
        }
    }

    /// Appends `item` to a list of at most `limit`; what does not fit is counted under `too_many`.
    pub(super) fn push<T>(
        &mut self,
        list: &mut Vec<T>,
        limit: usize,
        too_many: &'static str,
        item: T,
    ) {
        if list.len() < limit {
            list.push(item);
        } else {
            self.tally(Level::Warn, too_many, " dropped");
        }
    }

    pub(super) fn finish(mut self) -> Vec<Notice> {
        for (level, before, after, count) in core::mem::take(&mut self.tallies) {
            self.add(level, format_args!("{before}{count}{after}"));
        }
        if self.dropped > 0 {
            let text = alloc::format!("too many notices: {} dropped", self.dropped);
            self.notices.push(Notice { level: Level::Warn, text });
        }
        self.notices
    }
}
