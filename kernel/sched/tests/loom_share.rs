//! All interleavings of the word that has the lane of a G: its CPU sets the lane, the pin and the
//! call, while another CPU changes the rank. No change is lost.
#![cfg(loom)]

use loom::thread;
use sched::{G, Kept, PSlot, Priority, Sched, Share};

#[test]
fn lane_and_rank_change_at_once_and_both_stay() {
    loom::model(|| {
        let slots: Vec<PSlot<usize>> = vec![PSlot::new()];
        let sched: &'static Sched<usize> = Box::leak(Box::new(Sched::new(Vec::leak(slots))));
        let mut p = sched.acquire(0, 7).expect("new");
        let lane = sched.add_lane(Share::DEFAULT);
        let g: &'static G<usize> = Box::leak(Box::new(G::new(0)));
        let handle = g.handle();
        let other = thread::spawn(move || {
            assert!(handle.set_rank(Priority::Urgent, Priority::Background));
        });
        sched.begin_share(&mut p, g, lane, 0);
        g.keep(Kept::on(0));
        g.enter_call(0);
        g.exit_call();
        assert_eq!(g.lane(), lane);
        other.join().unwrap();
        assert_eq!((g.lane(), g.pin()), (lane, Some(0)));
        assert_eq!((g.priority(), g.rank()), (Priority::Urgent, Priority::Background));
        sched.begin_share(&mut p, g, None, 1);
        assert_eq!((g.lane(), g.rank()), (None, Priority::Background));
    });
}
