//! Following links until they lead back: the walk, whatever is walked on.
//!
//! What the links are, and why two walks are enough, is said in `cycle`. This file
//! names nothing of the kernel, so that its model (`tests/loom_ring.rs`) and its
//! tests can have links of their own.
#![forbid(unsafe_code)]

/// Links that are followed: a ring of so many Gs is found.
pub(crate) const MOST: usize = 256;

/// Whether the links from `first` lead back to it, and all at one moment. `next`
/// gives what a link leads to, and a stamp that changes with it.
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
    walk().is_some_and(|stamps| walk() == Some(stamps))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// Whom each of a few Gs waits for; all stamps are 0.
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

    #[test]
    fn a_link_that_changed_between_the_walks_does_not_count() {
        let reads = Cell::new(0);
        let moves_at = |change| {
            reads.set(0);
            is_ring(0, |g: usize| {
                reads.set(reads.get() + 1);
                Some((u64::from(reads.get() > change), 1 - g))
            })
        };
        assert!(moves_at(4), "four reads, all of the same wait");
        assert!((1..4).all(|change| !moves_at(change)));
    }

    #[test]
    fn stamps_that_change_places_are_a_change() {
        let walks = Cell::new(0);
        let next = |g: usize| {
            walks.set(walks.get() + 1);
            let swapped = walks.get() > 2;
            Some((if swapped { 1 - g as u64 } else { g as u64 }, 1 - g))
        };
        assert!(!is_ring(0, next));
    }
}
