// loses: loan
// Each loan is half a slice, whatever was lent before: with enough urgent Gs the lender starves.
// region: left
let (loan, length) = (self.loan(), self.length());
match loan.began {
    None => length.saturating_sub(now.wrapping_sub(self.began.get())),
    Some(at) => (length / 2).saturating_sub(now.wrapping_sub(at)),
}
