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
