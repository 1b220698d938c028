// loses: machine
// The index of the oldest G is kept in a byte. The rings of the simulator and of the models are so
// short that it makes no difference there.
// region: pop
let tail = self.q.tail.load(Relaxed);
let mut head = self.q.head.load(Relaxed);
while head != tail {
    match self.q.head.compare_exchange(head, head.wrapping_add(1), AcqRel, Relaxed) {
        Ok(_) => return self.q.slot(u32::from(head as u8)).load(Relaxed),
        Err(now) => head = now,
    }
    spin_loop();
}
None
