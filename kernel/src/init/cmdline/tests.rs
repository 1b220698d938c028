//! Promises of the command line, kept against any bytes.

use super::*;

fn parse(text: impl AsRef<[u8]>) -> Options {
    let mut options = Options::default();
    options.apply("test", text.as_ref());
    options
}

fn warnings(text: impl AsRef<[u8]>) -> Vec<String> {
    parse(text).warnings
}

#[test]
fn every_option_reaches_its_field() {
    let options = parse(
        "program=tour log=trace timer=tsc-deadline apic=x2apic clock=hpet console=screen \
         maxcpus=7 acpi=off gomaxprocs=3 seed=0xfF chaos=9 order=steal-first trace=hash \
         events=64 tsc=1000 lapic=500 turns=50 stack=256",
    );
    let expected = Options {
        program: Some("tour".into()),
        log: LevelFilter::Trace,
        timer: TimerChoice::TscDeadline,
        apic: Some(ApicMode::X2Apic),
        clock: ClockChoice::Hpet,
        console: Sinks::Screen,
        max_cpus: Some(7),
        acpi: false,
        gomaxprocs: Some(3),
        seed: Some(255),
        chaos: Some(9),
        order: Order::StealBeforeGlobal,
        trace: TraceChoice::Hash,
        events: Some(64),
        tsc_mhz: Some(1000),
        lapic_mhz: Some(500),
        turns_us: 50,
        stack_kib: Some(256),
        ..Options::default()
    };
    assert_eq!(options, expected);
}

#[test]
fn every_value_that_the_table_names_is_taken() {
    for spec in TABLE {
        for value in spec.values.split('|') {
            let value = if value.starts_with('<') { "5" } else { value };
            assert_eq!(warnings(format!("{}={value}", spec.key)), [""; 0]);
        }
    }
}

#[test]
fn new_gs_wait_in_one_of_three_places() {
    let place = |word: &str| parse(format!("place={word}")).place;
    assert_eq!(["here", "queue", "other"].map(place), {
        use sched::StartPlace::{Here, Other, Queue};
        [Here, Queue, Other]
    });
    assert_eq!(warnings("place=there").len(), 1);
}

#[test]
fn orders_are_named_by_where_they_look_first_or_last() {
    let order = |word: &str| parse(format!("order={word}")).order;
    assert_eq!(order("poller-first"), Order::PollerFirst);
    assert_eq!(order("steal-first"), Order::StealBeforeGlobal);
    assert_eq!(order("poller-last"), Order::PollerLast);
    // Go's order looks in the global queue first; there is no other name for it.
    assert_eq!(warnings("order=global-first").len(), 1);
}

#[test]
fn bad_words_are_named_and_change_nothing() {
    for word in [
        "timer=fast",
        "maxcpus=0",
        "maxcpus=257",
        "maxcpus=+4",
        "maxcpus=",
        "maxcpus= 4x",
        "maxcpus=1.5",
        "stack=0",
        "stack=1048577",
        "stack=64K",
        "seed=0x",
        "seed=0x+1",
        "seed=99999999999999999999",
        "program=",
        "Timer=lapic",
        "=",
        "==",
        "colour=red",
        "quiet",
        "log=off",
        "acpi=1",
        "turns=4",
        "turns=20001",
        "turns=-50",
        "turns=50us",
        "slice=0",
        "slice=4us",
        "slice=10000001us",
        "slice=10001",
        "slice=us",
        "slice=5s",
        "slice=1.5ms",
        "slice=-5us",
    ] {
        let mut options = parse(word);
        let first = word.split(' ').next().expect("a word");
        let warning = options.warnings[0].clone();
        assert!(warning.contains(&format!("`{first}` ignored")), "{warning}");
        options.warnings.clear();
        assert_eq!(options, Options::default(), "{word}");
    }
}

#[test]
fn turns_are_off_unless_asked_for_and_have_bounds() {
    for (word, expected) in [("", 0), ("turns=0", 0), ("turns=5", 5), ("turns=20000", 20_000)] {
        assert_eq!(parse(word).turns_us, expected, "{word}");
    }
    assert_eq!(parse("turns=50 turns=0").turns_us, 0);
    let told = "command line (test): `turns=1` ignored: the value must be 0|<us, 5 to 20000>";
    assert_eq!(warnings("turns=1"), [told]);
}

#[test]
fn a_slice_is_in_milliseconds_unless_it_says_otherwise() {
    for (word, expected) in [
        ("slice=1", 1_000_000),
        ("slice=10ms", 10_000_000),
        ("slice=10000ms", 10_000_000_000),
        ("slice=5us", 5_000),
        ("slice=10000000us", 10_000_000_000),
        ("slice=off", u64::MAX),
    ] {
        assert_eq!(parse(word).slice_ns, Some(expected), "{word}");
    }
    let told = "command line (test): `slice=4us` ignored: \
                the value must be <n>ms or <n>us, 5us to 10000ms, or off";
    assert_eq!(warnings("slice=4us"), [told]);
}

#[test]
fn later_words_win_also_across_sources() {
    let mut options = parse("maxcpus=1 maxcpus=2 -- old args");
    assert_eq!(options.max_cpus, Some(2));
    options.apply("second", b"maxcpus=3");
    assert_eq!((options.max_cpus, options.args.len()), (Some(3), 2));
    options.apply("second", b"maxcpus=nonsense -- new");
    assert_eq!(options.max_cpus, Some(3));
    assert_eq!(options.args, ["new"]);
}

#[test]
fn words_after_two_dashes_are_arguments() {
    let options = parse("seed=1 -- seed=2 -- \"two words\" \"\" x\"y z\"\nlast");
    assert_eq!(options.seed, Some(1));
    assert_eq!(options.args, ["seed=2", "--", "two words", "", "xy z", "last"]);
    assert_eq!(options.warnings, [""; 0]);
    assert_eq!(parse("\"--\" a").args, [""; 0]);
}

#[test]
fn files_of_any_system_are_understood() {
    let file = b"\xef\xbb\xbf# my stick\r\n  # seed=1\r\nseed=2\r\n\tmaxcpus=3\x00\x00\x1a";
    let options = parse(file);
    assert_eq!((options.seed, options.max_cpus), (Some(2), Some(3)));
    assert_eq!(warnings(file).len(), 1, "the old end-of-file mark");
    assert_eq!(parse("#seed=1\rseed=4").seed, Some(4));
    assert_eq!(warnings("seed=1 #2").len(), 1);
}

#[test]
fn strange_bytes_are_escaped_and_shortened() {
    assert_eq!(
        warnings(b"seed=\x1b[2J \xff\xfe=1"),
        [
            "command line (test): `seed=\\x1b[2J` ignored: not plain text",
            "command line (test): `\\xff\\xfe=1` ignored: not plain text",
        ]
    );
    let long = warnings("a".repeat(1000));
    assert!(long[0].len() < 120 && long[0].contains("aaa...`"), "{}", long[0]);
}

#[test]
fn open_quote_costs_only_its_line() {
    let options = parse("seed=1 program=\"a b\nmaxcpus=4");
    assert_eq!((options.seed, options.max_cpus, options.program), (Some(1), Some(4), None));
    assert!(options.warnings[0].ends_with("a quote is not closed on its line"));
}

#[test]
fn text_behind_the_limit_is_ignored_with_the_word_that_it_cuts() {
    let padding = " ".repeat(MAX_LENGTH - "maxcpus=12".len());
    let options = parse(format!("{padding}maxcpus=128 seed=1"));
    assert_eq!((options.max_cpus, options.seed), (None, None));
    let told = [
        "command line (test): `maxcpus=12` ignored: cut off at 4096 bytes",
        "command line (test): `8 seed=1` ignored: 8 bytes after the first 4096",
    ];
    assert_eq!(options.warnings, told);
    assert_eq!(parse(format!("{padding}maxcpus=12 8")).max_cpus, Some(12));
}

#[test]
fn warnings_are_bounded() {
    let options = parse("x ".repeat(1000));
    assert_eq!(options.warnings.len(), MAX_WARNINGS);
    assert_eq!(options.more_warnings, 1000 - MAX_WARNINGS);
}

#[test]
fn random_bytes_are_survived() {
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    let pieces: [&[u8]; 14] = [
        b"seed=",
        b"program=",
        b"--",
        b" ",
        b"\n",
        b"\r",
        b"\"",
        b"#",
        b"\0",
        b"\xff",
        b"=",
        b"\xe2\x82",
        b"0x",
        b"9",
    ];
    for _ in 0..2000 {
        let mut text = Vec::new();
        for _ in 0..random() % 200 {
            match random() % 3 {
                0 => text.push(random() as u8),
                _ => text.extend_from_slice(pieces[random() % pieces.len()]),
            }
        }
        for warning in &parse(&text).warnings {
            assert!(warning.chars().all(|c| c.is_ascii_graphic() || c == ' '));
        }
    }
}
