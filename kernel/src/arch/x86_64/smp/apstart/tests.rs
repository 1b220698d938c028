//! What starting CPUs promises, on a scripted machine with a clock of its own.
//!
//! A made-up AP does what `trampoline.S` does, in the same order and with any
//! delay in between: it reads the ticket and the rest, then swaps the ticket,
//! then arrives. What the real one does is seen when the machine boots.

use super::*;
use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering::SeqCst;

const PHYS: u64 = 0x8000;
const CONTROL: [u32; 2] = [0x0012_3000, 0x6a0];

#[repr(C, align(4096))]
struct Page([u8; PAGE_SIZE]);

/// What the machine was asked, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sent {
    Init(u32, u64),
    Sipi(u32, u8, u64),
}

/// How a made-up AP behaves.
#[derive(Clone, Copy)]
struct Script {
    id: u32,
    /// Which SIPI after an INIT wakes it; 0: none.
    heeds_sipi: u32,
    /// From there to reading the block, from there to the claim, and from there
    /// to its arrival; `u64::MAX`: never.
    read_us: u64,
    claim_us: u64,
    arrive_us: u64,
    /// An INIT does not stop it any more once it runs.
    deaf: bool,
}

const GOOD: Script =
    Script { id: 0, heeds_sipi: 1, read_us: 20, claim_us: 1, arrive_us: 30, deaf: false };

/// What an AP does next, and when.
#[derive(Clone, Copy)]
enum Step {
    Read,
    Claim { ticket: u64, stack: u64 },
    Arrive { ticket: u64, stack: u64 },
}

struct Ap {
    script: Script,
    sipis: u32,
    next: Option<(u64, Step)>,
}

struct Fake {
    block: &'static Block,
    now: Cell<u64>,
    clock_stands: Cell<bool>,
    sent: RefCell<Vec<Sent>>,
    aps: RefCell<Vec<Ap>>,
    /// Who ran Rust, on which stack, and whether it was welcome.
    arrivals: RefCell<Vec<(u32, u64, bool)>>,
}

impl Fake {
    fn new(trampoline: &Trampoline, scripts: &[Script]) -> Self {
        let aps = scripts.iter().map(|&script| Ap { script, sipis: 0, next: None });
        Fake {
            block: trampoline.block,
            now: Cell::new(0),
            clock_stands: Cell::new(false),
            sent: RefCell::default(),
            aps: RefCell::new(aps.collect()),
            arrivals: RefCell::default(),
        }
    }

    fn advance(&self, us: u64) {
        for _ in 0..us {
            self.now.set(self.now.get() + 1);
            for ap in self.aps.borrow_mut().iter_mut() {
                while let Some((at, step)) = ap.next
                    && at <= self.now.get()
                {
                    ap.next = self.step(&ap.script, step);
                }
            }
        }
    }

    /// One step of an AP; gives the next.
    fn step(&self, script: &Script, step: Step) -> Option<(u64, Step)> {
        let after = |us: u64| self.now.get().saturating_add(us);
        match step {
            Step::Read => {
                let ticket = self.block.ticket.load(SeqCst);
                if ticket & STATE_MASK != WAITING || self.block.apic_id.load(SeqCst) != script.id {
                    return None;
                }
                let stack = self.block.stack_top.load(SeqCst);
                Some((after(script.claim_us), Step::Claim { ticket, stack }))
            }
            Step::Claim { ticket, stack } => {
                let claimed = ticket - WAITING + CLAIMED;
                self.block.ticket.compare_exchange(ticket, claimed, SeqCst, SeqCst).ok()?;
                Some((after(script.arrive_us), Step::Arrive { ticket: claimed, stack }))
            }
            Step::Arrive { ticket, stack } => {
                self.arrivals.borrow_mut().push((script.id, stack, self.block.arrive(ticket)));
                None
            }
        }
    }

    fn sent_to(&self, id: u32) -> Vec<Sent> {
        let to = |sent: &Sent| match *sent {
            Sent::Init(to, _) | Sent::Sipi(to, ..) => to == id,
        };
        self.sent.borrow().iter().copied().filter(to).collect()
    }
}

impl Machine for Fake {
    fn send(&self, id: u32, message: Message) {
        let now = self.now.get();
        let mut aps = self.aps.borrow_mut();
        let to = aps.iter_mut().filter(|ap| ap.script.id == id);
        match message {
            Message::Init => {
                self.sent.borrow_mut().push(Sent::Init(id, now));
                for ap in to {
                    ap.sipis = 0;
                    if !ap.script.deaf {
                        ap.next = None;
                    }
                }
            }
            Message::Startup(vector) => {
                self.sent.borrow_mut().push(Sent::Sipi(id, vector, now));
                for ap in to {
                    ap.sipis += 1;
                    if ap.sipis == ap.script.heeds_sipi && ap.next.is_none() {
                        ap.next = Some((now.saturating_add(ap.script.read_us), Step::Read));
                    }
                }
            }
            other => panic!("{other:?} starts no CPU"),
        }
    }

    fn delay_us(&self, us: u64) -> bool {
        if !self.clock_stands.get() {
            self.advance(us);
        }
        !self.clock_stands.get()
    }
}

extern "C" fn never_called(_: usize, _: &'static Block, _: u32, _: u64) -> ! {
    unreachable!("no AP of a test runs Rust code")
}

/// The trampoline in a page of its own, at physical `phys`.
fn install(phys: u64, control: [u32; 2]) -> Option<Trampoline> {
    let page = Box::leak(Box::new(Page([0xcc; PAGE_SIZE])));
    // SAFETY: the page is the test's own and never freed.
    unsafe { Trampoline::install(page.0.as_mut_ptr(), phys, control, never_called) }
}

/// Runs one test: the trampoline in a page, and a machine of these APs.
fn with_machine(scripts: &[Script], test: impl FnOnce(&mut Trampoline, &Fake)) {
    let mut trampoline = install(PHYS, CONTROL).expect("a good page");
    let fake = Fake::new(&trampoline, scripts);
    test(&mut trampoline, &fake);
}

/// Resets an AP and starts it.
fn start(trampoline: &mut Trampoline, fake: &Fake, id: u32) -> Result<(), &'static str> {
    // SAFETY: nothing is started: the machine is made up, here and below.
    unsafe { reset_all(fake, [id].into_iter()) };
    go_on(trampoline, fake, id)
}

fn go_on(trampoline: &mut Trampoline, fake: &Fake, id: u32) -> Result<(), &'static str> {
    // SAFETY: as above.
    unsafe { trampoline.start(fake, id, stack_of(id), 0) }
}

fn stack_of(id: u32) -> u64 {
    0x10_0000 * (1 + u64::from(id))
}

// The protocol.

#[test]
fn init_then_sipi_with_the_manuals_delays() {
    with_machine(&[Script { id: 3, ..GOOD }], |trampoline, fake| {
        assert_eq!(start(trampoline, fake, 3), Ok(()));
        let sent = [Sent::Init(3, 0), Sent::Sipi(3, 8, 10_000)];
        assert_eq!(fake.sent_to(3), sent);
        assert_eq!(*fake.arrivals.borrow(), [(3, stack_of(3), true)]);
    });
}

#[test]
fn aps_are_reset_together_wait_once_and_come_one_after_the_other() {
    let scripts = [3, 5, 6].map(|id| Script { id, ..GOOD });
    with_machine(&scripts, |trampoline, fake| {
        // SAFETY: the machine is made up.
        unsafe { reset_all(fake, [3, 5, 6].into_iter()) };
        assert_eq!([3, 5, 6].map(|id| go_on(trampoline, fake, id)), [Ok(()); 3]);
        let inits = [3, 5, 6].map(|id| Sent::Init(id, 0));
        assert_eq!(fake.sent.borrow()[..3], inits);
        assert!(matches!(fake.sent.borrow()[3], Sent::Sipi(3, 8, INIT_DELAY_US)));
        assert!(fake.now.get() < INIT_DELAY_US + 3 * SIPI_DELAY_US, "{}", fake.now.get());
        assert_eq!(*fake.arrivals.borrow(), [3, 5, 6].map(|id| (id, stack_of(id), true)));
    });
}

#[test]
fn a_second_sipi_follows_after_200_us_if_nobody_claimed() {
    with_machine(&[Script { id: 3, heeds_sipi: 2, ..GOOD }], |trampoline, fake| {
        assert_eq!(start(trampoline, fake, 3), Ok(()));
        assert_eq!(fake.sent_to(3)[1..], [Sent::Sipi(3, 8, 10_000), Sent::Sipi(3, 8, 10_200)]);
    });
}

#[test]
fn a_slow_ap_within_the_limits_is_started() {
    let slow = Script { id: 3, read_us: LIMIT_US - 1_000, arrive_us: LIMIT_US - 1_000, ..GOOD };
    with_machine(&[slow], |trampoline, fake| {
        assert_eq!(start(trampoline, fake, 3), Ok(()));
    });
}

#[test]
fn ids_of_32_bits_are_compared_whole() {
    let id = 0x0001_0003;
    let scripts = [Script { id, ..GOOD }, Script { id: 3, ..GOOD }];
    with_machine(&scripts, |trampoline, fake| {
        assert_eq!(start(trampoline, fake, id), Ok(()));
        assert_eq!(*fake.arrivals.borrow(), [(id, stack_of(id), true)]);
    });
}

// The limits.

#[test]
fn an_ap_that_never_claims_is_no_answer_within_the_limit_and_is_reset() {
    with_machine(&[Script { id: 3, heeds_sipi: 0, ..GOOD }], |trampoline, fake| {
        assert_eq!(start(trampoline, fake, 3), Err(NO_ANSWER));
        let given_up_at = match fake.sent_to(3)[3..] {
            [Sent::Init(3, at)] => at,
            ref other => panic!("no INIT after the time-out: {other:?}"),
        };
        let limit = 10_200 + LIMIT_US;
        assert!((limit..limit + 10).contains(&given_up_at), "{given_up_at}");
    });
}

#[test]
fn an_ap_that_claims_and_never_arrives_is_stuck_within_the_limit() {
    with_machine(&[Script { id: 3, arrive_us: u64::MAX, ..GOOD }], |trampoline, fake| {
        assert_eq!(start(trampoline, fake, 3), Err(STUCK));
        assert!(matches!(fake.sent_to(3)[2..], [Sent::Init(..)]));
        assert!(fake.now.get() < 10_200 + LIMIT_US + 10_100);
    });
}

#[test]
fn a_clock_that_stands_still_ends_the_wait() {
    with_machine(&[], |trampoline, fake| {
        fake.clock_stands.set(true);
        assert_eq!(start(trampoline, fake, 3), Err(NO_ANSWER));
    });
}

// Late arrivals.

#[test]
fn the_next_ap_starts_after_one_that_failed() {
    let scripts = [Script { id: 3, heeds_sipi: 0, ..GOOD }, Script { id: 5, ..GOOD }];
    with_machine(&scripts, |trampoline, fake| {
        assert_eq!(start(trampoline, fake, 3), Err(NO_ANSWER));
        assert_eq!(start(trampoline, fake, 5), Ok(()));
        assert_eq!(*fake.arrivals.borrow(), [(5, stack_of(5), true)]);
    });
}

#[test]
fn a_late_ap_may_not_claim_the_round_of_another() {
    // AP 3 reads the block when AP 5 is awaited, and no INIT stops it.
    let late = Script { id: 3, read_us: LIMIT_US + 10_300, deaf: true, ..GOOD };
    let slow = Script { id: 5, read_us: 1_000, ..GOOD };
    with_machine(&[late, slow], |trampoline, fake| {
        assert_eq!(start(trampoline, fake, 3), Err(NO_ANSWER));
        assert_eq!(start(trampoline, fake, 5), Ok(()));
        assert!(fake.aps.borrow().iter().all(|ap| ap.next.is_none()), "AP 3 had its turn");
        assert_eq!(*fake.arrivals.borrow(), [(5, stack_of(5), true)]);
    });
}

#[test]
fn a_round_that_was_given_up_cannot_be_claimed() {
    // AP 3 swaps shortly after the time-out, before there is another round.
    let late = Script { id: 3, claim_us: LIMIT_US + 5_000, deaf: true, ..GOOD };
    with_machine(&[late], |trampoline, fake| {
        assert_eq!(start(trampoline, fake, 3), Err(NO_ANSWER));
        fake.advance(10_000);
        assert!(fake.aps.borrow()[0].next.is_none(), "AP 3 had its turn");
        assert_eq!(*fake.arrivals.borrow(), []);
    });
}

#[test]
fn an_ap_that_read_in_one_round_may_not_claim_in_the_next() {
    // AP 3 reads its own round, and swaps while that of AP 5 is open.
    let late = Script { id: 3, claim_us: LIMIT_US + 10_300, deaf: true, ..GOOD };
    let slow = Script { id: 5, read_us: 1_000, ..GOOD };
    with_machine(&[late, slow], |trampoline, fake| {
        assert_eq!(start(trampoline, fake, 3), Err(NO_ANSWER));
        assert_eq!(start(trampoline, fake, 5), Ok(()));
        assert!(fake.aps.borrow().iter().all(|ap| ap.next.is_none()), "AP 3 had its turn");
        assert_eq!(*fake.arrivals.borrow(), [(5, stack_of(5), true)]);
    });
}

#[test]
fn an_ap_that_was_given_up_is_told_so_and_keeps_its_own_stack() {
    let late = Script { id: 3, arrive_us: LIMIT_US + 20_000, deaf: true, ..GOOD };
    with_machine(&[late, Script { id: 5, ..GOOD }], |trampoline, fake| {
        assert_eq!(start(trampoline, fake, 3), Err(STUCK));
        assert_eq!(start(trampoline, fake, 5), Ok(()));
        fake.advance(100_000);
        let expected = [(3, stack_of(3), false), (5, stack_of(5), true)];
        let mut seen = fake.arrivals.borrow().clone();
        seen.sort();
        assert_eq!(seen, expected);
    });
}

#[test]
fn an_ap_that_failed_can_be_tried_again() {
    with_machine(&[Script { id: 3, heeds_sipi: 0, ..GOOD }], |trampoline, fake| {
        assert_eq!(start(trampoline, fake, 3), Err(NO_ANSWER));
        fake.aps.borrow_mut()[0].script.heeds_sipi = 1;
        assert_eq!(start(trampoline, fake, 3), Ok(()));
    });
}

// The page.

#[test]
fn the_code_fits_below_the_block_and_begins_with_cli() {
    assert!(code().len() <= BLOCK_OFFSET, "{} bytes", code().len());
    assert_eq!(code()[0], 0xfa);
    let [start32, start64] = far_targets().map(|offset| offset as usize);
    assert!(0 < start32 && start32 < start64 && start64 < code().len());
}

#[test]
fn the_code_is_copied_and_its_pointers_lead_into_the_page() {
    let trampoline = install(0x9_e000, CONTROL).expect("a good page");
    assert_eq!((trampoline.vector, trampoline.page()), (0x9e, 0x9_e000));
    let block = trampoline.block;
    let page = core::ptr::from_ref(block).cast::<u8>().wrapping_sub(BLOCK_OFFSET);
    // SAFETY: the block is in a page that begins there.
    assert_eq!(unsafe { core::slice::from_raw_parts(page, code().len()) }, code());
    assert_eq!(block.own_address, page as u64 + BLOCK_OFFSET as u64);
    assert_eq!(block.gdt_pointer, (0x9_e000 + BLOCK_OFFSET as u64) << 16 | 31);
    let [start32, start64] = far_targets().map(|offset| 0x9_e000 + offset);
    assert_eq!([block.far32, block.far64], [0x08 << 32 | start32, 0x18 << 32 | start64]);
}

#[test]
fn a_page_out_of_reach_of_a_sipi_is_refused() {
    for phys in [0, 0x8001, 0x10_0000, !0xfff] {
        assert!(install(phys, CONTROL).is_none(), "{phys:#x}");
    }
}

#[test]
fn the_stack_is_aligned_for_the_abi() {
    with_machine(&[], |trampoline, _| {
        trampoline.block.publish(1, 0x1_0009, 0);
        assert_eq!(trampoline.block.stack_top.load(SeqCst), 0x1_0000);
    });
}

#[test]
fn control_registers_are_fit_for_the_way_into_long_mode() {
    // PG, WP, PE, caches on; LME and NXE, not LMA.
    assert_eq!((CR0, EFER), (0x8001_0033, 0x900));
    // PAE and nothing that faults.
    for (given, fit) in [(0x82_6000, 0x20), (0x6a0, 0x6a0)] {
        let block = install(PHYS, [0x1000, given]).expect("a good page").block;
        assert_eq!((block.cr3, block.cr4), (0x1000, fit));
    }
}
