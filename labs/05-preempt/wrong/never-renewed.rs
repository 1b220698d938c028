// loses: verdict
// A slice that nothing waits for is over, and stays over: the next readying arms the timer for the past.
// region: verdict
if self.is_urgent.get() && self.length() != NEVER {
    // While a loan is under way, an urgent G waits for its end, unless it outranks the borrower.
    let loan = self.loan();
    let is_first = loan.began.is_none() || self.outranks.get();
    if is_first && loan.given_back < self.length() / 2 {
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
None
