// loses: loan
// An urgent G displaces also one that runs on a loan.
// region: verdict
if self.is_urgent.get() && self.length() != NEVER {
    // While a loan is under way, an urgent G waits for its end.
    let loan = self.loan();
    if loan.given_back < self.length() / 2 {
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
