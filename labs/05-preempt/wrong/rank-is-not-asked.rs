// loses: loan
// A G of the rank urgent waits for the end of a loan, as one that a device has readied must.
// region: verdict
if self.is_urgent.get() && self.length() != NEVER {
    // While a loan is under way, an urgent G waits for its end.
    let loan = self.loan();
    if loan.began.is_none() && loan.given_back < self.length() / 2 {
        return Some(Leaving::Displace);
    }
}
if self.left(now) > 0 {
    return None;
}
if self.chaos_on() || needs_timer() {
    return Some(Leaving::Expire);
}
// No G waits for the end of the slice: another one begins. Else Gs that ready one another, of
// which none waits when the timer fires, would set it for a past end at each readying.
self.begin(now);
None
