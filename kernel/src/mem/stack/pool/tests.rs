//! The promises of the stack pool, on pages that are entries in a map.

use super::*;
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

const PAGE: u64 = PAGE_SIZE as u64;

/// Pages by address, headers by address, and the unmapped pages not flushed yet.
#[derive(Default)]
struct Fake {
    pages: Mutex<HashSet<u64>>,
    headers: Mutex<HashMap<u64, &'static Header>>,
    unmapped: Mutex<HashSet<u64>>,
    rounds: AtomicUsize,
    freed: AtomicUsize,
    room: AtomicUsize,
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
    fn header(&self, slot: Slot) -> &Header {
        assert!(self.has(slot.page_from_top(0)), "a header without a page");
        let new = || Header {
            state: AtomicU32::new(FREE),
            next: AtomicU32::new(0),
            deep: AtomicU64::new(0),
            has_record: AtomicBool::new(false),
            closing: AtomicU32::new(0),
        };
        let mut headers = self.headers.lock().expect("no panic");
        headers.entry(slot.base()).or_insert_with(|| Box::leak(Box::new(new())))
    }

    fn commit(&self, page: u64, _: Stock) -> Result<(), NoMemory> {
        let waits = self.unmapped.lock().expect("no panic").contains(&page);
        assert!(!waits, "committed again before all CPUs forgot it");
        if self.count() == self.room.load(Ordering::Relaxed) {
            return Err(NoMemory);
        }
        self.pages.lock().expect("no panic").insert(page);
        Ok(())
    }

    fn is_committed(&self, page: u64) -> bool {
        self.has(page)
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
    let (pool, cpu) = (pool(1000), Here::pretend(0));
    let slot = pool.take(&cpu, 0).unwrap();
    assert!(pool.backing.has(slot.page_from_top(0)));
    let next = slot.page_from_top(1);
    assert!(!pool.backing.has(next));
    assert_eq!(pool.handle_fault(next + 123, None), PageFault::Mended);
    assert!(pool.backing.has(next));
    assert_eq!(pool.stats().commits, 1);
}

#[test]
fn the_guard_is_never_committed() {
    let (pool, cpu) = (pool(1000), Here::pretend(0));
    let slot = pool.take(&cpu, 0).unwrap();
    for addr in [slot.base(), slot.base() + PAGE, slot.bounds().start - 1] {
        assert_eq!(pool.handle_fault(addr, None), PageFault::StackOverflow);
    }
    assert_eq!(pool.handle_fault(slot.bounds().start, None), PageFault::Mended);
}

#[test]
fn a_commit_of_the_own_stack_with_interrupts_off_is_counted_as_late() {
    let pool = pool(100);
    let here = Here::pretend(0);
    let (own, other) = (pool.take(&here, 0).unwrap(), pool.take(&here, 0).unwrap());
    let touch = |n, sp| pool.handle_fault(own.page_from_top(n), sp);
    assert_eq!(touch(1, None), PageFault::Mended);
    // An interrupt handler, on its own stack, writes to the stack of a G.
    assert_eq!(touch(2, Some(other.top() - 8)), PageFault::Mended);
    assert_eq!(pool.stats().late_commits, 0);
    assert_eq!(touch(3, Some(own.page_from_top(2))), PageFault::Mended);
    assert_eq!(pool.stats().late_commits, 1);
}

#[test]
fn what_is_in_use_is_what_was_taken_and_not_returned() {
    let (pool, cpus) = (pool(4000), [Here::pretend(0), Here::pretend(1)]);
    // SAFETY: this thread alone uses the pool.
    let in_use = || unsafe { pool.in_use(2) };
    let slots: Vec<_> = (0..100).map(|n| pool.take(&cpus[n % 2], n % 3).unwrap()).collect();
    pool.take_kernel(&cpus[0], 3).unwrap();
    assert_eq!(in_use(), 100);
    slots[..60].iter().for_each(|&slot| {
        touch(&pool, slot, 2);
        pool.put(&cpus[1], slot);
    });
    assert_eq!(in_use(), 40);
    pool.trim(10);
    slots[60..].iter().for_each(|&slot| pool.put(&cpus[0], slot));
    assert_eq!(in_use(), 0);
}

#[test]
fn a_record_is_made_once_and_stays_with_its_slot() {
    let pool = pool(100);
    let here = Here::pretend(0);
    let slot = pool.take(&here, 0).unwrap();
    assert!(!pool.replace_has_record(slot) && pool.replace_has_record(slot));
    pool.put(&here, slot);
    assert_eq!(pool.take(&here, 0), Ok(slot));
    assert!(pool.replace_has_record(slot), "its next user finds the record");
}

#[test]
fn an_open_stack_is_closed_before_it_is_used_again() {
    let (pool, cpu) = (pool(1000), Here::pretend(0));
    let slot = pool.take(&cpu, 0).unwrap();
    let full = slot.bounds().start;
    pool.open(slot, slot.spare()..full + 100, slot.spare()).unwrap();
    for page in (slot.spare()..=full).step_by(PAGE_SIZE) {
        assert!(pool.backing.has(page), "{page:#x}");
    }
    assert!(!pool.backing.has(slot.base()), "the guard");
    assert!(!pool.backing.has(full + PAGE), "more than was asked for");
    pool.put(&cpu, slot);
    assert_eq!(pool.open_slots(), 1);
    let others: Vec<Slot> = (0..40).map(|_| pool.take(&cpu, 0).unwrap()).collect();
    assert!(!others.contains(&slot), "used while open");
    pool.trim(1);
    assert_eq!((pool.open_slots(), pool.backing.has(slot.spare())), (0, false));
    let again: Vec<Slot> = (0..40).map(|_| pool.take(&cpu, 0).unwrap()).collect();
    assert!(again.contains(&slot), "lost");
    assert_eq!(pool.handle_fault(full - 8, None), PageFault::StackOverflow);
}

#[test]
fn a_stack_that_its_user_keeps_is_closed_down_to_what_it_keeps() {
    const KEEP: usize = 4;
    let (pool, cpu) = (pool(1000), Here::pretend(0));
    let slot = pool.take(&cpu, 3).unwrap();
    let full = slot.bounds().start;
    touch(&pool, slot, 9);
    pool.open(slot, slot.spare()..full + 100, slot.spare()).unwrap();
    pool.close_later(slot, KEEP);
    assert_eq!((pool.is_closed(slot), pool.open_slots()), (false, 1));
    pool.trim(1);
    assert_eq!((pool.is_closed(slot), pool.open_slots()), (true, 0));
    let has = |n| pool.backing.has(slot.page_from_top(n));
    assert!((0..KEEP).all(has), "what it keeps");
    assert!(!(KEEP..=slot.depth_of(slot.base())).any(has), "what it does not");
    assert_eq!(pool.backing.freed.load(Ordering::Relaxed), pool.stats().trimmed_pages);
    // The user keeps it, and it works as before.
    assert_ne!(pool.take(&cpu, 3), Ok(slot));
    assert_eq!(pool.handle_fault(full, None), PageFault::Mended);
    assert_eq!(pool.handle_fault(full - 8, None), PageFault::StackOverflow);
}

#[test]
fn a_stack_that_is_left_behind_is_counted_with_its_pages() {
    let (pool, cpu) = (pool(1000), Here::pretend(0));
    let slot = pool.take(&cpu, 0).unwrap();
    touch(&pool, slot, 5);
    assert_eq!((pool.leave(slot), pool.stats().left_pages), (5, 5));
}

#[test]
fn what_is_below_the_limit_is_not_opened() {
    let (pool, cpu) = (pool(1000), Here::pretend(0));
    let slot = pool.take(&cpu, 0).unwrap();
    let full = slot.bounds().start;
    assert_eq!(pool.open(slot, full - PAGE - 8..full, full - PAGE), Err(NoMemory));
    assert!(!pool.backing.has(full - 2 * PAGE));
    let pages = pool.backing.count();
    pool.open(slot, full - PAGE..full, full - PAGE).unwrap();
    assert_eq!(pool.backing.count(), pages, "it was there already");
    // An open page stays open.
    pool.open(slot, slot.spare()..full, slot.spare()).unwrap();
    assert_eq!(pool.open(slot, slot.spare()..full, full - PAGE), Ok(()));
    assert_eq!(pool.open(slot, slot.spare() - 8..full, slot.spare()), Err(NoMemory), "the guard");
}

#[test]
fn wild_pointers_into_the_window_are_no_stack() {
    let (pool, cpu) = (pool(1000), Here::pretend(0));
    assert_eq!(pool.handle_fault(Slot::new(0, 0).top() - 8, None), PageFault::Stray);
    let slot = pool.take(&cpu, 0).unwrap();
    assert_eq!(pool.handle_fault(Slot::new(0, 500).top(), None), PageFault::Stray, "never made");
    assert_eq!(pool.handle_fault(Slot::new(3, 0).top(), None), PageFault::Stray, "never made");
    assert_eq!(pool.handle_fault(0x1000, None), PageFault::Stray);
    pool.put(&cpu, slot);
    assert_eq!(pool.handle_fault(slot.page_from_top(3), None), PageFault::Stray, "not in use");
    assert_eq!(pool.handle_fault(slot.base(), None), PageFault::Stray, "not in use");
}

#[test]
fn no_two_live_stacks_share_a_slot() {
    let (pool, cpus) = (pool(100_000), [Here::pretend(0), Here::pretend(1)]);
    let mut live: Vec<Slot> = Vec::new();
    let mut seed = 3_u64;
    for _ in 0..if cfg!(miri) { 200 } else { 5000 } {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let roll = (seed >> 33) as usize;
        let cpu = &cpus[roll % 2];
        if roll % 5 < 3 || live.is_empty() {
            let slot = pool.take(cpu, roll / 16 % 3).unwrap();
            assert!(!live.contains(&slot), "{slot:?} given twice");
            touch(&pool, slot, roll / 64 % 4);
            live.push(slot);
        } else {
            pool.put(cpu, live.swap_remove(roll % live.len()));
        }
        if roll.is_multiple_of(97) {
            pool.trim(10);
        }
    }
}

#[test]
fn recycled_stacks_come_from_this_cpu_without_the_lists() {
    let (pool, cpu) = (pool(1000), Here::pretend(0));
    let slot = pool.take(&cpu, 0).unwrap();
    touch(&pool, slot, 3);
    pool.put(&cpu, slot);
    let locked = pool.classes[0].lists.lock(); // locking it again would hang
    let again = pool.take(&cpu, 0).unwrap();
    drop(locked);
    assert_eq!(again, slot);
    assert!(pool.backing.has(slot.page_from_top(2)), "its pages are still there");
}

#[test]
fn trim_gives_back_all_but_the_top_page_in_few_rounds() {
    let (pool, cpu) = (pool(10_000), Here::pretend(0));
    let slots: Vec<Slot> = (0..64).map(|_| pool.take(&cpu, 1).unwrap()).collect();
    for &slot in &slots {
        touch(&pool, slot, 5);
        pool.put(&cpu, slot);
    }
    assert_eq!(pool.stats().idle_pages, 64 * 4);
    assert_eq!(pool.trim(64), 64 * 4);
    assert_eq!(pool.backing.rounds.load(Ordering::Relaxed), 2, "32 stacks a round");
    assert_eq!(pool.backing.freed.load(Ordering::Relaxed), 64 * 4);
    assert_eq!(pool.backing.count(), 64);
    assert_eq!(pool.stats().idle_pages, 0);
    assert_eq!(pool.trim(64), 0);
    // And they are as good as new.
    let slot = pool.take(&cpu, 1).unwrap();
    assert!(slots.contains(&slot));
    touch(&pool, slot, 5);
}

#[test]
fn one_deep_stack_is_trimmed_in_several_rounds() {
    let (pool, cpu) = (pool(10_000), Here::pretend(0));
    let class = slot::class_for(4 << 20).unwrap();
    let slot = pool.take(&cpu, class).unwrap();
    touch(&pool, slot, 1000);
    pool.put(&cpu, slot);
    assert_eq!(pool.trim(1), 999);
    assert_eq!(pool.backing.count(), 1);
    assert_eq!(pool.backing.rounds.load(Ordering::Relaxed), 4, "256 pages a round");
}

#[test]
fn no_memory_is_an_error_and_frees_bring_it_back() {
    let (pool, cpu) = (pool(3), Here::pretend(0));
    let slots: Vec<Slot> = (0..3).map(|_| pool.take(&cpu, 1).unwrap()).collect();
    assert_eq!(pool.take(&cpu, 1), Err(NoMemory));
    assert_eq!(pool.take(&cpu, 0), Err(NoMemory));
    assert_eq!(pool.handle_fault(slots[0].page_from_top(1), None), PageFault::NoMemory);
    pool.put(&cpu, slots[1]);
    assert_eq!(pool.take(&cpu, 1), Ok(slots[1]));
}

#[test]
fn a_kernel_stack_is_whole_and_never_grows() {
    let (pool, cpu) = (pool(1000), Here::pretend(0));
    let slot = pool.take_kernel(&cpu, 4).unwrap();
    for n in 0..4 {
        assert!(pool.backing.has(slot.page_from_top(n)), "page {n}");
    }
    assert_eq!(pool.handle_fault(slot.page_from_top(4), None), PageFault::StackOverflow);
    assert_eq!(pool.take_kernel(&cpu, 0), Err(NoMemory));
    assert_eq!(pool.take_kernel(&cpu, usize::MAX), Err(NoMemory));
    assert_eq!(slot::class_for(9 * PAGE_SIZE - slot::TOP_BYTES), Some(0), "9 pages fit");
}

#[test]
fn a_kernel_stack_that_cannot_be_had_leaves_no_hole() {
    let (pool, cpu) = (pool(20), Here::pretend(0));
    assert_eq!(pool.take_kernel(&cpu, 60), Err(NoMemory));
    assert_eq!(pool.stats().idle_pages, 19);
    assert_eq!(pool.trim(1), 19);
    assert!(pool.take_kernel(&cpu, 10).is_ok());
}
