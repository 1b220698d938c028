// region: wake_one
let _ = by;
while self.idle_ps(limit).next().is_some()
    && self.spinning.compare_exchange(0, 1, AcqRel, Relaxed).is_ok()
{
    if let Some(index) = (0..limit).rev().find(|&index| self.claim(index)) {
        return Wake::Cpu(index);
    }
    self.spinning.fetch_sub(1, AcqRel);
    fence(SeqCst);
}
Wake::Nobody
