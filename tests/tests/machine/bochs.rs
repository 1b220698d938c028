//! The same image in another emulator: x2APIC, and a TSC-deadline timer that fires.
//!
//! Bochs interprets instruction by instruction, and its clock counts them: a program of
//! a second takes minutes. So limits are long here, and `make test` boots only `hello`.

use std::fs;
use std::time::Duration;

use boot::bochs::{Bochs, Ended};
use boot::cores::Cores;
use boot::image;
use boot::kernel::Source;
use boot::qemu::Firmware;
use tests::expect;

/// Far more than is needed on a busy host.
const LIMIT: Duration = Duration::from_secs(2 * 3600);

/// Boots `source` with this command line, and gives back what it said if it ended well
/// on the hardware that this is about.
#[track_caller]
fn boots(source: &Source, cpus: u32, cmdline: &str) -> String {
    let name: String = cmdline.chars().filter(char::is_ascii_alphanumeric).collect();
    let dir = tests::out_dir().join(format!("bochs-{name}-{cpus}"));
    fs::create_dir_all(&dir).expect("a writable directory");
    let kernel = source.build_quietly().unwrap_or_else(|error| panic!("{error:#}"));
    let text = dir.join("cmdline.txt");
    fs::write(&text, format!("{cmdline}\n")).expect("a writable file");
    let image = image::build(Firmware::Bios, &kernel, &text, &dir, "bochs")
        .unwrap_or_else(|error| panic!("{error:#}"));
    let cores = Cores::take(1).expect("a core");
    let ended = Bochs::new(image).smp(cpus).mem_mib(512).run(&dir, LIMIT);
    drop(cores);
    let ended = ended.unwrap_or_else(|error| panic!("{error:#}"));
    let said = fs::read(dir.join("serial.txt")).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(ended, Ended::Code(0), "{}\n{said}", dir.display());
    for part in ["x2apic id 0", "tsc-deadline, fired", &format!("{cpus} online")] {
        assert!(said.contains(part), "{part} in {}\n{said}", dir.display());
    }
    said
}

#[test]
fn hello_runs_by_x2apic_and_tsc_deadline() {
    let said = boots(&Source::Standard, 2, "program=hello");
    assert!(said.contains(expect::HELLO_END), "{said}");
}

#[test]
#[ignore = "make test-full"]
fn every_scene_of_the_tour_holds() {
    for cpus in [1, 4] {
        let said = boots(&Source::Standard, cpus, "program=tour");
        assert!(said.contains("all of it holds"), "{said}");
        assert!(!said.contains(expect::FAILED_MARK), "{said}");
    }
}

#[test]
#[ignore = "make test-full"]
fn guests_checks_of_locks_and_channels_hold() {
    boots(&Source::Guest, 2, "program=syncing");
}

#[test]
#[ignore = "make test-full"]
fn guests_checks_of_blocking_calls_hold() {
    boots(&Source::Guest, 2, "program=blocking");
}

#[test]
#[ignore = "make test-full"]
fn guests_checks_of_unwinding_hold() {
    boots(&Source::Guest, 2, "program=unwinding");
}
