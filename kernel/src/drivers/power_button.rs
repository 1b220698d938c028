//! The power button: a press ends the machine, as `runnext::power_off` does.
//!
//! A press is obeyed in the interrupt itself, even if no G makes progress.
//!
//! The line is level-triggered and shared with events of the firmware that the kernel does
//! not know. If it interrupts again and again without a press, it is masked.
#![forbid(unsafe_code)]

use super::irq;
use crate::arch;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Interrupts without a press, after which the line is masked.
const MAX_STRAY: u32 = 1_000;

static POWER_OFF: spin::Once<fn() -> !> = spin::Once::new();

/// Enables the button, if there is one: a press calls `power_off`. Once, before Gs run.
pub fn init(power_off: fn() -> !) {
    POWER_OFF.call_once(|| power_off);
    let Some(button) = arch::power_button() else { return };
    // First the line, so that no interrupt comes that is not served.
    if let Err(error) = irq::claim_isa(button.line, "power button", on_interrupt) {
        return log::warn!("power button: {error:?}; a press does nothing");
    }
    match button.enable() {
        Ok(()) => log::debug!("power button: on line {}", button.line),
        Err(error) => {
            let _ = arch::mask_isa(button.line); // it was routed a moment ago
            log::warn!("power button: {error:?}; a press does nothing");
        }
    }
}

fn on_interrupt() {
    static STRAY: AtomicU32 = AtomicU32::new(0);
    let Some(button) = arch::power_button() else { return };
    if button.take_press() {
        log::info!("power button pressed; the machine ends");
        POWER_OFF.get().inspect(|power_off| power_off());
    }
    if STRAY.fetch_add(1, Relaxed) + 1 == MAX_STRAY {
        let _ = arch::mask_isa(button.line);
        log::warn!("power button: {MAX_STRAY} interrupts without a press; line masked");
    }
}
