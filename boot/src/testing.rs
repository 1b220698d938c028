//! Files that a test makes, and that go when it ends.

use std::fs;
use tempfile::TempDir;

/// A directory with these files; it is removed when it is dropped.
pub fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = TempDir::new().expect("a writable directory");
    for (path, content) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("a writable tree");
        fs::write(path, content).expect("a writable tree");
    }
    root
}
