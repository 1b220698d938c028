//! The variant of lab 5.

#[test]
fn loans_are_a_quarter() {
    let slices = begun(1_000);
    assert_eq!(urgent(&slices, 1_010), Some(Displace));
    slices.lend(1_010);
    assert_eq!(slices.left(1_010), 25);
    assert_eq!(urgent(&slices, 1_035), Some(Expire), "the loan is over");
    slices.resume(1_035);
    assert_eq!(urgent(&slices, 1_040), None, "the quarter is used up");
}
