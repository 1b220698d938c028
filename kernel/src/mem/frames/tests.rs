//! The promises of the frame allocator, on bitmaps without memory behind them.

use super::*;
use bootloader_api::info::MemoryRegionKind;
use std::collections::HashSet;
use std::sync::Mutex;

const MIB: u64 = 1 << 20;

/// An allocator over `mib` MiB of usable memory, frame 0 included.
fn allocator(mib: u64, zero: fn(Frame)) -> &'static Frames {
    let regions = [MemoryRegion { start: 0, end: mib * MIB, kind: MemoryRegionKind::Usable }];
    let words = (mib * MIB / PAGE_SIZE as u64).div_ceil(64) as usize;
    let map = Bitmap::new(&regions, Box::leak(vec![0; words].into_boxed_slice()));
    let held: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
    let magazines = Box::leak(Box::new(CpuLocal::new()));
    Box::leak(Box::new(Frames::new(map, Box::leak(held.into_boxed_slice()), magazines, zero)))
}

fn leave_alone(_: Frame) {}

#[test]
fn no_frame_is_handed_out_twice_by_many_cpus() {
    let frames = allocator(17, leave_alone);
    let lists: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let cpus: Vec<_> = (0..4)
            .map(|cpu| {
                scope.spawn(move || {
                    let here = Here::pretend(cpu);
                    let mut mine = Vec::new();
                    for round in 0..3000 {
                        let Some(frame) = frames.take(&here) else { break };
                        if round % 3 == 0 {
                            // Through another CPU's magazine, as if its G had migrated.
                            frames.put(&Here::pretend((cpu + 1) % 4), frame);
                        } else {
                            mine.push(frame.addr());
                        }
                    }
                    mine
                })
            })
            .collect();
        cpus.into_iter().map(|cpu| cpu.join().expect("no panic")).collect()
    });
    let all: Vec<u64> = lists.into_iter().flatten().collect();
    assert_eq!(all.len(), all.iter().collect::<HashSet<_>>().len());
    assert_eq!(frames.stats().free, frames.stats().total - all.len());
    assert!(all.iter().all(|&addr| addr >= LOW_END));
}

#[test]
fn every_frame_is_zeroed_exactly_once_as_it_leaves() {
    static ZEROED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    let frames = allocator(3, |frame| ZEROED.lock().expect("no panic").push(frame.addr()));
    let mut out = [Frame(0); 3];
    let one = frames.alloc().expect("memory is free");
    assert_eq!(frames.alloc_many(&mut out), 3);
    let high = frames.alloc_in(LOW_END..u64::MAX).expect("memory is free");
    let low = frames.alloc_in(0..LOW_END).expect("memory is free");
    let mut left = vec![one.0, high.0, low.0];
    left.extend(out.map(Frame::addr));
    left.sort_unstable();
    let mut zeroed = ZEROED.lock().expect("no panic").clone();
    zeroed.sort_unstable();
    assert_eq!(zeroed, left);
}

#[test]
fn the_common_path_takes_no_lock() {
    let frames = allocator(256, leave_alone);
    let here = Here::pretend(0);
    let first = frames.take(&here).expect("memory is free");
    frames.put(&here, first);
    let before = frames.lock_acquisitions.load(Relaxed);
    for _ in 0..1000 {
        let frame = frames.take(&here).expect("memory is free");
        frames.put(&here, frame);
    }
    assert_eq!(frames.lock_acquisitions.load(Relaxed), before);
}

#[test]
fn exhaustion_is_none_and_recovers() {
    let frames = allocator(2, leave_alone);
    let here = Here::pretend(0);
    let all: Vec<Frame> = core::iter::from_fn(|| frames.take(&here)).collect();
    assert_eq!(all.len(), 256);
    assert_eq!(frames.take(&here), None);
    assert_eq!(frames.alloc_many(&mut [Frame(0); 4]), 0);
    frames.free_many(&all);
    assert_eq!(frames.stats().free, frames.stats().total);
    assert_eq!(core::iter::from_fn(|| frames.take(&here)).count(), 256);
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "double free"))]
fn double_free_is_seen_even_in_a_magazine() {
    let frames = allocator(8, leave_alone);
    let here = Here::pretend(0);
    let frame = frames.take(&here).expect("memory is free");
    frames.put(&here, frame);
    frames.put(&here, frame);
    assert_eq!(frames.stats().double_frees, 1);
    let all: HashSet<u64> = core::iter::from_fn(|| frames.take(&here)).map(Frame::addr).collect();
    assert_eq!(all.len(), 7 * 256);
}

#[test]
fn low_frames_never_enter_a_magazine() {
    let frames = allocator(2, leave_alone);
    let here = Here::pretend(0);
    let low = frames.alloc_in(0..LOW_END).expect("low memory is free");
    frames.put(&here, low);
    let all: Vec<Frame> = core::iter::from_fn(|| frames.take(&here)).collect();
    assert!(all.iter().all(|f| f.addr() >= LOW_END));
    assert_eq!(frames.locked(|map| map.free_low_count()), 255);
}

#[test]
fn books_of_an_absurd_map_are_cut_to_what_fits() {
    let usable = |start, end| MemoryRegion { start, end, kind: MemoryRegionKind::Usable };
    // 64 MiB of memory and one page claimed at 16 TiB: full books need 1 GiB.
    let regions = [usable(0, 64 * MIB), usable(1 << 44, (1 << 44) + 4096)];
    let limit = highest_usable(&regions);
    let (home, words, cut) = plan_books(&regions, limit).expect("there is room");
    assert!(home >= LOW_END && home + 16 * words as u64 <= 64 * MIB);
    assert!(16 * words as u64 <= 2 * MIB, "the books eat the memory they keep");
    assert!((64 * MIB..1 << 44).contains(&cut));
    assert_eq!(plan_books(&[], 1 << 40), None);
    assert_eq!(plan_books(&[usable(0, LOW_END)], LOW_END), None);
}
