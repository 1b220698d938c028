//! The programs that show what a document says of threads: where a new G waits, what a shared cache
//! line does, what memory takes from Gs, and a call into C.

use tests::guest::Boot;

/// The order on one P follows from the place, and so does whether a busy P's Gs are stolen. In
/// virtual time: an interrupt of the host's would put a G of the kernel in between.
#[test]
fn new_gs_wait_where_the_boot_word_says() {
    for (place, order, is_stolen) in
        [("here", "5 1 2 3 4", true), ("queue", "1 2 3 4 5", false), ("other", "5 1 2 3 4", false)]
    {
        let boot = Boot::new(format!("placing-{place}")).smp(2).virtual_time();
        let outcome = boot.cmdline(&format!("program=placing place={place}")).run();
        outcome.assert_ok();
        outcome.assert_line(&format!("one P: started 1 2 3 4 5, ran {order}"));
        let line =
            outcome.line("busy P0 started 50: 0 ran there, 50 elsewhere, ").expect("it says");
        assert_eq!(!line.ends_with(", 0 steals"), is_stolen, "{line}");
    }
}

/// Random preemption, late wake-ups and delays, which no place may lose a G to.
#[test]
fn no_new_g_is_lost_wherever_it_waits() {
    for (seed, place) in [(5, "queue"), (6, "other")] {
        let checks = "channels_locks_timers_and_joins_work invariants_hold";
        let cmdline = format!("program=systems place={place} chaos={seed} -- {checks}");
        let boot = Boot::guest(format!("placing-chaos-{place}")).smp(4).cmdline(&cmdline);
        boot.limit(240).run().assert_ok();
    }
}

#[test]
fn counters_in_one_line_move_it_and_counters_in_their_own_do_not() {
    let outcome = Boot::new("falseshare").smp(4).cmdline("program=falseshare").run();
    outcome.assert_ok();
    outcome.assert_line("a line each: lines moved 4 times");
}

#[test]
fn upkeep_frees_memory_while_gs_run() {
    for cpus in [1, 4] {
        let boot = Boot::new(format!("upkeep-{cpus}")).smp(cpus).cmdline("program=upkeep");
        let outcome = boot.run();
        outcome.assert_ok();
        outcome.assert_line("1500 of them found their stacks as they were");
    }
}

/// Two and more Gs on each CPU are in C at once, and are preempted there: an instruction is a
/// nanosecond, so each has several slices.
#[test]
fn c_code_that_is_preempted_keeps_its_registers() {
    for cpus in [1, 2] {
        let boot = Boot::new(format!("c-{cpus}")).app("examples/c").smp(cpus).virtual_time();
        let outcome = boot.cmdline("program=c").run();
        outcome.assert_ok();
        let gs = 3 * cpus;
        let line = outcome.line(&format!("{gs} of {gs} Gs have the right result from C, after "));
        let preempted = line.and_then(|line| line.split(' ').rev().nth(1)?.parse::<usize>().ok());
        assert!(preempted >= Some(2 * gs), "{preempted:?} preemptions\n{outcome}");
        outcome.assert_line("on the stack of an M: true");
        outcome.assert_line("C has used 48 KiB of a G's stack: true");
    }
}
