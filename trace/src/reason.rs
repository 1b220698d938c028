//! Why a G waits: the kernel's reasons by number, in its words.
//!
//! The stream has the number only. The list is that of `Reason` in
//! `kernel/src/run/waiting.rs`, and a test compares the two.
#![forbid(unsafe_code)]

/// By number.
const TEXTS: [&str; 18] = [
    "",
    "chan send",
    "chan receive",
    "select",
    "sync.Mutex.Lock",
    "sync.RWMutex.RLock",
    "sync.RWMutex.Lock",
    "sync.Cond.Wait",
    "semacquire",
    "sync.WaitGroup.Wait",
    "sync.Once",
    "join",
    "sleep",
    "IO wait",
    "syscall",
    "park",
    "program end",
    "scope",
];

/// The reason of that number in words; empty if it is not known.
///
/// ```
/// assert_eq!(trace::reason::text(trace::reason::number("sleep")), "sleep");
/// ```
pub fn text(number: u8) -> &'static str {
    TEXTS.get(usize::from(number)).copied().unwrap_or("")
}

/// All of them, by number.
pub fn all() -> &'static [&'static str] {
    &TEXTS
}

/// The number of the reason in those words; 0 if there is none.
pub fn number(text: &str) -> u8 {
    TEXTS.iter().position(|&known| known == text).unwrap_or(0) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's list, by its source: `Join = 11 "join",`.
    #[test]
    fn the_kernel_has_the_same_reasons() {
        let source = include_str!("../../kernel/src/run/waiting.rs");
        let listed = |line: &'static str| {
            let (name, rest) = line.trim().trim_end_matches(',').split_once(" = ")?;
            let (number, said) = rest.split_once(' ')?;
            let said = said.strip_prefix('"')?.strip_suffix('"')?;
            Some((name, number.parse::<u8>().ok()?, said))
        };
        let mut known = 0;
        for (name, number, said) in source.lines().filter_map(listed) {
            assert_eq!(text(number), said, "{name} = {number}");
            known += 1;
        }
        assert_eq!(known, TEXTS.len());
    }
}
