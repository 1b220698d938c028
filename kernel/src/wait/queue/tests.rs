//! What lists and selections promise, without a channel.

use super::*;
use core::pin::{Pin, pin};

const SENDERS: usize = 0;
const RECEIVERS: usize = 1;
type Queue<T> = WaitQueue<(), T, 2>;
type At<'a, T, const LIST: usize> = Waiter<'a, (), T, 2, LIST, ()>;

fn enlist<T, const LIST: usize>(at: Pin<&At<'_, T, LIST>>, value: Option<T>) {
    assert!(at.enlist_unless(1 - LIST, |_| false, || value));
}

#[test]
fn one_selection_is_won_by_one_lock() {
    let (a, b) = (Queue::new(()), Queue::new(()));
    let selection = pin!(Selection::new());
    let selection = selection.into_ref();
    let at_a = pin!(At::<_, RECEIVERS>::new(&a, selection, ()));
    let at_b = pin!(At::<_, RECEIVERS>::new(&b, selection, ()));
    let (at_a, at_b) = (at_a.into_ref(), at_b.into_ref());
    selection.begin();
    enlist(at_a, None);
    enlist(at_b, None);
    let wake = b.lock().give(RECEIVERS, "b").expect("it waits");
    assert_eq!(a.lock().give(RECEIVERS, "a").err(), Some("a"));
    wake.ready();
    assert!(selection.wait(None));
    assert!(at_b.withdraw() && !at_a.withdraw());
    assert_eq!((at_a.take(), at_b.take()), (None, Some("b")));
}

#[test]
fn a_waiter_leaves_the_line_when_it_is_dropped() {
    let lock = Queue::<u8>::new(());
    let selection = pin!(Selection::new());
    let selection = selection.into_ref();
    selection.begin();
    let first = pin!(At::<_, SENDERS>::new(&lock, selection, ()));
    let first = first.into_ref();
    enlist(first, Some(1));
    {
        let second = pin!(At::<_, SENDERS>::new(&lock, selection, ()));
        enlist(second.into_ref(), Some(2));
        assert_eq!(lock.lock().waiting(SENDERS), 2);
    }
    assert_eq!(lock.lock().waiting(SENDERS), 1);
    assert!(selection.call_off());
    assert!(lock.lock().take(SENDERS).is_none(), "a closed selection cannot be won");
    assert!(!first.withdraw());
    assert_eq!(first.take(), Some(1));
}

#[test]
fn those_in_the_middle_can_leave() {
    let lock = Queue::<u8>::new(());
    let selection = pin!(Selection::new());
    let selection = selection.into_ref();
    let mine = pin!(Selection::new());
    selection.begin();
    let waiters: Vec<_> =
        (0..5).map(|_| Box::pin(At::<_, SENDERS>::new(&lock, selection, ()))).collect();
    waiters.iter().for_each(|waiter| enlist(waiter.as_ref(), Some(1)));
    assert!(lock.lock().is_waited_for(SENDERS, &mine));
    assert!(!lock.lock().is_waited_for(SENDERS, &selection), "not by others");
    for (left, i) in [2, 0, 4, 1, 3].into_iter().enumerate() {
        waiters[i].withdraw();
        assert_eq!(lock.lock().waiting(SENDERS), 4 - left);
    }
    assert!(selection.call_off());
}

#[test]
#[should_panic(expected = "slot in use")]
fn the_slot_of_one_in_the_line_is_not_its_owners() {
    let lock = Queue::<u8>::new(());
    let selection = pin!(Selection::new());
    let selection = selection.into_ref();
    selection.begin();
    let waiter = pin!(At::<_, RECEIVERS>::new(&lock, selection, ()));
    let waiter = waiter.into_ref();
    enlist(waiter, None);
    waiter.take();
}

#[test]
#[should_panic(expected = "no begin")]
fn nobody_goes_to_a_line_with_a_wait_that_is_over() {
    let lock = Queue::<u8>::new(());
    let selection = pin!(Selection::new());
    let selection = selection.into_ref();
    selection.begin();
    assert!(selection.call_off());
    let waiter = pin!(At::<_, RECEIVERS>::new(&lock, selection, ()));
    enlist(waiter.into_ref(), None);
}
