//! All Gs, and snapshots of Gs that another CPU holds.
//!
//! Records of Gs are never freed, so they are all in one list that only grows ([`Registry`]) and
//! can be read whatever the Gs do. A snapshot reads the state word, then the fields, then the state
//! word again; if the life ended meanwhile the snapshot is discarded, and if the state changed it
//! is retried. `tasks` is the programs' interface to this.
//!
//! # Frames of a G that may run on
//!
//! Reading the stack of a G that waits does not stop the G: it may be readied, run and end, and its
//! stack may be freed or reused by another G in the middle of the walk ([`calls`]). So no word that
//! is read there is trusted, and no address of the stack window is touched. Each word is looked up
//! in the page tables and read through the window of physical memory, with interrupts off: a page
//! that is unmapped meanwhile is not reused before this CPU has answered the shootdown, which it
//! does not while interrupts are off (`mem::stack`, "TLB shootdown"). The words count only if the G
//! has not run meanwhile.

use super::account::Times;
use super::holder;
use super::index;
use super::name;
use super::task::{GHandle, Task};
use super::{CPUS, G_SLOT};
use crate::arch;
use crate::backtrace::{self, MAX_FRAMES};
use crate::cell::Registry;
use crate::mem::PHYS_OFFSET;
use crate::mem::stack::slot;
use crate::program::ProgramId;
use crate::tasks::{GInfo, GState, NoBacktrace};
use crate::waiting::{Reason, Wait};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use sched::{G, Status};

pub(super) static ALL: Registry<G<Task>> = Registry::new();

/// How many times a G that keeps changing its state is read again.
const LOOKS: usize = 4;

/// Registers a new G, which has not run yet.
pub(super) fn add(g: &'static G<Task>) {
    g.kernel.name.store(name::name_of(g), Relaxed);
    ALL.add(g);
}

/// All Gs that live, in no order.
pub fn gs() -> Vec<GInfo> {
    ALL.iter().filter_map(of_record).collect()
}

/// A snapshot of that life of a G, if it is not over.
pub fn info(handle: &GHandle) -> Option<GInfo> {
    of_record(handle.get()?).filter(|_| handle.get().is_some())
}

/// All live Gs of a program.
pub fn members(of: ProgramId) -> impl Iterator<Item = (GHandle, GInfo)> {
    let info = |g: &'static G<Task>| Some((g.look().0, of_record(g)?));
    // The cheap test first; the record may be another program's by the time the snapshot is taken.
    let is_of = move |g: &&'static G<Task>| g.kernel.program().id() == of;
    ALL.iter().filter(is_of).filter_map(info).filter(move |(_, info)| info.program == of)
}

/// The return addresses of the G of this number, innermost first.
///
/// # Errors
/// [`NoBacktrace`]; also when it ran during every attempt.
pub fn calls(id: u64) -> Result<Vec<usize>, NoBacktrace> {
    let (calls, count) = read_calls_of(id)?;
    Ok(calls[..count].to_vec())
}

/// The same without allocation: calls `f` with a number and an address each time.
pub fn with_calls(id: u64, f: impl FnMut(usize, usize)) {
    if let Ok((calls, count)) = read_calls_of(id) {
        let (numbers, mut f) = (0..count, f);
        numbers.zip(calls).for_each(|(number, address)| f(number, address));
    }
}

fn read_calls_of(id: u64) -> Result<([usize; MAX_FRAMES], usize), NoBacktrace> {
    let g = index::find(id).ok_or(NoBacktrace::NoSuchG)?;
    for _ in 0..LOOKS {
        let (handle, status) = g.look();
        if status == Status::Dead || g.id() != id {
            return Err(NoBacktrace::NoSuchG);
        }
        if !is_at_rest(status) {
            continue;
        }
        let switches = g.kernel.account.switches();
        let (calls, count) = read_calls(saved_sp(g));
        // If the G has run since, its switch count has changed, or it is on a CPU now.
        let is_at_rest = handle.get().is_some() && is_at_rest(g.look().1);
        if is_at_rest && g.kernel.account.switches() == switches {
            return Ok((calls, count));
        }
    }
    Err(NoBacktrace::Running)
}

/// Off every CPU, its context saved.
fn is_at_rest(status: Status) -> bool {
    matches!(status, Status::Runnable | Status::Parked)
}

/// Where the stack pointer of `g` was when it left its CPU.
fn saved_sp(g: &G<Task>) -> usize {
    // SAFETY: the record lives for ever; one instruction writes the word.
    unsafe { g.kernel.sp.as_ptr().read_volatile() }
}

/// The return addresses from a context that was saved at `sp` once.
fn read_calls(sp: usize) -> ([usize; MAX_FRAMES], usize) {
    let (mut calls, mut count) = ([0; MAX_FRAMES], 0);
    let (rip_at, rbp_at) = arch::saved_at(sp);
    arch::probe_stack();
    let irqs = arch::irq::disable();
    if let (Some(rip), Some(rbp)) = (read_stack(rip_at), read_stack(rbp_at)) {
        // From the stack of an M, where a call is, to that of the G, once.
        let mut may_hop = true;
        let leads_on = |frame, caller| match (slot_of(frame), slot_of(caller)) {
            (Some(here), Some(there)) if here == there => caller > frame,
            (Some(_), Some(_)) => core::mem::take(&mut may_hop),
            _ => false,
        };
        backtrace::follow(rip, rbp, read_stack, leads_on, |address| {
            calls[count] = address;
            count += 1;
        });
    }
    arch::irq::restore(irqs);
    (calls, count)
}

fn slot_of(address: usize) -> Option<slot::Slot> {
    slot::locate(address as u64).map(|(slot, _)| slot)
}

/// A word of a stack, if there is one at this address. Interrupts off.
fn read_stack(address: usize) -> Option<usize> {
    slot_of(address).and_then(|_| read_word(address))
}

/// A word of the kernel's memory, if there is any at this address. Interrupts off.
pub(super) fn read_word(address: usize) -> Option<usize> {
    if !address.is_multiple_of(size_of::<usize>()) {
        return None;
    }
    let phys = arch::paging::translate(address as u64)?.phys;
    let at = core::ptr::with_exposed_provenance::<usize>((PHYS_OFFSET + phys) as usize);
    // SAFETY: 1. aligned, and a page is a frame, so the word is in one. 2. All frames are mapped
    // there. 3. This frame is not reused before interrupts are on again. It may be written
    // meanwhile: any value will do.
    Some(unsafe { at.read_volatile() })
}

/// A snapshot of `g`; `None` if it is dead.
pub(super) fn of_record(g: &'static G<Task>) -> Option<GInfo> {
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

/// What `g` waits for, or has waited for last; if that is a join, with the number of the joined G,
/// 0 if it does not wait any more.
pub(super) fn named(g: &'static G<Task>) -> Wait {
    let wait = Wait::unpack(g.kernel.waiting.load(Relaxed));
    if wait.reason != Reason::Join {
        return wait;
    }
    let number = holder::joined(g).map_or(0, |(_, worker)| worker.id());
    let named = Wait::new(Reason::Join, number as usize);
    if wait.has_deadline { named.with_deadline() } else { named }
}

/// As [`of_record`], of that life; `None` also if it ends meanwhile.
fn of_life(g: &'static G<Task>, handle: &GHandle, status: Status) -> Option<GInfo> {
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
    let cpu = if state == GState::Running { cpu_of(g) } else { None };
    let m = on_m.or_else(|| CPUS[cpu?].m.get()).map(|m| m.id() as u32);
    let (id, pin) = (g.id(), g.pin());
    let program = task.program().id();
    let waits = matches!(state, GState::Waiting | GState::InCall);
    let wait = waits.then(|| named(g));
    let holder = wait.and_then(|_| holder::holder_of(g));
    let Times { cpu_ns, queued_ns, waiting_ns } = task.account.times(status);
    let switches = task.account.switches();
    // Last: if the life is not over here, all fields above are of this life, too.
    // SAFETY: `look` has seen that this life has begun; the closure is true only if it is not over.
    let (name, site) = unsafe { task.label.get(|| handle.get().is_some()) }?;
    let info = GInfo {
        id,
        name,
        state,
        wait,
        holder,
        site,
        program,
        cpu,
        pin,
        m,
        cpu_ns,
        queued_ns,
        waiting_ns,
        switches,
    };
    Some(info)
}

/// The CPU that runs `g`.
pub(super) fn cpu_of(g: &'static G<Task>) -> Option<usize> {
    let address = core::ptr::from_ref(g).addr();
    (0..arch::num_cpus()).find(|&cpu| arch::slot_of::<G_SLOT>(cpu) == address)
}
