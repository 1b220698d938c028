//! The same image on every shape of machine.
//!
//! Those that need long are ignored here and asked for by `make test-full`.

use boot::qemu::{Board, Disk};
use tests::expect;
use tests::guest::Boot;

/// Boots, wants all CPUs and a good end.
#[track_caller]
fn comes_up(boot: &Boot, cpus: usize) {
    let outcome = boot.run();
    outcome.assert_ok();
    outcome.assert_line(&expect::all_online(cpus));
    outcome.assert_line(expect::HELLO_END);
}

fn shape(name: &str) -> Boot {
    Boot::new(format!("shape-{name}")).cold()
}

macro_rules! shapes {
    ($($(#[$attribute:meta])* $name:ident: $cpus:literal => $boot:expr;)+) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $name() {
                let boot: fn(Boot) -> Boot = $boot;
                comes_up(&boot(shape(stringify!($name))).smp($cpus), $cpus);
            }
        )+
    };
}

shapes! {
    cpus_1: 1 => |b| b;
    cpus_2: 2 => |b| b;
    cpus_3: 3 => |b| b;
    cpus_4: 4 => |b| b;
    cpus_16: 16 => |b| b;
    #[ignore = "make test-full"]
    cpus_32: 32 => |b| b.limit(300);
    #[ignore = "make test-full"]
    cpus_64: 64 => |b| b.limit(600);
    #[ignore = "make test-full"]
    cpus_64_q35_uefi: 64 => |b| b.board(Board::Q35).uefi().limit(600);

    q35_bios: 8 => |b| b.board(Board::Q35);
    pc_uefi: 8 => |b| b.uefi();
    q35_uefi: 8 => |b| b.board(Board::Q35).uefi();
    #[ignore = "make test-full"]
    q35_uefi_16: 16 => |b| b.board(Board::Q35).uefi();

    stick_bios: 2 => |b| b.disk(Disk::Usb);
    stick_uefi: 2 => |b| b.disk(Disk::Usb).board(Board::Q35).uefi();
    #[ignore = "make test-full"]
    stick_bios_q35: 8 => |b| b.disk(Disk::Usb).board(Board::Q35);
    #[ignore = "make test-full"]
    stick_uefi_pc: 8 => |b| b.disk(Disk::Usb).uefi();
    #[ignore = "make test-full"]
    virtio_disk: 2 => |b| b.disk(Disk::Virtio);

    model_qemu64: 4 => |b| b.cpu("qemu64");
    model_max: 4 => |b| b.cpu("max");
    #[ignore = "make test-full"]
    model_max_q35_uefi: 8 => |b| b.cpu("max").board(Board::Q35).uefi();

    memory_128m: 4 => |b| b.mem("128M");
    memory_6g: 4 => |b| b.mem("6G");
    #[ignore = "make test-full"]
    memory_512m: 4 => |b| b.mem("512M");
    #[ignore = "make test-full"]
    memory_128m_uefi: 4 => |b| b.mem("128M").uefi();
    #[ignore = "make test-full"]
    memory_6g_uefi: 4 => |b| b.mem("6G").board(Board::Q35).uefi();

    no_hpet: 4 => |b| b.without_hpet();
    #[ignore = "make test-full"]
    no_hpet_q35_uefi: 4 => |b| b.without_hpet().board(Board::Q35).uefi();

    #[ignore = "make test-full"]
    counted_instructions: 4 => |b| b.icount("shift=0,sleep=off").limit(300);
}

#[test]
fn the_text_file_in_the_image_is_read_from_uefi_too() {
    let outcome = shape("file-uefi").uefi().ramdisk("program=no_such_one\n").run();
    outcome.assert_code(expect::CODE_NO_PROGRAM);
    outcome.assert_line(&expect::no_program("no_such_one"));
}
