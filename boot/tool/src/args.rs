//! A tool's command line: a command, then options with their values.
//!
//! `lexopt` splits the words, so `--smp 8` and `--smp=8` mean the same. Make passes its
//! variables as they are, so an empty value counts as not given. Errors name the option.
//!
//! ```
//! use tool::args::Args;
//!
//! let mut args = Args::new(["run", "--seed", "7", "--out", ""], "usage: …");
//! let (mut seed, mut out) = (None, Some("target".to_string()));
//! assert_eq!(args.command()?, "run");
//! while let Some(word) = args.next()? {
//!     match &*word {
//!         "--seed" => seed = args.number()?,
//!         "--out" => out = args.text()?,
//!         _ => return Err(args.unknown()),
//!     }
//! }
//! assert_eq!((seed, out), (Some(7), None));
//! # Ok::<(), anyhow::Error>(())
//! ```

use std::ffi::OsString;

use anyhow::{Context, Error, Result, anyhow};
use lexopt::{Arg, Parser, ValueExt};

/// The words that were not read yet.
#[derive(Debug)]
pub struct Args {
    parser: Parser,
    usage: &'static str,
    /// The option or word that [`Args::next`] gave last.
    word: String,
}

impl Args {
    /// These words; `usage` is shown with errors.
    pub fn new(words: impl IntoIterator<Item: Into<OsString>>, usage: &'static str) -> Self {
        let words = words.into_iter().map(Into::into).collect::<Vec<_>>();
        Self { parser: Parser::from_args(words), usage, word: String::new() }
    }

    /// The words behind the name of this process.
    pub fn of_process(usage: &'static str) -> Self {
        Self::new(std::env::args_os().skip(1), usage)
    }

    /// The first word, which says what to do.
    ///
    /// # Errors
    /// There is none, or an option is in its place.
    pub fn command(&mut self) -> Result<String> {
        match self.next()? {
            Some(word) if word.starts_with('-') => Err(self.unknown()),
            Some(word) => Ok(word),
            None => Err(anyhow!("{}", self.usage)),
        }
    }

    /// The next option, with its dashes, or a word that belongs to none.
    ///
    /// # Errors
    /// The option before has a value (`--known=1`) that was not read: it takes none.
    #[expect(clippy::should_implement_trait, reason = "an iterator of results reads worse")]
    pub fn next(&mut self) -> Result<Option<String>> {
        self.word = match self.parser.next()? {
            None => return Ok(None),
            Some(Arg::Long(name)) => format!("--{name}"),
            Some(Arg::Short(letter)) => format!("-{letter}"),
            Some(Arg::Value(word)) => word.string()?,
        };
        Ok(Some(self.word.clone()))
    }

    /// The value of the option; `None` if it is empty.
    ///
    /// # Errors
    /// No word follows.
    pub fn text(&mut self) -> Result<Option<String>> {
        let value = self.parser.value().map_err(|_| anyhow!("{} needs a value", self.word))?;
        Ok(Some(value.string()?).filter(|value| !value.is_empty()))
    }

    /// The same for a number.
    ///
    /// # Errors
    /// As for [`Args::text`], or it is no number.
    pub fn number(&mut self) -> Result<Option<u64>> {
        let Some(value) = self.text()? else { return Ok(None) };
        let number = value.parse().with_context(|| format!("{}: a number, not {value}", self.word));
        number.map(Some)
    }

    /// The error for an option or word that the tool does not know.
    pub fn unknown(&self) -> Error {
        let kind = if self.word.starts_with('-') { "option" } else { "word" };
        anyhow!("unknown {kind} {}\n\n{}", self.word, self.usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args::new(line.split(' '), "usage: x")
    }

    fn number(line: &str) -> Result<Option<u64>> {
        let mut args = args(line);
        args.next()?;
        args.number()
    }

    #[test]
    fn a_key_without_a_value_is_an_error() {
        let mut args = args("run --out");
        assert_eq!(args.command().expect("a command"), "run");
        args.next().expect("an option");
        let error = args.text().expect_err("no value");
        assert_eq!(error.to_string(), "--out needs a value");
    }

    #[test]
    fn what_is_no_number_is_named() {
        let error = number("--seed x7").expect_err("no number");
        assert_eq!(error.to_string(), "--seed: a number, not x7");
        assert_eq!(number("--seed 7").expect("a number"), Some(7));
        assert_eq!(number("--seed=7").expect("a number"), Some(7));
        assert_eq!(number("--seed ").expect("none"), None);
    }

    #[test]
    fn a_value_may_look_like_an_option() {
        assert_eq!(
            number("--seed -1").expect_err("no u64").to_string(),
            "--seed: a number, not -1"
        );
    }

    #[test]
    fn unknown_words_are_named_with_the_usage() {
        for (line, error) in [
            ("--what", "unknown option --what\n\nusage: x"),
            ("-w", "unknown option -w\n\nusage: x"),
        ] {
            assert_eq!(args(line).command().expect_err("no command").to_string(), error);
        }
        let mut none = Args::new([""; 0], "usage: x");
        assert_eq!(none.command().expect_err("no command").to_string(), "usage: x");
        let mut known = args("--known=1");
        known.next().expect("an option");
        assert!(known.next().expect_err("a value").to_string().contains("--known"));
    }
}
