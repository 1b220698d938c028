//! Asks cargo for the kernel: the standard one, or a crate that depends on it.
//!
//! A program is linked with the kernel, so "the kernel" is whatever one binary
//! comes out. Cargo runs at the top of the source tree even for a crate that
//! lies elsewhere: the flags of the bare target and the pinned toolchain are
//! found from there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use object::{Object, ObjectSection};

/// What goes into the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `kernel/programs`: all programs of the standard image.
    Standard,
    /// `tests/guest`: what only tests boot.
    Guest,
    /// The same, built with the profile `checked`.
    Checked,
    /// `bench/guest`: the workloads of the benchmarks.
    Bench,
    /// A crate that depends on the kernel, by its directory.
    App(PathBuf),
    /// The same with its tests (`runnext::tests!`), which the image runs by itself.
    AppTests(PathBuf),
}

/// The profile `fast` of this tree's Cargo.toml, for a crate that has a manifest of its own.
const FAST: [&str; 4] = [
    "profile.fast.inherits='release'",
    "profile.fast.opt-level=1",
    "profile.fast.incremental=true",
    "profile.fast.package.'*'.opt-level=2",
];

impl Source {
    /// Builds it and gives back its ELF file, with all debug sections. Progress
    /// and diagnostics go to the terminal.
    pub fn build(&self) -> Result<PathBuf> {
        self.build_with(self.profile(), Stdio::inherit())
    }

    /// The same with the profile `fast`: built quickly after an edit, slower to run.
    pub fn build_fast(&self) -> Result<PathBuf> {
        self.build_with("fast", Stdio::inherit())
    }

    /// The same with the profile `gdb`: as `fast`, and with the types of all records.
    pub fn build_for_gdb(&self) -> Result<PathBuf> {
        self.build_with("for-gdb", Stdio::inherit())
    }

    /// The same as `build` without a word, unless it fails: then all of them are the error.
    pub fn build_quietly(&self) -> Result<PathBuf> {
        self.build_with(self.profile(), Stdio::piped())
    }

    /// The alias of .cargo/config.toml that builds it.
    fn profile(&self) -> &'static str {
        match self {
            Self::Checked => "checked",
            _ => "kernel",
        }
    }

    fn build_with(&self, alias: &str, stderr: Stdio) -> Result<PathBuf> {
        let mut cargo = cargo();
        match self {
            Self::Standard => cargo.args([alias, "-p", "programs"]),
            Self::Guest | Self::Checked => cargo.args([alias, "-p", "guest"]),
            Self::Bench => cargo.args([alias, "-p", "workloads"]),
            Self::App(_) => cargo.arg(alias),
            Self::AppTests(_) if alias == "fast" => cargo.args(["app-tests", "--profile=fast"]),
            Self::AppTests(_) => cargo.args(["app-tests", "--profile=release"]),
        };
        if let Self::App(path) | Self::AppTests(path) = self {
            cargo.arg("--manifest-path").arg(manifest_of(path)?);
            cargo.args(["--target-dir", "target/app"]);
            if alias == "fast" {
                cargo.args(FAST.iter().flat_map(|line| ["--config", line]));
            }
        }
        // Only the list of what was built comes on standard output.
        cargo.arg("--message-format=json-render-diagnostics");
        let output =
            cargo.stdout(Stdio::piped()).stderr(stderr).spawn().context("starting cargo")?;
        let output = output.wait_with_output().context("waiting for cargo")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!(
                "{} does not build{}{}",
                self.name(),
                if said.is_empty() { "" } else { "\n" },
                said.trim_end()
            );
        }
        self.only_one(executables(&String::from_utf8_lossy(&output.stdout)))
    }

    /// What the images of it are called.
    pub fn image_name(&self) -> &'static str {
        match self {
            Self::Standard => "runnext",
            Self::Guest => "guest",
            Self::Checked => "checked",
            Self::Bench => "bench",
            Self::App(_) => "app",
            Self::AppTests(_) => "app-tests",
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Standard => "the kernel".into(),
            Self::Guest => "the tests' guest".into(),
            Self::Checked => "the tests' guest, checked".into(),
            Self::Bench => "the benchmarks' guest".into(),
            Self::App(path) | Self::AppTests(path) => path.display().to_string(),
        }
    }

    fn only_one(&self, mut found: Vec<PathBuf>) -> Result<PathBuf> {
        match (found.pop(), found.len()) {
            (Some(only), 0) => Ok(only),
            (None, _) => bail!(
                "{} has no binary target: a program needs a src/main.rs that calls runnext::main!",
                self.name()
            ),
            (Some(_), more) => bail!(
                "{} has {} binary targets: an image can hold one (programs share it by name)",
                self.name(),
                more + 1
            ),
        }
    }
}

/// Cargo, at the top of the source tree. What an outer cargo set for the crate that it
/// runs is not meant for others.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(crate::root()).env_remove("CARGO_MANIFEST_DIR");
    cargo
}

/// The names of the programs in a kernel's ELF file, if it has a list of them: the
/// section that `main!` of the kernel writes a line to.
pub fn programs(kernel: &Path) -> Result<Option<Vec<String>>> {
    names(kernel, ".runnext.names")
}

/// The same for its tests and `tests!`.
pub fn tests(kernel: &Path) -> Result<Vec<String>> {
    Ok(names(kernel, ".runnext.testnames")?.unwrap_or_default())
}

fn names(kernel: &Path, section: &str) -> Result<Option<Vec<String>>> {
    in_elf(kernel, |file| {
        let Some(section) = file.section_by_name(section) else { return Ok(None) };
        let text = String::from_utf8_lossy(section.data()?).into_owned();
        let mut names: Vec<_> = text.lines().map(str::to_string).collect();
        names.sort();
        Ok(Some(names))
    })
}

/// Reads an ELF file and gives what `find` makes of it.
///
/// # Errors
/// The file cannot be read, is no ELF file, or `find` fails.
pub fn in_elf<T>(path: &Path, find: impl FnOnce(&object::File<'_>) -> Result<T>) -> Result<T> {
    let found = fs::read(path).map_err(Into::into).and_then(|bytes| {
        let file = object::File::parse(&*bytes)?;
        find(&file)
    });
    found.with_context(|| format!("reading {}", path.display()))
}

/// The manifest of the crate in `path`.
pub(crate) fn manifest_of(path: &Path) -> Result<PathBuf> {
    let manifest = path.join("Cargo.toml");
    if !manifest.is_file() {
        bail!("APP={} is no crate: there is no {}", path.display(), manifest.display());
    }
    fs::canonicalize(&manifest).with_context(|| format!("finding {}", manifest.display()))
}

/// The executables among cargo's messages, one JSON object a line.
fn executables(messages: &str) -> Vec<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARTIFACT: &str = r#"{"reason":"compiler-artifact","executable":"/t/release/demo"}"#;
    const LIBRARY: &str = r#"{"reason":"compiler-artifact","executable":null}"#;

    #[test]
    fn the_one_binary_is_found_among_the_libraries() {
        let messages =
            format!("{LIBRARY}\nnot json\n{ARTIFACT}\n{{\"reason\":\"build-finished\"}}");
        let found = Source::Standard.only_one(executables(&messages));
        assert_eq!(found.expect("there is one"), Path::new("/t/release/demo"));
    }

    #[test]
    fn none_and_two_are_told_apart() {
        let app = Source::App("x".into());
        let none = app.only_one(executables(LIBRARY)).expect_err("none");
        assert!(none.to_string().contains("no binary"), "{none}");
        let two = app.only_one(executables(&format!("{ARTIFACT}\n{ARTIFACT}"))).expect_err("two");
        assert!(two.to_string().contains("2 binary"), "{two}");
    }

    #[test]
    fn a_path_without_a_crate_is_refused_before_cargo_runs() {
        let error = Source::App("/nonexistent".into()).build().expect_err("no crate");
        assert!(error.to_string().contains("/nonexistent is no crate"), "{error}");
    }
}
