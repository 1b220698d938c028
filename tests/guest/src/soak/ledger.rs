//! What there is when a round of the soak is over, and what there may be.
//!
//! Two kinds of things are counted. What a program *has* (Gs, sleepers, Ms in
//! calls, Gs in queues) must be back to what it was, to the last one. What the
//! kernel keeps to use again (*pools*: stacks, spare Ms, memory of the heap, frames)
//! grows to what the busiest moment needed, and which that is, is chance: so each
//! has a bound that follows from what one round starts, and not from how many
//! rounds there were. What is in use of the heap is the same after every round.

use crate::check::wait_until;
use runnext::inspect;
use runnext::prelude::*;

/// The bytes of a frame.
const PAGE_SIZE: usize = 4096;

/// What was counted at one moment.
#[derive(Clone, Debug)]
pub struct Ledger {
    created: u64,
    ended: u64,
    /// Gs that sleep or wait with a deadline.
    sleepers: usize,
    /// Gs that wait for a CPU.
    queued: usize,
    /// Ms that are away with a call.
    blocked_ms: u64,
    pools: Pools,
}

/// What is kept to be used again, or in use: it cannot be told from outside.
#[derive(Clone, Copy, Debug, Default)]
struct Pools {
    ms: u64,
    stacks: usize,
    heap_bytes: usize,
    heap_mapped: usize,
    /// Pages of stacks beyond the first of each. They stay until there are many
    /// (`mem::stack`), so they come and go: not compared, but bounded.
    stack_pages: usize,
    /// What is neither heap nor stack: page tables, reserves of CPUs.
    other_frames: usize,
}

impl Ledger {
    /// As things are now.
    pub fn draw_up() -> Ledger {
        let (stats, memory, (ps, global)) = (stats(), inspect::memory(), inspect::ps());
        let stack_pages = memory.stacks.commits.saturating_sub(memory.stacks.trimmed_pages);
        let known = memory.stacks.made + stack_pages + memory.heap.mapped / PAGE_SIZE;
        let frames = memory.frames.total - memory.frames.free;
        Ledger {
            created: stats.created,
            ended: stats.ended,
            sleepers: ps.iter().map(|p| p.sleepers).sum(),
            queued: ps.iter().map(|p| p.queued).sum::<usize>() + global,
            blocked_ms: stats.ms.blocked,
            pools: Pools {
                ms: stats.ms.created,
                stacks: memory.stacks.made,
                heap_bytes: memory.heap.in_use,
                heap_mapped: memory.heap.mapped,
                stack_pages,
                other_frames: frames.saturating_sub(known),
            },
        }
    }

    /// As things are when all that a round has started is gone. One that was
    /// joined may not have been laid to rest yet: so this waits, and if a G, a
    /// sleeper or an M stays, for ever; the host has a limit.
    pub fn draw_up_when_quiet(start: &Ledger) -> Ledger {
        wait_until(|| Ledger::draw_up().is_as_quiet_as(start));
        Ledger::draw_up()
    }

    fn is_as_quiet_as(&self, start: &Ledger) -> bool {
        self.alive() == start.alive() && self.sleepers + self.queued == 0 && self.blocked_ms == 0
    }

    /// How many Gs were started since then.
    pub fn created_since(&self, start: &Ledger) -> u64 {
        self.created - start.created
    }

    fn alive(&self) -> u64 {
        self.created - self.ended
    }

    /// Says what there is.
    pub fn print(&self, start: &Ledger, first: &Marks, second: &Marks) {
        let (created, ended) = (self.created_since(start), self.ended - start.ended);
        println!("LEDGER Gs: {created} created, {ended} ended");
        println!(
            "LEDGER sleepers {}, queued {}, Ms in calls {}",
            self.sleepers, self.queued, self.blocked_ms
        );
        for Pool { name, read, .. } in POOLS {
            let (start, first, second) = (read(&start.pools), read(&first.0), read(&second.0));
            println!(
                "LEDGER {name}: {start} at first, {first} at most in the first half, {second} in the second"
            );
        }
    }
}

/// What a bound is made of.
pub struct Scale {
    /// Gs that a round starts.
    pub gs: usize,
    /// Calls that may wait at the same time in a round.
    pub calls: usize,
}

/// A pool.
struct Pool {
    name: &'static str,
    read: fn(&Pools) -> usize,
    /// The most that there may ever be, given what there was at most in the first
    /// half.
    most: fn(&Scale, usize) -> usize,
}

const MIB: usize = 1 << 20;

const POOLS: [Pool; 6] = [
    Pool {
        name: "Ms",
        read: |pools| pools.ms as usize,
        // On each CPU one that runs and a spare one.
        most: |scale, _| 2 * num_cpus() + scale.calls,
    },
    Pool {
        name: "stacks",
        read: |pools| pools.stacks,
        // All alive at the same time, and what CPUs keep for themselves.
        most: |scale, _| scale.gs + 128 * num_cpus(),
    },
    Pool {
        name: "heap bytes in use",
        read: |pools| pools.heap_bytes,
        most: |_, first_half| first_half + first_half / 16,
    },
    // Two files of 1 MiB at the same time, and holes.
    Pool { name: "heap bytes mapped", read: |pools| pools.heap_mapped, most: |_, _| 16 * MIB },
    Pool {
        name: "more pages of stacks",
        read: |pools| pools.stack_pages,
        // So many are kept before they are trimmed; those in use come on top.
        most: |scale, _| 2048 + 2 * scale.gs,
    },
    Pool {
        name: "other frames",
        read: |pools| pools.other_frames,
        // Tables for the stacks, each with a table of its own at worst.
        most: |scale, _| 512 + scale.gs + 64 * num_cpus(),
    },
];

/// The most that was in each pool, at the ends of some rounds.
#[derive(Default)]
pub struct Marks(Pools);

impl Marks {
    /// One more round.
    pub fn note(&mut self, ledger: &Ledger) {
        let (most, now) = (self.0, ledger.pools);
        self.0 = Pools {
            ms: most.ms.max(now.ms),
            stacks: most.stacks.max(now.stacks),
            heap_bytes: most.heap_bytes.max(now.heap_bytes),
            heap_mapped: most.heap_mapped.max(now.heap_mapped),
            stack_pages: most.stack_pages.max(now.stack_pages),
            other_frames: most.other_frames.max(now.other_frames),
        };
    }

    /// No pool is fuller than it may be.
    pub fn assert_bounded(&self, first: &Marks, scale: &Scale) {
        for Pool { name, read, most } in POOLS {
            let (now, most) = (read(&self.0), most(scale, read(&first.0)));
            assert!(now <= most, "{name}: {now}, but {most} at most");
        }
    }
}
