//! Trees: the copy that is graded, and the hand-out.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Directories of a tree that are not its source.
const NOT_SOURCE: [&str; 2] = ["target", ".git"];

/// Every file of the tree's source, relative to `root`, in order.
///
/// # Errors
/// A directory cannot be read.
pub fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect(root, Path::new(""), &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(root: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let dir = root.join(below);
    for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            // Wherever it is: crates outside the workspace have build directories of their own.
            if !NOT_SOURCE.iter().any(|name| entry.file_name() == *name) {
                collect(root, &path, found)?;
            }
        } else if kind.is_file() && entry.file_name() != ".git" {
            found.push(path);
        }
    }
    Ok(())
}

/// Writes a file if it is not the same already, so that cargo builds only what changed.
///
/// # Errors
/// It cannot be written.
pub fn write(to: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(to).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    fs::write(to, bytes).with_context(|| format!("writing {}", to.display()))
}

/// Makes `to` hold the files that `change` returns for those of `root`, and no others.
/// `extra` are files of `to` that are kept.
///
/// # Errors
/// A file cannot be read or written.
pub fn sync(
    root: &Path,
    to: &Path,
    extra: &[PathBuf],
    mut change: impl FnMut(&Path, Vec<u8>) -> Result<Option<Vec<u8>>>,
) -> Result<()> {
    let mut kept = extra.to_vec();
    for file in files(root)? {
        let from = root.join(&file);
        let bytes = fs::read(&from).with_context(|| from.display().to_string())?;
        if let Some(bytes) = change(&file, bytes)? {
            let target = to.join(&file);
            write(&target, &bytes)?;
            let mode = fs::metadata(&from)?.permissions();
            if fs::metadata(&target)?.permissions() != mode {
                fs::set_permissions(&target, mode)?;
            }
            kept.push(file);
        }
    }
    kept.sort();
    for file in files(to)? {
        if kept.binary_search(&file).is_err() {
            fs::remove_file(to.join(&file)).with_context(|| file.display().to_string())?;
        }
    }
    Ok(())
}
