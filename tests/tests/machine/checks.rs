//! Host tests for the checks of a guest program.

// `guest_checks!`: the names, read from the guest's source by the build script.
include!(concat!(env!("OUT_DIR"), "/guest_checks.rs"));

/// A host test for each check of a guest program, by the module that the program is in, and
/// one for checks that the guest reports beside them. With a function that boots the same
/// on so many CPUs (`SYNCING, boot => syncing`), all of it must also hold on 1 and 8, and on 2 and 4
/// in `make test-full`.
macro_rules! guest_tests {
    ($fixture:expr, $boot:ident => $list:ident) => {
        guest_tests!($fixture => $list);

        #[test]
        fn all_of_it_holds_on_eight_cpus() {
            $fixture.assert_ok();
        }

        #[test]
        fn all_of_it_holds_on_one_cpu() {
            $boot(1).run().assert_ok();
        }

        #[test]
        #[ignore = "make test-full"]
        fn all_of_it_holds_on_two_cpus() {
            $boot(2).run().assert_ok();
        }

        #[test]
        #[ignore = "make test-full"]
        fn all_of_it_holds_on_four_cpus() {
            $boot(4).run().assert_ok();
        }
    };
    ($fixture:expr => $list:ident) => {
        guest_checks!($list, $fixture);

        #[test]
        fn every_check_of_the_guest_is_in_its_list() {
            for (name, _) in tests::outcome::verdicts(&$fixture.lines) {
                assert!(CHECKS.contains(&name), "the guest ran {name}, which is in another list");
            }
        }
    };
}
