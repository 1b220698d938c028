//! What a solution may be made of.
//!
//! The regions of a student are compiled into the programs that test them, so code there could end
//! the program with words of success, read the answer from a file, or replace the tests. This refuses
//! the plain ways, by the tokens of the compiler: a space, a comment, a string or a raw name
//! hides none. It is no sandbox (see the README of the labs).
//!
//! A region is complete: brackets, strings and comments that begin in it end in it. Else two regions
//! of a file could comment out what is between them.

use proc_macro2::{Delimiter, Group, Literal, TokenStream, TokenTree};

/// Names that a region may not have: what reaches around the tests, or to what a boot was asked.
const NAMES: [&str; 25] = [
    "std",
    "asm",
    "global_asm",
    "naked_asm",
    "include",
    "include_str",
    "include_bytes",
    "env",
    "option_env",
    "cfg",
    "cfg_attr",
    "cfg_select",
    "sim",
    "planted",
    "type_name",
    "type_name_of_val",
    "module_path",
    "Location",
    "args",
    "cmdline",
    "fw_cfg",
    "OPTIONS",
    "exit",
    "power_off",
    "power_off_at_once",
];

/// Attributes that a region may have; others change what is linked, or what is compiled.
const ATTRIBUTES: [&str; 11] = [
    "allow",
    "expect",
    "warn",
    "deny",
    "inline",
    "cold",
    "must_use",
    "derive",
    "doc",
    "rustfmt",
    "track_caller",
];

/// Instructions that lines of assembly may have. None of them enters the kernel that the tests run
/// under, or reaches a port.
const INSTRUCTIONS: [&str; 26] = [
    "mov", "push", "pop", "lea", "call", "ret", "jmp", "je", "jne", "jz", "jnz", "add", "sub",
    "xor", "and", "or", "test", "cmp", "inc", "dec", "xchg", "nop", "ud2", "endbr64", "cld", "neg",
];

/// Directives that lines of assembly may have.
const DIRECTIVES: [&str; 4] = [".subsection", ".previous", ".p2align", ".balign"];

/// Words of operands other than registers, labels and numbers.
const OPERANDS: [&str; 4] = ["ptr", "qword", "dword", "offset"];

/// The tokens of a region; what is wrong with it, if it is not complete.
pub fn tokens(region: &str, body: &str) -> Result<TokenStream, String> {
    // In braces: a body may end a function and begin another.
    let parsed: Result<TokenStream, _> = format!("{{\n{body}\n}}").parse();
    parsed.map_err(|_| {
        format!(
            "region {region}: a bracket, a string or a comment that begins in a region must end in it"
        )
    })
}

/// What the tokens have that is not allowed; `names` are those of the lab.
pub fn refused(tokens: TokenStream, names: &[String]) -> Option<String> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (i, token) in tokens.iter().enumerate() {
        let next = tokens.get(i + 1);
        let found = match token {
            TokenTree::Ident(name) => {
                let name = name.to_string();
                let name = name.strip_prefix("r#").unwrap_or(&name);
                let is_foreign = name == "extern" && is_block(&tokens[i + 1..]);
                let is_known = NAMES.contains(&name) || names.iter().any(|own| own == name);
                (is_known || is_foreign).then(|| name.to_string())
            }
            TokenTree::Punct(mark) if mark.as_char() == '#' => match (next, tokens.get(i + 2)) {
                (Some(TokenTree::Group(group)), _) => attribute(group),
                (_, Some(TokenTree::Group(group))) => attribute(group), // `#!`
                _ => None,
            },
            TokenTree::Group(group) => refused(group.stream(), names),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Whether `extern` before these begins a block or names a crate, and no function.
fn is_block(rest: &[TokenTree]) -> bool {
    let rest = match rest {
        [TokenTree::Literal(_), rest @ ..] => rest,
        rest => rest,
    };
    match rest.first() {
        Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Brace,
        Some(TokenTree::Ident(name)) => name == "crate",
        _ => false,
    }
}

fn attribute(group: &Group) -> Option<String> {
    if group.delimiter() != Delimiter::Bracket {
        return None;
    }
    let name = group.stream().into_iter().next().map(|name| name.to_string()).unwrap_or_default();
    (!ATTRIBUTES.contains(&&*name)).then(|| format!("#[{name}]"))
}

/// What a region of assembly has that is not allowed: it is strings with commas, and the strings are
/// plain instructions whose operands are registers, numbers, places of the region and local labels.
pub fn refused_asm(tokens: TokenStream) -> Option<String> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Punct(mark) if mark.as_char() == ',' => None,
        TokenTree::Literal(literal) => refused_text(&literal),
        // The braces around the body, and none within it.
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
            refused_asm(group.stream())
        }
        other => Some(other.to_string()),
    })
}

fn refused_text(literal: &Literal) -> Option<String> {
    let text = literal.to_string();
    let Some(text) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
        return Some(text);
    };
    // Line ends in a string are written as `\n`; other escapes could spell anything.
    let text = text.replace("\\n", "\n");
    if text.contains('\\') {
        return Some(text);
    }
    let statements = text.split(['\n', ';']);
    let mut statements = statements.map(|line| line.split('#').next().unwrap_or_default().trim());
    statements.find(|statement| !is_plain(statement)).map(str::to_string)
}

fn is_plain(statement: &str) -> bool {
    let statement = match statement.split_once(':') {
        Some((label, rest)) if is_local(label) => rest.trim(),
        _ => statement,
    };
    let (name, operands) = statement.split_once(char::is_whitespace).unwrap_or((statement, ""));
    let is_known = name.is_empty() || INSTRUCTIONS.contains(&name) || DIRECTIVES.contains(&name);
    is_known && words(operands).all(|word| is_register(word) || OPERANDS.contains(&word))
}

/// A label that is a number: others are names that the linker knows.
fn is_local(label: &str) -> bool {
    !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit())
}

/// The words of operands, without numbers, local labels (`2f`) and places in braces.
fn words(operands: &str) -> impl Iterator<Item = &str> {
    let mut is_place = false;
    let outside = operands.split_inclusive(['{', '}']).filter(move |part| {
        let is_in = is_place;
        is_place = part.ends_with('{');
        !is_in
    });
    let split = |c: char| !(c.is_alphanumeric() || "_.@$%".contains(c));
    outside.flat_map(move |part| part.split(split)).filter(|word| {
        let label = word.strip_suffix(['f', 'b']).unwrap_or(word);
        let number = word.strip_prefix("0x").filter(|hex| !hex.is_empty());
        let is_hex = number.is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        !(word.is_empty() || is_local(label) || is_hex)
    })
}

fn is_register(word: &str) -> bool {
    let named = ["ax", "bx", "cx", "dx", "si", "di", "bp", "sp", "ip", "al", "bl", "cl", "dl"];
    let by_number = word.strip_prefix('r').map(|rest| rest.trim_end_matches(['d', 'w', 'b']));
    let by_name = word.strip_prefix(['r', 'e']).unwrap_or(word);
    named.contains(&by_name)
        || by_number.and_then(|n| n.parse().ok()).is_some_and(|n: u32| (8..16).contains(&n))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(body: &str) -> Option<String> {
        refused(tokens("x", body).expect("it is complete"), &["counters".into()])
    }

    #[test]
    fn what_reaches_around_the_tests_is_refused() {
        for (body, name) in [
            ("std::process::exit(0)", "std"),
            ("let _ = \"//\"; std::fs::read(\"labs/lab.toml\");", "std"),
            ("use ::std as s; s::process::abort()", "std"),
            ("std :: process :: abort()", "std"),
            ("{ ( [ r#std ] ) }", "std"),
            ("core::arch::asm ! (\"syscall\")", "asm"),
            ("let s = include_bytes!(\"../proc.rs\");", "include_bytes"),
            ("const S: &str = include_str! { \"x\" };", "include_str"),
            ("macro_rules! m { () => { env!(\"PATH\") } }", "env"),
            ("#[cfg_attr(all(), path = \"x\")] mod x;", "#[cfg_attr]"),
            ("#[path = \"x.rs\"] mod x;", "#[path]"),
            ("if cfg /**/ ! (loom) { }", "cfg"),
            ("#[unsafe(no_mangle)] fn malloc() {}", "#[unsafe]"),
            ("#[unsafe(link_section = \".init_array\")] static F: fn() = f;", "#[unsafe]"),
            ("unsafe extern \"C\" { fn exit_(code: i32) -> !; }", "extern"),
            ("unsafe extern { fn write(); }", "extern"),
            ("extern crate alloc;", "extern"),
            ("crate::sim::step()", "sim"),
            ("if core::any::type_name::<A>().len() > 9 { }", "type_name"),
            ("crate::api::args()[0].clone()", "args"),
            ("cpu.counters.ticks.set(0)", "counters"),
        ] {
            assert_eq!(said(body).as_deref(), Some(name), "{body}");
        }
    }

    #[test]
    fn what_a_solution_needs_is_allowed() {
        for body in [
            "let x = self.q.slot(tail); // std, asm! and env! in a comment",
            "/* cfg!(x) */ let text = \"std::process\";",
            "} fn more<'a>(x: &'a u32) -> u32 { *x",
            "#[inline(always)] extern \"C\" fn f() {}",
            "let c = '\"'; let standard = r#\"asm!\"#;",
            "#[expect(unused, reason = \"x\")] const N: u32 = 1;",
            "static LAST: core::sync::atomic::AtomicU64 = AtomicU64::new(0);",
        ] {
            assert_eq!(said(body), None, "{body}");
        }
    }

    #[test]
    fn a_region_ends_what_it_begins() {
        for body in ["/* all that follows", "let x = \"", "if x {", "}", "let x = (1;", "r#\"a\""] {
            assert!(tokens("push", body).is_err(), "{body}");
        }
        assert!(tokens("push", "} */").is_err(), "the end of another's comment");
        assert!(tokens("push", "x.y() // {").is_ok());
    }

    #[test]
    fn assembly_is_plain_instructions() {
        let said = |body: &str| refused_asm(tokens("x", body).expect("it is complete"));
        for body in [
            "\"push rbp\", \"call 2f\", \".subsection 1\", \"2:\", \"mov [rsi + {sp}], rsp\",",
            "\"jmp rdx\", \".previous\", \"lea rax, [rip + 3f]\", \"3: pop r12\", \"mov r8d, 0x10\",",
            "\"push rbx; push rax # call exit\", \"mov rsp, qword ptr [rdi + 8 * rcx]\",",
            "\"push rbp\\npop rbp\", // syscall",
        ] {
            assert_eq!(said(body), None, "{body}");
        }
        for body in [
            "\"mov eax, 60; syscall\",",
            "\"int 0x80\",",
            "\"out dx, al\",",
            "\"call exit\",",
            "\"jmp exit@PLT\",",
            "\"lea rdi, [rip + STOLEN]\",",
            "\".byte 0x0f, 0x05\",",
            "\".incbin \\\"x\\\"\",",
            "\"sys\\x63all\",",
            "\"nop\", in(\"rax\") exit_code,",
            "\"f: nop\",",
            "r\"syscall\",",
        ] {
            assert!(said(body).is_some(), "{body}");
        }
    }
}
