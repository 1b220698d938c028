//! The promises of the frame allocator, on bitmaps without memory behind them.

use super::*;
use bootloader_api::info::MemoryRegionKind;
use std::collections::HashSet;

const MIB: u64 = 1 << 20;

fn piece(start: u64, end: u64) -> MemoryRegion {
    MemoryRegion { start, end, kind: MemoryRegionKind::Usable }
}

fn words(mib: u64) -> &'static [AtomicU64] {
    let count = Bitmap::words_for((mib * MIB / PAGE) as usize);
    Vec::leak((0..count).map(|_| AtomicU64::new(0)).collect())
}

/// An allocator over `mib` MiB of memory, frame 0 included.
fn allocator(mib: u64) -> Frames<'static> {
    Frames::new(&[piece(0, mib * MIB)], words(mib))
}

fn take(frames: &Frames<'_>) -> Option<Frame> {
    frames.take(Stock::Last, 1).next()
}

/// All frames that are handed out, until there are none.
fn drain(frames: &Frames<'_>) -> Vec<Frame> {
    core::iter::from_fn(|| take(frames)).collect()
}

#[test]
fn no_frame_is_handed_out_twice_by_many_cpus() {
    let frames = &allocator(17);
    let lists: Vec<Vec<Frame>> = std::thread::scope(|scope| {
        let work = move || {
            let mut mine = Vec::new();
            for round in 0..if cfg!(miri) { 30 } else { 3000 } {
                let Some(frame) = take(frames) else { break };
                mine.push(frame);
                if round % 3 == 0 {
                    frames.put(mine.swap_remove(round % mine.len()));
                }
            }
            mine
        };
        let cpus = [(); 4].map(|()| scope.spawn(work));
        cpus.into_iter().map(|cpu| cpu.join().expect("no panic")).collect()
    });
    let all: HashSet<u64> = lists.iter().flatten().map(|frame| frame.addr()).collect();
    assert_eq!(all.len(), lists.iter().map(Vec::len).sum::<usize>(), "a frame was given twice");
    assert_eq!(frames.stats().free, frames.stats().total - all.len());
    assert!(all.iter().all(|&addr| addr >= LOW_END));
}

#[test]
fn every_frame_of_the_pieces_is_given_once_and_no_other() {
    let pieces =
        [piece(3 * MIB + PAGE, 4 * MIB), piece(MIB, MIB + 3 * PAGE), piece(5 * MIB, 40 * MIB)];
    let frames = Frames::new(&pieces, words(6));
    let all: Vec<u64> = drain(&frames).into_iter().map(Frame::addr).collect();
    let unique: HashSet<u64> = all.iter().copied().collect();
    assert_eq!((all.len(), unique.len()), (3 + 255 + 256, all.len()), "the map ends at 6 MiB");
    let is_inside = |&addr: &u64| pieces.iter().any(|p| p.start <= addr && addr < p.end);
    assert!(all.iter().all(is_inside));
    assert_eq!((frames.stats().total, frames.stats().free), (all.len(), 0));
}

#[test]
fn low_frames_and_frame_zero_stay_out_of_ordinary_use() {
    let frames = allocator(2);
    let low = frames.take_in(0..FIRST).expect("low memory is free");
    assert_eq!(low.addr(), PAGE, "frame 0 is never given");
    frames.put(low);
    let all = drain(&frames);
    assert!(all.len() == 256 && all.iter().all(|frame| frame.addr() >= LOW_END));
    assert_eq!(frames.stats().free, 255);
}

#[test]
fn a_frame_of_an_area_is_its_first_free_one() {
    let frames = Frames::new(&[piece(2 * MIB + PAGE, 16 * MIB)], words(16));
    let first = 2 * FIRST;
    let free = frames.stats().free;
    let frame = frames.take_below(Stock::Last, first + 2).expect("it is free");
    assert_eq!(frame.addr(), 2 * MIB + PAGE, "the first is not memory");
    assert_eq!(frames.take_below(Stock::Last, first + 2), None, "the bound cuts the third off");
    assert_eq!(frames.take_in(5..5), None);
    assert_eq!(frames.take_in(usize::MAX - 1..usize::MAX), None);
    let rest = drain(&frames);
    assert!(rest.len() == free - 1 && !rest.contains(&frame), "a failed request loses none");
}

#[test]
fn exhaustion_is_none_and_recovers() {
    let frames = allocator(2);
    let all = drain(&frames);
    assert_eq!((all.len(), take(&frames)), (256, None));
    all.into_iter().for_each(|frame| frames.put(frame));
    assert_eq!(frames.stats().free, frames.stats().total);
    assert_eq!(drain(&frames).len(), 256);
}

#[test]
fn what_is_kept_for_page_faults_and_for_the_last_is_left_to_them() {
    // Of two MiB, one of which is low memory, less is kept.
    for (mib, expected) in [(17, [4096 - 128, 64, 64]), (2, [256 - 15, 8, 7])] {
        let frames = allocator(mib);
        let count = |stock| core::iter::from_fn(|| frames.take(stock, 1).next()).count();
        assert_eq!([Stock::Free, Stock::Fault, Stock::Last].map(count), expected);
    }
}

#[test]
fn the_reserve_is_for_unpacking_by_thirds() {
    let frames = allocator(17);
    frames.reserve.store(30, Ordering::Relaxed);
    let count = |stock| core::iter::from_fn(|| frames.take(stock, 1).next()).count();
    let stocks = [Stock::Free, Stock::Fault, Stock::Run, Stock::Last, Stock::Unpack];
    assert_eq!(stocks.map(count), [4096 - 158, 64, 74, 10, 10]);
}

#[test]
fn a_batch_is_what_one_word_has_and_the_stock_allows() {
    let frames = allocator(17);
    let free = frames.stats().free;
    let take = |stock, most| frames.take(stock, most).collect::<Vec<_>>();
    let batch = take(Stock::Free, 16);
    assert!(batch.len() == 16 && batch.is_sorted_by_key(|frame| frame.addr()));
    assert_eq!(take(Stock::Free, 64).len(), 48, "the rest of that word");
    assert_eq!(frames.stats().free, free - 64);
    batch.into_iter().for_each(|frame| frames.put(frame));
    assert_eq!(take(Stock::Last, 64).len(), 16, "the word of what was freed last");
    let batches = core::iter::from_fn(|| Some(take(Stock::Free, 64).len()).filter(|&n| n > 0));
    assert_eq!(batches.sum::<usize>(), 4096 - 64 - 128, "the last 128 are not for this stock");
    assert_eq!((take(Stock::Fault, 64).len(), take(Stock::Fault, 64).len()), (64, 0));
}

#[test]
fn a_search_finds_the_one_free_frame_wherever_it_is() {
    let frames = allocator(64);
    let all = drain(&frames);
    for place in [0, 1, 64, 4096, all.len() - 1] {
        let frame = all[place];
        frames.put(frame);
        // From the other end: the hint says nothing.
        frames.put(all[all.len() / 2]);
        assert_eq!((take(&frames), take(&frames)), (Some(all[all.len() / 2]), Some(frame)));
        assert_eq!(take(&frames), None);
    }
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "double free"))]
fn a_double_free_is_seen_and_gives_no_frame_twice() {
    let frames = allocator(8);
    let frame = take(&frames).expect("memory is free");
    frames.put(frame);
    frames.put(frame);
    assert_eq!(frames.stats().double_frees, 1);
    assert_eq!(drain(&frames).len(), 7 * 256);
}

#[test]
fn the_bitmap_of_an_absurd_map_is_cut_to_what_fits() {
    // 64 MiB of memory and one page at 16 TiB: a full bitmap needs 512 MiB.
    let mut pieces = [piece(0, 64 * MIB), piece(1 << 44, (1 << 44) + PAGE)];
    let (home, words) = cut_bitmap(&mut pieces).expect("there is room");
    let bytes = 8 * words as u64;
    assert!(bytes <= MIB / 2, "the bitmap takes the memory that it describes");
    assert!(words * 63 * PAGE_SIZE >= 64 << 20 && home >= LOW_END);
    assert!(pieces[0].end == home && home + bytes <= 64 * MIB, "it is in no piece");
    assert_eq!(cut_bitmap(&mut []), None);
    assert_eq!(cut_bitmap(&mut [piece(0, LOW_END)]), None);
    assert_eq!(cut_bitmap(&mut [piece(LOW_END, LOW_END + PAGE - 1)]), None);
}
