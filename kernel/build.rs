//! Puts the linker script on the linker's search path, for `-Tlink.ld`.
//!
//! A library's search paths reach the final link, its link arguments do not:
//! so the flag is in .cargo/config.toml and the file is found through here,
//! whichever crate is being linked.
//!
//! The script is copied to OUT_DIR, because a build script's output is kept: the
//! path of this folder would still name the old tree after the tree was renamed, while
//! cargo corrects paths in OUT_DIR.

use std::path::Path;

fn main() {
    let out = std::env::var("OUT_DIR").expect("cargo sets it for build scripts");
    std::fs::copy("link.ld", Path::new(&out).join("link.ld")).expect("OUT_DIR is writable");
    println!("cargo:rustc-link-search=native={out}");
    println!("cargo:rerun-if-changed=link.ld");
    println!("cargo:rerun-if-changed=build.rs");
}
