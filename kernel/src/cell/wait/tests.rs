//! What the lines and tickets promise, without a channel.

use super::*;
use core::pin::pin;

#[test]
fn one_ticket_is_won_by_one_lock() {
    let (a, b) = (WaitLock::new(()), WaitLock::new(()));
    let ticket = pin!(Ticket::new());
    let ticket = ticket.into_ref();
    let at_a = pin!(Waiter::new(&a, Side::Receivers, ticket, None));
    let at_b = pin!(Waiter::new(&b, Side::Receivers, ticket, None));
    let (at_a, at_b) = (at_a.into_ref(), at_b.into_ref());
    ticket.begin();
    at_a.enlist(&mut a.lock());
    at_b.enlist(&mut b.lock());
    let wake = b.lock().give("b").expect("it waits");
    assert_eq!(a.lock().give("a").err(), Some("a"));
    wake.ready();
    assert!(ticket.wait(None));
    assert!(at_b.is_won() && !at_a.is_won());
    at_a.withdraw();
    assert_eq!((at_a.replace(None), at_b.replace(None)), (None, Some("b")));
}

#[test]
fn a_waiter_leaves_the_line_when_it_is_dropped() {
    let lock = WaitLock::<(), u8>::new(());
    let ticket = pin!(Ticket::new());
    let ticket = ticket.into_ref();
    ticket.begin();
    let first = pin!(Waiter::new(&lock, Side::Senders, ticket, Some(1)));
    let first = first.into_ref();
    first.enlist(&mut lock.lock());
    {
        let second = pin!(Waiter::new(&lock, Side::Senders, ticket, Some(2)));
        second.into_ref().enlist(&mut lock.lock());
        assert_eq!(lock.lock().waiting(Side::Senders), 2);
    }
    assert_eq!(lock.lock().waiting(Side::Senders), 1);
    assert!(ticket.call_off());
    assert!(lock.lock().take().is_none(), "a closed ticket cannot be won");
    first.withdraw();
    assert_eq!(first.replace(None), Some(1));
}

#[test]
fn those_in_the_middle_can_leave() {
    let lock = WaitLock::<(), u8>::new(());
    let ticket = pin!(Ticket::new());
    let ticket = ticket.into_ref();
    let mine = pin!(Ticket::new());
    ticket.begin();
    let waiters: Vec<_> =
        (0..5).map(|i| Box::pin(Waiter::new(&lock, Side::Senders, ticket, Some(i)))).collect();
    waiters.iter().for_each(|waiter| waiter.as_ref().enlist(&mut lock.lock()));
    assert!(lock.lock().is_waited_for(Side::Senders, mine.into_ref()));
    assert!(!lock.lock().is_waited_for(Side::Senders, ticket), "not by others");
    for (left, i) in [2, 0, 4, 1, 3].into_iter().enumerate() {
        waiters[i].withdraw();
        assert_eq!(lock.lock().waiting(Side::Senders), 4 - left);
    }
    assert!(ticket.call_off());
}

#[test]
#[should_panic(expected = "slot in use")]
fn the_slot_of_one_in_the_line_is_not_its_owners() {
    let lock = WaitLock::<(), u8>::new(());
    let ticket = pin!(Ticket::new());
    let ticket = ticket.into_ref();
    ticket.begin();
    let waiter = pin!(Waiter::new(&lock, Side::Receivers, ticket, None));
    let waiter = waiter.into_ref();
    waiter.enlist(&mut lock.lock());
    waiter.replace(None);
}
