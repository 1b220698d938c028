//! Panics that unwind: caught at the root of a G, with destructors run.
//!
//! The kernel is built with `panic=unwind` and its own `core`, so every frame
//! has tables; the crate `unwinding` walks them. A panic in a G becomes the
//! error of its join. A panic anywhere else (the scheduler, an interrupt, with
//! interrupts off) is a kernel bug and stops the machine: see `panic`.

use alloc::boxed::Box;
use alloc::string::String;
use core::any::Any;

/// Runs `f`; a panic inside it unwinds to here and becomes its message.
///
/// ```
/// assert_eq!(runnext::unwind::catch(|| 1), Ok(1));
/// assert_eq!(runnext::unwind::catch(|| -> u32 { panic!("no") }), Err("no".into()));
/// ```
pub fn catch<T, F: FnOnce() -> T>(f: F) -> Result<T, String> {
    #[cfg(target_os = "none")]
    let result = unwinding::panic::catch_unwind(f);
    #[cfg(not(target_os = "none"))]
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    result.map_err(message)
}

fn message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => match payload.downcast_ref::<&'static str>() {
            Some(message) => (*message).into(),
            None => "a panic with a value that is no text".into(),
        },
    }
}

/// Starts to unwind with this message. Returns only if no frame above catches
/// it or a table is broken.
#[cfg(target_os = "none")]
pub(crate) fn begin(message: String) -> unwinding::abi::UnwindReasonCode {
    unwinding::panic::begin_panic(Box::new(message))
}
