//! A G that panics while it panics: left behind, alone, checked by the guest from
//! inside.

use std::path::Path;
use std::sync::LazyLock;

use boot::kernel::Source;
use tests::expect;
use tests::guest::{Boot, kernel_of};
use tests::outcome::Outcome;
use tests::symbols::count_code;

static UNWINDING: LazyLock<Outcome> = LazyLock::new(|| boot(8).run());

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

/// `mov rsp, [rdi + 0x38]; ldmxcsr [rdi + …]`: the unwinder sets the stack pointer, and reads
/// other registers from its record below it afterwards. No G is preempted in the range between
/// the two symbols (`arch/x86_64/irq/preempt.rs`); the sequence must not stand elsewhere.
#[track_caller]
pub fn assert_unwinder_is_gathered(kernel: &Path) {
    const SETS_STACK_POINTER: [u8; 7] = [0x48, 0x8b, 0x67, 0x38, 0x0f, 0xae, 0x97];
    let range = ["__unwinder_start", "__unwinder_end"];
    let [inside, outside] = count_code(kernel, &SETS_STACK_POINTER, range).expect("an ELF file");
    assert!(inside > 0, "{}: another unwinder than the one that is known", kernel.display());
    assert_eq!(outside, 0, "{}: the linker script gathers too little", kernel.display());
}

#[test]
fn the_unwinder_restores_registers_only_where_no_g_is_preempted() {
    for source in [Source::Standard, Source::Guest, Source::Checked] {
        assert_unwinder_is_gathered(&kernel_of(&source).expect("a kernel"));
    }
}
