//! CPUs that lack what the kernel needs: each is named, and the machine ends.
//!
//! Without NX the loader resets the machine before there is a kernel.

use tests::guest::Boot;
use tests::outcome::Ended;

const CODE_CPU: u8 = 105;

#[track_caller]
fn is_refused(without: &str, said: &str) {
    let cpu = format!("qemu64,-{without}");
    let outcome = Boot::new(format!("cpus-{without}")).cpu(&cpu).run();
    outcome.assert_code(CODE_CPU);
    outcome.assert_line(&format!("this CPU has {said}"));
    outcome.assert_line("the kernel needs what this CPU lacks; the machine ends");
}

#[test]
fn a_cpu_without_sse_is_refused() {
    is_refused("sse", "no SSE: unwinding saves its control word");
}

#[test]
fn a_cpu_without_fxsr_is_refused() {
    is_refused("fxsr", "no FXSR: SSE is switched on by it");
}

#[test]
fn a_cpu_without_apic_is_refused() {
    is_refused("apic", "no local APIC: timers and interrupts come through it");
}

/// With no serial port there is the screen.
#[test]
fn what_a_cpu_lacks_is_on_the_screen_too() {
    let outcome = Boot::new("cpus-screen")
        .cpu("qemu64,-sse")
        .without_serial()
        .without_debug_exit()
        .until_screen("the kernel needs what this CPU lacks")
        .run();
    assert!(matches!(outcome.ended, Ended::Seen), "{outcome}");
}
