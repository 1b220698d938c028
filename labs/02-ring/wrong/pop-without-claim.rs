// loses: claim
// As in a queue for one thread: a thief may take the same G. The tour passes with it.
// region: pop
let tail = self.q.tail.load(Relaxed);
let head = self.q.head.load(Acquire);
if head == tail {
    return None;
}
let g = self.q.slot(head).load(Relaxed);
self.q.head.store(head.wrapping_add(1), Release);
g
