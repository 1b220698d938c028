//! The shell, as a person would use it: in a terminal, key by key.

use std::sync::LazyLock;

use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

const UP: &str = "\x1b[A";
const LEFT: &str = "\x1b[D";
const END: &str = "\x1b[F";

/// At the shell's prompt, after its greeting.
fn shell(name: &str) -> Boot {
    Boot::new(name).smp(4).cmdline("program=shell").at_terminal()
}

/// Each line is typed when the prompt is there; then the machine is switched off.
fn session(name: &str, lines: &[&str]) -> Boot {
    let boot = lines
        .iter()
        .fold(shell(name), |boot, line| boot.typed_after(expect::PROMPT, format!("{line}\r")));
    boot.typed_after(expect::PROMPT, "poweroff\r")
}

/// One session for commands that end by themselves.
static COMMANDS: LazyLock<Outcome> = LazyLock::new(|| {
    let lines = [
        "help",
        "help run",
        "help hog",
        "ps",
        "sched",
        "sched -v",
        "stack 1",
        "stack 4711",
        "mem",
        "irq",
        "bench yield",
        "bench nonsense",
        "dmesg 3",
        "hepl",
        "trace sideways",
        "stack",
    ];
    session("shell-commands", &lines).run()
});

/// One session for commands that run something, or end it.
static PROGRAMS: LazyLock<Outcome> = LazyLock::new(|| {
    let boot = shell("shell-programs")
        .typed_after(expect::PROMPT, "run hello\r")
        .typed_after(expect::HELLO_END, "run nonsense\rrun deadlock\r")
        .typed_after("deadlock: deadlock", "run echo hogs\r")
        .typed_after("type a line", "words for it\r")
        .typed_after("words for it (12 bytes)", "\x03")
        .typed_after("echo: stopped", "run hog\r")
        // It ran before, and was stopped; it runs again.
        .typed_after("timer interrupts", "run echo\r")
        .typed_after("type a line", "exit\r")
        .typed_after(" 0 garbled", "ps\rkill 1\rkill 4711\r")
        .typed_after("G 4711: there is no such G", "sched\rsched -v\r")
        .typed_after("  M0: ", "trace stop\rtrace start\rrun hello\rtrace stop\r")
        .typed_after("written out; on", "poweroff\r");
    boot.limit(300).run()
});

/// One session for keys. What was entered shows in what came of it.
static KEYS: LazyLock<Outcome> = LazyLock::new(|| {
    let lines = [
        // Backspace; left, a letter in the middle, end.
        "gomaxprocs 9\x7f3",
        &format!("gomxprocs{LEFT}{LEFT}{LEFT}{LEFT}{LEFT}{LEFT}a{END} 2"),
        // The line before the last again; then the same with another number.
        &format!("{UP}{UP}"),
        &format!("{UP}\x7f1"),
        // Completion of a command and of a word behind it.
        "gomaxp\t4",
        "benc\tyi\t",
        // And of a G, by its name.
        "stack she\t",
        // Given up, and not done.
        "reboot\x03",
        "\x15gomaxprocs",
    ];
    session("shell-keys", &lines).run()
});

#[test]
fn sessions_end_well() {
    COMMANDS.assert_ok();
    KEYS.assert_ok();
    PROGRAMS.assert_ok();
}

#[test]
fn help_names_every_command_and_the_programs() {
    for command in [
        "help",
        "ps",
        "top",
        "sched",
        "trace",
        "run",
        "gomaxprocs",
        "bench",
        "stack",
        "kill",
        "mem",
        "irq",
        "dmesg",
        "poweroff",
        "reboot",
    ] {
        COMMANDS.assert_line(&format!("  {command} "));
    }
    COMMANDS.assert_line("programs: blocking ");
    COMMANDS.assert_line("usage: run <program>");
    COMMANDS.assert_line("`run fanout`");
    COMMANDS.assert_line("usage: run hog ");
}

#[test]
fn ps_shows_the_shell_and_what_it_waits_for() {
    let line = COMMANDS.line("  shell  ").expect("the shell's G");
    assert!(line.trim_start().starts_with("1 "), "{line}");
    COMMANDS.assert_line("  command  ");
    COMMANDS.assert_line("3 Gs"); // main waits for the shell
}

/// A terminal has 80 columns; what is wider wraps, and no column stands below another.
#[test]
fn what_the_shell_shows_fits_a_terminal() {
    let shown = COMMANDS.lines.iter().skip_while(|line| !line.contains(expect::PROMPT));
    // The name of a function may be longer than a line.
    let wide = |line: &&String| line.chars().count() > 80 && line.trim().contains(' ');
    let wide: Vec<_> = shown.filter(wide).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn a_hundred_spare_ms_are_a_line() {
    let outcome = shell("shell-spare-ms")
        .typed_after(expect::PROMPT, "run blocking\r")
        .typed_after("no deadlock: each had it once", "sched -v\rpoweroff\r")
        .run();
    outcome.assert_ok();
    outcome.assert_line(" more Ms: idle, on no CPU");
    let ms = outcome.lines.iter().filter(|line| line.starts_with("  M")).count();
    assert!(ms <= 5, "{ms} lines of Ms\n{outcome}");
}

#[test]
fn programs_run_in_the_shell_and_what_is_typed_is_theirs() {
    assert_eq!(PROGRAMS.count(expect::HELLO_END), 2);
    PROGRAMS.assert_line("words for it (12 bytes)");
    PROGRAMS.assert_line("no program `nonsense`");
}

#[test]
fn ctrl_c_stops_a_program_with_all_its_gs_although_every_cpu_has_a_hog() {
    PROGRAMS.assert_line("echo: stopped");
    // They called nobody, so nobody could end them: each was taken off its CPU for good.
    assert_eq!(PROGRAMS.count(expect::ABANDONED), 4, "a hog for each CPU: {}", *PROGRAMS);
    // And `ps` shows the shell, and nothing of the program.
    PROGRAMS.assert_line("  shell  ");
    PROGRAMS.assert_no_line("  echo.rs:");
}

#[test]
fn a_deadlock_ends_its_program_and_names_the_gs() {
    PROGRAMS.assert_line("deadlock: deadlock");
    // A ring of two; main, which waits for both, is in none.
    for g in ["2 goroutines wait for each other", "\"left first\"", "\"right first\""] {
        PROGRAMS.assert_line(g);
    }
}

#[test]
fn the_shell_cannot_be_killed_from_within() {
    PROGRAMS.assert_line("G 1 is this shell");
}

#[test]
fn sched_speaks_as_go_does() {
    PROGRAMS.assert_line("system mpn");
    PROGRAMS.assert_line("SCHED ");
    PROGRAMS.assert_line("gomaxprocs=4");
    for start in ["  P0: ", "  M0: ", "  G1: "] {
        PROGRAMS.assert_line(start);
    }
}

#[test]
fn events_are_written_out_from_start_to_stop() {
    let order =
        ["no events are written out", "events are written out from now on", "written out; on"];
    let place = |text: &&str| PROGRAMS.lines.iter().position(|line| line.contains(text));
    let places: Vec<_> = order.iter().map(place).collect();
    assert!(places.is_sorted() && !places.contains(&None), "{places:?}\n{}", *PROGRAMS);
    let stream = std::fs::read(tests::files::trace_of("shell-programs")).expect("a stream");
    assert!(stream.starts_with(b"RNTRACE1") && stream.len() > 1000, "{} bytes", stream.len());
}

#[test]
fn stack_shows_where_the_shell_waits_by_function() {
    COMMANDS.assert_line("programs::shell::");
    COMMANDS.assert_line("G 4711: there is no such G");
}

#[test]
fn mem_irq_bench_and_dmesg_show_numbers_of_this_machine() {
    COMMANDS.assert_line("KiB in all, ");
    let serial = COMMANDS.lines.iter().find(|line| line.ends_with("  serial"));
    let serial = serial.expect("the port's interrupts");
    let count = serial.split_whitespace().nth(1).and_then(|count| count.parse::<u64>().ok());
    assert!(count > Some(0), "{serial}");
    COMMANDS.assert_line("yield: 100000 in ");
    COMMANDS.assert_line("no benchmark `nonsense`");
    assert_eq!(COMMANDS.count(&expect::banner("sched", "")), 2, "in the banner, and by dmesg");
}

#[test]
fn bad_input_gets_one_line_and_a_hint() {
    COMMANDS.assert_line("no command `hepl`; did you mean `help`?");
    COMMANDS.assert_line("`sideways` means nothing here; usage: trace start|stop");
    COMMANDS.assert_line("which G? `ps` shows their numbers; usage: stack <g>");
}

#[test]
fn keys_edit_history_recalls_and_tab_completes() {
    let said: Vec<_> = KEYS.lines.iter().filter(|line| line.contains(" Ps run Gs")).collect();
    let expected = [
        "3 of 4 Ps run Gs; 4 did before",
        "2 of 4 Ps run Gs; 3 did before",
        "3 of 4 Ps run Gs; 2 did before",
        "1 of 4 Ps run Gs; 3 did before",
        "4 of 4 Ps run Gs; 1 did before",
        "4 of 4 Ps run Gs",
    ];
    assert_eq!(said, expected);
    KEYS.assert_line("yield: 100000 in ");
    KEYS.assert_line("programs::shell::");
}

/// Two traces in one session, with work before, between and behind them that no event
/// is noted of.
#[test]
fn work_after_trace_stop_is_no_difference_to_the_counters() {
    let outcome = shell("shell-trace")
        .typed_after(expect::PROMPT, "bench yield\rtrace start\rrun hello\r")
        .typed_after(expect::HELLO_END, "trace stop\rbench spawn\rtrace start\rrun hello\r")
        .typed_after(expect::HELLO_END, "trace stop\rbench yield\rpoweroff\r")
        .run();
    outcome.assert_ok();
    let bytes = std::fs::read(tests::files::trace_of("shell-trace")).expect("a stream");
    let stream = trace::decode::decode(&bytes).expect("a whole one");
    let model = trace::model::Model::new(&stream);
    assert_eq!(trace::check::compare(&model), trace::check::Agreement::Full(8 * 4), "{outcome}");
}

#[test]
fn top_shows_how_busy_each_p_is_until_a_key_is_pressed() {
    let outcome = shell("shell-top")
        .typed_after(expect::PROMPT, "top\r")
        .typed_after("nothing runs: press a key, then `run hog 60 &`", "q")
        .typed_after(expect::PROMPT, "run hog 3600 &\r")
        .typed_after("hog runs as program", "top\r")
        .typed_after("any key ends this", "") // two frames
        .typed_after("any key ends this", "q")
        .typed_after(expect::PROMPT, "stack hog\rkill nobody\rkill hog\r")
        .typed_after("hog: stopped", "poweroff\r")
        .run();
    outcome.assert_ok();
    outcome.assert_line("of 4 Ps run Gs");
    for p in 0..4 {
        outcome.assert_line(&format!("  {p}  [####################] 100%"));
    }
    // By its name: its main sleeps. And then it is gone, with all it had.
    outcome.assert_line("programs::hog::main");
    outcome.assert_line("no G is called `nobody`");
}

#[test]
fn a_machine_that_is_rebooted_starts_again() {
    let outcome = shell("shell-reboot")
        .typed_after(expect::PROMPT, "reboot\r")
        // Before the shell is there: it is kept until somebody reads.
        .typed_after(&expect::banner("sched", ""), "poweroff\r")
        .run();
    outcome.assert_ok();
    assert_eq!(outcome.count(&expect::banner("cpus", "4 online")), 2, "{outcome}");
}

#[test]
fn poweroff_switches_a_machine_off_that_has_no_debug_exit() {
    let outcome = session("shell-poweroff", &[]).without_debug_exit().run();
    let end = tests::outcome::Ended::Exit(boot::exit::End::Off);
    assert!(format!("{:?}", outcome.ended) == format!("{end:?}"), "{outcome}");
}

/// Seeded bytes: all values, and pieces of commands with something broken. No
/// line of it is one that ends the machine.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    const PIECES: [&[u8]; 14] = [
        b"ps ",
        b"kill ",
        b"1\r",
        b"stack ",
        b"gomaxprocs ",
        b"trace ",
        b"sched ",
        b"99999999999999999999",
        b"-v",
        b"\"",
        b"\x1b[A",
        b"\t",
        b"\x1b[1;5D",
        b"\r",
    ];
    let mut state = seed;
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as usize
    };
    let mut noise = Vec::new();
    while noise.len() < bytes {
        match random() % 3 {
            0 => noise.extend(PIECES[random() % PIECES.len()]),
            // All but Ctrl-A, which is the emulator's own key.
            1 => noise.extend([random() as u8].iter().filter(|byte| **byte != 1)),
            _ => noise.push(b" gx1\r-'\x7f"[random() % 8]),
        }
    }
    noise
}

#[test]
fn nothing_that_is_typed_stops_it() {
    for (seed, cpus) in [(1, 1), (2, 8)] {
        let outcome = shell(&format!("shell-noise-{seed}"))
            .smp(cpus)
            .typed_after(expect::PROMPT, noise(seed, 6_000))
            // Whatever it is in the middle of: a quote, a sequence, a line.
            .typed_after(expect::PROMPT, format!("\x1b[A\x03\x03gomaxprocs {cpus}\rgomaxprocs 1\r"))
            .typed_after(&format!("1 of {cpus} Ps run Gs; {cpus} did before"), "poweroff\r")
            .limit(200)
            .run();
        outcome.assert_ok();
        outcome.assert_no_line("panicked");
    }
}
