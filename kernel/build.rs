//! Puts the kernel's folder on the linker's search path, for `-Tlink.ld`.
//!
//! A library's search paths reach the final link, its link arguments do not:
//! so the flag is in .cargo/config.toml and the file is found through here,
//! whichever crate is being linked.

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it for build scripts");
    println!("cargo:rustc-link-search=native={here}");
    println!("cargo:rerun-if-changed=link.ld");
    println!("cargo:rerun-if-changed=build.rs");
}
