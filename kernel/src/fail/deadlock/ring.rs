//! Follows links until they lead back: the walk, independent of the links.
//!
//! What the links are, and why two walks are enough, is explained in `cycle`. This file names
//! nothing of the kernel, so that its model (`tests/loom_ring.rs`) and its tests can define their
//! own links.
#![forbid(unsafe_code)]

/// Links that are followed: a ring of up to so many Gs is found.
pub(crate) const MOST: usize = 256;

/// Whether the links from `first` lead back to it, all at one moment. `next` gives the target of a
/// link, and a stamp that changes with it.
///
/// Two walks in a row must meet the same stamps. If they do not, the second is compared with a
/// third, and so on: a stamp also changes when its G leaves the CPU that it has begun to wait on,
/// which every G of a ring does once. The last G of a ring is the only one that sees all links, so
/// it must not give up because of that.
pub(crate) fn is_ring<G: Copy + PartialEq>(first: G, next: impl Fn(G) -> Option<(u64, G)>) -> bool {
    let walk = || {
        let (mut at, mut stamps) = (first, 0_u64);
        for _ in 0..MOST {
            let (stamp, to) = next(at)?;
            stamps = stamps.rotate_left(7) ^ stamp;
            if to == first {
                return Some(stamps);
            }
            at = to;
        }
        None
    };
    let Some(mut before) = walk() else { return false };
    for _ in 0..=MOST {
        match walk() {
            Some(stamps) if stamps == before => return true,
            Some(stamps) => before = stamps,
            None => return false,
        }
    }
    false
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// The G that each of a few Gs waits for; all stamps are 0.
    fn among(links: &[Option<usize>], first: usize) -> bool {
        is_ring(first, |g| links[g].map(|next| (0, next)))
    }

    #[test]
    fn a_ring_is_found_from_each_of_its_gs() {
        let links = [Some(1), Some(2), Some(0)];
        assert!((0..3).all(|first| among(&links, first)));
    }

    #[test]
    fn one_that_waits_for_itself_is_a_ring() {
        assert!(among(&[Some(0)], 0));
    }

    #[test]
    fn a_chain_that_ends_is_none() {
        assert!(!among(&[Some(1), Some(2), None], 0));
    }

    #[test]
    fn who_waits_for_a_ring_is_not_in_it() {
        let links = [Some(1), Some(2), Some(1)];
        assert!(!among(&links, 0), "nor is it walked for ever");
        assert!(among(&links, 1));
    }

    #[test]
    fn the_longest_ring_is_found_and_none_that_is_longer() {
        let ring_of = |count: usize| is_ring(0, |g| Some((0, (g + 1) % count)));
        assert!(ring_of(MOST) && !ring_of(MOST + 1));
    }

    /// Two Gs whose stamps are `stamp` of the number of links read; returns that number, too.
    fn read_links(stamp: impl Fn(usize) -> u64) -> (bool, usize) {
        let reads = Cell::new(0);
        let is_found = is_ring(0, |g: usize| {
            reads.set(reads.get() + 1);
            Some((stamp(reads.get()), 1 - g))
        });
        (is_found, reads.get())
    }

    #[test]
    fn two_walks_that_meet_the_same_waits_are_enough() {
        assert_eq!(read_links(|_| 0), (true, 4));
    }

    #[test]
    fn a_g_that_leaves_its_cpu_between_the_walks_hides_no_ring() {
        for change in 1..4 {
            let (is_found, reads) = read_links(|read| u64::from(read > change));
            assert!(is_found && reads > 4, "it left after {change} reads");
        }
    }

    #[test]
    fn links_that_change_from_walk_to_walk_do_not_count() {
        assert!(!read_links(|read| read as u64).0);
    }

    #[test]
    fn stamps_that_change_places_are_a_change() {
        let walks = Cell::new(0_u32);
        let next = |g: usize| {
            walks.set(walks.get() + 1);
            let swapped = walks.get().div_ceil(2).is_multiple_of(2);
            Some((if swapped { 1 - g as u64 } else { g as u64 }, 1 - g))
        };
        assert!(!is_ring(0, next));
    }
}
