//! The account of one slice: what is spent, what is lent, what is left.
//!
//! Times are values of a CPU's cycle counter, which may wrap; the caller passes the length of a
//! slice. Nothing here knows a machine: `preempt` reads the counter, queries the scheduler, and
//! acts on the [`Verdict`].
#![forbid(unsafe_code)]

use core::cell::Cell;

/// The decision about the G that was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It continues.
    GoOn,
    /// Its slice is over, or the part that was lent to it.
    Expire,
    /// It lends its slice.
    Displace,
}

/// The slice under way on one CPU.
pub struct Account {
    /// When it began, later by what was lent and given back.
    began: Cell<u64>,
    /// The loan of the slice that began at that time; of no other.
    loan: Cell<Loan>,
}

/// What a slice has lent.
#[derive(Clone, Copy)]
struct Loan {
    /// When the slice began. A loan of an earlier slice is void, so that the begin of a slice need
    /// not clear it.
    of: u64,
    /// Cycles that were lent and given back.
    given_back: u64,
    /// When the loan under way began, if one is.
    began: Option<u64>,
}

impl Account {
    /// No slice is under way.
    pub const fn new() -> Self {
        let loan = Loan { of: 0, given_back: 0, began: None };
        Account { began: Cell::new(0), loan: Cell::new(loan) }
    }

    /// A slice begins.
    #[inline(always)]
    pub fn begin(&self, now: u64) {
        self.began.set(now);
    }

    /// The running G is displaced, and lends what follows.
    pub fn lend(&self, now: u64) {
        self.loan.set(Loan { began: Some(now), ..self.loan() });
    }

    /// The G that lent its slice continues with what is left of it.
    pub fn resume(&self, now: u64) {
        let loan = self.loan();
        // Else other Gs have had their own slices here since: a new one.
        let Some(lent_at) = loan.began else { return self.begin(now) };
        let took = now.wrapping_sub(lent_at);
        self.began.set(self.began.get().wrapping_add(took));
        let (of, given_back) = (self.began.get(), loan.given_back + took);
        self.loan.set(Loan { of, given_back, began: None });
    }

    /// Cycles that are left of a slice of `length`, or of what is lent of it: half at most.
    pub fn left(&self, length: u64, now: u64) -> u64 {
        let loan = self.loan();
        match loan.began {
            None => length.saturating_sub(now.wrapping_sub(self.began.get())),
            Some(at) => (length / 2).saturating_sub(loan.given_back + now.wrapping_sub(at)),
        }
    }

    /// The decision about the running G; with `is_urgent` a G waits that an interrupt has readied,
    /// `may_expire` says whether any G waits.
    pub fn verdict(
        &self,
        length: u64,
        now: u64,
        is_urgent: bool,
        may_expire: impl FnOnce() -> bool,
    ) -> Verdict {
        if is_urgent && self.may_lend(length) {
            return Verdict::Displace;
        }
        match self.left(length, now) {
            0 if may_expire() => Verdict::Expire,
            _ => Verdict::GoOn,
        }
    }

    /// Whether a part of this slice may be lent now. While a loan is under way, an urgent G waits
    /// for its end.
    fn may_lend(&self, length: u64) -> bool {
        let loan = self.loan();
        loan.began.is_none() && loan.given_back < length / 2
    }

    /// The loan of the slice under way.
    fn loan(&self) -> Loan {
        let (loan, of) = (self.loan.get(), self.began.get());
        if loan.of == of { loan } else { Loan { of, given_back: 0, began: None } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::preempt::account::Verdict::{Displace, Expire, GoOn};

    const SLICE: u64 = 100;

    /// A slice that began at `now`.
    fn begun(now: u64) -> Account {
        let account = Account::new();
        account.begin(now);
        account
    }

    /// The decision while other Gs wait, one of them urgent.
    fn urgent(account: &Account, now: u64) -> Verdict {
        account.verdict(SLICE, now, true, || true)
    }

    /// The same, without an urgent G.
    fn tick(account: &Account, now: u64) -> Verdict {
        account.verdict(SLICE, now, false, || true)
    }

    #[test]
    fn a_slice_is_spent_by_running_and_ends_if_somebody_waits() {
        let account = begun(1000);
        assert_eq!((account.left(SLICE, 1000), account.left(SLICE, 1099)), (SLICE, 1));
        assert_eq!(tick(&account, 1099), GoOn);
        assert_eq!(tick(&account, 1100), Expire);
        assert_eq!(account.left(SLICE, 1250), 0, "not below zero");
        assert_eq!(account.verdict(SLICE, 1250, false, || false), GoOn);
    }

    #[test]
    fn whoever_lends_goes_on_with_what_was_left() {
        let account = begun(1000);
        assert_eq!(urgent(&account, 1030), Displace);
        account.lend(1030);
        account.resume(1050);
        assert_eq!(account.left(SLICE, 1050), 70);
        assert_eq!(tick(&account, 1119), GoOn);
        assert_eq!(tick(&account, 1120), Expire);
    }

    #[test]
    fn a_loan_is_half_a_slice_at_most_wherever_it_begins() {
        for lent_at in [1000, 1030, 1099, 1100, 1500] {
            let account = begun(1000);
            assert_eq!(urgent(&account, lent_at), Displace);
            account.lend(lent_at);
            assert_eq!(account.left(SLICE, lent_at), 50);
            assert_eq!(tick(&account, lent_at + 49), GoOn);
            assert_eq!(tick(&account, lent_at + 50), Expire);
        }
    }

    #[test]
    fn all_loans_of_a_slice_are_half_of_it_together() {
        let account = begun(1000);
        account.lend(1010);
        account.resume(1030); // 20 are given back
        assert_eq!(urgent(&account, 1040), Displace);
        account.lend(1040);
        assert_eq!(account.left(SLICE, 1040), 30);
        account.resume(1069); // 49
        assert_eq!(urgent(&account, 1070), Displace);
        account.lend(1070);
        assert_eq!((account.left(SLICE, 1070), tick(&account, 1071)), (1, Expire));
        account.resume(1071); // 50
        assert_eq!(urgent(&account, 1071), GoOn, "all is lent");
        assert_eq!(account.left(SLICE, 1071), SLICE - 21, "it ran for 10, 10 and 1");
        assert_eq!(urgent(&account, 1150), Expire);
    }

    #[test]
    fn a_borrower_that_stayed_too_long_has_had_it_all() {
        let account = begun(1000);
        account.lend(1010);
        assert_eq!(account.left(SLICE, 1200), 0);
        account.resume(1200); // with interrupts off, say
        assert_eq!(urgent(&account, 1200), GoOn);
        assert_eq!(account.left(SLICE, 1200), 90, "the lender pays nothing");
    }

    #[test]
    fn while_a_loan_is_under_way_a_hurry_waits_for_its_end() {
        let account = begun(1000);
        account.lend(1010);
        assert_eq!(urgent(&account, 1020), GoOn);
        account.resume(1030);
        assert_eq!(urgent(&account, 1030), Displace);
        account.lend(1030);
        assert_eq!((urgent(&account, 1059), urgent(&account, 1060)), (GoOn, Expire));
    }

    #[test]
    fn a_loan_is_of_its_own_slice_only() {
        let account = begun(1000);
        account.lend(1000);
        account.resume(1050);
        assert_eq!(urgent(&account, 1050), GoOn, "all is lent");
        account.begin(1060);
        assert_eq!(urgent(&account, 1060), Displace, "a new slice has a new half");
        account.lend(1060);
        account.begin(1070); // the borrower is gone, and its lender with it
        assert_eq!(account.left(SLICE, 1070), SLICE);
        assert_eq!(urgent(&account, 1080), Displace);
    }

    #[test]
    fn a_lender_that_comes_back_after_slices_of_others_has_a_new_one() {
        let account = begun(1000);
        account.lend(1040);
        account.begin(1060);
        account.resume(1100);
        assert_eq!(account.left(SLICE, 1100), SLICE);
        assert_eq!(urgent(&account, 1100), Displace);
    }

    #[test]
    fn the_counter_may_wrap_in_the_middle() {
        let start = u64::MAX - 20;
        let at = |after: u64| start.wrapping_add(after);
        let account = begun(start);
        assert_eq!(account.left(SLICE, at(30)), 70);
        account.lend(at(10));
        assert_eq!(account.left(SLICE, at(30)), 30);
        account.resume(at(30));
        assert_eq!(account.left(SLICE, at(30)), 90);
        assert_eq!((tick(&account, at(119)), tick(&account, at(120))), (GoOn, Expire));
    }
}
