//! A G that panics while it panics: left behind, alone, checked by the guest from
//! inside.

use std::sync::LazyLock;
use tests::guest::Boot;
use tests::outcome::Outcome;
use tests::{expect, fixture, guest_tests};

static UNWINDING: LazyLock<Outcome> = LazyLock::new(|| fixture::once(&boot(8)));

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("unwinding-{cpus}")).smp(cpus).cmdline("program=unwinding")
}

guest_tests!(UNWINDING =>
    a_destructor_that_panics_while_its_g_unwinds_ends_that_g_only,
    its_locks_go_poisoned_to_who_waits,
    a_killed_g_whose_destructor_panics_was_killed,
    a_call_in_which_it_happens_is_over_for_its_g_only,
    a_message_that_panics_as_it_is_printed_ends_its_g_only,
    it_happens_on_all_cpus_at_once,
    a_program_whose_main_does_it_has_panicked,
);

#[test]
fn all_of_it_holds_on_one_cpu_and_on_eight() {
    UNWINDING.assert_ok();
    boot(1).run().assert_ok();
}

#[test]
fn what_was_lost_is_said() {
    UNWINDING.assert_line(", while it panicked: second");
    UNWINDING.assert_line(expect::LEFT_BEHIND);
    UNWINDING.assert_no_line(expect::KERNEL_PANIC);
}
