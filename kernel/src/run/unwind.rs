//! Panics that unwind: caught at the root of a G, with destructors run.
//!
//! The kernel is built with `panic=unwind` and its own `core`, so every frame has tables; the crate
//! `unwinding` walks them. A panic in a G becomes the error of its join. A panic anywhere else (the
//! scheduler, an interrupt, with interrupts off) is a kernel bug and stops the machine.
//!
//! The payload is the reason why the G gives no result, as its join returns it: a [`JoinError`],
//! not only a text. Unwinding that begins not at a call but at a faulting instruction comes here by
//! `fail::overflow`.

use super::call::stack_end;
use super::error::JoinError;
#[cfg(target_os = "none")]
use super::scope::wait_for_lost;
use super::{Job, door, hooks, local};
use alloc::boxed::Box;
use core::any::Any;

/// Runs `f`; a panic inside it unwinds to here, and is returned as its reason.
pub fn catch<T, F: FnOnce() -> T>(f: F) -> Result<T, JoinError> {
    catch_any(f).map_err(caught)
}

/// As [`catch`], at the root of a G, where all that is the G's own comes to its end.
#[inline(always)]
pub fn catch_at_root<T, F: FnOnce() -> T>(f: F) -> Result<T, JoinError> {
    at_root(catch(f))
}

/// The end of what was caught at the root of a G: its locals are dropped.
///
/// Then no guard is left, so a lock that still has the G's name was lost, by frames of a full stack
/// that no table lists (`fail::overflow`). A panic loses none: it unwinds from a call, by tables
/// that list everything to drop.
#[inline(always)]
pub fn at_root<T>(result: Result<T, JoinError>) -> Result<T, JoinError> {
    match result {
        Ok(value) if !door::has_attached() => Ok(value),
        result => at_root_slow(result),
    }
}

#[cold]
fn at_root_slow<T>(result: Result<T, JoinError>) -> Result<T, JoinError> {
    let result = if door::has_attached() { end_attached(result) } else { result };
    if let Err(JoinError::StackOverflow | JoinError::NoMemory) = &result {
        (hooks::get().locks_lost)();
    }
    result
}

fn end_attached<T>(result: Result<T, JoinError>) -> Result<T, JoinError> {
    // As destructors of a killed G that unwinds, those of its locals do not check for the kill.
    let is_killed = door::was_killed();
    if is_killed {
        crate::run::begin_panic();
    }
    let failed = local::end();
    if is_killed {
        crate::run::end_panic();
    }
    match (result, failed) {
        (Ok(value), Some(why)) => {
            let _ = catch_at_root(|| drop(value)); // it may use locals, too
            Err(why)
        }
        (result, _) => result,
    }
}

#[inline(always)]
fn catch_any<T, F: FnOnce() -> T>(f: F) -> Result<T, Box<dyn Any + Send>> {
    #[cfg(target_os = "none")]
    return unwinding::panic::catch_unwind(f);
    #[cfg(not(target_os = "none"))]
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f))
}

#[cold]
fn caught(payload: Box<dyn Any + Send>) -> JoinError {
    #[cfg(target_os = "none")]
    crate::run::end_panic();
    why(payload)
}

/// Continues the unwinding that [`catch`] has caught, from here, or begins that of a G that was
/// killed: destructors run, nothing is reported.
pub fn resume(why: JoinError) -> ! {
    #[cfg(target_os = "none")]
    crate::run::begin_panic();
    let code = begin(why);
    (hooks::get().kernel_bug)(format_args!("cannot go on unwinding (code {code})"))
}

fn why(payload: Box<dyn Any + Send>) -> JoinError {
    match payload.downcast::<JoinError>() {
        Ok(why) => *why,
        Err(payload) => JoinError::Panicked(payload.into()), // the host's own
    }
}

/// Starts to unwind, because of `why`. Returns only if no frame above catches it or a table is
/// broken, with the unwinder's code; nothing has been unwound then.
pub(crate) fn begin(why: JoinError) -> i32 {
    begin_boxed(Box::new(why))
}

fn begin_boxed(why: Box<JoinError>) -> i32 {
    #[cfg(target_os = "none")]
    return unwinding::panic::begin_panic(why).0;
    #[cfg(not(target_os = "none"))]
    std::panic::resume_unwind(why)
}

/// As [`begin`], for an allocation that failed. The language marks the functions through which such
/// a panic comes as not unwinding. All callers above the last one that is marked can handle a panic
/// that unwinds, as they do not see into the handler: so unwinding begins above that one. The
/// callers below are discarded, and have nothing to drop. Returns `why` if no caller is marked, or
/// this fails.
#[cfg(target_os = "none")]
pub(crate) fn begin_above(why: JoinError) -> JoinError {
    extern "C-unwind" fn raise(why: usize) -> ! {
        // SAFETY: from `into_raw` below, once.
        let why = unsafe { Box::from_raw(why as *mut JoinError) };
        let code = begin_boxed(why);
        (hooks::get().kernel_bug)(format_args!("cannot unwind (code {code})"))
    }
    let why = Box::into_raw(Box::new(why));
    let (_, rbp) = crate::arch::here();
    // SAFETY: this function's frame pointer. Its caller has nothing to drop, and between it and the
    // last caller that forbids unwinding is only the panic machinery of `core`.
    unsafe {
        let why = why.expose_provenance();
        crate::arch::call_above_forbidden(rbp, stack_end(), wait_for_lost, raise, why);
    }
    // SAFETY: as in `raise`, which was not called.
    *unsafe { Box::from_raw(why) }
}

/// Whether there is memory for the allocations of [`begin`].
pub(crate) fn has_memory() -> bool {
    // The reason, and the unwinder's own record: 24 and some 80 bytes.
    let blocks = [alloc::vec::Vec::<u64>::new(), alloc::vec::Vec::new()];
    blocks.into_iter().all(|mut block| block.try_reserve_exact(16).is_ok())
}

/// A closure whose panic becomes its result.
pub struct Caught<F>(pub F);

impl<T, F> Job for Caught<F>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    type Outcome = Result<T, JoinError>;
    type Ticket = ();

    #[inline(always)]
    fn ticket(&self) {}

    #[inline(always)]
    fn run(self) -> Self::Outcome {
        catch_at_root(self.0)
    }

    #[inline(always)]
    fn failed(why: JoinError, (): &()) -> Self::Outcome {
        Err(why)
    }

    #[inline(always)]
    fn discard(outcome: Self::Outcome) {
        // A destructor of the program may panic as well; that was reported. A failure may be
        // discarded where no G runs (`fail::abandon`).
        if core::mem::needs_drop::<T>()
            && let Ok(value) = outcome
        {
            let _ = catch_at_root(|| drop(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_unwinds_is_caught_with_its_reason_and_can_go_on() {
        assert_eq!(catch(|| 1), Ok(1));
        let no = || JoinError::Panicked("no".into());
        assert_eq!(catch(|| -> u32 { panic!("no") }), Err(no()));
        assert_eq!(catch(|| -> u32 { resume(no()) }), Err(no()));
        assert_eq!(catch(|| -> u32 { resume(JoinError::Killed) }), Err(JoinError::Killed));
    }
}
