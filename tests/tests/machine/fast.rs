//! `make run FAST=1`: a kernel that is hardly optimised holds what the usual one does.

use std::process::{Command, Stdio};

use boot::cores::Cores;
use tests::expect;

/// The tool that make calls, as make calls it.
fn fast(program: &str) -> (Option<i32>, String, String) {
    let _cores = Cores::take(1).expect("a core");
    let output = Command::new(boot::target_dir().join("debug/boot"))
        .args(["run", "--fast", "1", "--smp", "4", "--icount", "shift=0,sleep=off"])
        .args(["--program", program])
        .current_dir(boot::root())
        .stdin(Stdio::null())
        .output()
        .expect("the tool is there (make tool?)");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
#[ignore = "make test-full"]
fn every_scene_of_the_tour_holds_and_the_cost_is_said() {
    let (code, said, notes) = fast("tour");
    assert_eq!(code, Some(0), "{said}\n{notes}");
    assert!(said.contains("all of it holds"), "{said}");
    assert!(!said.contains(expect::FAILED_MARK), "{said}");
    assert!(notes.contains("boot: first output after "), "{notes}");
    let kernel = boot::target_dir().join("x86_64-unknown-none/fast/programs");
    crate::unwinding::assert_unwinder_is_gathered(&kernel);
}

#[test]
#[ignore = "make test-full"]
fn a_program_that_is_not_there_is_refused_with_the_list_before_qemu_starts() {
    let (code, said, notes) = fast("nope");
    assert_eq!(code, Some(1), "{said}\n{notes}");
    assert!(notes.contains("PROGRAM=nope: this image has blocking, deadlock, disk,"), "{notes}");
    assert_eq!(said, "", "nothing was booted");
}
