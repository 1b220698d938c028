//! `make new APP=path`: writes a crate of one's own.
//!
//! It is `examples/app` under another name, which is built and booted by the tests, with what
//! an editor needs outside of this tree: the toolchain, and the flags of the bare target, taken
//! in by cargo's `include` so that they stand in one place. All paths in it are relative: crate
//! and tree can be moved together.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};

/// What a package must not be called: keywords, crates and folders that cargo or rustc know.
const RESERVED: [&str; 27] = [
    "alloc",
    "as",
    "async",
    "await",
    "box",
    "build",
    "core",
    "crate",
    "deps",
    "dyn",
    "else",
    "enum",
    "examples",
    "fn",
    "incremental",
    "let",
    "main",
    "match",
    "mod",
    "move",
    "runnext",
    "self",
    "std",
    "super",
    "test",
    "try",
    "use",
];

/// Writes the crate to `path`, a directory that is made, or is there and empty.
///
/// # Errors
/// `path` is something else already, lies in this tree, or cannot be written.
pub fn write(path: &Path) -> Result<()> {
    write_from(&crate::root(), path).with_context(|| format!("APP={}", path.display()))
}

fn write_from(root: &Path, path: &Path) -> Result<()> {
    let root = root.canonicalize()?;
    if resolved(path)?.starts_with(&root) {
        bail!("that is in the source tree of runnext: choose a place outside of it");
    }
    match fs::read_dir(path).map(Iterator::count) {
        Ok(0) => {}
        Ok(_) => bail!("that directory is there already, and not empty"),
        Err(_) if path.exists() => bail!("that is there already, and no directory"),
        Err(_) => fs::create_dir_all(path)?,
    }
    let path = path.canonicalize()?;
    let name = name_of(&path);
    let up = relative(&path, &root)?;
    for (file, text) in files(&root, &name, &up)? {
        let file = path.join(file);
        fs::create_dir_all(file.parent().unwrap_or(&path))?;
        fs::write(&file, text).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// The crate's files, each by its path. `up` leads from there to this tree.
fn files(root: &Path, name: &str, up: &str) -> Result<[(&'static str, String); 6]> {
    let read = |file: &str| {
        let file = root.join(file);
        fs::read_to_string(&file).with_context(|| file.display().to_string())
    };
    let package = format!("name = {name:?}");
    let manifest = read("examples/app/Cargo.toml")?.replace("name = \"app\"", &package);
    let kernel = quoted(&format!("{up}/kernel"));
    let manifest = manifest.replace("\"../../kernel\"", &kernel);
    let main = read("examples/app/src/main.rs")?;
    let main =
        main.replace("examples/app", "path").replace("(app, main)", &format!("({name}, main)"));
    let lock = read("examples/app/Cargo.lock")?.replace("name = \"app\"", &package);
    let include = quoted(&format!("../{up}/.cargo/config.toml"));
    let tool = quoted(&format!("../{up}/target/debug/boot"));
    let config = format!(
        "# For an editor, and for cargo started here: the bare target with the flags of runnext.\n\
         include = [{include}]\n\
         \n\
         [build]\n\
         target = \"x86_64-unknown-none\"\n\
         \n\
         [unstable]\n\
         build-std = [\"core\", \"alloc\", \"compiler_builtins\"]\n\
         build-std-features = [\"compiler-builtins-mem\"]\n\
         \n\
         # `cargo run` and `cargo test` boot it, once `make` has built this tool.\n\
         [target.x86_64-unknown-none]\n\
         runner = [{tool}, \"run\", \"--name\", \"app\", \"--kernel\"]\n"
    );
    Ok([
        ("Cargo.toml", manifest),
        ("Cargo.lock", lock),
        ("src/main.rs", main),
        (".cargo/config.toml", config),
        ("rust-toolchain.toml", read("rust-toolchain.toml")?),
        (".gitignore", "target/\n".into()),
    ])
}

/// The name of a package, of its program and of its binary: that of the folder, as an
/// identifier.
fn name_of(path: &Path) -> String {
    let folder = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = folder.replace(|c| !is_part(c), "_");
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic());
    match starts_well && !RESERVED.contains(&name.as_str()) {
        true => name,
        false => format!("app_{name}"),
    }
}

/// Where `path` will be, with the links in the part of it that is there resolved.
fn resolved(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let there = path.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
    Ok(there.canonicalize()?.join(path.strip_prefix(there)?))
}

/// The way from one directory to another; both are canonical.
fn relative(from: &Path, to: &Path) -> Result<String> {
    let shared = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    let way: PathBuf = up.chain(to.components().skip(shared)).collect();
    way.to_str().map(Into::into).context("a path that is no text cannot stand in Cargo.toml")
}

/// As a string of TOML, which has JSON's escapes.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn refused(root: &Path, path: &Path) -> String {
        write_from(root, path).expect_err("refused").to_string()
    }

    #[test]
    fn a_crate_is_written_with_the_way_back_to_the_tree() {
        let dir = TempDir::new().expect("a writable directory");
        let path = dir.path().join("some where/My first-app");
        write(&path).expect("a new place");
        let read = |file: &str| fs::read_to_string(path.join(file)).expect("it was written");
        assert!(read("Cargo.toml").contains("name = \"my_first_app\""));
        assert!(read("Cargo.lock").contains("name = \"my_first_app\""));
        assert!(read("src/main.rs").contains("runnext::main!(my_first_app, main);"));
        assert_eq!(
            read("rust-toolchain.toml"),
            fs::read_to_string(crate::root().join("rust-toolchain.toml")).expect("a file")
        );
        for file in ["Cargo.toml", "src/main.rs", ".cargo/config.toml"] {
            for left in ["examples/app", "\"app\"\n", "\"../../kernel\"", "(app,"] {
                assert!(!read(file).contains(left), "{left} in {file}");
            }
        }
        // The two ways back lead to this tree.
        for (file, key, from, to) in [
            ("Cargo.toml", "path = \"..", "", "kernel"),
            (".cargo/config.toml", "include = [\"..", ".cargo", ".cargo/config.toml"),
        ] {
            let text = read(file);
            let (_, way) = text.split_once(key).expect("a relative path");
            let way = format!("..{}", way.split('"').next().expect("it ends"));
            let found = path.join(from).join(way).canonicalize().expect("it is there");
            assert_eq!(found, crate::root().join(to).canonicalize().expect("it is there"));
        }
    }

    #[test]
    fn what_is_there_is_not_written_over() {
        let dir = TempDir::new().expect("a writable directory");
        let file = dir.path().join("file");
        fs::write(&file, "mine").expect("writable");
        assert!(refused(&crate::root(), dir.path()).contains("not empty"));
        assert!(refused(&crate::root(), &file).contains("no directory"));
        assert_eq!(fs::read_to_string(&file).expect("still there"), "mine");
        let empty = dir.path().join("empty");
        fs::create_dir(&empty).expect("writable");
        write(&empty).expect("an empty directory will do");
        assert!(refused(&crate::root(), &empty).contains("not empty"), "once");
    }

    #[test]
    fn a_place_in_the_tree_is_refused_however_it_is_named() {
        let dir = TempDir::new().expect("a writable directory");
        let (tree, link) = (dir.path().join("tree"), dir.path().join("link"));
        fs::create_dir(&tree).expect("writable");
        std::os::unix::fs::symlink(&tree, &link).expect("a link");
        for place in
            [tree.join("a"), link.join("new/a"), tree.clone(), dir.path().join("x/../tree/a")]
        {
            let place = place.as_path();
            if place.components().any(|part| part == Component::ParentDir) {
                fs::create_dir_all(dir.path().join("x")).expect("writable");
            }
            assert!(refused(&tree, place).contains("in the source tree"), "{}", place.display());
        }
        assert_eq!(fs::read_dir(&tree).expect("a directory").count(), 0);
    }

    #[test]
    fn any_folder_gives_a_name_that_is_an_identifier() {
        for (folder, name) in [
            ("/x/app", "app"),
            ("/x/My App", "my_app"),
            ("/x/2048", "app_2048"),
            ("/x/test", "app_test"),
            ("/x/größe", "gr__e"),
            ("/", "app_"),
        ] {
            assert_eq!(name_of(Path::new(folder)), name, "{folder}");
        }
    }

    #[test]
    fn the_way_between_two_directories_goes_through_what_they_share() {
        let way = |from: &str, to: &str| relative(Path::new(from), Path::new(to)).expect("text");
        assert_eq!(way("/a/b", "/a/c/d"), "../c/d");
        assert_eq!(way("/a/b/e", "/a"), "../..");
        assert_eq!(way("/x", "/a"), "../a");
        assert_eq!(quoted("a\"b\\"), r#""a\"b\\""#);
    }
}
