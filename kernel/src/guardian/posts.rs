//! The watchdog CPUs: two posts, each vacant or held by one CPU.
//!
//! Both are in one word, so that every change of one post sees the other: the two watchdogs watch
//! each other, so they must not be the same CPU.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The posts: in each half of the word a CPU's number plus one, or 0 if it is vacant.
pub struct Posts(AtomicU64);

/// No posts exist, with one CPU or with `stuck=off`.
const CLOSED: u64 = u64::MAX;

impl Posts {
    /// No posts: no CPU can take one.
    pub const fn closed() -> Self {
        Posts(AtomicU64::new(CLOSED))
    }

    /// Creates two posts, both vacant.
    pub fn open(&self) {
        self.0.store(0, Relaxed);
    }

    /// Whether a post is vacant.
    #[inline(always)]
    pub fn has_vacancy(&self) -> bool {
        let word = self.0.load(Relaxed);
        word as u32 == 0 || word >> 32 == 0
    }

    /// Whether this CPU holds one of them.
    pub fn holds(&self, cpu: usize) -> bool {
        split(self.0.load(Relaxed)).contains(&name(cpu))
    }

    /// Takes a vacant post for this CPU. False if none is vacant, or it holds one.
    pub fn take(&self, cpu: usize) -> bool {
        self.replace(0, name(cpu))
    }

    /// Moves the post of `from` to `to`. False if `from` has none, or `to` has one.
    pub fn hand(&self, from: usize, to: usize) -> bool {
        self.replace(name(from), name(to))
    }

    /// Vacates the post of this CPU, if it has one.
    pub fn leave(&self, cpu: usize) {
        self.replace(name(cpu), 0);
    }

    /// Replaces `from` in one post by `to`; not if `to` holds one already.
    fn replace(&self, from: u32, to: u32) -> bool {
        let replaced = |word| {
            let mut posts = split(word);
            if word == CLOSED || to != 0 && posts.contains(&to) {
                return None;
            }
            *posts.iter_mut().find(|post| **post == from)? = to;
            Some(u64::from(posts[0]) | u64::from(posts[1]) << 32)
        };
        // Relaxed: the word names CPUs, and orders nothing else.
        self.0.try_update(Relaxed, Relaxed, replaced).is_ok()
    }
}

fn split(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

fn name(cpu: usize) -> u32 {
    cpu as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Posts {
        let posts = Posts::closed();
        posts.open();
        posts
    }

    #[test]
    fn nobody_takes_a_post_that_is_not_there() {
        let posts = Posts::closed();
        assert!(!posts.has_vacancy() && !posts.take(0) && !posts.hand(0, 1));
        posts.leave(0);
        assert!(!posts.has_vacancy());
    }

    #[test]
    fn two_take_a_post_each_and_a_third_none() {
        let posts = open();
        assert!(posts.take(0) && posts.has_vacancy() && posts.take(7));
        assert!(!posts.has_vacancy() && !posts.take(3));
        assert_eq!([0, 3, 7].map(|cpu| posts.holds(cpu)), [true, false, true]);
    }

    #[test]
    fn nobody_has_both_posts() {
        let posts = open();
        assert!(posts.take(5) && !posts.take(5), "taken twice");
        assert!(posts.take(6) && !posts.hand(6, 5), "handed to who has the other");
        assert!(posts.holds(6));
        posts.leave(5);
        assert!(posts.has_vacancy() && !posts.holds(5));
    }

    #[test]
    fn a_post_is_handed_on_once() {
        let posts = open();
        assert!(posts.take(0) && posts.hand(0, 1));
        assert!(!posts.hand(0, 2) && posts.holds(1) && !posts.holds(0));
    }

    #[test]
    fn of_many_who_come_at_once_two_stand_guard() {
        let posts = open();
        let stand = std::thread::scope(|scope| {
            let take = |cpu| posts.take(cpu);
            let all: Vec<_> = (0..8).map(|cpu| scope.spawn(move || take(cpu))).collect();
            all.into_iter().filter_map(|cpu| cpu.join().ok()).filter(|&stands| stands).count()
        });
        assert_eq!(stand, 2);
    }
}
