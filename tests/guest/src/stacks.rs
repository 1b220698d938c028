//! Checks how large stacks are: `program=stacks`.
//!
//! `stacks` has the checks for the sizes without a boot word; `deepmain` asks for more in
//! [`runnext::main!`]; `bootword <KiB>` uses that much in a plain G; `deepstack <MiB>` uses that much
//! in a G with the largest stack, twice.

use crate::check::{self, checks};
use core::hint::black_box;
use runnext::prelude::*;
use runnext::program::{self, Ended};
use runnext::sync::Semaphore;

runnext::main!(stacks, main);
runnext::main!(deepmain, deep_main, stack = 64 << 20);
runnext::main!(bootword, boot_word);
runnext::main!(deepstack, deep_stack);

fn main() {
    // Main's own stack: the checks run on others.
    assert_eq!(array::<{ 100 << 10 }>(), 100 << 10);
    assert_eq!(array::<{ 4 << 20 }>(), 4 << 20);
    check::run(checks![
        a_parked_g_costs_a_page_a_record_and_a_share_of_page_tables, // before others leave pages behind
        a_plain_g_has_room_for_50_kib,
        a_stack_of_1_gib_has_64_mib_when_they_are_touched,
        more_than_1_gib_is_refused,
        an_overflow_ends_its_g_only,
        a_program_says_how_large_the_stack_of_its_main_is,
    ]);
}

/// An array on the stack, all of it touched.
#[inline(never)]
fn array<const BYTES: usize>() -> usize {
    let array = black_box([1u8; BYTES]);
    array.iter().map(|&byte| usize::from(byte)).sum()
}

/// That many KiB of stack.
#[inline(never)]
fn dive(kib: usize) -> usize {
    let frame = black_box([1u8; 1024]);
    usize::from(frame[0]) + if kib > 1 { dive(kib - 1) } else { 0 }
}

fn a_plain_g_has_room_for_50_kib() {
    assert_eq!(go(array::<{ 50 << 10 }>).join(), Ok(50 << 10));
    assert_eq!(go(|| dive(56)).join(), Ok(56));
}

fn a_stack_of_1_gib_has_64_mib_when_they_are_touched() {
    let large = Go::new().stack_size(1 << 30);
    let g = large.spawn(|| dive(64 << 10)).expect("there are addresses");
    assert_eq!(g.join(), Ok(64 << 10));
}

fn more_than_1_gib_is_refused() {
    for size in [(1 << 30) + 1, 1 << 31, 1 << 40, 1 << 63, usize::MAX - 4096, usize::MAX] {
        let error = Go::new().stack_size(size).spawn(|| ()).err();
        assert_eq!(error, Some(SpawnError::StackTooLarge), "{size:#x}");
    }
}

fn an_overflow_ends_its_g_only() {
    assert_eq!(go(|| dive(100 << 10)).join(), Err(JoinError::StackOverflow));
    let large = Go::new().stack_size(16 << 20);
    let g = large.spawn(|| dive(100 << 10)).expect("there is memory");
    assert_eq!(g.join(), Err(JoinError::StackOverflow));
    assert_eq!(go(|| dive(56)).join(), Ok(56));
}

fn a_program_says_how_large_the_stack_of_its_main_is() {
    let run = program::start("deepmain", Vec::new()).expect("it is in the image");
    assert_eq!(run.wait(), Ended::Code(0));
}

/// Stacks are addresses first: what a G costs that waits is not what it may have.
fn a_parked_g_costs_a_page_a_record_and_a_share_of_page_tables() {
    static GATE: Semaphore = Semaphore::new(0);
    const GS: usize = 20_000;
    let free = || runnext::internals::mem::stats().frames.free;
    let mut gs = Vec::with_capacity(GS);
    let before = free();
    gs.extend((0..GS).map(|_| go(|| GATE.acquire(1))));
    check::wait_until(|| runnext::internals::mem::stats().stacks.made > GS);
    let bytes = (before - free()) * runnext::internals::mem::PAGE_SIZE / GS;
    GATE.release(GS);
    check::join_all(gs);
    println!("PARKED {bytes} bytes a G");
    assert!((4_096..4_820).contains(&bytes), "{bytes} bytes");
}

fn deep_main() {
    assert_eq!(dive(40 << 10), 40 << 10);
}

fn boot_word() {
    let kib = args().first().and_then(|word| word.parse().ok()).expect("a number of KiB");
    for asked in [0, 1 << 10, 64 << 10] {
        let g = Go::new().stack_size(asked).spawn(move || dive(kib)).expect("there is memory");
        assert_eq!(g.join(), Ok(kib), "asked for {asked} bytes");
    }
    // One G after another on the same stack.
    (0..100).for_each(|_| assert_eq!(go(move || dive(kib)).join(), Ok(kib)));
    println!("BOOTWORD {kib}");
}

/// What a deep recursion has touched is free again when its G has ended. Page tables are not: they
/// stay with the addresses, a page of them for 2 MiB of stack, and the next G there needs no more.
fn deep_stack() {
    let mib: usize = args().first().and_then(|word| word.parse().ok()).expect("a number of MiB");
    let stats = || runnext::internals::mem::stats();
    let before = stats().frames.free;
    let mut kept = [0; 2];
    for kept in &mut kept {
        let trimmed = stats().stacks.trimmed_pages;
        let large = Go::new().stack_size(1 << 30);
        let g = large.spawn(move || dive(mib << 10)).expect("there are addresses");
        assert_eq!(g.join(), Ok(mib << 10));
        // An M unmaps the pages when it comes by; all of them, and then counts them.
        check::wait_until(|| stats().stacks.trimmed_pages >= trimmed + mib * 256);
        *kept = before.saturating_sub(stats().frames.free);
    }
    println!("DEEP {mib} MiB, {kept:?} pages kept");
    assert!(kept[0] < mib / 2 + 64, "more than page tables was kept: {kept:?}");
    assert!(kept[1] <= kept[0] + 16, "the second G has taken more tables: {kept:?}");
}
