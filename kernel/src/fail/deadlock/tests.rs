//! Which waits are a deadlock, when the watcher scans, and what a report says.

use super::*;

fn wait(reason: Reason) -> Option<Wait> {
    Some(Wait::new(reason, 0))
}

/// Whether they wait for each other, and if not the G that waits for an outside event.
fn judged(gs: &[Option<Wait>]) -> (bool, Option<usize>) {
    let gs = gs.iter().map(|wait| wait.map(|wait| (wait, [0, 0])));
    scan(gs.enumerate()).map_or_else(|outside_wait| (false, outside_wait), |_| (true, None))
}

#[test]
fn gs_that_wait_for_each_other_are_deadlocked() {
    let stuck = [wait(Reason::ChanReceive), wait(Reason::MutexLock), wait(Reason::Join)];
    assert_eq!(judged(&stuck), (true, None));
}

#[test]
fn one_that_runs_or_may_run_can_wake_the_others() {
    assert_eq!(judged(&[wait(Reason::ChanReceive), None, wait(Reason::Sleep)]), (false, None));
}

#[test]
fn one_that_waits_for_the_clock_a_device_or_a_program_is_the_witness() {
    for reason in [Reason::Sleep, Reason::Poll, Reason::Call, Reason::ProgramEnd] {
        let gs = [wait(Reason::ChanSend), wait(reason), wait(Reason::ChanSend)];
        assert_eq!(judged(&gs), (false, Some(1)), "{reason}");
    }
    let in_time = Some(Wait::new(Reason::ChanSend, 0).with_deadline());
    assert_eq!(judged(&[in_time]), (false, Some(0)));
}

#[test]
fn a_program_without_gs_is_only_starting() {
    assert_eq!(judged(&[]), (false, None));
}

#[test]
fn what_the_kernel_keeps_for_all_is_no_reason() {
    static SHARED: [u64; 4] = [0; 4];
    expect_from_outside(&SHARED);
    let at = |address: *const u64| Some(Wait::new(Reason::MutexLock, address.addr()));
    assert_eq!(judged(&[at(&SHARED[0])]), (false, Some(0)));
    assert_eq!(judged(&[at(&SHARED[3])]), (false, Some(0)));
    assert_eq!(judged(&[at(SHARED.as_ptr_range().end)]), (true, None));
    assert_eq!(judged(&[wait(Reason::MutexLock)]), (true, None), "no object is nobody's");
}

#[test]
fn a_look_is_due_once_until_somebody_has_run() {
    let look = on_all_idle(7).expect("nobody has looked");
    assert!(on_all_idle(7).is_none(), "somebody looks");
    look(7);
    assert!(on_all_idle(7).is_none(), "somebody has looked");
    assert!(on_all_idle(8).is_some());
}

#[test]
fn abandoned_gs_are_named_as_a_reason_if_there_are_any() {
    let told = |n| {
        let mut text = String::new();
        write_abandoned(&mut text, n).expect("a string takes everything");
        text
    };
    assert_eq!(told(0), "");
    assert!(told(3).starts_with("\nabandoned since boot: 3. Read locks, permits"));
}

#[test]
fn the_report_speaks_as_go_does() {
    let mut g = GInfo { id: 7, name: "worker".into(), state: GState::Waiting, ..GInfo::default() };
    g.wait = Some(Wait::new(Reason::ChanReceive, 0x1000));
    assert_eq!(describe(&g).to_string(), "goroutine 7 [chan receive]: \"worker\" at 0x1000");
    g.wait = Some(Wait::new(Reason::MutexLock, 0x1000));
    g.holder = Some(8);
    let told = "goroutine 7 [sync.Mutex.Lock]: \"worker\" at 0x1000, held by goroutine 8";
    assert_eq!(describe(&g).to_string(), told);
    g.wait = Some(Wait::new(Reason::Join, 9));
    (g.name, g.holder) = ("".into(), None);
    assert_eq!(describe(&g).to_string(), "goroutine 7 [join]: for goroutine 9");
}

/// Begins a scan while another program runs.
fn looking() -> Watcher {
    let watcher = Watcher::new();
    watcher.begin_scan(true);
    watcher
}

/// Whether a watcher that is about to rest does so: no event is remembered.
fn rests(watcher: &Watcher) -> bool {
    watcher.scans.store(false, Relaxed);
    watcher.events.wait(Some(0)).is_err()
}

#[test]
fn the_first_event_wakes_a_watcher_that_rests_and_no_other_does() {
    for busy in [usize::MAX, 1] {
        static WATCHER: Watcher = Watcher::new();
        WATCHER.begin_scan(true);
        WATCHER.scans.store(false, Relaxed);
        let resting = std::thread::spawn(|| WATCHER.events.wait(None));
        assert!(WATCHER.poll(busy));
        assert_eq!(resting.join().expect("it returns"), Ok(()));
        assert!(!WATCHER.poll(usize::MAX));
        assert!(rests(&WATCHER), "one event is one reason");
    }
}

#[test]
fn an_event_during_a_look_is_a_reason_to_look_again() {
    let watcher = looking();
    assert!(watcher.poll(usize::MAX));
    assert!(!rests(&watcher), "it looks again");
    watcher.begin_scan(true);
    assert!(rests(&watcher), "nothing has happened since");
    assert!(watcher.poll(usize::MAX));
}

#[test]
fn an_event_before_a_look_is_seen_by_it() {
    let watcher = looking();
    watcher.scans.store(false, Relaxed); // a suspect: it does not rest
    assert!(watcher.poll(usize::MAX));
    watcher.begin_scan(true);
    assert!(rests(&watcher));
}

#[test]
fn without_a_program_beside_only_the_start_of_one_wakes_it() {
    let watcher = Watcher::new();
    watcher.begin_scan(false);
    assert!(!watcher.poll(usize::MAX));
    assert!(rests(&watcher), "that was no reason");
    assert!(!watcher.poll(usize::MAX) && !watcher.poll(3));
    watcher.wake();
    assert!(!rests(&watcher));
}

#[test]
fn a_program_that_starts_during_a_look_is_looked_at() {
    let watcher = Watcher::new();
    watcher.begin_scan(false);
    watcher.wake();
    assert!(!rests(&watcher), "it looks again");
}

#[test]
fn a_cpu_that_halts_beside_the_watcher_alone_is_no_news() {
    let watcher = looking();
    assert!(!watcher.poll(1));
    assert!(rests(&watcher), "it would keep itself awake");
    let watcher = looking();
    assert!(watcher.poll(2));
    assert!(!rests(&watcher), "somebody else ran");
    let watcher = looking();
    watcher.scans.store(false, Relaxed); // it sleeps, and the one that runs is another
    assert!(watcher.poll(1));
    assert!(!rests(&watcher), "somebody else ran");
}

/// The result of `scan_twice` when scans and lives give these values in turn; and the number of
/// scans.
fn looked(looks: &[Option<u64>], lives: &[u64]) -> (Option<u64>, usize) {
    let (mut looks, mut lives) = (looks.iter().cycle(), lives.iter().cycle());
    let mut count = 0;
    let look = || {
        count += 1;
        *looks.next().unwrap()
    };
    (scan_twice(look, || *lives.next().unwrap()), count)
}

#[test]
fn two_looks_count_if_they_agree_and_no_g_began_or_ended() {
    assert_eq!(looked(&[Some(5)], &[1]), (Some(5), 2));
    assert_eq!(looked(&[None], &[1]), (None, 1));
    assert_eq!(looked(&[Some(5), None], &[1]), (None, 2));
    assert_eq!(looked(&[Some(5), Some(6), Some(6), Some(6)], &[1]), (Some(6), 4));
    assert_eq!(looked(&[Some(5)], &[1, 2, 2, 2]), (Some(5), 4), "a G began meanwhile");
    assert_eq!(looked(&[Some(5)], &[1, 2]), (None, 2 * TRIES), "Gs begin all the time");
}

#[test]
fn a_stamp_tells_gs_and_waits_apart() {
    let waits = |[id, switches, object]: [u64; 3]| {
        (Wait::new(Reason::MutexLock, object as usize), [id, switches])
    };
    let stamp = |gs: &[Option<[u64; 3]>]| scan(gs.iter().map(|g| ((), g.map(waits)))).ok();
    assert_eq!(stamp(&[]), None, "no G waits");
    assert_eq!(stamp(&[Some([1, 2, 3]), None]), None, "one of them goes on");
    assert_eq!(stamp(&[None, Some([1, 2, 3])]), None, "one of them goes on");
    let states = [
        vec![Some([1, 2, 3])],
        vec![Some([9, 2, 3])],
        vec![Some([1, 9, 3])],
        vec![Some([1, 2, 9])],
        vec![Some([1, 2, 3]), Some([4, 5, 6])],
        vec![Some([4, 5, 6]), Some([1, 2, 3])],
    ];
    let stamps: std::collections::BTreeSet<_> = states.iter().map(|s| stamp(s)).collect();
    assert_eq!(stamps.len(), states.len());
    assert!(!stamps.contains(&None));
}
