//! The power button: a press ends the machine in the interrupt, even if no G makes progress.
//!
//! The line is level-triggered and shared with events of the firmware that the kernel does not
//! know. If it interrupts again and again without a press, it is masked.
#![forbid(unsafe_code)]

use super::irq;
use crate::arch;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

static POWER_OFF: spin::Once<fn() -> !> = spin::Once::new();

/// Enables the button, if there is one: a press calls `power_off`. Once, before Gs run.
pub fn init(power_off: fn() -> !) {
    let Some(button) = arch::power_button() else { return };
    POWER_OFF.call_once(|| power_off);
    // The line is masked until it is claimed, so no interrupt comes that is not served.
    if let Err(error) = button.enable() {
        return log::warn!("power button: {error}; a press does nothing");
    }
    if let Err(error) = irq::claim_isa(button.line, "power button", on_interrupt) {
        log::warn!("power button: {error}; a press does nothing");
    }
}

fn on_interrupt() {
    const MAX_STRAY: u32 = 1_000;
    static STRAY: AtomicU32 = AtomicU32::new(0);
    let (Some(button), Some(power_off)) = (arch::power_button(), POWER_OFF.get()) else { return };
    if button.take_press() {
        log::info!("power button pressed; the machine ends");
        power_off();
    }
    if STRAY.fetch_add(1, Relaxed) + 1 == MAX_STRAY {
        let _ = arch::mask_isa(button.line); // it has been routed
        log::warn!("power button: {MAX_STRAY} interrupts without a press; line masked");
    }
}
