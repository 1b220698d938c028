// loses: lost-wake-up
// Looks first, then sets its idle bit: a submitter in between sees no idle P.
// region: park
if spinning {
    self.spinning.fetch_sub(1, AcqRel);
}
fence(SeqCst);
if has_work() && self.try_spin(limit) {
    return false;
}
self.counted.fetch_add(1, AcqRel);
self.idle.set(index);
true
