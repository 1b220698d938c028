//! All Gs, and looking at one that somebody else holds.
//!
//! Records of Gs are never freed, so they are all in one list that only grows
//! ([`Registry`]) and can be looked at whatever they do. A look reads the state
//! word, then what is to be told, then the state word again; if a life ended
//! meanwhile it is given up, and if the state changed it is tried again. What a
//! program sees of this is `tasks`.

use super::task::Task;
use super::{CPUS, G_SLOT};
use crate::arch;
use crate::cell::Registry;
use crate::tasks::{GInfo, GState};
use alloc::vec::Vec;
use sched::{G, Handle, Status};

static ALL: Registry<G<Task>> = Registry::new();

/// How often one looks again at a G that changes its state all the time.
const LOOKS: usize = 4;

/// A new G, which has not lived yet.
pub(super) fn add(g: &'static G<Task>) {
    ALL.add(g);
}

/// All Gs that live, in no order.
pub fn gs() -> Vec<GInfo> {
    ALL.iter().filter_map(info).collect()
}

/// What `g` is and does; `None` if it does not live.
fn info(g: &'static G<Task>) -> Option<GInfo> {
    let mut looks = LOOKS;
    loop {
        let (handle, status) = g.look();
        let info = of_life(g, &handle, status)?;
        looks -= 1;
        if looks == 0 || g.look().1 == status {
            return Some(info);
        }
    }
}

/// As [`info`], of that life; `None` also if it ends meanwhile.
fn of_life(g: &'static G<Task>, handle: &Handle<Task>, status: Status) -> Option<GInfo> {
    if status == Status::Dead {
        return None;
    }
    let task = &g.kernel;
    let on_m = task.m.get();
    let state = match status {
        Status::Runnable => GState::Runnable,
        Status::Parked if on_m.is_some() => GState::InCall,
        Status::Parked => GState::Waiting,
        _ => GState::Running,
    };
    let cpu = cpu_of(g).filter(|_| state == GState::Running);
    let m = on_m.or_else(|| CPUS[cpu?].m.get()).map(|m| m.id() as u32);
    let (id, pin) = (g.id(), g.pin());
    // SAFETY: this life has begun, `look` has seen; true only if it is not over.
    let (name, site) = unsafe { task.label.get(|| handle.get().is_some()) }?;
    Some(GInfo { id, name, state, site, cpu, pin, m })
}

/// The CPU that runs `g`.
fn cpu_of(g: &'static G<Task>) -> Option<usize> {
    let address = core::ptr::from_ref(g).addr();
    (0..arch::num_cpus()).find(|&cpu| arch::slot_of::<G_SLOT>(cpu) == address)
}
