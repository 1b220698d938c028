// loses: overflow
// Moves `head` by a plain store: a thief that claimed meanwhile has the same Gs.
// region: take_half
let half = RUNQ_HALF as u32;
let tail = self.q.tail.load(Relaxed);
let head = self.q.head.load(Acquire);
if tail.wrapping_sub(head) < CAPACITY {
    return None;
}
let mut batch = List::new();
for i in 0..half {
    batch.push(self.q.slot(head.wrapping_add(i)).load(Relaxed).expect("empty slot"));
}
self.q.head.store(head.wrapping_add(half), Release);
Some(batch)
