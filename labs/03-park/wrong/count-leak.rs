// loses: lost-wake-up
// The P that loses the claim of its own bit was counted twice, and stays so.
// region: park
self.counted.fetch_add(1, AcqRel);
self.idle.set(index);
if spinning {
    self.spinning.fetch_sub(1, AcqRel);
}
fence(SeqCst);
if !has_work() || !self.try_spin(limit) {
    return true;
}
if !self.claim(index) {
    core::hint::cold_path();
}
false
