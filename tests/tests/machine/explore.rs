//! `make explore` finds a mistake that plain runs miss, and repeats it.

use boot::kernel::Source;
use boot::qemu::Firmware;
use tests::explore::{Case, Explorer, Failure};
use tests::guest::{Boot, kernel_of};

/// The planted mistake shows within so many seeds (it takes 14 today).
const SEEDS: u64 = 20;

fn explorer(words: &str) -> Explorer {
    let kernel = kernel_of(&Source::Standard).expect("the kernel builds");
    let cmdline = boot::root().join("boot/cmdline.txt");
    let image = boot::image::build(
        Firmware::Bios,
        &kernel,
        &cmdline,
        &boot::target_dir(),
        Source::Standard.image_name(),
    );
    Explorer {
        kernel,
        image: image.expect("an image"),
        program: Some("tickets".into()),
        words: words.into(),
        cpus: 4,
        mem: "1G".into(),
        limit_s: 10,
        name: format!("explore-test{}", words.replace([' ', '-'], "")),
    }
}

fn cases() -> Vec<Case> {
    (1..=SEEDS).map(|seed| Case::of(seed, 4)).collect()
}

#[test]
fn planted_mistake_is_found_and_comes_again_with_the_same_events() {
    let explorer = explorer("");
    let (_, found) = explorer.first(&cases(), None).expect("machines start");
    let found = found.expect("the mistake is found");
    assert_eq!(found.failure, Failure::Code(100), "{}", found.outcome);
    found.outcome.assert_line("one ticket was sold 2 times");
    let (_, again) = explorer.first(&[found.case], None).expect("machines start");
    let again = again.expect("it fails again");
    assert!(!found.events.is_empty() && again.events == found.events, "another run");
}

#[test]
fn mended_program_and_plain_run_of_the_wrong_one_end_well() {
    let (runs, found) = explorer("-- mended").first(&cases(), None).expect("machines start");
    assert!(found.is_none(), "{}", found.expect("one").outcome);
    assert_eq!(runs, cases().len());
    let plain = Boot::new("tickets-plain").smp(4).cmdline("program=tickets").virtual_time();
    plain.run().assert_ok();
}
