//! Panics: caught, thrown with a value, and told to a hook.
//!
//! A panic ends its G, which unwinds: its destructors run, and its join says what the panic
//! carried, as [`catch`] does for a part of a G. Before it unwinds, the kernel prints a line, or
//! calls the program's hook. The names are those of `std::panic`.
#![forbid(unsafe_code)]

pub use self::catch as catch_unwind;
pub use crate::run::payload::{Panic, PanicHookInfo};

use crate::fail;
use crate::run::door;
use crate::run::error::JoinError;
use crate::run::unwind;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;
use core::panic::Location;

/// Runs `f`; a panic in it becomes the error, when it has been reported and its destructors have
/// run (Go: recover; std: `catch_unwind`). A kill, a full stack or one without memory is not caught:
/// the G goes on unwinding.
///
/// As in std, what `f` was in the middle of changing may be half changed; locks that it held are
/// poisoned.
///
/// ```
/// use runnext::prelude::*;
/// let result = catch(|| [1, 2, 3].iter().map(|n| 6 / (n - 2)).sum::<i32>());
/// assert_eq!(result.unwrap_err().message(), "attempt to divide by zero");
/// assert_eq!(catch(|| 1), Ok(1));
/// ```
pub fn catch<T>(f: impl FnOnce() -> T) -> Result<T, Panic> {
    match unwind::catch(f) {
        Ok(value) => Ok(value),
        Err(JoinError::Panicked(panic)) => Err(panic),
        Err(why) => unwind::resume(why),
    }
}

/// Panics with a value that need not be a text (Go: `panic(value)`).
///
/// ```
/// use runnext::{panic::panic_any, prelude::*};
/// #[derive(Debug, PartialEq)]
/// struct NoRoom(u32);
/// let worker = go(|| {
///     if num_cpus() > 0 {
///         panic_any(NoRoom(7));
///     }
/// });
/// let Err(JoinError::Panicked(panic)) = worker.join() else { unreachable!() };
/// assert_eq!(panic.downcast(), Ok(NoRoom(7)));
/// ```
#[track_caller]
pub fn panic_any<M: Any + Send>(value: M) -> ! {
    let value: Box<dyn Any + Send> = Box::new(value);
    fail::panic::panic_any(value.into(), Location::caller())
}

/// Goes on with a panic that was caught: nothing is printed, and no hook is called.
///
/// ```
/// use runnext::{panic::resume_unwind, prelude::*};
/// let outer = catch(|| match catch(|| panic!("no")) {
///     Err(panic) => resume_unwind(panic.into_payload()),
///     Ok(()) => (),
/// });
/// assert_eq!(outer.unwrap_err().message(), "no");
/// ```
pub fn resume_unwind(payload: Box<dyn Any + Send>) -> ! {
    unwind::resume(JoinError::Panicked(payload.into()))
}

/// Has `hook` called for each panic of a G of this program, on that G, before it unwinds: instead
/// of the kernel's report. The old one is dropped.
///
/// The hook may wait, and it may be replaced while it runs. If it panics, that is reported, and the
/// panic that it was called for as well; then the G unwinds. It is not called for a G that was
/// killed or whose stack is full, nor for a destructor that panics while its G unwinds, which ends
/// the G at once. It ends with its program.
///
/// ```
/// use runnext::{panic, prelude::*};
/// let (tx, rx) = chan::unbounded();
/// panic::set_hook(Box::new(move |info| {
///     let line = info.location().map(|at| at.line());
///     let _ = tx.send((line, info.payload().downcast_ref().copied()));
/// }));
/// let line = line!() + 1;
/// assert!(catch(|| panic::panic_any(7)).is_err());
/// assert_eq!(rx.recv(), Ok((Some(line), Some(7))));
/// drop(panic::take_hook()); // the kernel reports again
/// assert!(rx.recv().is_err());
/// ```
pub fn set_hook(hook: Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>) {
    drop(door::program().set_hook(Some(Arc::from(hook))));
}

/// Takes the program's hook: the kernel reports panics again. Without a hook, the result is one
/// that reports as the kernel does.
///
/// ```no_run
/// use runnext::{panic, prelude::*};
/// static PANICS: sync::Semaphore = sync::Semaphore::new(0);
/// let before = panic::take_hook();
/// panic::set_hook(Box::new(move |info| {
///     PANICS.release(1);
///     before(info);
/// }));
/// ```
pub fn take_hook() -> Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync> {
    match door::program().set_hook(None) {
        Some(hook) => Box::new(move |info| hook(info)),
        None => Box::new(|info| fail::panic::report(&info.message(), info.location())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_caught_and_kills_are_not() {
        assert_eq!(catch(|| 1), Ok(1));
        let panicked = catch(|| -> u32 { unwind::resume(JoinError::Panicked("no".into())) });
        assert_eq!(panicked.unwrap_err().to_string(), "panicked: no");
        let killed = unwind::catch(|| catch(|| -> u32 { unwind::resume(JoinError::Killed) }));
        assert_eq!(killed, Err(JoinError::Killed));
    }

    #[test]
    fn what_was_caught_goes_on_with_its_value() {
        let inner =
            || resume_unwind(catch(|| -> () { panic_any(7_u32) }).unwrap_err().into_payload());
        assert_eq!(catch(inner).unwrap_err().downcast::<u32>(), Ok(7));
    }
}
