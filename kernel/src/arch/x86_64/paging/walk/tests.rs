//! The promises of page tables, on a vector.

pub mod fake;

use super::*;
use fake::{FakeMemory, space};

const HIGH: u64 = 0xffff_c000_0000_0000;

#[test]
fn a_mapped_page_translates_with_its_rights_and_unmaps() {
    let memory = FakeMemory::new(8);
    let space = space(&memory);
    assert_eq!(space.translate(HIGH), None);
    space.map(HIGH + 0x5000, 0x1234_5000, Flags::DATA).unwrap();
    let found = space.translate(HIGH + 0x5678).unwrap();
    assert_eq!(found, Translation { phys: 0x1234_5678, flags: Flags::DATA });
    assert_eq!(space.translate(HIGH + 0x6000), None, "the neighbour");
    assert_eq!(space.unmap(HIGH + 0x5000), Some(0x1234_5000));
    assert_eq!(space.unmap(HIGH + 0x5000), None);
    assert_eq!(space.translate(HIGH + 0x5000), None);
}

#[test]
fn writable_and_executable_is_refused() {
    let memory = FakeMemory::new(8);
    let both = Flags { writable: true, executable: true, uncached: false };
    assert_eq!(space(&memory).map(HIGH, 0x1000, both), Err(MapError::WritableAndExecutable));
    assert_eq!(space(&memory).audit().pages, 0);
}

#[test]
fn a_mapping_is_never_overwritten() {
    let memory = FakeMemory::new(8);
    let space = space(&memory);
    space.map(HIGH, 0x1000, Flags::DATA).unwrap();
    assert_eq!(space.map(HIGH, 0x2000, Flags::DATA), Err(MapError::AlreadyMapped));
    assert_eq!(space.translate(HIGH).map(|t| t.phys), Some(0x1000));
}

#[test]
fn a_larger_page_is_seen_kept_and_counted() {
    let memory = FakeMemory::new(8);
    let space = space(&memory);
    space.map(HIGH, 0x1000, Flags::DATA).unwrap();
    // Beside that page's level-1 table, in the same level-2 table, 2 MiB.
    let level2 = table_of(&memory, HIGH, 2);
    level2.0[1].store(0x4000_0000 | PRESENT | WRITABLE | LARGE | NO_EXECUTE, Ordering::Relaxed);
    let large = HIGH + 0x20_0000;
    let found = space.translate(large + 0x12_3456).unwrap();
    assert_eq!(found.phys, 0x4012_3456);
    assert_eq!(space.map(large + 0x3000, 0x1000, Flags::DATA), Err(MapError::AlreadyMapped));
    assert_eq!(space.unmap(large), None, "not ours to split");
    assert_eq!(space.audit().pages, 2);
}

#[test]
fn the_window_of_physical_memory_ends_where_its_range_or_the_limit_ends() {
    for pages in 0..9 {
        let memory = FakeMemory::new(8);
        let space = space(&memory);
        for at in (0..pages).map(|page| page * 4096) {
            space.map(HIGH + at, at, Flags::DATA).unwrap();
        }
        // What the loader puts elsewhere leads elsewhere.
        space.map(HIGH + 0x10_0000, 0x3000, Flags::DATA).unwrap();
        for limit in [0, 4095, 4096, 0x3000, 0x3fff, 0x9000, 1 << 40, 1 << 46] {
            let end = (pages * 4096).min(limit & !4095);
            assert_eq!(space.window_len(HIGH, limit), end, "{pages} pages, {limit:#x}");
        }
    }
}

#[test]
fn bad_addresses_are_refused() {
    let memory = FakeMemory::new(8);
    let space = space(&memory);
    for (virt, phys) in [
        (0, 0x1000),                   // page 0
        (HIGH + 1, 0x1000),            // not aligned
        (HIGH, 0x1001),                // not aligned
        (0x0000_8000_0000_0000, 0),    // not canonical
        (HIGH, 0x0010_0000_0000_0000), // more than 52 bits
    ] {
        assert_eq!(space.map(virt, phys, Flags::DATA), Err(MapError::BadAddress), "{virt:#x}");
    }
    assert_eq!(space.translate(0x0000_8000_0000_0000), None);
}

#[test]
fn no_frame_for_a_table_is_an_error_and_can_be_tried_again() {
    let memory = FakeMemory::new(1);
    let space = space(&memory);
    assert_eq!(space.map(HIGH, 0x1000, Flags::DATA), Err(MapError::NoMemory));
    memory.add(2);
    assert_eq!(space.map(HIGH, 0x1000, Flags::DATA), Ok(()));
}

#[test]
fn audit_finds_what_the_loader_may_have_left() {
    let memory = FakeMemory::new(16);
    let space = space(&memory);
    space.map(HIGH, 0x1000, Flags::DATA).unwrap();
    space.map(HIGH + 0x1000, 0x2000, Flags::CODE).unwrap();
    assert_eq!(space.audit().writable_and_executable, 0);
    let level1 = table_of(&memory, HIGH, 1);
    level1.0[7].store(0x5000 | PRESENT | WRITABLE | USER, Ordering::Relaxed);
    level1.0[9].store(0x6000 | PRESENT | WRITABLE, Ordering::Relaxed);
    let audit = space.audit();
    assert_eq!(audit.writable_and_executable, 2);
    assert_eq!(audit.first_bad, Some(HIGH + 0x7000));
    assert_eq!(audit.executable_pages, 3);
    assert_eq!(audit.user_pages, 0, "the levels above do not give it");
    assert!(!audit.page0_mapped);
    assert_eq!((audit.lower_half_pages, audit.tables), (0, 4));
}

#[test]
fn a_level_above_narrows_rights() {
    let memory = FakeMemory::new(8);
    let space = space(&memory);
    space.map(HIGH, 0x1000, Flags::CODE).unwrap();
    table_of(&memory, HIGH, 2).0[0].fetch_or(NO_EXECUTE, Ordering::Relaxed);
    assert_eq!(space.translate(HIGH).map(|t| t.flags), Some(Flags::default()));
    assert_eq!(space.audit().executable_pages, 0);
}

#[test]
fn new_root_has_the_upper_half_and_an_empty_lower_half() {
    let memory = FakeMemory::new(16);
    let old = space(&memory);
    old.map(0x8000, 0x8000, Flags::CODE).unwrap();
    table_of(&memory, 0x8000, 1).0[0].store(PRESENT | WRITABLE, Ordering::Relaxed);
    old.map(HIGH, 0x1000, Flags::DATA).unwrap();
    assert!(old.audit().page0_mapped);
    let root = (&memory).alloc_table().unwrap();
    old.copy_upper_half_to(root);
    let new = Space::new(root, &memory);
    assert_eq!(new.translate(0x8000), None);
    assert_eq!(new.translate(HIGH), old.translate(HIGH));
    let audit = new.audit();
    assert!(!audit.page0_mapped);
    assert_eq!(audit.lower_half_pages, 0);
}

#[test]
fn two_cpus_that_miss_the_same_tables_agree() {
    for _ in 0..50 {
        let memory = FakeMemory::new(32);
        std::thread::scope(|scope| {
            for cpu in 0..4_u64 {
                let memory = &memory;
                scope.spawn(move || {
                    space(memory).map(HIGH + cpu * 4096, (cpu + 1) << 20, Flags::DATA).unwrap();
                });
            }
        });
        let space = space(&memory);
        for cpu in 0..4 {
            let found = space.translate(HIGH + cpu * 4096).map(|t| t.phys);
            assert_eq!(found, Some((cpu + 1) << 20));
        }
        assert_eq!(space.audit().tables, 4);
    }
}

/// A memory in which another CPU is always first to make the missing table.
struct Rival<'a>(&'a FakeMemory);

impl PhysMemory for Rival<'_> {
    fn table(&self, phys: u64) -> &Table {
        self.0.at(phys)
    }

    fn alloc_table(&self) -> Option<u64> {
        let taken = space(self.0).map(HIGH + 0x1000, 0x2000, Flags::DATA);
        assert!(matches!(taken, Ok(()) | Err(MapError::AlreadyMapped)));
        (&self.0).alloc_table()
    }

    fn free_table(&self, phys: u64) {
        (&self.0).free_table(phys);
    }
}

#[test]
fn the_loser_of_a_race_for_a_table_uses_the_winners() {
    let memory = FakeMemory::new(16);
    Space::new(0x1000, Rival(&memory)).map(HIGH, 0x1000, Flags::DATA).unwrap();
    let space = space(&memory);
    assert_eq!(space.translate(HIGH).map(|t| t.phys), Some(0x1000));
    assert_eq!(space.translate(HIGH + 0x1000).map(|t| t.phys), Some(0x2000));
    assert_eq!(space.audit().tables, 4);
    assert_eq!(memory.freed.load(Ordering::Relaxed), 1, "the frame that was not needed");
}

/// The table of `level` on the way to `virt`.
fn table_of(memory: &FakeMemory, virt: u64, level: u32) -> &Table {
    let mut table = memory.at(0x1000);
    for above in (level + 1..=4).rev() {
        let entry = table.0[index(virt, above)].load(Ordering::Relaxed);
        table = memory.at(entry & ADDRESS);
    }
    table
}
