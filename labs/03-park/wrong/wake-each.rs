// loses: burst
// Wakes a CPU for every G, though a woken CPU is on its way and will wake the next.
// region: needs_no_wake
self.counted.load(SeqCst) == 0
// region: wake_one
match self.claim_one(limit, by) {
    Some(index) => {
        self.spinning.fetch_add(1, AcqRel);
        Wake::Cpu(index)
    }
    None => Wake::Nobody,
}
