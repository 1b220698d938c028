//! The words of a command line: options that were given, taken out of them.
//!
//! For the tools `trace` and `fuzz`. Options come from make with an empty value when
//! nobody has set them, which is like not giving them.

use anyhow::{Context, Result};

/// Takes `key` and its value out of `words`; an empty value is none.
///
/// ```
/// use trace::words;
/// let mut all = ["--seed", "7", "more", "--out", ""].map(String::from).to_vec();
/// assert_eq!(words::option(&mut all, "--seed")?, Some("7".into()));
/// assert_eq!(words::option(&mut all, "--out")?, None);
/// assert_eq!(all, ["more"]);
/// # Ok::<(), anyhow::Error>(())
/// ```
///
/// # Errors
/// It is the last word.
pub fn option(words: &mut Vec<String>, key: &str) -> Result<Option<String>> {
    let Some(at) = words.iter().position(|word| word == key) else { return Ok(None) };
    words.get(at + 1).with_context(|| format!("{key} needs a value"))?;
    let value = words.drain(at..at + 2).next_back();
    Ok(value.filter(|value| !value.is_empty()))
}

/// The same for a number.
///
/// # Errors
/// As for [`option`], or it is no number.
pub fn number(words: &mut Vec<String>, key: &str) -> Result<Option<u64>> {
    let Some(value) = option(words, key)? else { return Ok(None) };
    value.parse().map(Some).with_context(|| format!("{key}: a number, not {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(String::from).collect()
    }

    #[test]
    fn a_key_without_a_value_is_an_error() {
        let error = option(&mut words("run --out"), "--out").expect_err("no value");
        assert_eq!(error.to_string(), "--out needs a value");
    }

    #[test]
    fn what_is_no_number_is_named() {
        let error = number(&mut words("--seed x7"), "--seed").expect_err("no number");
        assert_eq!(error.to_string(), "--seed: a number, not x7");
        assert_eq!(number(&mut words("--seed 7"), "--seed").expect("a number"), Some(7));
        assert_eq!(number(&mut words("--other 7"), "--seed").expect("none"), None);
    }
}
