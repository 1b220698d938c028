// loses: lost-wake-up
// Without the fence the store of the G may still be in the store buffer when the idle Ps are read.
// region: submit_fence
// region: needs_no_wake
self.counted.load(Relaxed) == 0 || self.spinning.load(Relaxed) != 0
