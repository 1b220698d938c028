//! Data from loader and launcher: ELF file, memory, ramdisk, screen, fw_cfg.
//!
//! The loader leaves the kernel's own ELF file in memory (names for backtraces), the ramdisk (a
//! text file with command-line words, which a person can edit on the stick), and the framebuffer.
//! QEMU leaves files in its fw_cfg device. [`crate::start`] reads each of them once, in the order
//! of this file.

mod regions;

use super::cmdline::Options;
use crate::arch::{self, paging};
use crate::drivers::framebuffer::Screen;
use crate::drivers::fw_cfg::{FileError, FwCfg};
use crate::drivers::log;
use crate::drivers::serial::Serial;
use crate::mem;
use crate::watch::symbols;
use crate::watch::symbols::Symbols;
use bootloader_api::BootInfo;
use bootloader_api::info::{MemoryRegion, MemoryRegionKind, Optional};

pub use regions::MAX_RECORDS as MAX_REGIONS;

/// Maximum size of an ACPI table that is taken from outside, bytes.
const MAX_TABLE: usize = 64 * 1024;

const FOUR_GIB: u64 = 1 << 32;
/// Maximum number of warnings about one file.
const MAX_WARNINGS: usize = 8;

/// Finds the serial port, if there is one, and attaches it as a console.
pub fn init_serial() {
    match Serial::probe() {
        Some(serial) => log::attach_serial(serial),
        None => ::log::warn!("no serial port at 0x3f8"),
    }
}

/// Finds the kernel's symbols in its ELF file.
pub fn init_symbols(boot: &BootInfo) {
    let start = mem::phys_to_virt(boot.kernel_addr).cast_const();
    // SAFETY: the loader keeps the file there, in memory that it does not mark as usable, and all
    // of physical memory is mapped.
    let file = unsafe { core::slice::from_raw_parts(start, boot.kernel_len as usize) };
    match Symbols::parse(file) {
        Some(symbols) => symbols::set(symbols),
        None => ::log::warn!("the kernel's file has no symbols; backtraces are numbers"),
    }
}

/// Regions from QEMU that are added to the memory map: [`regions`] has the format. There is no heap
/// yet.
pub fn added_regions(out: &mut [MemoryRegion; MAX_REGIONS]) -> &[MemoryRegion] {
    const NAME: &str = "opt/runnext/memory";
    let mut bytes = [0; MAX_REGIONS * regions::RECORD];
    let Some(Ok(size)) = FwCfg::probe().map(|mut device| device.read_file(NAME, &mut bytes)) else {
        return &[];
    };
    let mut ignored = 0;
    let added = regions::parse(&bytes, size, out, |what| {
        ignored += 1;
        if ignored <= MAX_WARNINGS {
            ::log::warn!("fw_cfg: {NAME}: {what}");
        }
    });
    ::log::info!("memory map: {} regions added from outside, {ignored} ignored", added.len());
    added
}

/// The screen's memory region: it stores data but must not be used as memory. If it is above all
/// memory, the region extends to 4 GiB, because devices fill a PC's addresses from there on.
pub fn screen_region(boot: &BootInfo) -> Option<MemoryRegion> {
    let Optional::Some(framebuffer) = &boot.framebuffer else { return None };
    let pixels = framebuffer.buffer();
    let start = paging::translate(pixels.as_ptr() as u64)?.phys;
    let mut end = start.checked_add(pixels.len() as u64)?;
    let mut usable = boot.memory_regions.iter().filter(|r| r.kind == MemoryRegionKind::Usable);
    if !usable.any(|r| r.start < FOUR_GIB && start < r.end) {
        end = end.max(FOUR_GIB);
    }
    Some(MemoryRegion { start, end, kind: MemoryRegionKind::UnknownBios(2) })
}

static FIRMWARE: spin::Once<&str> = spin::Once::new();

/// Finds out which firmware started the loader, from the kind that the loader gives to memory
/// regions it does not know.
pub fn init_firmware(boot: &BootInfo) {
    let kinds = || boot.memory_regions.iter().map(|region| region.kind);
    let is_uefi = kinds().any(|kind| matches!(kind, MemoryRegionKind::UnknownUefi(_)));
    let is_bios = kinds().any(|kind| matches!(kind, MemoryRegionKind::UnknownBios(_)));
    FIRMWARE.call_once(|| match (is_uefi, is_bios) {
        (true, _) => "UEFI",
        (_, true) => "BIOS",
        _ => "unknown",
    });
}

/// The firmware that started the loader.
pub fn firmware() -> &'static str {
    FIRMWARE.get().copied().unwrap_or("unknown")
}

/// Reads the command line: the file on the boot disk first, then fw_cfg, whose
/// words win.
pub fn init_options(boot: &BootInfo) -> Options {
    let mut options = Options::default();
    if let (Optional::Some(address), len @ 1..) = (boot.ramdisk_addr, boot.ramdisk_len) {
        // SAFETY: the loader has mapped the ramdisk there, for good.
        let file = unsafe { core::slice::from_raw_parts(address as *const u8, len as usize) };
        options.apply("boot disk", file);
    }
    if let Some(text) = fw_cfg_file("opt/runnext/cmdline", crate::init::cmdline::MAX_LENGTH) {
        options.apply("fw_cfg", &text);
    }
    log::set_max_level(options.log);
    options.report();
    options
}

/// Reports which CPU features are missing, on serial port and screen, and ends the machine.
pub fn refuse_cpu(boot: &'static mut BootInfo) -> ! {
    attach_screen(boot);
    arch::missing_features().for_each(|feature| ::log::error!("this CPU has {feature}"));
    ::log::error!("the kernel needs what this CPU lacks; the machine ends");
    arch::exit(crate::fail::end::EXIT_CPU, log::print_line)
}

/// Attaches the screen as a console, unless the command line says otherwise.
pub fn init_screen(boot: &'static mut BootInfo, options: &Options) {
    attach_screen(boot);
    log::set_sinks(options.console);
}

fn attach_screen(boot: &'static mut BootInfo) {
    if let Optional::Some(framebuffer) = core::mem::replace(&mut boot.framebuffer, Optional::None) {
        let info = framebuffer.info();
        match Screen::take(framebuffer.into_buffer(), info) {
            Some(screen) => log::attach_screen(screen),
            None => ::log::warn!("the framebuffer cannot show text: {info:?}"),
        }
    }
}

/// The configuration of the machine, from the options and the loader.
pub fn machine_config(rsdp: Option<u64>, options: &Options) -> arch::Config {
    arch::Config {
        apic: options.apic,
        clock: options.clock,
        timer: options.timer,
        tsc_hz: options.tsc_mhz.map(|mhz| mhz * 1_000_000),
        lapic_hz: options.lapic_mhz.map(|mhz| mhz * 1_000_000),
        max_cpus: options.max_cpus.unwrap_or(arch::MAX_CPUS),
        new_stack: mem::stack::new_kernel_stack,
        alloc_low: || mem::frames::alloc_below_1m().map(mem::frames::Frame::addr),
        rsdp: rsdp.filter(|_| options.acpi),
        overrides: |signature| {
            fw_cfg_file(&alloc::format!("opt/runnext/acpi/{signature}"), MAX_TABLE)
        },
    }
}

/// A file that QEMU passes to the kernel.
fn fw_cfg_file(name: &str, max: usize) -> Option<alloc::vec::Vec<u8>> {
    match FwCfg::probe()?.file(name, max) {
        Ok(contents) => Some(contents),
        Err(FileError::NotFound) => None,
        Err(error) => {
            ::log::warn!("fw_cfg: {name} ignored: {error:?}");
            None
        }
    }
}
