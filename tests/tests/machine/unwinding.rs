//! A G that panics while it panics: left behind, alone, checked by the guest from
//! inside.

use std::sync::LazyLock;
use tests::guest::Boot;
use tests::outcome::Outcome;
use tests::{expect, fixture};

static UNWINDING: LazyLock<Outcome> = LazyLock::new(|| fixture::once(&boot(8)));

fn boot(cpus: usize) -> Boot {
    Boot::guest(format!("unwinding-{cpus}")).series(cpus).cmdline("program=unwinding")
}

guest_tests!(UNWINDING => unwinding);

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
