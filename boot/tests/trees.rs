//! A tree that was built and then copied or renamed: the tool works on the copy.
//!
//! The tool is the real one; the trees are fakes that hold just the mark by which
//! [`tool::tree::find`] knows them; and `cargo` is a script that says where it was started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A tree called `name` with the tool in its `target/`.
fn tree_with_tool(top: &TempDir, name: &str) -> (PathBuf, PathBuf) {
    let root = top.path().canonicalize().expect("it is there").join(name);
    for dir in ["boot/tool", "target/debug"] {
        fs::create_dir_all(root.join(dir)).expect("a writable directory");
    }
    fs::write(root.join("boot/tool/Cargo.toml"), "").expect("a writable file");
    let tool = root.join("target/debug/boot");
    let built = std::env::var_os("CARGO_BIN_EXE_boot").expect("cargo sets it for tests");
    tool::install(built, &tool);
    (root, tool)
}

/// What `boot image` says when cargo only says where it was started.
fn image(tool: &Path, current_dir: &Path, top: &TempDir) -> String {
    let [cargo, text] = ["cargo", "cargo.sh"].map(|name| top.path().join(name));
    fs::write(&text, "#!/bin/sh\necho \"cargo ran in $PWD\" >&2\nexit 1\n").expect("writable");
    tool::install(text, &cargo);
    let output = Command::new(tool)
        .arg("image")
        .current_dir(current_dir)
        .env("CARGO", cargo)
        .output()
        .expect("the tool starts");
    assert!(!output.status.success(), "there is no kernel in a fake tree");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_copied_tree_builds_itself() {
    let top = TempDir::new().expect("a writable directory");
    let (root, tool) = tree_with_tool(&top, "copy");
    let said = image(&tool, &root, &top);
    assert!(said.contains(&format!("cargo ran in {}\n", root.display())), "{said}");
}

#[test]
fn a_tool_of_another_tree_is_refused_before_anything_is_built() {
    let top = TempDir::new().expect("a writable directory");
    let (here, _) = tree_with_tool(&top, "here");
    let (there, tool) = tree_with_tool(&top, "there");
    let said = image(&tool, &here, &top);
    for part in [here.to_string_lossy(), there.to_string_lossy(), "belongs to".into()] {
        assert!(said.contains(&*part), "{part} in {said}");
    }
    assert!(!said.contains("cargo ran"), "{said}");
}

/// The `.rs` files below `dir`.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a readable directory");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    let sources = paths.flat_map(|path| match path.is_dir() {
        true if path.ends_with("target") => Vec::new(),
        true => sources(&path),
        false if path.extension().is_some_and(|end| end == "rs") => vec![path],
        false => Vec::new(),
    });
    sources.collect()
}

#[test]
fn no_host_tool_compiles_a_path_of_its_tree_in() {
    // In two pieces, so that this file does not contain them.
    let baked = ["CARGO_MANIFEST_DIR", "CARGO_TARGET_TMPDIR"].map(|n| format!("env!({n:?}"));
    for part in ["bench", "boot", "fuzz", "tests", "trace"] {
        for file in sources(&tool::tree::root().join(part)) {
            let text = fs::read_to_string(&file).expect("a source file");
            for name in &baked {
                assert!(!text.contains(name), "{} has {name}", file.display());
            }
        }
    }
}
