//! A device in software: answers after a seeded time, for tests and study.
//!
//! [`Device`] takes requests (a word each) and answers them later, each after a latency of its own,
//! so that answers overtake each other; some fail, and some devices never answer. All of it follows
//! from the seed: [`Config::fate`], a pure function, decides the *n*-th request.
//!
//! A request has a poll descriptor, and completion comes *as an interrupt would*: from the timer
//! interrupt of the CPU that made the request, in the middle of the G that runs there. A G waits in
//! [`Request::wait`]: called plainly, the G parks; within a blocking call, its M waits with it.
//!
//! # Records
//!
//! A request lives in a record that is never freed, only recycled: so its node can be in a heap of
//! deadlines (`run::timer`), and an interrupt allocates nothing and follows no pointer that may be
//! stale. The owner of a [`Request`] owns its record. Dropping the request, at any time, takes the
//! record out of the heap; an answer is given under the lock of that heap, so when `cancel` has
//! returned, the answer was given before or will never be.
//!
//! # Lock order
//!
//! The lock of a device or a heap, then of a record, then of its descriptor; that of the pool
//! alone. All for a few instructions, with interrupts off.
#![forbid(unsafe_code)]

mod fate;

pub use fate::{Config, Fate, Latency};

use crate::arch::lock::{IrqLock, Level};
use crate::arch::text_enum;
use crate::run::poller::{self, PollDesc, PollError};
use crate::run::program::for_ever;
use crate::run::timer::{Node, Timed};
use crate::run::{self, GHandle, Link, Registry, TIMERS, door};
use crate::wait::Shared;
use core::fmt;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

#[cfg(target_os = "none")]
use crate::run::set_timer;

text_enum! {
    /// Why a request has no answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub error IoError {
        Failed => "the device reports an error",
        /// (The request is cancelled.)
        TimedOut => "the device did not answer in time",
        Closed => "the device was closed",
        NoMemory => "no memory for a request",
    }
}

/// An answer, and when it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The word of the request with all bits inverted.
    pub word: u64,
    /// When the device was done, by the clock of [`crate::run::time::Instant`].
    pub done_ns: u64,
}

/// Counters of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Requests taken.
    pub submitted: u64,
    /// Requests answered, well or not.
    pub answered: u64,
    /// Of these, failures.
    pub failed: u64,
    /// Answers that came after that of a later request.
    pub overtaken: u64,
}

/// A simulated device. Clones are the same device.
///
/// ```
/// use runnext::simulated::{Config, Device, Latency};
/// let latency = Latency::Uniform { min_ns: 1_000, max_ns: 50_000 };
/// let device = Device::new(Config { seed: 7, latency, ..Config::default() })?;
/// let (a, b) = (device.submit(1)?, device.submit(2)?);
/// assert_eq!(b.wait(None), Ok(!2));
/// assert_eq!(a.wait(None), Ok(!1));
/// # Ok::<(), runnext::simulated::IoError>(())
/// ```
#[derive(Clone)]
pub struct Device(Shared<Common>);

struct Common {
    config: Config,
    /// How many requests were submitted, and whether it is closed.
    state: IrqLock<(u64, bool)>,
    answered: AtomicU64,
    failed: AtomicU64,
    overtaken: AtomicU64,
    /// The latest request that has been answered, counted from 1.
    latest: AtomicU64,
}

impl Device {
    /// A device that behaves as `config` says.
    pub fn new(config: Config) -> Result<Device, IoError> {
        let common = Common {
            config,
            state: IrqLock::at(Level::Device, (0, false)),
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            overtaken: AtomicU64::new(0),
            latest: AtomicU64::new(0),
        };
        Shared::try_new(common).map(Device).map_err(|_| IoError::NoMemory)
    }

    /// Gives the device a request. It is answered by this CPU's timer.
    pub fn submit(&self, word: u64) -> Result<Request, IoError> {
        let record = take().ok_or(IoError::NoMemory)?;
        let request = Request { record };
        let mut state = self.0.state.lock();
        let (submitted, is_closed) = &mut *state;
        if *is_closed {
            return Err(IoError::Closed);
        }
        let fate = self.0.config.fate(*submitted);
        *submitted += 1;
        // Under the lock, so that `close` finds it.
        let (device, n) = (self.clone(), *submitted);
        *record.pending.lock() =
            Some(Pending { device, n, word, fails: fate.fails, outcome: None });
        drop(state);
        if let Some(latency_ns) = fate.latency_ns {
            set_timer(record, door::now_ns().saturating_add(latency_ns));
        }
        Ok(request)
    }

    /// Ends all requests, present and future, with [`IoError::Closed`].
    pub fn close(&self) {
        self.0.state.lock().1 = true;
        for record in ALL.iter() {
            let pending = record.pending.lock();
            if pending.as_ref().is_some_and(|pending| core::ptr::eq(&*pending.device.0, &*self.0)) {
                // Under the record's lock: afterwards it may belong to another request.
                record.desc.close();
            }
        }
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> DeviceStats {
        DeviceStats {
            submitted: self.0.state.lock().0,
            answered: self.0.answered.load(Relaxed),
            failed: self.0.failed.load(Relaxed),
            overtaken: self.0.overtaken.load(Relaxed),
        }
    }

    /// The `n`-th request, counted from 1, has been answered. In an interrupt.
    fn count(&self, n: u64, fails: bool) {
        self.0.answered.fetch_add(1, Relaxed);
        self.0.failed.fetch_add(u64::from(fails), Relaxed);
        let latest = self.0.latest.fetch_max(n, Relaxed);
        self.0.overtaken.fetch_add(u64::from(n < latest), Relaxed);
    }
}

/// A request that a device works on. Dropped, it is cancelled.
#[must_use = "a request that is dropped is cancelled"]
pub struct Request {
    record: &'static Record,
}

impl Request {
    /// Waits for the answer, until `deadline_ns` at most. Afterwards the request is over in
    /// any case: a request that timed out is cancelled.
    ///
    /// ```
    /// use runnext::simulated::{Config, Device, IoError, Latency};
    /// use runnext::prelude::*;
    /// let device = Device::new(Config { latency: Latency::Never, ..Config::default() })?;
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// assert_eq!(device.submit(1)?.wait(Some(soon.as_nanos())), Err(IoError::TimedOut));
    /// # Ok::<(), IoError>(())
    /// ```
    pub fn wait(self, deadline_ns: Option<u64>) -> Result<u64, IoError> {
        self.wait_for_answer(deadline_ns).map(|answer| answer.word)
    }

    /// As [`Request::wait`], with the time at which the answer came.
    pub fn wait_for_answer(self, deadline_ns: Option<u64>) -> Result<Answer, IoError> {
        let waited = self.record.desc.wait(deadline_ns);
        // An answer counts, even if it came with the deadline or a close.
        let outcome = self.record.pending.lock().as_ref().and_then(|pending| pending.outcome);
        match (outcome, waited) {
            (Some(outcome), _) => outcome,
            (None, Err(PollError::TimedOut)) => Err(IoError::TimedOut),
            (None, Err(PollError::Closed)) => Err(IoError::Closed),
            (None, Ok(()) | Err(PollError::Busy)) => unreachable!("a request has one owner"),
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // After this no answer is under way: see "Records".
        TIMERS.cancel(self.record);
        give_back(self.record);
    }
}

/// One request, from `take` to `give_back`.
struct Record {
    /// Guarded by the lock of the heap it is in.
    timer: Node,
    desc: PollDesc,
    pending: IrqLock<Option<Pending>>,
    /// The next free record; under the lock of the free records.
    next_free: Link<Record>,
    older: Link<Record>,
}

struct Pending {
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

    fn due(&'static self, now_ns: u64) -> Option<GHandle> {
        if let Some(pending) = self.pending.lock().as_mut() {
            let answer = Answer { word: !pending.word, done_ns: now_ns };
            pending.outcome = Some(if pending.fails { Err(IoError::Failed) } else { Ok(answer) });
            pending.device.count(pending.n, pending.fails);
        }
        poller::serve(|| self.desc.ready());
        None
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
            pending: IrqLock::at(Level::Request, None),
            next_free: Link::new(),
            older: Link::new(),
        }
    }
}

static ALL: Registry<Record> = Registry::new();
static FREE: IrqLock<Option<&'static Record>> = IrqLock::new(None);

/// A record for the caller alone; None if there is no memory.
fn take() -> Option<&'static Record> {
    let mut free = FREE.lock();
    if let Some(record) = *free {
        *free = record.next_free.get();
        return Some(record);
    }
    drop(free);
    let record = for_ever(Record::new())?;
    ALL.add(&[record]);
    Some(record)
}

/// Frees a record: no heap has it, and no G waits for it.
fn give_back(record: &'static Record) {
    let pending = record.pending.lock().take();
    drop(pending); // without the lock: the last owner of a device frees memory
    record.desc.reset().expect("its owner does not wait");
    let mut free = FREE.lock();
    record.next_free.set(free.replace(record));
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device {:?}", self.stats())
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Request")
    }
}

/// As `run::set_timer`, with a thread in place of the timer interrupt.
#[cfg(not(target_os = "none"))]
fn set_timer(record: &'static Record, due_ns: u64) {
    static TICKER: std::sync::Once = std::sync::Once::new();
    let cpu = crate::arch::cpu_index();
    let _ = TIMERS.arm(cpu, record, due_ns);
    TICKER.call_once(|| {
        std::thread::spawn(move || {
            loop {
                TIMERS.on_tick(cpu, door::now_ns(), |_| ());
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        });
    });
}

#[cfg(test)]
mod tests;
