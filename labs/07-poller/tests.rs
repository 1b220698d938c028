//! Lab 7 on one thread: all sequences of events on a descriptor, and a device with 10,000 requests.
//!
//! The file under test is the kernel's own. Behind the doors are one G and a world that this file
//! moves: while the G is parked, the events of a sequence happen one after the other.
#![cfg(loom)]
#![allow(dead_code, missing_docs, reason = "the source is written for another crate")]

#[path = "../src/run/poller.rs"]
pub mod poller;

pub mod arch {
    pub const MAX_CPUS: usize = 1;

    pub use crate::lock;

    pub fn cpu_index() -> usize {
        0
    }
}

pub mod lock {
    use std::cell::{RefCell, RefMut};

    pub struct IrqLock<T>(RefCell<T>);

    impl<T> IrqLock<T> {
        pub fn new(value: T) -> Self {
            IrqLock(RefCell::new(value))
        }

        /// On one thread a lock that is held stays held.
        pub fn lock(&self) -> RefMut<'_, T> {
            self.0.try_borrow_mut().expect("the descriptor's lock is taken by a G that holds it")
        }
    }
}

pub mod run {
    /// The one G. `park` gives the world its turn.
    pub mod door {
        use std::cell::{Cell, RefCell};
        use std::panic::resume_unwind;
        use std::rc::Rc;

        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct GHandle(u64);

        pub enum Reason {
            Poll,
        }

        pub struct Wait;

        impl Wait {
            pub fn at<T>(_: Reason, _: &T) -> Self {
                Wait
            }
        }

        /// How a park ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Park {
            Readied,
            Deadline,
            /// Nothing more happens: the G waits for ever.
            Never,
        }

        /// What a G that waits for ever, or dies, unwinds with.
        #[derive(Debug, PartialEq, Eq)]
        pub enum End {
            Waits,
            Dies,
        }

        type World = Rc<dyn Fn(Option<u64>) -> Park>;

        thread_local! {
            pub static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
            pub static IS_KILLED: Cell<bool> = const { Cell::new(false) };
            pub static IS_WOKEN: Cell<bool> = const { Cell::new(false) };
            static PARKS: Cell<u64> = const { Cell::new(0) };
            static IS_PARKING: Cell<bool> = const { Cell::new(false) };
        }

        pub fn begin(world: impl Fn(Option<u64>) -> Park + 'static) {
            WORLD.set(Some(Rc::new(world)));
            IS_KILLED.set(false);
            IS_WOKEN.set(false);
            IS_PARKING.set(false);
        }

        pub fn might_park() {}

        pub fn begin_park(_: Wait) -> GHandle {
            assert!(!IS_PARKING.get(), "begin_park twice without a park between");
            IS_PARKING.set(true);
            IS_WOKEN.set(false);
            PARKS.set(PARKS.get() + 1);
            GHandle(PARKS.get())
        }

        fn wait(deadline_ns: Option<u64>) -> bool {
            assert!(IS_PARKING.get(), "park without begin_park: a ready before it is lost");
            let world = WORLD.with_borrow(|world| world.clone()).expect("a test has set it");
            let end = if IS_WOKEN.get() { Park::Readied } else { world(deadline_ns) };
            IS_PARKING.set(false);
            IS_WOKEN.set(false);
            match end {
                Park::Never => resume_unwind(Box::new(End::Waits)),
                end => end == Park::Readied,
            }
        }

        pub fn park() {
            wait(None);
        }

        pub fn park_until(deadline_ns: u64) -> bool {
            wait(Some(deadline_ns))
        }

        pub fn is_killed() -> bool {
            IS_KILLED.get()
        }

        pub fn die() -> ! {
            resume_unwind(Box::new(End::Dies))
        }

        /// An old handle names the same G: it wakes whatever the G waits for now.
        pub fn ready_from_interrupt(_: GHandle) {
            if IS_PARKING.get() {
                IS_WOKEN.set(true);
            }
        }

        pub fn interrupt_this_cpu() {}
    }
}

use poller::{PollDesc, PollError};
use run::door::{self, End, Park};
use std::cell::{Cell, RefCell};
use std::collections::BinaryHeap;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

/// What can happen to a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The device is ready.
    Ready,
    /// A G comes to wait.
    Wait,
    /// A G comes to wait, with a deadline.
    WaitUntil,
    /// The deadline of the G that waits is over.
    Deadline,
    /// A wake-up that is not this descriptor's.
    OtherWake,
    /// A CPU has time for the G that was woken.
    Runs,
    Close,
    Reset,
}

use Event::*;

/// What an event gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gave {
    Wait(Result<(), PollError>),
    Reset(Result<(), PollError>),
    /// The G waits, and nothing will wake it.
    WaitsForEver,
}

/// The descriptor as its text has it.
#[derive(Default)]
struct Spec {
    edge: bool,
    is_closed: bool,
    waiter: Option<Waiter>,
    gave: Vec<Gave>,
}

#[derive(Default)]
struct Waiter {
    has_deadline: bool,
    is_over: bool,
    is_woken: bool,
    has_edge: bool,
}

impl Spec {
    fn happens(&mut self, event: Event) {
        match (event, &mut self.waiter) {
            (Ready, _) if self.is_closed => {}
            (Ready, None) => self.edge = true,
            (Ready, Some(waiter)) => (waiter.has_edge, waiter.is_woken) = (true, true),
            (Close, waiter) => {
                if let Some(waiter) = waiter {
                    waiter.is_woken = true;
                }
                self.is_closed = true;
            }
            (OtherWake, Some(waiter)) => waiter.is_woken = true,
            (Deadline, Some(waiter)) => waiter.is_over = waiter.has_deadline,
            (Wait | WaitUntil, waiter) => {
                let outcome = match waiter {
                    _ if self.is_closed => Err(PollError::Closed),
                    Some(_) => Err(PollError::Busy),
                    None if self.edge => Ok(()),
                    None => {
                        let has_deadline = event == WaitUntil;
                        *waiter = Some(Waiter { has_deadline, ..Waiter::default() });
                        return;
                    }
                };
                self.edge &= outcome.is_err();
                self.gave.push(Gave::Wait(outcome));
            }
            (Runs, Some(waiter)) if waiter.is_woken || waiter.is_over => {
                let outcome = match waiter {
                    _ if self.is_closed => Err(PollError::Closed),
                    waiter if waiter.has_edge => Ok(()),
                    waiter if waiter.is_over => Err(PollError::TimedOut),
                    waiter => {
                        waiter.is_woken = false;
                        return;
                    }
                };
                self.waiter = None;
                self.gave.push(Gave::Wait(outcome));
            }
            (Reset, Some(_)) => self.gave.push(Gave::Reset(Err(PollError::Busy))),
            (Reset, None) => {
                (self.edge, self.is_closed) = (false, false);
                self.gave.push(Gave::Reset(Ok(())));
            }
            (OtherWake | Deadline | Runs, _) => {}
        }
    }

    fn of(events: &[Event]) -> Vec<Gave> {
        let mut spec = Spec::default();
        events.iter().for_each(|event| spec.happens(*event));
        spec.happens(Runs);
        if spec.waiter.is_some() {
            spec.gave.push(Gave::WaitsForEver);
        }
        spec.gave
    }
}

/// A sequence under way.
pub struct Sequence {
    desc: PollDesc,
    events: Vec<Event>,
    next: Cell<usize>,
    is_over: Cell<bool>,
    gave: RefCell<Vec<Gave>>,
}

impl Sequence {
    fn next(&self) -> Option<Event> {
        let event = self.events.get(self.next.get()).copied();
        self.next.set(self.next.get() + 1);
        event
    }

    fn happens(&self, event: Event) {
        match event {
            Ready => self.desc.ready(),
            Close => self.desc.close(),
            Wait | WaitUntil => {
                let outcome = self.desc.wait((event == WaitUntil).then_some(1));
                self.gave.borrow_mut().push(Gave::Wait(outcome));
            }
            Reset => {
                let outcome = self.desc.reset();
                self.gave.borrow_mut().push(Gave::Reset(outcome));
            }
            OtherWake => door::IS_WOKEN.set(true),
            Deadline | Runs => {}
        }
    }

    /// The G is parked: the next events happen, until one lets it run.
    fn while_parked(&self, deadline_ns: Option<u64>) -> Park {
        if self.is_over.get() && deadline_ns.is_some() {
            return Park::Deadline; // it was over before
        }
        // What came first wakes it; the other comes while it has no CPU yet.
        let mut ended = None;
        loop {
            let event = self.next();
            match event {
                Some(Runs) | None if ended.is_some() => return ended.expect("just seen"),
                Some(Deadline) => self.is_over.set(deadline_ns.is_some()),
                Some(event) => self.happens(event),
                None => return Park::Never,
            }
            let is_over = self.is_over.get() && deadline_ns.is_some();
            ended = ended
                .or(door::IS_WOKEN.get().then_some(Park::Readied))
                .or(is_over.then_some(Park::Deadline));
        }
    }

    pub fn of(events: &[Event]) -> Vec<Gave> {
        let sequence = Rc::new(Sequence {
            desc: PollDesc::new(),
            events: events.to_vec(),
            next: Cell::new(0),
            is_over: Cell::new(false),
            gave: RefCell::default(),
        });
        let world = sequence.clone();
        let parked = Cell::new(0);
        door::begin(move |deadline_ns| {
            assert_eq!(parked.replace(1), 0, "a second G parks at the descriptor: it is Busy");
            let park = world.while_parked(deadline_ns);
            parked.set(0);
            park
        });
        let ended = catch_unwind(AssertUnwindSafe(|| {
            while let Some(event) = sequence.next() {
                sequence.is_over.set(false);
                sequence.happens(event);
            }
        }));
        if let Err(payload) = ended {
            match payload.downcast::<End>() {
                Ok(end) => assert_eq!(*end, End::Waits),
                Err(payload) => resume_unwind(payload),
            }
            sequence.gave.borrow_mut().push(Gave::WaitsForEver);
        }
        sequence.gave.take()
    }
}

/// All sequences of these events, the shortest first.
fn check_all(events: &[Event]) {
    const LONGEST: u32 = 6;
    let mut count = 0;
    for length in 1..=LONGEST {
        for number in 0..events.len().pow(length) {
            let digit = |at: u32| events[number / events.len().pow(at) % events.len()];
            let sequence: Vec<Event> = (0..length).map(digit).collect();
            let wanted = Spec::of(&sequence);
            let gave = catch_unwind(|| Sequence::of(&sequence));
            let said = match gave {
                Ok(gave) if gave == wanted => {
                    count += 1;
                    continue;
                }
                Ok(gave) => format!("gave {}", words(&gave)),
                Err(panic) => format!("panicked: {}", text(&*panic)),
            };
            panic!("after {sequence:?} it {said}; it should give {}", words(&wanted));
        }
    }
    assert_eq!(count, (1..=LONGEST).map(|length| events.len().pow(length)).sum::<usize>());
}

fn text(panic: &(dyn std::any::Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(|text| &**text);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?")
}

fn words(gave: &[Gave]) -> String {
    let mut out = String::new();
    for (i, gave) in gave.iter().enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        let _ = match gave {
            Gave::Wait(outcome) => write!(out, "{comma}wait: {outcome:?}"),
            Gave::Reset(outcome) => write!(out, "{comma}reset: {outcome:?}"),
            Gave::WaitsForEver => write!(out, "{comma}a G that waits for ever"),
        };
    }
    if out.is_empty() { "nothing".into() } else { out }
}

#[test]
fn edges_and_waits() {
    check_all(&[Ready, Wait, OtherWake, Runs]);
}

#[test]
fn edges_and_deadlines() {
    check_all(&[Ready, WaitUntil, Deadline, Runs]);
}

#[test]
fn closes_and_resets() {
    check_all(&[Ready, Wait, Close, Reset, Runs]);
}

#[test]
fn a_killed_g_leaves_the_descriptor() {
    let desc = PollDesc::new();
    door::begin(|_| {
        door::IS_KILLED.set(true);
        Park::Readied
    });
    let ended = catch_unwind(AssertUnwindSafe(|| desc.wait(None)));
    let end = ended.expect_err("a G that was killed in its wait goes on").downcast::<End>();
    assert_eq!(*end.expect("no other panic"), End::Dies);
    assert_eq!(desc.reset(), Ok(()), "no G is in a wait any more");
}

/// A request whose answer is under way: when, at which descriptor, which.
type Answer = (std::cmp::Reverse<u64>, usize, u64);

#[derive(Default)]
struct Device {
    now_ns: Cell<u64>,
    answers: RefCell<BinaryHeap<Answer>>,
    /// The last answered request of each descriptor.
    done: RefCell<Vec<u64>>,
}

impl Device {
    /// The next answer, if it comes before `until_ns`: data first, then the edge.
    fn answers(&self, descs: &[PollDesc], until_ns: u64) -> bool {
        let is_next = |(at, ..): &Answer| at.0 < until_ns;
        if !self.answers.borrow().peek().is_some_and(is_next) {
            return false;
        }
        let (at, slot, request) = self.answers.borrow_mut().pop().expect("peeked");
        self.now_ns.set(self.now_ns.get().max(at.0));
        self.done.borrow_mut()[slot] = request;
        descs[slot].ready();
        true
    }
}

/// One G and four descriptors, which serve one request after the other. Answers overtake each
/// other; some come after the deadline, when the descriptor serves another request.
#[test]
fn device_with_10_000_requests() {
    const SLOTS: usize = 4;
    let descs: Rc<Vec<PollDesc>> = Rc::new((0..SLOTS).map(|_| PollDesc::new()).collect());
    let device = Rc::new(Device { done: RefCell::new(vec![0; SLOTS]), ..Device::default() });
    let (its, at_device) = (descs.clone(), device.clone());
    door::begin(move |deadline_ns| {
        while !door::IS_WOKEN.get() {
            if !at_device.answers(&its, deadline_ns.unwrap_or(u64::MAX)) {
                let Some(deadline_ns) = deadline_ns else { return Park::Never };
                at_device.now_ns.set(deadline_ns.max(at_device.now_ns.get()));
                return Park::Deadline;
            }
        }
        Park::Readied
    });
    let (mut random, mut in_time, mut late) = (7u64, 0, 0);
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    for request in 1..=10_000 {
        let slot = request as usize % SLOTS;
        let now_ns = device.now_ns.get();
        device.answers.borrow_mut().push((std::cmp::Reverse(now_ns + draw(100)), slot, request));
        if draw(3) == 0 {
            device.answers(&descs, now_ns + 1); // it is ready before the G waits
        }
        let deadline_ns = (draw(2) == 0).then(|| now_ns + draw(120));
        let mut looks = 0;
        while device.done.borrow()[slot] != request {
            looks += 1;
            assert!(looks < 100, "request {request}: wait returns Ok, and there was no edge");
            let ended = catch_unwind(AssertUnwindSafe(|| descs[slot].wait(deadline_ns)));
            let outcome = ended.unwrap_or_else(|end| match end.downcast::<End>() {
                Ok(_) => panic!("request {request}: its answer came, and the G waits for ever"),
                Err(end) => resume_unwind(end),
            });
            if outcome == Err(PollError::TimedOut) {
                let is_over = deadline_ns.is_some_and(|at_ns| at_ns <= device.now_ns.get());
                assert!(is_over, "request {request} timed out before its deadline");
                break;
            }
            assert_eq!(outcome, Ok(()), "request {request}");
        }
        let is_done = device.done.borrow()[slot] == request;
        *(if is_done { &mut in_time } else { &mut late }) += 1;
    }
    assert_eq!((in_time + late, late > 500), (10_000, true), "{late} came too late");
}
