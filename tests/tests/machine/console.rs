//! What is printed: whole lines, on every console there is.

use tests::expect;
use tests::guest::Boot;
use tests::outcome::Ended;

#[test]
fn lines_stay_whole_with_eight_cpus_printing() {
    let outcome = Boot::guest("boot-lines").smp(8).cmdline("program=lines").run();
    outcome.assert_ok();
    let lines: Vec<&str> =
        outcome.lines.iter().filter(|l| l.contains("LINE ")).map(String::as_str).collect();
    let expected = 16 * 50;
    assert_eq!(lines.len(), expected, "{outcome}");
    for line in &lines {
        assert!(is_whole(line), "a torn line: {line:?}");
    }
    let mut distinct = lines.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), expected, "some line came twice\n{outcome}");
}

/// `LINE <g> <i> <40 times the letter of g>` and nothing else.
fn is_whole(line: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    let [first, g, i, letters] = words[..] else { return false };
    let (Ok(g), Ok(_)) = (g.parse::<u8>(), i.parse::<u8>()) else { return false };
    let letter = char::from(b'a' + g % 26);
    first == "LINE" && letters.len() == 40 && letters.chars().all(|c| c == letter)
}

/// Two lines of that many bytes, printed at once beside a G that spins, each whole.
#[track_caller]
fn long_lines_are_whole(boot: Boot, bytes: usize) -> (u64, u64) {
    let outcome = boot.cmdline(&format!("program=longlines -- {bytes}")).run();
    outcome.assert_ok();
    for letter in ["a", "b"] {
        let line = format!("LONG {}.", letter.repeat(bytes));
        assert_eq!(outcome.lines.iter().filter(|l| **l == line).count(), 1, "{letter}");
    }
    let late = outcome.lines.iter().find_map(|line| line.strip_prefix("LATE "));
    let (late, wakes) = late.and_then(|line| line.split_once(' ')).expect("it says so");
    (late.parse().expect("ns"), wakes.parse().expect("a count"))
}

#[test]
fn long_lines_stay_whole_beside_a_spinning_g_on_one_cpu() {
    long_lines_are_whole(Boot::guest("longlines-1").smp(1).limit(300), 1 << 16);
}

#[test]
fn long_lines_stay_whole_beside_a_spinning_g_on_two_cpus() {
    long_lines_are_whole(Boot::guest("longlines-2").smp(2).limit(300), 1 << 16);
}

#[test]
fn long_lines_stay_whole_beside_a_spinning_g_on_eight_cpus() {
    long_lines_are_whole(Boot::guest("longlines-8").smp(8).limit(300), 1 << 16);
}

/// The report that found it: two lines of 16 MiB ended the machine with 101.
#[test]
#[ignore = "make test-full"]
fn lines_of_sixteen_mebibytes_stay_whole_beside_a_spinning_g() {
    long_lines_are_whole(Boot::guest("longlines-16m").smp(4).limit(900), 16 << 20);
}

/// An instruction is a nanosecond here, so a sleeper is as late as interrupts were off.
#[test]
fn interrupts_come_in_while_a_long_line_is_printed() {
    let boot = Boot::guest("longlines-icount").smp(1).icount("shift=0,sleep=off").limit(300);
    let (late_ns, wakes) = long_lines_are_whole(boot, 1 << 14);
    assert!(wakes > 10, "the sleeper was woken {wakes} times only");
    assert!(late_ns < MOST_LATE_NS, "a sleeper was woken {late_ns} ns late");
}

/// 128 bytes and 32 characters of the screen with interrupts off, and what it takes to wake a G.
const MOST_LATE_NS: u64 = 500_000;

#[test]
fn a_kernel_panic_in_the_middle_of_a_long_line_has_lines_of_its_own() {
    let boot = Boot::guest("longlines-stop").smp(2).limit(300);
    let outcome = boot.cmdline("program=longlines -- 65536 stop").run();
    assert_eq!(outcome.code(), Some(101), "{:?}", outcome.ended);
    let begins = |line: &String| line.starts_with("kernel panic on CPU ");
    let told = outcome.lines.iter().position(begins).expect("it is told, at the start of a line");
    assert_eq!(outcome.lines[told + 1], "in the middle of a line");
    assert!(
        outcome.lines[..told].iter().any(|line| line.starts_with("LONG ")),
        "nothing was printed"
    );
}

/// Nobody switches this machine off at the end, so its screen can be read.
#[track_caller]
fn shows_it_all(boot: Boot) {
    let boot = boot.smp(2).without_serial().without_debug_exit();
    let outcome = boot.until_screen(expect::HELLO_END).run();
    assert!(matches!(outcome.ended, Ended::Seen), "{outcome}");
    let screen = outcome.screen.as_ref().expect("a screen was looked at");
    assert!(screen.shows(&expect::all_online(2)), "{outcome}");
    assert!(screen.lit_pixels() > 1000, "{} pixels are lit", screen.lit_pixels());
}

#[test]
fn without_a_serial_port_the_screen_shows_it_all() {
    shows_it_all(Boot::new("console-no-serial-bios"));
}

#[test]
#[ignore = "make test-full"]
fn without_a_serial_port_the_screen_shows_it_all_from_uefi() {
    shows_it_all(Boot::new("console-no-serial-uefi").uefi());
}
