// loses: publish
// The slot is published before it is written: a thief reads what was there a round before.
// region: push
let q = self.q;
let tail = q.tail.load(Relaxed);
let head = q.head.load(Acquire);
if tail.wrapping_sub(head) >= CAPACITY {
    return false;
}
q.tail.store(tail.wrapping_add(1), Release);
q.slot(tail).store(Some(g), Release);
true
