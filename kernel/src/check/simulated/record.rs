//! The records of requests: made when needed, never freed, recycled.

use super::{Answer, Device, IoError};
use crate::arch::lock::{IrqLock, Level};
use crate::run::poller::{self, PollDesc};
use crate::run::timer::{Node, Timed};
use crate::run::{self, Link, Registry};
use alloc::vec::Vec;

/// One request, from `take` to `give_back`.
pub struct Record {
    /// Guarded by the lock of the heap it is in.
    timer: Node,
    pub desc: PollDesc,
    job: IrqLock<Option<Job>>,
    /// The next free record; under the lock of the free records.
    next_free: Link<Record>,
    older: Link<Record>,
}

/// The use of a record.
struct Job {
    device: Device,
    /// The number of the request on its device, counted from 1.
    n: u64,
    word: u64,
    fails: bool,
    outcome: Option<Result<Answer, IoError>>,
}

impl Timed for Record {
    fn timer(&'static self) -> &'static Node {
        &self.timer
    }

    /// The device answers.
    fn due(&'static self, now_ns: u64) {
        if let Some(job) = self.job.lock().as_mut() {
            let answer = Answer { word: !job.word, done_ns: now_ns };
            job.outcome = Some(if job.fails { Err(IoError::Failed) } else { Ok(answer) });
            job.device.count(job.n, job.fails);
        }
        poller::serve(|| self.desc.ready());
    }
}

impl run::Record for Record {
    fn older(&self) -> &Link<Self> {
        &self.older
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

    /// Caller: its owner, before it is armed.
    pub fn begin(&self, device: Device, n: u64, word: u64, fails: bool) {
        *self.job.lock() = Some(Job { device, n, word, fails, outcome: None });
    }

    /// The result, for its owner after a wait.
    pub fn outcome(&self) -> Option<Result<Answer, IoError>> {
        self.job.lock().as_ref().and_then(|job| job.outcome)
    }

    /// Ends the wait for it, if it belongs to that device.
    pub fn close_if_of(&self, device: &Device) {
        let job = self.job.lock();
        if job.as_ref().is_some_and(|job| job.device.is_same(device)) {
            // Under the record's lock: afterwards it may belong to another request.
            self.desc.close();
        }
    }
}

/// How many records are made at a time.
const BATCH: usize = 64;

pub static ALL: Registry<Record> = Registry::new();
/// The first free record.
static FREE: IrqLock<Option<&'static Record>> = IrqLock::new(None);

/// A record for the caller alone; None if there is no memory.
pub fn take() -> Option<&'static Record> {
    pop_free().or_else(|| {
        let mut batch = Vec::new();
        batch.try_reserve_exact(BATCH).ok()?;
        batch.extend((0..BATCH).map(|_| Record::new()));
        let batch: &'static [Record] = batch.leak();
        for record in batch {
            ALL.add(record);
            push_free(record);
        }
        pop_free()
    })
}

/// Frees a record: no heap has it, and no G waits for it.
pub fn give_back(record: &'static Record) {
    let job = record.job.lock().take();
    drop(job); // without the lock: the last owner of a device frees memory
    record.desc.reset().expect("its owner does not wait");
    push_free(record);
}

fn push_free(record: &'static Record) {
    let mut free = FREE.lock();
    record.next_free.set(free.replace(record));
}

fn pop_free() -> Option<&'static Record> {
    let mut free = FREE.lock();
    let record = (*free)?;
    *free = record.next_free.get();
    Some(record)
}
