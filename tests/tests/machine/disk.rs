//! A disk on virtio: the bytes of the image, both ways, and all that can go wrong.
//!
//! The guest checks from inside (`tests/guest/src/disk.rs`); the disk is the one
//! that `make run` attaches, made faulty or slow by QEMU where a test wants that.

use std::path::PathBuf;
use std::sync::LazyLock;

use boot::data::{self, DataDisk};
use boot::qemu::{Board, Disk};
use tests::expect;
use tests::guest::Boot;
use tests::outcome::Outcome;

static DISK: LazyLock<Outcome> = LazyLock::new(|| good(4).run());

/// The image of `make run`.
fn image() -> PathBuf {
    data::build(&boot::target_dir()).expect("a disk image")
}

fn disk() -> DataDisk {
    DataDisk::new(image())
}

/// The guest's checks for a disk of this kind.
fn guest(name: &str, words: &str) -> Boot {
    Boot::guest(format!("disk-{name}")).cmdline(&format!("program=disk log=info -- {words}"))
}

/// All checks of a good disk.
fn good(cpus: usize) -> Boot {
    guest(&format!("good-{cpus}"), "").smp(cpus).data(disk())
}

guest_tests!(DISK => disk);

/// The guest has read what the host has put there, file by file.
#[track_caller]
fn assert_sums(outcome: &Outcome) {
    let files = data::files().expect("the files");
    for (name, bytes) in &files {
        outcome.assert_line(&format!("SUM {:08x} {name}", sum(bytes)));
    }
    let said = outcome.lines.iter().filter(|line| line.starts_with("SUM ")).count();
    assert_eq!(said, files.len(), "files that the host does not know");
}

/// FNV-1a, as the guest counts it.
fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[track_caller]
fn holds(boot: &Boot) -> Outcome {
    let outcome = boot.run();
    outcome.assert_ok();
    assert_sums(&outcome);
    outcome
}

#[test]
fn all_of_it_holds_on_four_cpus() {
    DISK.assert_ok();
    assert_sums(&DISK);
    DISK.assert_line("are past the end of the disk, which has ");
    DISK.assert_line("MSI-X as ");
}

#[test]
fn all_of_it_holds_on_one_cpu() {
    holds(&good(1));
}

#[test]
#[ignore = "make test-full"]
fn all_of_it_holds_on_two_cpus() {
    holds(&good(2));
}

#[test]
fn all_of_it_holds_on_eight_cpus() {
    holds(&good(8));
}

#[test]
fn all_of_it_holds_from_uefi_with_pci_express() {
    holds(&guest("q35-uefi", "").smp(2).board(Board::Q35).uefi().data(disk()));
}

#[test]
#[ignore = "make test-full"]
fn all_of_it_holds_from_uefi_on_an_old_board() {
    holds(&guest("pc-uefi", "").smp(8).uefi().data(disk()));
}

/// The image to boot is a virtio disk, too, and is not taken for ours.
#[test]
fn the_disk_of_the_image_is_left_alone() {
    let outcome = holds(&guest("two", "").smp(2).disk(Disk::Virtio).data(disk()));
    outcome.assert_line("disk: another one at 00:");
}

#[test]
fn a_disk_behind_a_bridge_is_found() {
    let boot = guest("bridge", "").smp(2).board(Board::Q35).data(disk().behind_bridge());
    holds(&boot).assert_line(&expect::banner("disk", "virtio at 01:00.0"));
}

/// A device without messages pulls its line.
#[track_caller]
fn line_interrupts_work_on(board: Board, name: &str) {
    let boot = guest(name, "").smp(4).board(board).data(disk().device("vectors=0"));
    let outcome = holds(&boot);
    let disk = expect::banner("disk", "virtio at");
    let by_line = |line: &&String| line.contains(&disk) && line.contains(", line 1");
    assert!(outcome.lines.iter().any(|line| by_line(&line)), "by its line");
}

#[test]
fn line_interrupts_work_on_pc() {
    line_interrupts_work_on(Board::Pc, "line-pc");
}

#[test]
fn line_interrupts_work_on_q35() {
    line_interrupts_work_on(Board::Q35, "line-q35");
}

#[test]
fn without_a_disk_the_system_says_so_and_runs() {
    let outcome = guest("missing", "missing").smp(2).run();
    outcome.assert_ok();
    outcome.assert_line(&expect::banner("disk", "none"));
    outcome.assert_line("there is no disk");
}

#[test]
fn a_disk_that_cannot_be_used_is_named_and_done_without() {
    let old = disk().device("disable-modern=on").device("disable-legacy=off");
    let outcome = guest("old", "missing").smp(2).data(old).run();
    outcome.assert_ok();
    outcome.assert_line("it has only virtio's legacy interface; not used");
}

/// One that cannot be used stands before one that can.
#[test]
fn the_next_disk_is_used_if_the_first_cannot_be() {
    let image = image().display().to_string();
    let outcome = holds(
        &guest("next", "")
            .smp(2)
            .arg("-drive")
            .arg(&format!("if=none,id=old,format=raw,snapshot=on,file={image}"))
            .arg("-device")
            .arg("virtio-blk-pci,drive=old,disable-modern=on,disable-legacy=off,addr=8")
            .data(disk().device("addr=9")),
    );
    outcome.assert_line("virtio at 00:08.0: it has only virtio's legacy interface; not used");
    outcome.assert_line(&expect::banner("disk", "virtio at 00:09.0"));
}

/// It takes no request that is not whole blocks at a block's beginning.
#[test]
fn a_disk_with_blocks_of_four_kib_is_read_and_written() {
    let large = disk().device("logical_block_size=4096").device("physical_block_size=4096");
    let outcome = holds(&guest("4k", "").smp(4).data(large));
    outcome.assert_line("in blocks of 4096 bytes");
}

/// A sector in the middle of `pattern.bin`.
const BAD_SECTOR: u64 = 1000;

#[test]
fn a_device_error_is_an_error_of_the_call() {
    let failing = disk().failing_at(BAD_SECTOR).drive("readonly=on");
    let outcome = guest("failing", &format!("failing {BAD_SECTOR}")).smp(4).data(failing).run();
    outcome.assert_ok();
    outcome.assert_line("the disk could not read or write there");
}

/// A byte a second: the answer would come in some months.
#[test]
fn a_disk_that_never_answers_ends_in_a_time_out() {
    let silent = disk().drive("throttling.bps-total=1");
    let outcome = guest("silent", "silent").smp(4).data(silent).run();
    outcome.assert_ok();
    outcome.assert_line("the disk did not answer within 100ms");
}

#[test]
fn a_disk_that_answers_late_is_used_again() {
    let late = disk().drive("throttling.iops-total=4");
    let outcome = guest("late", "late").smp(2).data(late).run();
    outcome.assert_ok();
    outcome.assert_line(" timed out, ");
}

fn program(name: &str, words: &str) -> Boot {
    let words = format!("program=disk console=serial {words}");
    Boot::new(format!("disk-program-{name}")).smp(4).cmdline(&words)
}

#[test]
fn the_example_reads_the_disk_both_ways() {
    let outcome = program("good", "-- 100").data(disk()).run();
    outcome.assert_ok();
    outcome.assert_line("the same by the poller and by blocking calls");
    outcome.assert_line("a P changed hands 0 times for the poller, ");
    outcome.assert_line("100 Gs read pattern.bin at once");
}

#[test]
fn the_example_without_a_disk_says_so_and_fails() {
    let outcome = program("none", "").run();
    outcome.assert_code(2);
    outcome.assert_line("disk: there is no disk");
}

#[test]
fn a_disk_that_is_no_archive_is_named() {
    let manifest = boot::root().join("Cargo.lock");
    let outcome = program("text", "").data(DataDisk::new(manifest)).run();
    outcome.assert_code(2);
    outcome.assert_line("disk: the disk is no tar archive, or damaged: there is no tar header");
}
