//! The records of requests: made when needed, never freed, recycled.
//!
//! Two chains hold them: one of all records, which only grows, so that any CPU may walk it
//! without a lock; and one of the free records.

use super::{Answer, Device};
use crate::arch::lock::{IrqLock, Level};
use crate::run::Link;
use crate::run::poller::{self, PollDesc};
use crate::run::timer::{Node, Timed};
use alloc::vec::Vec;

/// One request, from `take` to `give_back`.
pub struct Record {
    /// Guarded by the lock of the heap it is in.
    timer: Node,
    desc: PollDesc,
    job: IrqLock<Option<Job>>,
    /// The next free record; under the pool's lock.
    next_free: Link<Record>,
    /// The record that was made before; set once.
    older: Link<Record>,
}

/// The use of a record.
struct Job {
    device: Device,
    /// The number of the request on its device, counted from 1.
    n: u64,
    word: u64,
    fails: bool,
    outcome: Option<Outcome>,
}

/// How a request ended.
#[derive(Clone, Copy)]
pub struct Outcome {
    pub answer: Answer,
    pub fails: bool,
}

impl Timed for Record {
    fn timer(&'static self) -> &'static Node {
        &self.timer
    }

    /// The device answers.
    fn due(&'static self, now_ns: u64) {
        if let Some(job) = self.job.lock().as_mut() {
            let answer = Answer { word: !job.word, done_ns: now_ns };
            job.outcome = Some(Outcome { answer, fails: job.fails });
            job.device.count(job.n, job.fails);
        }
        poller::serve(|| self.desc.ready());
    }
}

impl Record {
    const fn new() -> Self {
        Record {
            timer: Node::new(),
            desc: PollDesc::new(),
            job: IrqLock::at(Level::Request, None),
            next_free: Link::new(),
            older: Link::new(),
        }
    }

    pub fn desc(&self) -> &PollDesc {
        &self.desc
    }

    /// Caller: its owner, before it is armed.
    pub fn begin(&self, device: Device, n: u64, word: u64, fails: bool) {
        *self.job.lock() = Some(Job { device, n, word, fails, outcome: None });
    }

    /// The result, for its owner after a wait.
    pub fn outcome(&self) -> Option<Outcome> {
        self.job.lock().as_ref().and_then(|job| job.outcome)
    }

    /// Ends the wait for it, if it belongs to that device.
    pub fn close_if_of(&self, number: u64) {
        let job = self.job.lock();
        if job.as_ref().is_some_and(|job| job.device.number() == number) {
            // Under the record's lock: afterwards it may belong to another request.
            self.desc.close();
        }
    }
}

/// How many records are made at a time.
const BATCH: usize = 64;

static POOL: IrqLock<Pool> = IrqLock::new(Pool { free: None, newest: None });

struct Pool {
    free: Option<&'static Record>,
    newest: Option<&'static Record>,
}

/// A record for the caller alone; None if there is no memory.
pub fn take() -> Option<&'static Record> {
    pop_free().or_else(|| {
        make()?;
        pop_free()
    })
}

/// Frees a record: no heap has it, and no G waits for it.
pub fn give_back(record: &'static Record) {
    // Dropped without the lock: the last owner of a device frees memory.
    let job = record.job.lock().take();
    drop(job);
    record.desc.reset().expect("its owner does not wait");
    let mut pool = POOL.lock();
    record.next_free.set(pool.free);
    pool.free = Some(record);
}

/// All records.
pub fn all() -> impl Iterator<Item = &'static Record> {
    let newest = POOL.lock().newest;
    core::iter::successors(newest, |record| record.older.get())
}

fn pop_free() -> Option<&'static Record> {
    let mut pool = POOL.lock();
    let record = pool.free?;
    pool.free = record.next_free.get();
    Some(record)
}

fn make() -> Option<()> {
    let mut batch = Vec::new();
    batch.try_reserve_exact(BATCH).ok()?;
    batch.extend((0..BATCH).map(|_| Record::new()));
    let batch: &'static [Record] = batch.leak();
    let mut pool = POOL.lock();
    for record in batch {
        record.older.set(pool.newest.replace(record));
        record.next_free.set(pool.free.replace(record));
    }
    Some(())
}
