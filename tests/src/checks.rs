//! The names of the guest's checks, read from the guest's source.
//!
//! A guest program lists its checks in a `checks!` (`tests/guest/src/check.rs`) and nowhere
//! else. The build script reads those lists from here and makes a macro of them, out of which
//! `guest_tests!` makes one host test for each check. A program with several lists labels all
//! but one of them: `checks![missing: …]`.

use std::fmt::Write;

/// The `checks!` of one program, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The module, with the label: `disk`, `disk_missing`.
    pub name: String,
    /// The names of the functions.
    pub checks: Vec<String>,
}

/// All lists in the source of `module`.
///
/// # Errors
///
/// A list that has no end, a name that is none, or two lists of one name.
pub fn lists(module: &str, source: &str) -> Result<Vec<List>, String> {
    let code: String = source.lines().map(|line| code_of(line).to_string() + "\n").collect();
    let mut found: Vec<List> = Vec::new();
    for rest in code.split("checks!").skip(1) {
        let close = match rest.chars().next() {
            Some('[') => ']',
            Some('(') => ')',
            _ => continue, // its definition
        };
        let (inner, _) =
            rest[1..].split_once(close).ok_or(format!("{module}: a list without end"))?;
        let (name, names) = match inner.split_once(':') {
            Some((label, names)) => (format!("{module}_{}", label.trim()), names),
            None => (module.to_string(), inner),
        };
        let checks: Vec<String> =
            names.split(',').map(|n| n.trim().to_string()).filter(|n| !n.is_empty()).collect();
        if let Some(odd) = checks.iter().find(|name| !is_name(name)) {
            return Err(format!("{module}: {odd:?} is not the name of a function"));
        }
        if found.iter().any(|list| list.name == name) {
            return Err(format!("{module}: two lists are called {name}; label one of them"));
        }
        found.push(List { name, checks });
    }
    Ok(found)
}

/// A macro that makes the host's tests: `guest_checks!(disk_missing, OUTCOME)`.
pub fn macro_of(lists: &[List]) -> String {
    let mut out = String::from("macro_rules! guest_checks {\n");
    for List { name, checks } in lists {
        writeln!(out, "    ({name}, $outcome:expr) => {{").expect("a string takes it");
        for check in checks {
            writeln!(out, "        #[test] fn {check}() {{ $outcome.assert_test({check:?}); }}")
                .expect("a string takes it");
        }
        writeln!(out, "        const CHECKS: &[&str] = &{checks:?};\n    }};")
            .expect("a string takes it");
    }
    out + "}\n"
}

fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

fn is_name(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_found_with_their_labels() {
        let source = "
            // checks![in_a_comment]
            check::run(checks![
                one, // why
                two,
            ]);
            Some(\"missing\") => checks!(missing: three),
        ";
        let found = lists("disk", source).expect("two lists");
        let names: Vec<_> =
            found.iter().map(|list| (list.name.as_str(), list.checks.len())).collect();
        assert_eq!(names, [("disk", 2), ("disk_missing", 1)]);
        assert_eq!(found[0].checks, ["one", "two"]);
        let text = macro_of(&found);
        assert!(text.contains("fn two() { $outcome.assert_test(\"two\"); }"), "{text}");
    }

    #[test]
    fn what_is_no_list_is_an_error_that_names_the_module() {
        for source in ["checks![a]; checks![b]", "checks![a b]", "checks![a, b"] {
            let error = lists("x", source).expect_err(source);
            assert!(error.starts_with("x: "), "{error}");
        }
        assert_eq!(lists("check", "macro_rules! checks { }"), Ok(vec![]));
        assert_eq!(lists("check", "use crate::check::checks; checks!{}"), Ok(vec![]));
    }
}
