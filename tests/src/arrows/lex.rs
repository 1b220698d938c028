//! Just enough of Rust's grammar to find the paths of a source file.
//!
//! The file becomes words: names, `::`, and single characters; comments, strings and characters
//! in quotes are dropped, and so is every item under `#[cfg(test)]`.

/// A name, `::`, or one character of punctuation.
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    text: String,
    line: usize,
}

/// The words of a file.
pub struct Source(Vec<Word>);

/// A path with the inline modules around it, and what follows: its line, or the name that it gets.
type Found<T> = (Vec<String>, Vec<String>, T);

impl Source {
    pub fn new(text: &str) -> Self {
        Source(without_tests(words(text)))
    }

    /// Every path that begins with a name: of `use` trees each leaf, in code each path of two names
    /// or more.
    pub fn paths(&self) -> Vec<Found<usize>> {
        let mut found = Vec::new();
        self.walk(|inside, words, at| {
            if words[at].text == "use" {
                let (leaves, end) = leaves(words, at + 1, &[]);
                let line = words[at].line;
                found.extend(leaves.into_iter().map(|(path, _)| (inside.to_vec(), path, line)));
                return end;
            }
            let end = path_end(words, at);
            if end > at + 1 {
                let path = names(&words[at..end]);
                found.push((inside.to_vec(), path, words[at].line));
            }
            end.max(at + 1)
        });
        found
    }

    /// Each leaf of a `pub use`, with the name that it gets.
    pub fn reexports(&self) -> Vec<Found<String>> {
        let mut found = Vec::new();
        self.walk(|inside, words, at| {
            if words[at].text != "use" {
                return at + 1;
            }
            let (leaves, end) = leaves(words, at + 1, &[]);
            if at > 0 && (words[at - 1].text == "pub" || words[at - 1].text == ")") {
                found.extend(leaves.into_iter().map(|(path, name)| {
                    // In the root a bare name is a child, or a crate: both begin there.
                    let path = if is_anchor(&path[0]) { path } else { with_crate(inside, path) };
                    (inside.to_vec(), path, name)
                }));
            }
            end
        });
        found
    }

    /// The names of macros with `#[macro_export]`.
    pub fn exported_macros(&self) -> Vec<String> {
        let words = &self.0;
        let rules = words.iter().enumerate().filter(|(_, word)| word.text == "macro_rules");
        rules
            .filter(|&(at, _)| {
                let before = words[..at].iter().rev().take(30);
                before
                    .take_while(|word| !"};".contains(&word.text))
                    .any(|w| w.text == "macro_export")
            })
            .filter_map(|(at, _)| words.get(at + 2).map(|word| word.text.clone()))
            .collect()
    }

    /// Calls `step` at each name that begins something, with the inline modules around it; `step`
    /// returns where to go on.
    fn walk(&self, mut step: impl FnMut(&[String], &[Word], usize) -> usize) {
        let words = &self.0;
        let mut modules: Vec<(String, usize)> = Vec::new();
        let (mut at, mut depth) = (0, 0);
        while at < words.len() {
            let word = &words[at].text;
            match word.as_str() {
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    modules.retain(|&(_, opened)| opened <= depth);
                }
                "mod" if words.get(at + 2).is_some_and(|next| next.text == "{") => {
                    modules.push((words[at + 1].text.clone(), depth + 1));
                    at += 2;
                    continue;
                }
                _ if is_name(word) => {
                    let inside: Vec<_> = modules.iter().map(|(name, _)| name.clone()).collect();
                    at = step(&inside, words, at);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
    }
}

fn with_crate(inside: &[String], path: Vec<String>) -> Vec<String> {
    [&["crate".to_string()][..], inside, &path].concat()
}

fn is_anchor(word: &str) -> bool {
    ["crate", "self", "super"].contains(&word)
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Where the path that begins at `at` ends: names with `::` between them.
fn path_end(words: &[Word], at: usize) -> usize {
    // A method, a field, or the rest of a path such as `<T as X>::y`.
    if at > 0 && [".", "::"].contains(&words[at - 1].text.as_str()) {
        return at;
    }
    let mut end = at + 1;
    while words.get(end).is_some_and(|word| word.text == "::")
        && words.get(end + 1).is_some_and(|word| is_name(&word.text))
    {
        end += 2;
    }
    end
}

fn names(words: &[Word]) -> Vec<String> {
    words.iter().filter(|word| word.text != "::").map(|word| word.text.clone()).collect()
}

/// The leaves of the `use` tree at `at`, each with its name here; and where the tree ends.
fn leaves(words: &[Word], mut at: usize, prefix: &[String]) -> (Vec<(Vec<String>, String)>, usize) {
    let mut path = prefix.to_vec();
    while let Some(word) = words.get(at) {
        match word.text.as_str() {
            "::" => at += 1,
            "{" => {
                let mut all = Vec::new();
                at += 1;
                while words.get(at).is_some_and(|word| word.text != "}") {
                    let (more, end) = leaves(words, at, &path);
                    all.extend(more);
                    at = end + usize::from(words.get(end).is_some_and(|word| word.text == ","));
                }
                return (all, at + 1);
            }
            "as" => {
                let name = words.get(at + 1).map_or(String::new(), |word| word.text.clone());
                return (vec![(path, name)], at + 2);
            }
            name if is_name(name) || name == "*" => {
                path.push(name.to_string());
                at += 1;
            }
            _ => break,
        }
    }
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    let name = path.last().cloned().unwrap_or_default();
    let all = if path.is_empty() { Vec::new() } else { vec![(path, name)] };
    (all, at.max(1))
}

/// Leaves out each item that only a test build has.
fn without_tests(words: Vec<Word>) -> Vec<Word> {
    let mut kept = Vec::with_capacity(words.len());
    let mut at = 0;
    while at < words.len() {
        if words[at].text == "#" && words.get(at + 1).is_some_and(|word| word.text == "[") {
            let end = closing(&words, at + 1);
            let attribute: Vec<_> = words[at..end].iter().map(|word| word.text.as_str()).collect();
            let says = |word| attribute.contains(&word);
            if says("cfg")
                && says("test")
                && !attribute.windows(3).any(|w| w == ["not", "(", "test"])
            {
                at = item_end(&words, end);
                continue;
            }
        }
        kept.push(words[at].clone());
        at += 1;
    }
    kept
}

/// Behind the item at `at`: its `;`, or its last brace.
fn item_end(words: &[Word], mut at: usize) -> usize {
    while let Some(word) = words.get(at) {
        match word.text.as_str() {
            ";" => return at + 1,
            "(" | "[" => at = closing(words, at),
            "{" => {
                at = closing(words, at);
                // A `use` tree ends with its semicolon.
                return at + usize::from(words.get(at).is_some_and(|word| word.text == ";"));
            }
            _ => at += 1,
        }
    }
    at
}

/// Behind the bracket that closes the one at `at`.
fn closing(words: &[Word], at: usize) -> usize {
    let mut depth = 0;
    for (place, word) in words.iter().enumerate().skip(at) {
        match word.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return place + 1;
        }
    }
    words.len()
}

fn words(text: &str) -> Vec<Word> {
    let chars: Vec<char> = text.chars().collect();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => until(&chars, at, |c| c == '\n'),
            '/' if chars.get(at + 1) == Some(&'*') => comment_end(&chars, at),
            '"' => string_end(&chars, at),
            'r' | 'b' if raw_hashes(&chars, at).is_some() => raw_end(&chars, at),
            '\'' => quote_end(&chars, at),
            c if c.is_alphanumeric() || c == '_' => {
                let end = until(&chars, at, |c| !(c.is_alphanumeric() || c == '_'));
                found.push(Word { text: chars[at..end].iter().collect(), line });
                end
            }
            ':' if chars.get(at + 1) == Some(&':') => {
                found.push(Word { text: "::".into(), line });
                at + 2
            }
            c => {
                if !c.is_whitespace() {
                    found.push(Word { text: c.into(), line });
                }
                at + 1
            }
        };
        line += chars[at..end].iter().filter(|&&c| c == '\n').count();
        at = end;
    }
    found
}

fn until(chars: &[char], at: usize, stop: impl Fn(char) -> bool) -> usize {
    chars[at..].iter().position(|&c| stop(c)).map_or(chars.len(), |n| at + n)
}

fn comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut end = at;
    while end < chars.len() {
        match chars[end..] {
            ['/', '*', ..] => (depth, end) = (depth + 1, end + 2),
            ['*', '/', ..] => (depth, end) = (depth - 1, end + 2),
            _ => end += 1,
        }
        if depth == 0 {
            break;
        }
    }
    end
}

fn string_end(chars: &[char], at: usize) -> usize {
    let mut end = at + 1;
    while end < chars.len() && chars[end] != '"' {
        end += if chars[end] == '\\' { 2 } else { 1 };
    }
    (end + 1).min(chars.len())
}

/// How many `#` a raw string at `at` has; `None` if there is no raw string.
fn raw_hashes(chars: &[char], at: usize) -> Option<usize> {
    if at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_') {
        return None;
    }
    let start = at + usize::from(chars[at] == 'b');
    if chars.get(start) != Some(&'r') {
        return None;
    }
    let quote = until(chars, start + 1, |c| c != '#');
    (chars.get(quote) == Some(&'"')).then_some(quote - start - 1)
}

fn raw_end(chars: &[char], at: usize) -> usize {
    let hashes = raw_hashes(chars, at).unwrap_or(0);
    let close: Vec<char> = [&['"'][..], &vec!['#'; hashes]].concat();
    let open = until(chars, at, |c| c == '"') + 1;
    let end = chars[open..].windows(close.len()).position(|w| w == close);
    end.map_or(chars.len(), |n| open + n + close.len())
}

/// Behind a character in quotes, or behind the quote of a lifetime.
fn quote_end(chars: &[char], at: usize) -> usize {
    match chars[at + 1..] {
        ['\\', ..] => until(chars, at + 3, |c| c == '\'') + 1,
        [_, '\'', ..] => at + 3,
        _ => at + 1,
    }
}
