// region: left
let (loan, length) = (self.loan(), self.length());
match loan.began {
    None => length.saturating_sub(now.wrapping_sub(self.began.get())),
    Some(at) => (length / 4).saturating_sub(loan.given_back + now.wrapping_sub(at)),
}
// region: verdict
if self.is_urgent.get() && self.length() != NEVER {
    // While a loan is under way, an urgent G waits for its end, unless it outranks the borrower.
    let loan = self.loan();
    let is_first = loan.began.is_none() || self.outranks.get();
    if is_first && loan.given_back < self.length() / 4 {
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
