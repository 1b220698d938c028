// loses: verdict
// Compares two values of a counter that may wrap.
// region: left
let (loan, length) = (self.loan(), self.length());
match loan.began {
    None => length.saturating_sub(now.saturating_sub(self.began.get())),
    Some(at) => (length / 2).saturating_sub(loan.given_back + now.wrapping_sub(at)),
}
