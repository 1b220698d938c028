//! The source tree that a host tool works on, found at run time.
//!
//! `boot`, `trace`, `fuzz`, `bench` and the tests build kernels, read files and write
//! results in one source tree. A path compiled into a tool would name the tree that the
//! tool was built in, and cargo takes such a tool for fresh after the tree was copied
//! or renamed: it would go on with the old tree without a word. So [`find`] looks at
//! run time, in two places: above the current directory and above the tool's own file.
//!
//! | current directory | tool's file | answer |
//! |---|---|---|
//! | in tree A | in tree A, or in no tree | A |
//! | in no tree | in tree A | A |
//! | in tree A | in tree B | refused: the tool is not A's |
//! | in no tree | in no tree | refused |

use std::path::{Path, PathBuf};
use std::{env, fmt};

/// The file that makes a directory the top of a source tree: this crate's manifest.
const MARK: &str = "boot/tool/Cargo.toml";

/// Why no tree can be worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The tool was built in one tree and started in another.
    Differ {
        /// The tool's own file.
        tool: PathBuf,
        /// The tree that the tool's file is in.
        built_in: PathBuf,
        /// The tree that the current directory is in.
        started_in: PathBuf,
    },
    /// Neither the current directory nor the tool's file is in a tree.
    None,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differ { tool, built_in, started_in } => write!(
                f,
                "{} belongs to the source tree {}, but the current directory is in the source \
                 tree {}: use that tree's own tool, or change to the first tree",
                tool.display(),
                built_in.display(),
                started_in.display()
            ),
            Self::None => write!(
                f,
                "neither the current directory nor this tool is in a source tree of runnext \
                 (there is no {MARK} above them): change to one"
            ),
        }
    }
}

impl std::error::Error for Error {}

/// The top of the source tree.
///
/// # Errors
/// The tool belongs to another tree than the current directory, or neither is in one.
pub fn find() -> Result<PathBuf, Error> {
    choose(env::current_dir().ok().as_deref(), env::current_exe().ok().as_deref())
}

/// The same for code that cannot go on without it: tests, and what runs after a tool
/// has called [`find`].
///
/// # Panics
/// [`find`] refuses.
pub fn root() -> PathBuf {
    find().unwrap_or_else(|error| panic!("{error}"))
}

/// A directory for files that tests leave behind to be looked at, made if need be.
///
/// # Panics
/// [`find`] refuses, or the directory cannot be made.
pub fn scratch() -> PathBuf {
    let dir = root().join("target/tmp");
    std::fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    dir
}

/// `path` as the user would type it: relative to the current directory where it is below it.
pub fn shown(path: &Path) -> String {
    let here = env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).display().to_string()
}

fn choose(here: Option<&Path>, tool: Option<&Path>) -> Result<PathBuf, Error> {
    match (here.and_then(above), tool.and_then(above)) {
        (Some(started_in), Some(built_in)) if started_in != built_in => {
            let tool = tool.unwrap_or(Path::new("")).to_path_buf();
            Err(Error::Differ { tool, built_in, started_in })
        }
        (Some(tree), _) | (None, Some(tree)) => Ok(tree),
        (None, None) => Err(Error::None),
    }
}

/// The nearest tree that contains `path`. Links are resolved first: one tree by two
/// names is one tree.
fn above(path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    path.ancestors().find(|dir| dir.join(MARK).is_file()).map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    /// Directories `a` and `b`, each a tree with a tool, and `c`, which is none.
    fn trees() -> TempDir {
        let top = TempDir::new().expect("a writable directory");
        for file in [
            "a/boot/tool/Cargo.toml",
            "a/target/debug/tool",
            "a/kernel/src/lib.rs",
            "b/boot/tool/Cargo.toml",
            "b/target/debug/tool",
            "c/tool",
        ] {
            let path = top.path().join(file);
            fs::create_dir_all(path.parent().expect("below the top")).expect("writable");
            fs::write(path, "").expect("writable");
        }
        top
    }

    fn chosen(top: &TempDir, here: &str, tool: &str) -> Result<PathBuf, Error> {
        let top = top.path();
        choose(Some(&top.join(here)), Some(&top.join(tool)))
            .map(|tree| tree.strip_prefix(top.canonicalize().unwrap()).unwrap().to_path_buf())
    }

    #[test]
    fn a_tool_works_on_the_tree_that_it_is_in() {
        let top = trees();
        for (here, tool) in [
            ("a", "a/target/debug/tool"),
            ("a/kernel/src", "a/target/debug/tool"),
            ("a", "c/tool"),
            ("c", "a/target/debug/tool"),
        ] {
            assert_eq!(chosen(&top, here, tool), Ok("a".into()), "{tool} in {here}");
        }
    }

    #[test]
    fn a_tool_of_another_tree_is_refused_by_name() {
        let top = trees();
        let error = chosen(&top, "b", "a/target/debug/tool").expect_err("another tree");
        let said = error.to_string();
        for part in ["a/target/debug/tool", "/a,", "/b:"] {
            assert!(said.contains(part), "{part} in {said}");
        }
    }

    #[test]
    fn without_any_tree_there_is_an_error() {
        assert_eq!(chosen(&trees(), "c", "c/tool"), Err(Error::None));
    }

    #[test]
    fn a_tree_by_another_name_is_the_same_tree() {
        let top = trees();
        let link = top.path().join("link");
        std::os::unix::fs::symlink(top.path().join("a"), link).expect("a link");
        assert_eq!(chosen(&top, "link/kernel", "a/target/debug/tool"), Ok("a".into()));
    }
}
