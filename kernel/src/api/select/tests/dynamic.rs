//! Arms that are counted at run time.

use super::*;
use crate::context::Context;
use crate::select::Select;

#[test]
fn each_of_many_arms_is_done_when_it_is_ready() {
    for n in [1, 64, 65, if cfg!(miri) { 66 } else { 300 }] {
        let (txs, rxs): (Vec<_>, Vec<_>) = (0..n).map(|_| chan::bounded(1)).unzip();
        for ready in [0, n / 2, n - 1] {
            txs[ready].send(ready).expect("open");
            let mut any = Select::new();
            for (i, rx) in rxs.iter().enumerate() {
                any.recv(rx, move |got| (i, got));
            }
            assert_eq!(any.wait(), (ready, Ok(ready)));
        }
        let mut any = Select::new();
        rxs.iter().for_each(|rx| _ = any.recv(rx, |_| ()));
        assert_eq!(any.try_wait(), None);
    }
}

#[test]
fn it_waits_for_all_kinds() {
    let (tx, rx) = chan::rendezvous::<u8>();
    let (full, keep) = chan::rendezvous::<u8>();
    let (gate, context) = (sync::Semaphore::new(0), Context::new());
    for kind in 0..5 {
        let (stop, stopped) = chan::rendezvous::<()>();
        let mut worker = go(move || stopped.recv());
        let timer = chan::after(if kind == 4 { SOON } else { Duration::MAX });
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                std::thread::sleep(SOON);
                match kind {
                    0 => assert_eq!(tx.send(1), Ok(())),
                    1 => assert_eq!(keep.recv(), Ok(2)),
                    2 => assert!(stop.send(()).is_ok()),
                    3 => gate.release(1),
                    _ => {}
                }
            });
            let mut any = Select::new();
            any.recv(&rx, |_| 0).send(&full, 2, |_| 1).join(&mut worker, || 2);
            any.acquire(&gate, 1, |permit| {
                permit.forget();
                3
            });
            any.recv(&timer, |_| 4).done(&context, |_| 5);
            assert_eq!(any.wait(), kind);
            other.join().expect("no panic");
        });
    }
    context.cancel();
    let mut any = Select::new();
    any.done(&context, |_| 5).recv(&rx, |_| 0);
    assert_eq!(any.wait(), 5);
}

#[test]
fn without_an_arm_or_a_ready_one_the_limit_ends_it() {
    assert!(Select::<()>::new().wait_until(SOON).is_err());
    let (tx, rx) = chan::bounded::<u8>(1);
    let mut any = Select::new().biased();
    any.recv(&rx, |_| 1);
    assert!(any.wait_until(SOON).is_err());
    tx.send(1).expect("open");
    let [mut first, mut second] = [Select::new().biased(), Select::new().biased()];
    first.send(&tx, 2, |sent| sent.is_ok()).recv(&rx, |_| false);
    second.send(&tx, 3, |sent| sent.is_ok()).recv(&rx, |_| false);
    assert!(!first.wait(), "full");
    assert!(second.wait(), "the first as written");
}

#[test]
fn against_each_other_they_lose_nothing() {
    let (tx, rx) = chan::rendezvous::<usize>();
    let sender = go(move || {
        for i in 0..MANY / 10 {
            let mut any = Select::new();
            any.send(&tx, i, |sent| sent.is_ok()).send(&tx, i, |sent| sent.is_ok());
            assert!(any.wait());
        }
    });
    for i in 0..MANY / 10 {
        let mut any = Select::new();
        any.recv(&rx, |n| n).recv(&rx, |n| n);
        assert_eq!(any.wait(), Ok(i));
    }
    assert_eq!(sender.join(), Ok(()));
}
