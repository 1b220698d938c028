use super::*;
use crate::prelude::*;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[test]
fn what_members_borrow_is_as_they_left_it() {
    let mut words = vec![String::from("a"); 8];
    let lengths = scope(|s| {
        let gs: Vec<_> = words
            .iter_mut()
            .enumerate()
            .map(|(n, word)| {
                s.go(move || {
                    word.push_str(&"b".repeat(n));
                    word.len()
                })
            })
            .collect();
        gs.into_iter().map(|g| g.join().expect("no panic")).collect::<Vec<_>>()
    });
    assert_eq!(lengths, (1..=8).collect::<Vec<_>>());
    assert_eq!(words[3], "abbb");
}

#[test]
fn members_start_members_and_the_scope_waits_for_all() {
    let count = AtomicUsize::new(0);
    fn tree<'s>(s: &'s Scope<'s, '_>, count: &'s AtomicUsize, depth: u32) {
        count.fetch_add(1, Relaxed);
        if depth > 0 {
            s.go(move || tree(s, count, depth - 1));
            s.go(move || tree(s, count, depth - 1));
        }
    }
    scope(|s| tree(s, &count, 4));
    assert_eq!(count.into_inner(), 31);
}

#[test]
fn a_panic_of_a_member_is_its_join_s_or_else_the_scope_s() {
    let joined = scope(|s| s.go(|| -> u32 { panic!("joined") }).join());
    assert_eq!(joined, Err(JoinError::Panicked("joined".into())));
    let scoped = go(|| scope(|s| drop(s.go(|| panic!("not joined"))))).join();
    assert_eq!(scoped, Err(JoinError::Panicked("not joined".into())));
}

#[test]
fn a_panic_in_the_closure_waits_for_the_members() {
    let (tx, rx) = chan::rendezvous::<()>();
    let ended = std::sync::Arc::new(AtomicUsize::new(0));
    let told = ended.clone();
    let g = go(move || {
        scope(|s| {
            let tx = tx; // dropped as this unwinds; then the member ends
            s.go(|| {
                assert!(rx.recv().is_err());
                told.fetch_add(1, Relaxed)
            });
            if tx.capacity() == Some(0) {
                panic!("the closure");
            }
        });
    });
    assert_eq!(g.join(), Err(JoinError::Panicked("the closure".into())));
    assert_eq!(ended.load(Relaxed), 1);
}

#[test]
fn handles_that_are_leaked_do_no_harm() {
    let word = String::from("word");
    scope(|s| core::mem::forget(s.go(|| word.as_str())));
    assert_eq!(word, "word");
}

#[test]
fn join_returns_both_or_panics_with_one() {
    assert_eq!(join(|| 1, || "b"), (1, "b"));
    for (a, b, why) in [(true, false, "a"), (false, true, "b"), (true, true, "a")] {
        let run = move || join(|| assert!(!a, "a"), || assert!(!b, "b"));
        assert_eq!(go(run).join(), Err(JoinError::Panicked(why.into())));
    }
}

#[test]
fn each_element_is_visited_once_in_chunks_of_that_size() {
    for (length, size) in [(0, 1), (1, 1), (2, 1), (10, 3), (100, 7), (5, 100)] {
        let mut seen = vec![(0, 0); length];
        par_chunks(&mut seen, size, |first, chunk| {
            assert!(first % size == 0 && chunk.len() == size.min(length - first));
            chunk.iter_mut().for_each(|seen| *seen = (seen.0 + 1, first));
        });
        assert!(seen.iter().enumerate().all(|(n, &seen)| seen == (1, n / size * size)));
    }
    let mut numbers: Vec<u32> = (0..1_000).collect();
    par_for_each(&mut numbers, |n| *n += 1);
    assert!(numbers.iter().zip(1..).all(|(&n, expected)| n == expected));
}
