//! The promises of the stack pool, on pages that are entries in a map.

use super::*;
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

const PAGE: u64 = PAGE_SIZE as u64;
/// All closed pages but the guard.
const ALL: usize = slot::MARGIN_PAGES + slot::SPARE_PAGES;

/// Pages by address, headers by address, and the unmapped pages not flushed yet.
#[derive(Default)]
struct Fake {
    pages: Mutex<HashSet<u64>>,
    headers: Mutex<HashMap<u64, &'static Header>>,
    unmapped: Mutex<HashSet<u64>>,
    rounds: AtomicUsize,
    freed: AtomicUsize,
    room: AtomicUsize,
    /// The stock of the last page that was to be unpacked.
    asked: Mutex<Option<Stock>>,
}

impl Fake {
    fn has(&self, page: u64) -> bool {
        self.pages.lock().expect("no panic").contains(&page)
    }

    fn count(&self) -> usize {
        self.pages.lock().expect("no panic").len()
    }
}

impl Backing for Fake {
    fn make(&self, first: Slot, most: usize) -> usize {
        let new = || Header {
            deep: AtomicU32::new(0),
            next: AtomicU32::new(0),
            closing: AtomicU32::new(0),
            state: AtomicU8::new(FREE),
            has_record: AtomicBool::new(false),
        };
        let slots = (first.index()..).map(|index| Slot::new(first.class(), index)).take(most);
        let made = slots.take_while(|slot| {
            let mut headers = self.headers.lock().expect("no panic");
            headers.entry(slot.base()).or_insert_with(|| Box::leak(Box::new(new())));
            self.commit(slot.page_from_top(0), Stock::Free).is_ok()
        });
        made.count()
    }

    fn header(&self, slot: Slot) -> &Header {
        let headers = self.headers.lock().expect("no panic");
        headers.get(&slot.base()).expect("a header of a slot that was made")
    }

    fn commit(&self, page: u64, _: Stock) -> Result<(), NoMemory> {
        let waits = self.unmapped.lock().expect("no panic").contains(&page);
        assert!(!waits, "committed again before all CPUs forgot it");
        if self.has(page) {
            return Ok(());
        }
        if self.count() == self.room.load(Ordering::Relaxed) {
            return Err(NoMemory);
        }
        self.pages.lock().expect("no panic").insert(page);
        Ok(())
    }

    fn is_committed(&self, page: u64) -> bool {
        self.has(page)
    }

    fn restore(&self, _: u64, stock: Stock) -> Option<Result<(), NoMemory>> {
        *self.asked.lock().expect("no panic") = Some(stock);
        None
    }

    fn uncommit(&self, page: u64) -> Option<Frame> {
        let had = self.pages.lock().expect("no panic").remove(&page);
        had.then(|| {
            self.unmapped.lock().expect("no panic").insert(page);
            Frame::containing(page)
        })
    }

    fn forget(&self, frames: &[Frame]) {
        let mut unmapped = self.unmapped.lock().expect("no panic");
        for frame in frames {
            let page = frame.addr(); // the fake's frames carry their page's address
            assert!(unmapped.remove(&page));
        }
        self.rounds.fetch_add(1, Ordering::Relaxed);
        self.freed.fetch_add(frames.len(), Ordering::Relaxed);
    }
}

fn pool(room: usize) -> Box<Pool<Fake>> {
    let pool = Box::new(Pool::new(Fake::default()));
    pool.backing.room.store(room, Ordering::Relaxed);
    pool
}

fn touch(pool: &Pool<Fake>, slot: Slot, pages: usize) {
    for n in 1..pages {
        assert_eq!(pool.handle_fault(slot.page_from_top(n) + 8, None), PageFault::Mended);
    }
}

#[test]
fn a_new_stack_has_its_top_page_and_gets_others_on_touch() {
    let pool = pool(1000);
    let slot = pool.take(0).unwrap();
    assert!(pool.backing.has(slot.page_from_top(0)));
    let next = slot.page_from_top(1);
    assert!(!pool.backing.has(next));
    assert_eq!(pool.handle_fault(next + 123, None), PageFault::Mended);
    assert!(pool.backing.has(next));
    assert_eq!(pool.stats().commits, 1);
}

#[test]
fn only_a_touch_of_another_stack_with_interrupts_off_may_take_the_whole_reserve() {
    let pool = pool(1000);
    let [own, other] = [0, 0].map(|class| pool.take(class).unwrap());
    let sp = own.page_from_top(0);
    for (slot, irqs_off_at, stock) in [
        (own, None, Stock::Run),
        (other, None, Stock::Run),
        (own, Some(sp), Stock::Run),
        (other, Some(sp), Stock::Unpack),
    ] {
        let _ = pool.handle_fault(slot.page_from_top(1), irqs_off_at);
        assert_eq!(*pool.backing.asked.lock().expect("no panic"), Some(stock));
    }
}

#[test]
fn the_guard_is_never_committed() {
    let pool = pool(1000);
    let slot = pool.take(0).unwrap();
    for addr in [slot.base(), slot.base() + PAGE, slot.bounds().start - 1] {
        assert_eq!(pool.handle_fault(addr, None), PageFault::StackOverflow);
    }
    assert_eq!(pool.handle_fault(slot.bounds().start, None), PageFault::Mended);
}

#[test]
fn a_commit_of_the_own_stack_with_interrupts_off_is_counted_as_late() {
    let pool = pool(100);
    let (own, other) = (pool.take(0).unwrap(), pool.take(0).unwrap());
    let touch = |n, sp| pool.handle_fault(own.page_from_top(n), sp);
    assert_eq!(touch(1, None), PageFault::Mended);
    // An interrupt handler, on its own stack, writes to the stack of a G.
    assert_eq!(touch(2, Some(other.start() - 8)), PageFault::Mended);
    assert_eq!(pool.stats().late_commits, 0);
    assert_eq!(touch(3, Some(own.page_from_top(2))), PageFault::Mended);
    assert_eq!(pool.stats().late_commits, 1);
}

#[test]
fn what_is_in_use_is_what_was_taken_and_not_returned() {
    let pool = pool(4000);
    let in_use = || pool.in_use();
    let slots: Vec<_> = (0..100).map(|n| pool.take(n % 3).unwrap()).collect();
    pool.take_kernel(3).unwrap();
    assert_eq!(in_use(), 100);
    slots[..60].iter().for_each(|&slot| {
        touch(&pool, slot, 2);
        pool.put(slot);
    });
    assert_eq!(in_use(), 40);
    pool.trim(10);
    slots[60..].iter().for_each(|&slot| pool.put(slot));
    assert_eq!(in_use(), 0);
}

#[test]
fn a_record_is_made_once_and_stays_with_its_slot() {
    let pool = pool(100);
    let slot = pool.take(0).unwrap();
    assert!(!pool.has_record(slot));
    pool.set_has_record(slot);
    pool.put(slot);
    assert_eq!(pool.take(0), Ok(slot));
    assert!(pool.has_record(slot), "its next user finds the record");
}

#[test]
fn an_open_stack_is_closed_before_it_is_used_again() {
    let pool = pool(1000);
    let slot = pool.take(0).unwrap();
    let full = slot.bounds().start;
    assert!(pool.open(slot, slot.spare()..full + 100, ALL));
    for page in (slot.spare()..=full).step_by(PAGE_SIZE) {
        assert!(pool.backing.has(page), "{page:#x}");
    }
    assert!(!pool.backing.has(slot.base()), "the guard");
    assert!(!pool.backing.has(full + PAGE), "more than was asked for");
    pool.put(slot);
    assert_eq!(pool.open_slots(), 1);
    let others: Vec<Slot> = (0..40).map(|_| pool.take(0).unwrap()).collect();
    assert!(!others.contains(&slot), "used while open");
    pool.trim(1);
    assert_eq!((pool.open_slots(), pool.backing.has(slot.spare())), (0, false));
    let again: Vec<Slot> = (0..40).map(|_| pool.take(0).unwrap()).collect();
    assert!(again.contains(&slot), "lost");
    assert_eq!(pool.handle_fault(full - 8, None), PageFault::StackOverflow);
}

#[test]
fn a_stack_that_its_user_keeps_is_closed_down_to_what_it_keeps() {
    const KEEP: usize = 4;
    let pool = pool(1000);
    let slot = pool.take(3).unwrap();
    let full = slot.bounds().start;
    touch(&pool, slot, 9);
    assert!(pool.open(slot, slot.spare()..full + 100, ALL));
    pool.close_later(slot, KEEP);
    assert_eq!((pool.is_closed(slot), pool.open_slots()), (false, 1));
    pool.trim(1);
    assert_eq!((pool.is_closed(slot), pool.open_slots()), (true, 0));
    let has = |n| pool.backing.has(slot.page_from_top(n));
    assert!((0..KEEP).all(has), "what it keeps");
    assert!(!(KEEP..=slot.depth_of(slot.base())).any(has), "what it does not");
    assert_eq!(pool.backing.freed.load(Ordering::Relaxed), pool.stats().trimmed_pages);
    // The user keeps it, and it works as before.
    assert_ne!(pool.take(3), Ok(slot));
    assert_eq!(pool.handle_fault(full, None), PageFault::Mended);
    assert_eq!(pool.handle_fault(full - 8, None), PageFault::StackOverflow);
}

#[test]
fn a_stack_that_is_left_behind_is_counted_with_its_pages() {
    let pool = pool(1000);
    let slot = pool.take(0).unwrap();
    touch(&pool, slot, 5);
    assert_eq!((pool.leave(slot), pool.stats().left_pages), (5, 5));
}

#[test]
fn what_is_below_the_limit_is_not_opened() {
    let pool = pool(1000);
    let slot = pool.take(0).unwrap();
    let full = slot.bounds().start;
    assert!(!pool.open(slot, full - PAGE - 8..full, 1));
    assert!(!pool.backing.has(full - 2 * PAGE));
    let pages = pool.backing.count();
    assert!(pool.open(slot, full - PAGE..full, 1));
    assert_eq!(pool.backing.count(), pages, "it was there already");
    // An open page stays open.
    assert!(pool.open(slot, slot.spare()..full, ALL));
    assert!(pool.open(slot, slot.spare()..full, 1));
    assert!(!pool.open(slot, slot.spare() - 8..full, ALL), "the guard");
    assert!(!pool.open(slot, full..slot.start() + 8, ALL), "above its top");
}

#[test]
fn wild_pointers_into_the_window_are_no_stack() {
    let pool = pool(1000);
    assert_eq!(pool.handle_fault(Slot::new(0, 0).start() - 8, None), PageFault::Stray);
    let slot = pool.take(0).unwrap();
    assert_eq!(pool.handle_fault(Slot::new(0, 500).start(), None), PageFault::Stray, "never made");
    assert_eq!(pool.handle_fault(Slot::new(3, 0).start(), None), PageFault::Stray, "never made");
    assert_eq!(pool.handle_fault(0x1000, None), PageFault::Stray);
    pool.put(slot);
    assert_eq!(pool.handle_fault(slot.page_from_top(3), None), PageFault::Stray, "not in use");
    assert_eq!(pool.handle_fault(slot.base(), None), PageFault::Stray, "not in use");
}

#[test]
fn no_two_live_stacks_share_a_slot() {
    let pool = pool(100_000);
    let mut live: Vec<Slot> = Vec::new();
    let mut seed = 3_u64;
    for _ in 0..if cfg!(miri) { 200 } else { 5000 } {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let roll = (seed >> 33) as usize;
        if roll % 5 < 3 || live.is_empty() {
            let slot = pool.take(roll / 16 % 3).unwrap();
            assert!(!live.contains(&slot), "{slot:?} given twice");
            touch(&pool, slot, roll / 64 % 4);
            live.push(slot);
        } else {
            pool.put(live.swap_remove(roll % live.len()));
        }
        if roll.is_multiple_of(97) {
            pool.trim(10);
        }
    }
}

#[test]
fn a_recycled_stack_is_the_last_one_with_its_pages() {
    let pool = pool(1000);
    let slots = [(); 3].map(|()| pool.take(0).unwrap());
    for slot in slots {
        touch(&pool, slot, 3);
        pool.put(slot);
    }
    assert_eq!(pool.take(0), Ok(slots[2]));
    assert!(pool.backing.has(slots[2].page_from_top(2)), "its pages are still there");
}

#[test]
fn trim_gives_back_all_but_the_top_page_in_few_rounds() {
    let pool = pool(10_000);
    let slots: Vec<Slot> = (0..64).map(|_| pool.take(1).unwrap()).collect();
    for &slot in &slots {
        touch(&pool, slot, 5);
        pool.put(slot);
    }
    assert_eq!(pool.stats().idle_pages, 64 * 4);
    assert_eq!(pool.trim(64), 64 * 4);
    assert_eq!(pool.backing.rounds.load(Ordering::Relaxed), 2, "32 stacks a round");
    assert_eq!(pool.backing.freed.load(Ordering::Relaxed), 64 * 4);
    assert_eq!(pool.backing.count(), 64);
    assert_eq!(pool.stats().idle_pages, 0);
    assert_eq!(pool.trim(64), 0);
    // And they are as good as new.
    let slot = pool.take(1).unwrap();
    assert!(slots.contains(&slot));
    touch(&pool, slot, 5);
}

#[test]
fn one_deep_stack_is_trimmed_in_several_rounds() {
    let pool = pool(10_000);
    let class = slot::class_for(4 << 20).unwrap();
    let slot = pool.take(class).unwrap();
    touch(&pool, slot, 1000);
    pool.put(slot);
    assert_eq!(pool.trim(1), 999);
    assert_eq!(pool.backing.count(), 1);
    assert_eq!(pool.backing.rounds.load(Ordering::Relaxed), 4, "256 pages a round");
}

#[test]
fn no_memory_is_an_error_and_frees_bring_it_back() {
    let pool = pool(3);
    let slots: Vec<Slot> = (0..3).map(|_| pool.take(1).unwrap()).collect();
    assert_eq!(pool.take(1), Err(NoMemory));
    assert_eq!(pool.take(0), Err(NoMemory));
    assert_eq!(pool.handle_fault(slots[0].page_from_top(1), None), PageFault::NoMemory);
    pool.put(slots[1]);
    assert_eq!(pool.take(1), Ok(slots[1]));
}

#[test]
fn several_are_taken_at_a_time_but_warm_ones_alone() {
    let pool = pool(BATCH + 5);
    let some = pool.take_some(0, BATCH);
    assert_eq!((some.len(), pool.in_use(), pool.backing.count()), (BATCH, BATCH, BATCH));
    some.iter().for_each(|&slot| pool.put(slot));
    assert_eq!(pool.in_use(), 0);
    let two = pool.take_some(0, 2);
    assert_eq!((two.len(), pool.backing.count()), (2, BATCH), "bare ones before new ones");
    touch(&pool, two[0], 2);
    two.iter().for_each(|&slot| pool.put(slot));
    assert_eq!(pool.take_some(0, BATCH)[..], two[..1], "its pages stay with the pool till needed");
    assert_eq!(pool.take_some(0, BATCH).len(), BATCH - 1);
    assert_eq!(pool.take_some(0, BATCH).len(), 4, "as many as there is memory for");
    assert!(pool.take_some(0, BATCH).is_empty());
    let unique: HashSet<_> = some.iter().map(|slot| slot.index()).collect();
    assert_eq!(unique.len(), BATCH);
}

#[test]
fn a_kernel_stack_is_whole_and_never_grows() {
    let pool = pool(1000);
    let slot = pool.take_kernel(4).unwrap();
    for n in 0..4 {
        assert!(pool.backing.has(slot.page_from_top(n)), "page {n}");
    }
    assert_eq!(pool.handle_fault(slot.page_from_top(4), None), PageFault::StackOverflow);
    assert_eq!(pool.take_kernel(0), Err(NoMemory));
    assert_eq!(pool.take_kernel(usize::MAX), Err(NoMemory));
    assert_eq!(slot::class_for(9 * PAGE_SIZE - slot::CANARY_BYTES), Some(0), "9 pages fit");
}

#[test]
fn a_kernel_stack_that_cannot_be_had_leaves_no_hole() {
    let pool = pool(20);
    assert_eq!(pool.take_kernel(60), Err(NoMemory));
    assert_eq!(pool.stats().idle_pages, 19);
    assert_eq!(pool.trim(1), 19);
    assert!(pool.take_kernel(10).is_ok());
}

#[test]
fn stripped_stacks_have_no_page_until_they_are_taken() {
    let pool = pool(BATCH);
    let some = pool.take_some(0, BATCH);
    some.iter().for_each(|&slot| pool.put(slot));
    assert_eq!((pool.strip(3), pool.bare_slots(), pool.backing.count()), (3, BATCH - 3, BATCH - 3));
    assert_eq!(pool.take_some(0, BATCH).len(), BATCH - 3, "first those that have their page");
    let empty = pool.take_some(0, BATCH);
    assert!(empty.len() == 3 && empty.iter().all(|slot| pool.backing.has(slot.page_from_top(0))));
    empty.iter().for_each(|&slot| pool.put(slot));
    assert_eq!((pool.strip(usize::MAX), pool.bare_slots()), (3, 0));
    pool.backing.room.store(BATCH - 3, Ordering::Relaxed);
    assert!(pool.take_some(0, BATCH).is_empty(), "there is no memory for them");
    pool.backing.room.store(BATCH, Ordering::Relaxed);
    assert_eq!(pool.take_some(0, BATCH).len(), 3, "they are not lost");
}
