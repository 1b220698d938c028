//! What is typed on the serial port arrives, whatever else goes on.

use tests::guest::Boot;
use tests::outcome::Ended;

fn echo(name: &str, args: &str) -> Boot {
    Boot::new(name).smp(4).cmdline(&format!("program=echo {args}"))
}

#[test]
fn lines_that_are_typed_come_back() {
    let outcome = echo("echo", "")
        .typed_after("type a line", "gr\u{fc}\u{df} dich\r")
        .typed_after("dich (11 bytes)", "two words\x08\x08\x08\x08\x08lines\n")
        .typed_after("two lines (9 bytes)", "exit\r\n")
        .run();
    outcome.assert_ok();
    outcome.assert_line(" 0 overruns, 0 garbled");
}

/// The same service by a G that waits and by an event loop.
#[test]
fn an_event_loop_answers_as_the_g_that_waits_does() {
    let answers = ["echo", "echoloop"].map(|program| {
        let boot = Boot::new(format!("twin-{program}")).smp(2);
        let outcome = boot
            .cmdline(&format!("program={program}"))
            .typed_after("type a line", "hello\r")
            .typed_after("hello (5 bytes)", "two\x7f\x7fen\r\n")
            .typed_after("ten (3 bytes)", "exit\r")
            .run();
        outcome.assert_ok();
        outcome.assert_line(" switches");
        let answers = outcome.lines.iter().filter(|line| line.ends_with(" bytes)"));
        answers.cloned().collect::<Vec<_>>()
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], ["hello (5 bytes)", "ten (3 bytes)"]);
}

#[test]
fn ctrl_d_ends_it_although_every_cpu_has_a_hog() {
    let outcome = echo("echo-hogs", "-- hogs")
        .typed_after("type a line", "hello\r")
        .typed_after("hello (5 bytes)", "\x04")
        .run();
    outcome.assert_ok();
}

#[test]
fn hostile_bytes_harm_nobody() {
    // Every byte but those that end a line or the program, in a bad order.
    let mut bytes: Vec<u8> =
        (0..=255).rev().filter(|byte| ![0x04, b'\r', b'\n'].contains(byte)).collect();
    bytes.extend(b"\x1b[999999999999\x15\xf0\x9f\r\n");
    let outcome = echo("echo-hostile", "")
        .typed_after("type a line", bytes)
        .typed_after(" bytes)", "exit\n")
        .run();
    outcome.assert_ok();
}

#[test]
fn without_a_serial_port_reading_is_a_clear_error() {
    let boot = echo("echo-no-port", "").without_serial().without_debug_exit();
    let outcome = boot.until_screen("there is no serial port to read from").run();
    assert!(matches!(outcome.ended, Ended::Seen), "{outcome}");
}

/// So many bytes, all values, as fast as the guest takes them. By counted
/// instructions, where the emulator's own thread need not fight eight busy ones
/// for two cores: that took seven minutes.
#[track_caller]
fn all_that_is_typed_arrives(cpus: usize, bytes: usize) {
    let mut state = 1u64;
    let typed: Vec<u8> = (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .collect();
    let checksum = typed.iter().fold(0xcbf2_9ce4_8422_2325u64, |checksum, &byte| {
        (checksum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let outcome = Boot::guest(format!("typing-{cpus}-{bytes}"))
        .smp(cpus)
        .icount("shift=0,sleep=off")
        .cmdline(&format!("program=typing -- {bytes}"))
        .typed_after(&format!("TYPE {bytes} bytes"), typed)
        .limit(500)
        .run();
    outcome.assert_ok();
    outcome.assert_line(&format!("TYPED {bytes} bytes, checksum {checksum:#018x}"));
}

#[test]
fn nothing_is_lost_of_64_kib_with_a_hog_on_each_of_eight_cpus() {
    all_that_is_typed_arrives(8, 64 << 10);
}

#[test]
fn nothing_is_lost_of_64_kib_with_a_hog_on_the_only_cpu() {
    all_that_is_typed_arrives(1, 64 << 10);
}

#[test]
fn nothing_is_lost_of_8_kib_with_a_hog_on_each_of_two_and_four_cpus() {
    for cpus in [2, 4] {
        all_that_is_typed_arrives(cpus, 8 << 10);
    }
}

#[test]
#[ignore = "make test-full"]
fn nothing_is_lost_of_a_mebibyte_on_two_cpus() {
    all_that_is_typed_arrives(2, 1 << 20);
}
