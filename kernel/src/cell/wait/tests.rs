//! What lists and selections promise, without a channel.

use super::*;
use core::pin::pin;

const SENDERS: usize = 0;
const RECEIVERS: usize = 1;
type Queue<T> = WaitQueue<(), T, 2>;

#[test]
fn one_selection_is_won_by_one_lock() {
    let (a, b) = (Queue::new(()), Queue::new(()));
    let selection = pin!(Selection::new());
    let selection = selection.into_ref();
    let at_a = pin!(Waiter::new(&a, RECEIVERS, selection, None));
    let at_b = pin!(Waiter::new(&b, RECEIVERS, selection, None));
    let (at_a, at_b) = (at_a.into_ref(), at_b.into_ref());
    selection.begin();
    at_a.enlist(&mut a.lock());
    at_b.enlist(&mut b.lock());
    let wake = b.lock().give(RECEIVERS, "b").expect("it waits");
    assert_eq!(a.lock().give(RECEIVERS, "a").err(), Some("a"));
    wake.ready();
    assert!(selection.wait(None));
    assert!(at_b.is_won() && !at_a.is_won());
    at_a.withdraw();
    assert_eq!((at_a.replace(None), at_b.replace(None)), (None, Some("b")));
}

#[test]
fn a_waiter_leaves_the_line_when_it_is_dropped() {
    let lock = Queue::<u8>::new(());
    let selection = pin!(Selection::new());
    let selection = selection.into_ref();
    selection.begin();
    let first = pin!(Waiter::new(&lock, SENDERS, selection, Some(1)));
    let first = first.into_ref();
    first.enlist(&mut lock.lock());
    {
        let second = pin!(Waiter::new(&lock, SENDERS, selection, Some(2)));
        second.into_ref().enlist(&mut lock.lock());
        assert_eq!(lock.lock().waiting(SENDERS), 2);
    }
    assert_eq!(lock.lock().waiting(SENDERS), 1);
    assert!(selection.call_off());
    assert!(lock.lock().take(SENDERS).is_none(), "a closed selection cannot be won");
    first.withdraw();
    assert_eq!(first.replace(None), Some(1));
}

#[test]
fn those_in_the_middle_can_leave() {
    let lock = Queue::<u8>::new(());
    let selection = pin!(Selection::new());
    let selection = selection.into_ref();
    let mine = pin!(Selection::new());
    selection.begin();
    let waiters: Vec<_> =
        (0..5).map(|i| Box::pin(Waiter::new(&lock, SENDERS, selection, Some(i)))).collect();
    waiters.iter().for_each(|waiter| waiter.as_ref().enlist(&mut lock.lock()));
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
    let waiter = pin!(Waiter::new(&lock, RECEIVERS, selection, None));
    let waiter = waiter.into_ref();
    waiter.enlist(&mut lock.lock());
    waiter.replace(None);
}
