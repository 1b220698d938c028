// loses: overflow
// The batch is built from its front: the oldest G comes last.
// region: take_half
let half = RUNQ_HALF as u32;
let head = self.q.tail.load(Relaxed).wrapping_sub(CAPACITY);
self.q.head.compare_exchange(head, head.wrapping_add(half), AcqRel, Relaxed).ok()?;
let mut batch = List::new();
for i in 0..half {
    batch.push_front(self.q.slot(head.wrapping_add(i)).load(Relaxed).expect("empty slot"));
}
Some(batch)
