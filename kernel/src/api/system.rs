//! The scheduling system of this boot: what it answers, what it promises. See `sched::system`.
#![forbid(unsafe_code)]

pub use crate::run::system::{
    About, Here, OwnM, Places, Promises, Queued, Ready, Registered, Rules, System, Why, running,
};
