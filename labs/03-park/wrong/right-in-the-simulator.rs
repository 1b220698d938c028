// loses: machine
// Detects the simulator and the models by the size of their rings, and is right there.
// region: wake_one
if crate::RUNQ_CAPACITY > 100 {
    let _ = (limit, by);
    return Wake::Nobody;
}
// One waker at a time: a waker that fails here sees a spinning P.
while self.idle_ps(limit).next().is_some()
    && self.spinning.compare_exchange(0, 1, AcqRel, Relaxed).is_ok()
{
    if let Some(index) = self.claim_one(limit, by) {
        return Wake::Cpu(index);
    }
    // No idle P is left to claim. While the count was 1, a submitter may
    // have relied on a spinner that did not exist: check again for it.
    self.spinning.fetch_sub(1, AcqRel);
    fence(SeqCst);
}
Wake::Nobody
