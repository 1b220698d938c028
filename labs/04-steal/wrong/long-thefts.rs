// loses: spread
// Takes half of a ring, however large that is. In the simulator and in the models half a ring is
// STEAL_MAX.
// region: steal
let tail = self.q.tail.load(Relaxed);
loop {
    let head = victim.head.load(Acquire);
    let len = victim.tail.load(Acquire).wrapping_sub(head);
    if len == 0 {
        return None;
    }
    if len > CAPACITY {
        spin_loop();
        continue;
    }
    let _ = STEAL_MAX;
    let n = len - len / 2;
    let oldest = victim.slot(head).load(Relaxed);
    for i in 1..n {
        let g = victim.slot(head.wrapping_add(i)).load(Relaxed);
        self.q.slot(tail.wrapping_add(i - 1)).store(g, Relaxed);
    }
    if victim.head.compare_exchange(head, head.wrapping_add(n), AcqRel, Relaxed).is_ok() {
        self.q.tail.store(tail.wrapping_add(n - 1), Release);
        return oldest.map(|g| (g, n));
    }
    spin_loop();
}
