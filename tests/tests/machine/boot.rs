//! What `make run` promises: eight CPUs up, a program run, a command line heard.

use std::sync::LazyLock;

use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

/// The machine of `make run </dev/null`, with a shorter program.
static RUN: LazyLock<Outcome> = LazyLock::new(|| Boot::new("boot").smp(8).cold().run());

#[test]
fn make_run_ends_with_zero() {
    RUN.assert_ok();
    RUN.assert_line(expect::HELLO_END);
}

#[test]
fn the_banner_shows_the_machine_in_a_dozen_lines() {
    let found =
        |name: &&str| RUN.lines.iter().position(|l| l.starts_with(&expect::banner(name, "")));
    let places: Vec<_> = expect::BANNER.iter().filter_map(found).collect();
    assert_eq!(places.len(), expect::BANNER.len(), "some are missing\n{}", *RUN);
    assert!(places.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{places:?}\n{}", *RUN);
    assert!(places[0] <= 1, "something else came first\n{}", *RUN);
    RUN.assert_line(&expect::banner("firmware", "BIOS"));
    RUN.assert_line(&expect::all_online(8));
}

#[test]
fn a_quiet_boot_has_no_banner() {
    let outcome = Boot::new("boot-quiet").cmdline("log=warn").run();
    outcome.assert_ok();
    outcome.assert_no_line(&expect::banner("cpus", ""));
}

#[test]
fn eight_cpus_are_online_by_apic_id_with_topology() {
    let outcome = Boot::new("boot-details").smp(8).cmdline(expect::DETAILS).run();
    for index in 0..8 {
        let start = expect::cpu(index, index as u32);
        let line = outcome.line(&start);
        let line = line.unwrap_or_else(|| panic!("no line with {start:?}\n{outcome}"));
        for word in expect::TOPOLOGY {
            assert!(line.contains(word), "no {word:?} in {line:?}");
        }
    }
}

#[test]
fn an_unknown_word_is_named_and_ignored() {
    let outcome = Boot::new("boot-words").smp(2).cmdline("colour=green log=loud ???").run();
    outcome.assert_ok();
    for word in ["colour=green", "log=loud", "???"] {
        outcome.assert_line(&expect::word_ignored(word));
    }
}

#[test]
fn the_text_file_in_the_image_is_a_command_line() {
    let text = "# a comment, program=wrong\r\nprogram=no_such_one\r\n";
    let outcome = Boot::new("boot-file").ramdisk(text).run();
    outcome.assert_code(expect::CODE_NO_PROGRAM);
    outcome.assert_line(&expect::no_program("no_such_one"));
}

#[test]
fn words_from_outside_win_over_those_in_the_image() {
    let boot = Boot::new("boot-wins").ramdisk("program=no_such_one\n").cmdline("program=hello");
    let outcome = boot.run();
    outcome.assert_ok();
    outcome.assert_line(expect::HELLO_END);
}
