//! Reads the names of the guest's checks out of its source (`src/checks.rs`).

#[path = "src/checks.rs"]
mod checks;

use std::path::Path;
use std::{env, fs};

fn main() {
    let dir = Path::new("guest/src");
    println!("cargo::rerun-if-changed={}", dir.display());
    println!("cargo::rerun-if-changed=src/checks.rs");
    let mut files: Vec<_> = fs::read_dir(dir)
        .expect("the guest's source")
        .map(|entry| entry.expect("the guest's source").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "rs"))
        .collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let module = file.file_stem().expect("a name").to_string_lossy().into_owned();
        let source = fs::read_to_string(&file).expect("the guest's source");
        all.extend(checks::lists(&module, &source).unwrap_or_else(|error| panic!("{error}")));
    }
    let out = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("guest_checks.rs");
    fs::write(out, checks::macro_of(&all)).expect("cargo's directory takes it");
}
