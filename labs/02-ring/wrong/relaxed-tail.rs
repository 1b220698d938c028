// loses: publish
// Right on x86, whose stores stay in order; wrong in the language, and on other machines.
// region: push
let q = self.q;
let tail = q.tail.load(Relaxed);
let head = q.head.load(Acquire);
if tail.wrapping_sub(head) >= CAPACITY {
    return false;
}
q.slot(tail).store(Some(g), Relaxed);
q.tail.store(tail.wrapping_add(1), Relaxed);
true
