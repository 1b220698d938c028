// loses: claim
// When a thief was faster, the loop goes on with the old head for ever: a hang.
// region: pop
let tail = self.q.tail.load(Relaxed);
let head = self.q.head.load(Acquire);
while head != tail {
    if self.q.head.compare_exchange(head, head.wrapping_add(1), AcqRel, Relaxed).is_ok() {
        return self.q.slot(head).load(Relaxed);
    }
    spin_loop();
}
None
