//! CPU shares of programs: which program has which lane, and whether shares are in force.
//!
//! `sched::share` has the rules. A program gets its lane when its run begins, and gives it back when no
//! G of it is left. While one of them has another share than the default, [`Attention::SHARES`] is
//! set on all CPUs: spawn and switch then go their slow ways, which tell `sched` the lane of the G.
#![forbid(unsafe_code)]

use super::preempt::Attention;
use super::{SCHED, all_slices, system};
use crate::arch::lock::IrqLock;
use crate::arch::text_enum;
use core::sync::atomic::{AtomicU8, AtomicU16, Ordering::Relaxed};
use sched::ShareLane;

pub use sched::{NoShare, Share};

/// Held while lanes are given and taken: lanes and attention bits change together.
static CHANGES: IrqLock<()> = IrqLock::new(());

text_enum! {
    /// Why a program did not get the share that was asked for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub error ShareError {
        Unpromised => "the scheduling system of this boot has no CPU shares",
        TooMany => "too many programs run: there is no lane left for one with a share of its own",
    }
}

/// The share of one program, and its lane.
pub(crate) struct Shared {
    /// 0: it is outside the shares.
    lane: AtomicU8,
    share: AtomicU16,
}

impl Shared {
    /// Outside the shares.
    pub(crate) const fn new() -> Self {
        Shared { lane: AtomicU8::new(0), share: AtomicU16::new(Share::DEFAULT.get()) }
    }

    /// A run of the program begins, with that share.
    pub(crate) fn begin(&self, share: Share) -> Result<(), ShareError> {
        let lane = if system::running().promises.shares {
            let _changes = CHANGES.lock();
            let lane = SCHED.add_lane(share).ok_or(ShareError::TooMany)?;
            announce();
            Some(lane)
        } else if share == Share::DEFAULT {
            None
        } else {
            return Err(ShareError::Unpromised);
        };
        self.share.store(share.get(), Relaxed);
        self.lane.store(ShareLane::number(lane), Relaxed);
        Ok(())
    }

    /// It is over, and no G of it is left.
    pub(crate) fn end(&self) {
        let Some(lane) = ShareLane::of_number(self.lane.swap(0, Relaxed)) else { return };
        let _changes = CHANGES.lock();
        SCHED.remove_lane(lane);
        announce();
    }

    /// Its Gs are to end: they do not wait for long, however small its share.
    pub(crate) fn hurry(&self) {
        if let Some(lane) = self.lane() {
            SCHED.hurry_lane(lane);
        }
    }

    pub(crate) fn lane(&self) -> Option<ShareLane> {
        ShareLane::of_number(self.lane.load(Relaxed))
    }

    /// Its share; `None` outside of them.
    pub(crate) fn share(&self) -> Option<Share> {
        self.lane().and_then(|_| Share::new(self.share.load(Relaxed)))
    }
}

/// Sets the attention bit of all CPUs, or clears it. Under the lock.
fn announce() {
    let is_in_force = SCHED.shares_in_force();
    all_slices().for_each(|slices| match is_in_force {
        true => slices.attention.set(Attention::SHARES),
        false => slices.attention.clear(Attention::SHARES),
    });
}
