//! What machines are asked of QEMU.

use std::time::{Duration, Instant};

use super::*;

fn line(machine: &Machine) -> String {
    machine.args().join(" ")
}

fn plain() -> Machine {
    Machine::new("a.img", Firmware::Bios)
}

#[test]
fn the_image_is_never_written() {
    for disk in [Disk::Ide, Disk::Virtio, Disk::Usb] {
        assert!(line(&plain().disk(disk)).contains("snapshot=on"), "{disk:?}");
    }
}

#[test]
fn a_data_disk_comes_first_and_the_machine_starts_from_the_other() {
    let args = line(&plain().disk(Disk::Virtio).data(DataDisk::new("d.img")));
    let [data, image] = ["drive=data", "virtio-blk-pci,drive=image,bootindex=0"];
    assert!(args.find(data).expect("the data") < args.find(image).expect("the image"));
    assert!(!line(&plain()).contains("id=data"), "none unless asked for");
}

#[test]
fn linux_gets_the_same_machine_and_no_disk() {
    let args = line(&Machine::linux("vmlinuz", "go.cpio", "quiet -- yield"));
    assert!(args.contains("-kernel vmlinuz -initrd go.cpio -append quiet -- yield"));
    assert!(!args.contains("-drive"));
    let common = |args: &str| args.split(" -vga").next().map(str::to_string);
    assert_eq!(common(&args), common(&line(&plain())));
}

#[test]
fn commas_reach_the_guest() {
    let machine = Machine::new("a,b.img", Firmware::Bios)
        .cmdline("a=1,2 b=\"x\"")
        .fw_cfg("opt/runnext/acpi/APIC", "x,y.bin");
    let args = machine.args();
    assert!(args.iter().any(|a| a.starts_with("file=a,,b.img,")), "{args:?}");
    assert!(args.contains(&"name=opt/runnext/cmdline,string=a=1,,2 b=\"x\"".to_string()));
    assert!(args.contains(&"name=opt/runnext/acpi/APIC,file=x,,y.bin".to_string()));
}

#[test]
fn no_command_line_means_no_fw_cfg_item() {
    assert!(!line(&plain()).contains("fw_cfg"));
}

#[test]
fn counting_instructions_needs_the_translator() {
    let machine = plain().accel(Accel::Kvm).icount("shift=0,sleep=off");
    assert!(line(&machine).contains("-accel tcg -icount shift=0,sleep=off"));
    assert!(!line(&machine).contains("-cpu host"));
    assert!(line(&plain().accel(Accel::Kvm)).contains("-cpu host -accel kvm"));
}

#[test]
fn hpet_can_be_taken_away() {
    assert!(line(&plain().board(Board::Q35).without_hpet()).contains("q35,hpet=off"));
    assert!(line(&plain()).contains("pc,hpet=on"));
}

#[test]
fn a_machine_without_serial_port_has_none() {
    let args = line(&plain().serial(Serial::None));
    assert!(args.contains("-serial none"));
    assert!(!args.contains("stdio"));
}

#[test]
fn at_a_shell_ctrl_c_and_a_reset_are_the_guests_business() {
    let args = line(&plain().serial(Serial::Shell));
    assert!(args.contains("signal=off") && !args.contains("-no-reboot"), "{args}");
    let args = line(&plain().serial(Serial::Terminal));
    assert!(args.contains("signal=on") && args.contains("-no-reboot"), "{args}");
}

#[test]
fn the_debug_console_goes_to_a_file_if_one_is_given() {
    let args = line(&plain().debugcon("a,b.bin"));
    assert!(args.contains("-chardev file,id=debugcon,path=a,,b.bin"), "{args}");
    assert!(args.contains("-device isa-debugcon,iobase=0xe9,chardev=debugcon"), "{args}");
    assert!(!line(&plain()).contains("debugcon"));
}

#[test]
fn raw_smp_strings_pass_through() {
    assert!(line(&plain().smp("4,maxcpus=8")).contains("-smp 4,maxcpus=8 "));
    assert!(line(&plain().smp(64)).contains("-smp 64 "));
}

#[test]
fn serial_output_can_be_copied_to_a_file() {
    for serial in [Serial::Shell, Serial::Terminal, Serial::Output] {
        let args = line(&plain().serial(serial.clone()).serial_log("a,b.log"));
        assert!(args.contains(",logfile=a,,b.log -serial chardev:console"), "{args}");
        assert!(!line(&plain().serial(serial)).contains("logfile"));
    }
}

#[test]
fn one_thread_is_a_property_of_the_translator_and_none_of_counted_time() {
    assert!(line(&plain().single_threaded()).contains("-accel tcg,thread=single "));
    let counted = line(&plain().single_threaded().icount("shift=0"));
    assert!(counted.contains("-accel tcg -icount shift=0 "), "{counted}");
}

#[test]
fn a_state_is_read_whatever_its_name() {
    let args = plain().incoming("a'b.snap").args();
    assert!(args.contains(&r"exec:cat 'a'\''b.snap'".to_string()), "{args:?}");
    assert!(line(&plain().gdb("g")).contains("-gdb unix:g,server=on,wait=off -S"));
}

/// The process that starts a machine is this test again, told so by its environment; the
/// machine is a script that writes down its number and sleeps.
#[test]
#[cfg(target_os = "linux")]
fn a_machine_ends_with_the_process_that_started_it() {
    const STARTS_MACHINE: &str = "RUNNEXT_STARTS_MACHINE";
    if let Some(scratch) = std::env::var_os(STARTS_MACHINE) {
        let mut machine = plain().command(Path::new(&scratch)).expect("a command");
        machine.spawn().and_then(|mut machine| machine.wait()).expect("a machine");
        return;
    }
    let dir = tempfile::TempDir::new().expect("a writable directory");
    let [text, script, pid] = ["qemu.sh", "qemu", "pid"].map(|name| dir.path().join(name));
    fs::write(&text, "#!/bin/sh\necho $$ >\"$PID\"\nexec sleep 60\n").expect("a writable file");
    tool::install(text, &script);
    let mut parent = Command::new(std::env::current_exe().expect("this test is a file"))
        .args(["--exact", "qemu::tests::a_machine_ends_with_the_process_that_started_it"])
        .envs([(STARTS_MACHINE, dir.path()), ("QEMU", &script), ("PID", &pid)])
        .spawn()
        .expect("this test starts");
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let machine = || fs::read_to_string(&pid).unwrap_or_default().trim().to_string();
    wait("the machine does not start", &|| !machine().is_empty());
    parent.kill().expect("it runs");
    parent.wait().expect("it has ended");
    // A process that has ended and that nothing has waited for yet has no command line.
    let command_line = format!("/proc/{}/cmdline", machine());
    wait("the machine outlives its parent", &|| {
        fs::read(&command_line).unwrap_or_default().is_empty()
    });
}
