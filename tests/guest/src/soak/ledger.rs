//! What there is when a round of the soak is over, and what there may be.
//!
//! Two kinds of things are counted. What a program *has* (Gs, sleepers, Ms in
//! calls, Gs in queues) must be back to what it was, to the last one. What the
//! kernel keeps to use again (*pools*: stacks, spare Ms, memory of the heap, frames)
//! grows to what the busiest moment needed, and which that is, is chance. So all are
//! filled before the first round ([`fill`](super::fill)), beyond what a round can need:
//! then none has a reason to grow, and in the second half each is held to what it was
//! in the first. What is lost out of a pool that was filled would not be missed for
//! long: so every stack is also looked for, after each round
//! ([`Census::adrift`](runnext::internals::invariant::Census)), and every M.

use crate::check::wait_until;
use runnext::inspect;
use runnext::prelude::*;
use runnext::program;

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
    /// Ms that are not, and neither spare nor on a CPU.
    lost_ms: u64,
    /// Gs that were taken off their CPU for good: what they had is lost.
    abandoned: usize,
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
    /// What is neither heap nor stack: page tables.
    other_frames: usize,
}

impl Ledger {
    /// As things are now.
    pub fn draw_up() -> Ledger {
        let (stats, memory) = (stats(), inspect::memory());
        let stacks = &memory.stacks;
        let stack_pages =
            (stacks.commits + stacks.opened_pages).saturating_sub(stacks.trimmed_pages);
        let heap_pages = (memory.heap.mapped - memory.heap.uncommitted) / PAGE_SIZE;
        let known = stacks.made + stack_pages + heap_pages;
        let frames = memory.frames.total - memory.frames.free;
        Ledger {
            created: stats.created,
            ended: stats.ended,
            sleepers: stats.cpus.iter().map(|p| p.sleepers).sum(),
            queued: stats.cpus.iter().map(|p| p.queued).sum::<usize>() + stats.global,
            blocked_ms: stats.ms.blocked,
            lost_ms: (stats.ms.created - stats.ms.spare - stats.ms.blocked)
                .saturating_sub(num_cpus() as u64),
            abandoned: program::abandoned(),
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
        self.alive() <= start.alive() && self.sleepers + self.queued == 0 && self.blocked_ms == 0
    }

    /// How many Gs were started since then.
    pub fn created_since(&self, start: &Ledger) -> u64 {
        self.created - start.created
    }

    fn alive(&self) -> u64 {
        self.created - self.ended
    }

    /// How many Gs were abandoned since then.
    pub fn abandoned_since(&self, start: &Ledger) -> usize {
        self.abandoned - start.abandoned
    }

    /// No M is lost, and those that the crews end listen: of the twenty a round, hardly
    /// any was abandoned (see `crews::work`).
    pub fn assert_balanced(&self, start: &Ledger, rounds: u64) {
        let abandoned = self.abandoned_since(start);
        assert!(abandoned as u64 <= rounds, "{abandoned} Gs were abandoned");
        assert_eq!(self.lost_ms, 0, "Ms that are nowhere");
    }

    /// Says what there is.
    pub fn print(&self, start: &Ledger, first: &Marks, second: &Marks) {
        let (created, ended) = (self.created_since(start), self.ended - start.ended);
        println!("LEDGER Gs: {created} created, {ended} ended");
        println!(
            "LEDGER sleepers {}, queued {}, Ms in calls {}",
            self.sleepers, self.queued, self.blocked_ms
        );
        println!("LEDGER Gs abandoned {}, Ms lost {}", self.abandoned, self.lost_ms);
        for Pool { name, read, .. } in POOLS {
            let (start, first, second) = (read(&start.pools), read(&first.0), read(&second.0));
            println!(
                "LEDGER {name}: {start} at first, {first} at most in the first half, {second} in the second"
            );
        }
    }
}

/// A pool.
struct Pool {
    name: &'static str,
    read: fn(&Pools) -> usize,
    /// How much more there may be in the second half than there was at most in the
    /// first, if so many Gs were abandoned.
    slack: fn(usize) -> usize,
}

/// One block of 256 bytes is made once, in whichever round; for whom was not found out.
/// A channel lost in each round is more, in two rounds.
const ONE_BLOCK: usize = 256;
/// What a G that is abandoned has of the heap: its part of a channel or a lock, and
/// where somebody waits for it.
const LEFT_BYTES: usize = 1024;

/// Frames between two owners at that instant, which neither counts.
const BETWEEN: usize = 16;
/// Pages of unused stacks that `mem::stack` keeps before it trims.
const MANY_PAGES: usize = 1024;

const POOLS: [Pool; 6] = [
    // As many were made by `fill` as there can be calls.
    Pool { name: "Ms", read: |pools| pools.ms as usize, slack: |_| 0 },
    // As many were made by `fill` as there can be Gs, and what CPUs keep.
    Pool { name: "stacks", read: |pools| pools.stacks, slack: |_| 0 },
    Pool {
        name: "heap bytes in use",
        read: |pools| pools.heap_bytes,
        slack: |abandoned| ONE_BLOCK + LEFT_BYTES * abandoned,
    },
    Pool { name: "heap bytes mapped", read: |pools| pools.heap_mapped, slack: |_| 0 },
    // Those of stacks that came to be unused since the last trim: by chance. None can be
    // lost without its stack.
    Pool { name: "more pages of stacks", read: |pools| pools.stack_pages, slack: |_| MANY_PAGES },
    // The tables are there: no addresses are new.
    Pool { name: "other frames", read: |pools| pools.other_frames, slack: |_| BETWEEN },
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

    /// No pool is fuller than it may be, after what there was at most in `first`, and
    /// so many Gs were abandoned.
    pub fn assert_bounded(&self, first: &Marks, abandoned: usize) {
        for Pool { name, read, slack } in POOLS {
            let (now, most) = (read(&self.0), read(&first.0) + slack(abandoned));
            assert!(now <= most, "{name}: {now}, but {most} at most");
        }
    }
}
