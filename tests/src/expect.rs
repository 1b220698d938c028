//! What the guest is expected to print, in one place.
//!
//! The tests compare with these and never spell out a message of the kernel's
//! themselves. A message that changes is changed here once.

/// A line of the boot banner, as far as `found`.
pub fn banner(name: &str, found: &str) -> String {
    format!("{name:>9}  {found}")
}

/// The names of all its lines, in their order.
pub const BANNER: [&str; 11] = [
    "machine", "firmware", "cpus", "apic", "memory", "clock", "timer", "serial", "screen", "disk",
    "sched",
];

/// The summary of bring-up: so many came, none failed.
pub fn all_online(cpus: usize) -> String {
    some_online(cpus, 0)
}

/// The summary of bring-up when some did not come.
pub fn some_online(cpus: usize, failed: usize) -> String {
    banner("cpus", &format!("{cpus} online, {failed} failed"))
}

/// The report line of CPU `index`, up to its topology; with [`DETAILS`].
pub fn cpu(index: usize, apic_id: u32) -> String {
    format!("smp: CPU {index} online: APIC id {apic_id}, package ")
}

/// The word of the command line that brings the details of the bring-up.
pub const DETAILS: &str = "log=debug";

/// The other words of the topology in that line.
pub const TOPOLOGY: [&str; 3] = [" core ", " thread ", " node "];

/// A CPU that was started and did not come.
pub fn no_answer(apic_id: u32) -> String {
    format!("smp: APIC id {apic_id}: no answer, left out")
}

/// The firmware lists no CPUs.
pub const NO_MADT: &str = "acpi: no MADT: running on the boot CPU alone";
/// The table from outside took the place of the firmware's.
pub const MADT_REPLACED: &str = "acpi: table APIC replaced from outside";
/// The firmware's table was hidden.
pub const MADT_HIDDEN: &str = "acpi: table APIC hidden from outside";
/// The firmware's list of CPUs cannot be used.
pub const MADT_IGNORED: &str = "acpi: table APIC ignored";
/// An entry of it cannot be used.
pub const MADT_BROKEN_ENTRY: &str = "acpi: table APIC: broken entry";
/// The CPU that runs is not in the list.
pub const BOOT_CPU_NOT_LISTED: &str = "the MADT does not list the boot CPU (APIC id 0)";

/// APIC ids that the firmware lists twice.
pub fn duplicates(count: usize) -> String {
    counted("duplicate APIC ids", count)
}

/// CPUs that the firmware lists as not to be used.
pub fn disabled(count: usize) -> String {
    counted("disabled CPUs", count)
}

/// CPUs with the id that means all CPUs.
pub fn broadcast(count: usize) -> String {
    counted("CPUs with the broadcast APIC id", count)
}

fn counted(what: &str, count: usize) -> String {
    format!("acpi: table APIC: {what} skipped ({count})")
}

/// A word of the command line that was not understood.
pub fn word_ignored(word: &str) -> String {
    format!("`{word}` ignored")
}

/// A range that the memory map calls usable, and that is not used.
pub fn left_out(start: u64, end: u64) -> String {
    format!("memory map: {start:#x}..{end:#x} is called usable, but left out: ")
}

/// What is left out because there is no memory.
pub fn no_memory_at(start: u64, end: u64) -> String {
    left_out(start, end) + "what is written there is lost"
}

/// So many regions came from outside, and so many records were none.
pub fn regions_added(regions: usize, ignored: usize) -> String {
    format!("memory map: {regions} regions added from outside, {ignored} ignored")
}

/// There is nothing that the kernel could start with.
pub const NO_MEMORY: &str = "no memory to start with: ";
/// The code of a machine whose kernel panicked.
pub const CODE_PANIC: u8 = 101;

/// No program has this name.
pub fn no_program(name: &str) -> String {
    format!("no program called {name:?} in this image")
}

/// The code of a machine that has no program to run.
pub const CODE_NO_PROGRAM: u8 = 103;
/// The code of a machine in which all Gs of the program wait for each other.
pub const CODE_DEADLOCK: u8 = 104;
/// What is said first then.
pub const DEADLOCK: &str = "fatal error: all goroutines are asleep - deadlock!";
/// What is said first when so many Gs wait for each other in a ring.
pub fn ring(gs: usize) -> String {
    match gs {
        1 => "fatal error: a goroutine waits for itself - deadlock!".into(),
        _ => format!("fatal error: {gs} goroutines wait for each other - deadlock!"),
    }
}

/// What is said of a lock that is waited for.
pub const HELD_BY: &str = ", held by goroutine ";
/// The code of a machine whose program's main panicked.
pub const CODE_MAIN_PANIC: u8 = 100;

/// The last line of the standard program.
pub const HELLO_END: &str = "all of them came back; goodbye";

/// The shell's.
pub const PROMPT: &str = "runnext> ";

/// What a scene of the tour earns for what holds.
pub const MARK: &str = "    \u{2713} ";
/// And for what does not.
pub const FAILED_MARK: &str = "    \u{2717}";
/// How many scenes there are.
pub const SCENES: usize = 17;

/// The first words of an exception's report and of a kernel panic's.
pub const FATAL: &str = "fatal exception on CPU ";
/// The first words of a kernel panic's report.
pub const KERNEL_PANIC: &str = "kernel panic on CPU ";
/// Of every other CPU, in both.
pub const STOPPED: &str = " was stopped, in ";
/// And of all, if events are noted.
pub const LAST_EVENTS: &str = ", last events (";
/// What is said of a CPU that takes no interrupts.
pub const STUCK: &str = " is stuck in ";
/// A G whose stack was full, and ends.
pub const OVERFLOWED: &str = "overflowed its stack of ";
/// A G that could neither go on nor unwind.
pub const LEFT_BEHIND: &str = " ends without its destructors: ";
/// A G that computes and calls nobody, when its program ends.
pub const ABANDONED: &str = " was killed, but computes without a call of the kernel: abandoned";
/// The name of the G that goes wrong, in the report.
pub const VICTIM: &str = "victim";

/// The command line of a guest that goes wrong in the way `how`.
pub fn fault(how: &str) -> String {
    format!("program=fault -- {how}")
}

/// What `fault -- exit` ends with.
pub const FAULT_EXIT_CODE: u8 = 7;
/// What `fault -- hang` says before it hangs, and the function it hangs in.
pub const HANGING: (&str, &str) = ("hanging", "fault::hang");
