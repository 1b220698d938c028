// region: take_half
let quarter = CAPACITY / 4;
let head = self.q.tail.load(Relaxed).wrapping_sub(CAPACITY);
self.q.head.compare_exchange(head, head.wrapping_add(quarter), AcqRel, Relaxed).ok()?;
let mut batch = List::new();
for i in 0..quarter {
    batch.push(self.q.slot(head.wrapping_add(i)).load(Relaxed).expect("empty slot"));
}
Some(batch)
