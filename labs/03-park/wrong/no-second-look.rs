// loses: lost-wake-up
// The P halts without looking again.
// region: park
let _ = (limit, &has_work);
self.counted.fetch_add(1, AcqRel);
self.idle.set(index);
if spinning {
    self.spinning.fetch_sub(1, AcqRel);
}
fence(SeqCst);
true
