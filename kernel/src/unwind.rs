//! Panics that unwind: caught at the root of a G, with destructors run.
//!
//! The kernel is built with `panic=unwind` and its own `core`, so every frame
//! has tables; the crate `unwinding` walks them. A panic in a G becomes the
//! error of its join. A panic anywhere else (the scheduler, an interrupt, with
//! interrupts off) is a kernel bug and stops the machine: see `panic`.

use alloc::boxed::Box;
use alloc::string::String;
use core::any::Any;
#[cfg(target_os = "none")]
use core::sync::atomic::{AtomicUsize, Ordering};

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
    #[cfg(target_os = "none")]
    if result.is_err() {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
        crate::schedule::end_panic();
    }
    result.map_err(message)
}

/// How many panics unwind on the whole machine: nearly always none, so that
/// [`panicking`] costs a compare.
#[cfg(target_os = "none")]
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// Whether the calling G unwinds; what runs is a destructor then.
///
/// ```
/// assert!(!runnext::unwind::panicking());
/// ```
#[inline]
pub fn panicking() -> bool {
    #[cfg(target_os = "none")]
    {
        // Relaxed: who asks for its own panic has counted it itself.
        UNDER_WAY.load(Ordering::Relaxed) != 0 && crate::schedule::is_panicking()
    }
    #[cfg(not(target_os = "none"))]
    std::thread::panicking()
}

/// Goes on with a panic that [`catch`] has caught, from here; it is not reported
/// again.
///
/// ```should_panic
/// if let Err(message) = runnext::unwind::catch(|| panic!("no")) {
///     runnext::unwind::resume(message);
/// }
/// ```
pub fn resume(message: String) -> ! {
    #[cfg(target_os = "none")]
    {
        crate::schedule::begin_panic();
        let code = begin(message);
        crate::panic::kernel_bug(format_args!("cannot go on unwinding (code {})", code.0))
    }
    #[cfg(not(target_os = "none"))]
    std::panic::resume_unwind(Box::new(message))
}

/// What a G that was killed unwinds with.
pub const KILLED: &str = "killed";

/// The calling G was killed and unwinds: destructors run, nothing is reported.
#[cold]
pub fn killed() -> ! {
    resume(KILLED.into())
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
    UNDER_WAY.fetch_add(1, Ordering::Relaxed);
    unwinding::panic::begin_panic(Box::new(message))
}
