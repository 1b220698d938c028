//! Locals: values of which each G has its own.
//!
//! [`g_local!`](crate::g_local) declares one (std: `thread_local!`). It is made when a G first asks
//! for it, and dropped on that G when it ends: when its closure has returned, panicked or was
//! killed, and before a join tells so.
#![forbid(unsafe_code)]

pub use crate::run::local::{AccessError, LocalKey};

/// Declares statics of which each G has its own value, made when it first asks for it (std:
/// `thread_local!`).
///
/// ```
/// use core::cell::RefCell;
/// use runnext::prelude::*;
/// runnext::g_local! {
///     /// What this G has seen.
///     static SEEN: RefCell<Vec<u32>> = RefCell::new(Vec::new());
///     pub static DEPTH: u32 = 0;
/// }
/// SEEN.with(|seen| seen.borrow_mut().push(1));
/// assert_eq!(go(|| SEEN.with(|seen| seen.borrow().len())).join(), Ok(0));
/// assert_eq!(DEPTH.with(|depth| *depth), 0);
/// ```
#[macro_export]
macro_rules! g_local {
    ($($(#[$meta:meta])* $vis:vis static $name:ident: $type:ty = $init:expr);+ $(;)?) => {$(
        $(#[$meta])*
        $vis static $name: $crate::local::LocalKey<$type> = {
            fn init() -> $type {
                $init
            }
            $crate::local::LocalKey::new(init)
        };
    )+};
}
