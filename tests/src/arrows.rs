//! The arrows of the README's map, held: which room of the kernel names which.
//!
//! A *room* is a folder of `kernel/src`; the crate `sched` counts as one. Room A has an arrow to
//! room B if a file of A names a path into B, in a `use`, in code or in a macro. The README's map
//! lists for each room the rooms that it uses, lowest room first. [`broken`] compares that list
//! with the sources, so the list is written once, where readers look.
//!
//! Paths are resolved: `super::` and `self::` from the module that they stand in, names of the
//! crate's root through the root's `pub use`, exported macros to the file that defines them. Code
//! under `#[cfg(test)]` does not count: a test may use everything. Nor do the files beside `lib.rs`:
//! `lib.rs` fills the table through which a lower room calls a higher one, and `internals.rs` opens
//! the rooms to tests.

mod lex;

use lex::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

/// The crate below all rooms.
const SCHED: &str = "sched";

/// A room with the rooms that it may use.
type Rule = (String, BTreeSet<String>);

/// A file of the kernel.
struct File {
    /// As it is shown.
    name: String,
    /// Its module, from the crate's root.
    module: Vec<String>,
    source: Source,
}

/// One use of another room.
struct Arrow {
    from: String,
    to: String,
    /// The first place that has it.
    at: String,
}

/// All files of the crate below `root`, without those that hold tests only.
fn read(root: &Path, module: &[String]) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(root)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let path = entry.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let below = |name: &str| [module, &[name.to_string()]].concat();
        if name == "tests" {
            continue;
        }
        if path.is_dir() {
            files.extend(read(&path, &below(&name))?);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            // A file beside `lib.rs` is of no room either.
            let is_root = module.is_empty() || ["lib", "mod"].contains(&&*name);
            let own = if is_root { module.to_vec() } else { below(&name) };
            let source = Source::new(&fs::read_to_string(&path)?);
            files.push(File { name: path.to_string_lossy().into_owned(), module: own, source });
        }
    }
    Ok(files)
}

/// What the names of the crate's root stand for: `pub use` of `lib.rs`, and exported macros.
fn root_names(files: &[File]) -> BTreeMap<Vec<String>, Vec<String>> {
    let mut names = BTreeMap::new();
    for file in files {
        for name in file.source.exported_macros() {
            names.insert(vec![name], file.module.clone());
        }
        if file.module.is_empty() {
            for (inside, path, name) in file.source.reexports() {
                let target = absolute(&path, &inside).unwrap_or(path);
                names.insert([inside, vec![name]].concat(), target);
            }
        }
    }
    names
}

/// The path from the crate's root that `path` means in `module`; `None` if it begins with neither
/// `crate`, `self` nor `super`.
fn absolute(path: &[String], module: &[String]) -> Option<Vec<String>> {
    let ups = path.iter().take_while(|word| *word == "super").count();
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => Some([&module[..module.len().checked_sub(ups)?], &path[ups..]].concat()),
        _ => None,
    }
}

/// The room that a path from the root leads into; the path's first word if it is no room.
fn room_of(
    path: &[String],
    names: &BTreeMap<Vec<String>, Vec<String>>,
    rooms: &BTreeSet<String>,
) -> String {
    let mut path = path.to_vec();
    // Each round follows one re-export; two that name each other would not compile.
    while path.first().is_none_or(|first| !rooms.contains(first)) {
        let known = (1..=path.len()).rev().find_map(|n| {
            let target = names.get(&path[..n])?;
            Some([&target[..], &path[n..]].concat())
        });
        match known {
            Some(next) if next != path => path = next,
            _ => break,
        }
    }
    path.first().cloned().unwrap_or_default()
}

/// Every arrow between two rooms, once.
fn arrows(files: &[File]) -> Vec<Arrow> {
    let rooms: BTreeSet<_> = files.iter().filter_map(|file| file.module.first().cloned()).collect();
    let names = root_names(files);
    let mut seen = BTreeMap::new();
    for file in files {
        let Some(from) = file.module.first() else { continue };
        for (inside, path, line) in file.source.paths() {
            let module = [&file.module[..], &inside].concat();
            let to = match absolute(&path, &module) {
                Some(path) => room_of(&path, &names, &rooms),
                None if path[0] == SCHED => SCHED.to_string(),
                None => continue,
            };
            if to != *from {
                let at = format!("{}:{line}: {}", file.name, path.join("::"));
                seen.entry((from.clone(), to)).or_insert(at);
            }
        }
    }
    seen.into_iter().map(|((from, to), at)| Arrow { from, to, at }).collect()
}

/// The rows of the map: `| room | what | uses |`, the room as a link or in backquotes.
fn rules(readme: &str) -> Vec<Rule> {
    let plain = |cell: &str| -> Vec<String> {
        let words = cell.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        words.filter(|word| !word.is_empty()).map(str::to_string).collect()
    };
    readme
        .lines()
        .skip_while(|line| !line.starts_with("| room |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .filter_map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split('|').collect();
            let name = cells[0].split('`').nth(1)?.trim_end_matches('/');
            let uses = plain(cells.get(2)?).into_iter().collect();
            Some((name.rsplit('/').next()?.to_string(), uses))
        })
        .collect()
}

/// What is wrong: an arrow that the list does not have, one that the list has in vain, a room that
/// is not listed, and a room that is listed above one that it uses.
fn broken(files: &[File], rules: &[Rule]) -> Vec<String> {
    let mut wrong = Vec::new();
    let arrows = arrows(files);
    for Arrow { from, to, at } in &arrows {
        match rules.iter().find(|(room, _)| room == from) {
            None => wrong.push(format!("{from} is not in the map ({at})")),
            Some((_, uses)) if !uses.contains(to) => wrong.push(format!("{from} -> {to}: {at}")),
            Some(_) => {}
        }
    }
    let mut below = BTreeSet::from([SCHED]);
    for (room, uses) in rules {
        for to in uses {
            if !below.contains(to.as_str()) {
                wrong.push(format!("the map has {room} -> {to}, and {to} is not below {room}"));
            }
            if !arrows.iter().any(|arrow| arrow.from == *room && arrow.to == *to) {
                wrong.push(format!("the map has {room} -> {to}, which no file needs"));
            }
        }
        below.insert(room);
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of these files: module, source.
    fn house(files: &[(&str, &str)]) -> Vec<File> {
        let file = |&(module, text): &(&str, &str)| File {
            name: module.to_string(),
            module: module.split("::").filter(|word| !word.is_empty()).map(Into::into).collect(),
            source: Source::new(text),
        };
        files.iter().map(file).collect()
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let arrows = arrows(&house(files));
        arrows.iter().map(|arrow| format!("{} -> {}", arrow.from, arrow.to)).collect()
    }

    #[test]
    fn the_rooms_of_the_kernel_use_each_other_as_the_map_says() {
        let root = boot::root();
        let files = read(&root.join("kernel/src"), &[]).expect("the kernel's sources");
        let rules = rules(&fs::read_to_string(root.join("README.md")).expect("the README"));
        assert!(rules.len() > 5, "no map in the README: {rules:?}");
        let wrong = broken(&files, &rules);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn a_path_in_a_use_in_code_and_in_a_macro_is_an_arrow() {
        let user =
            "use crate::{b::X, c};\nfn f() { crate::d::g(); say!(\"crate::f\", crate::e::h) }";
        let rooms = [("b", ""), ("c", ""), ("d", ""), ("e", ""), ("f", ""), ("a::deep", user)];
        assert_eq!(found(&rooms), ["a -> b", "a -> c", "a -> d", "a -> e"]);
    }

    #[test]
    fn super_is_resolved_where_it_stands() {
        let user = "use super::super::b; use super::own; mod inner { use super::super::super::c; }";
        assert_eq!(found(&[("b", ""), ("c", ""), ("a::file", user)]), ["a -> b", "a -> c"]);
    }

    #[test]
    fn names_of_the_root_stand_for_what_they_export() {
        let root =
            "pub use high::{go, tasks as jobs}; pub mod private { pub use crate::mid::print; }";
        let user = "use crate::go; fn f() { crate::jobs::all(); $crate::private::print() }";
        let rooms = [("", root), ("high", ""), ("mid", ""), ("low", user)];
        assert_eq!(found(&rooms), ["low -> high", "low -> mid"]);
    }

    #[test]
    fn an_exported_macro_belongs_to_its_file() {
        let log = "#[macro_export]\nmacro_rules! println { () => {} }";
        let rooms = [("high::log", log), ("low", "fn f() { crate::println!(1) }")];
        assert_eq!(found(&rooms), ["low -> high"]);
    }

    #[test]
    fn functions_of_the_root_are_in_no_room() {
        assert_eq!(found(&[("", "pub fn exit() {}"), ("a", "use crate::exit;")]), ["a -> exit"]);
    }

    #[test]
    fn tests_and_comments_do_not_count() {
        let user = "// crate::b\n/* crate::b */ #[cfg(test)] mod tests { use crate::b; }\n\
                    #[cfg(all(test, not(loom)))]\nuse crate::b;\n#[cfg(test)] fn f() { crate::b::g() }";
        assert!(found(&[("b", ""), ("a", user)]).is_empty());
    }

    #[test]
    fn the_crate_below_is_a_room() {
        assert_eq!(
            found(&[("a", "use sched::{G, P};"), ("b", "fn f() { x.sched() }")]),
            ["a -> sched"]
        );
    }

    #[test]
    fn each_kind_of_disagreement_is_named() {
        let files = house(&[
            ("low", "use crate::high;"),
            ("high", "use crate::low;"),
            ("new", "use crate::low;"),
        ]);
        let map = "| room | what | uses |\n|---|---|---|\n\
                   | [`src/low/`](x) | … | sched |\n| `high` | … | `low` |\n";
        assert_eq!(
            broken(&files, &rules(map)),
            [
                "low -> high: low:1: crate::high",
                "new is not in the map (new:1: crate::low)",
                "the map has low -> sched, which no file needs",
            ]
        );
        let map = "| room | what | uses |\n|---|---|---|\n| `low` | … | high |\n| `high` | … | low |\n| `new` | | low |";
        assert_eq!(
            broken(&files, &rules(map)),
            ["the map has low -> high, and high is not below low"]
        );
    }
}
