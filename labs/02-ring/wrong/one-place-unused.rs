// loses: order
// A ring that is called full with one place left, as rings are that keep no separate count.
// region: push
let q = self.q;
let tail = q.tail.load(Relaxed);
let head = q.head.load(Acquire);
if tail.wrapping_sub(head) >= CAPACITY - 1 {
    return false;
}
q.slot(tail).store(Some(g), Relaxed);
q.tail.store(tail.wrapping_add(1), Release);
true
// region: take_half
let half = RUNQ_HALF as u32;
let head = self.q.tail.load(Relaxed).wrapping_sub(CAPACITY - 1);
self.q.head.compare_exchange(head, head.wrapping_add(half), AcqRel, Relaxed).ok()?;
let mut batch = List::new();
for i in 0..half {
    batch.push(self.q.slot(head.wrapping_add(i)).load(Relaxed).expect("empty slot"));
}
Some(batch)
