//! Data from loader and launcher: ELF file, memory, ramdisk, screen, fw_cfg.
//!
//! The loader leaves the kernel's own ELF file in memory (names for backtraces), the ramdisk (a
//! text file with command-line words, which a person can edit on the stick), and the framebuffer.
//! QEMU leaves files in its fw_cfg device. [`crate::start`] reads each of them once, in the order
//! of this file.

use super::cmdline::Options;
use crate::arch::{self, paging};
use crate::drivers::framebuffer::Screen;
use crate::drivers::fw_cfg::{FileError, FwCfg};
use crate::drivers::log;
use crate::drivers::serial::Serial;
use crate::mem;
use crate::watch::symbols::{self, Symbols};
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use bootloader_api::BootInfo;
use bootloader_api::info::{MemoryRegion, MemoryRegionKind, Optional};

const MAX_TABLE: usize = 64 * 1024;

const FOUR_GIB: u64 = 1 << 32;
pub const MAX_REGIONS: usize = 256;

pub fn init_serial() {
    match Serial::probe() {
        Some(serial) => log::attach_serial(serial),
        None => ::log::warn!("no serial port at 0x3f8"),
    }
}

pub fn init_symbols(boot: &BootInfo) {
    let start = mem::phys_to_virt(boot.kernel_addr).cast_const();
    // SAFETY: the loader keeps the file there, in memory that is not usable but mapped.
    let file = unsafe { core::slice::from_raw_parts(start, boot.kernel_len as usize) };
    match Symbols::parse(file) {
        Some(symbols) => symbols::set(symbols),
        None => ::log::warn!("the kernel's file has no symbols; backtraces are numbers"),
    }
}

/// Regions from QEMU that are added to the memory map, for tests: records of three little-endian
/// words of 8 bytes, start, end (exclusive) and kind. There is no heap yet.
pub fn added_regions(out: &mut Regions) -> &[MemoryRegion] {
    const NAME: &str = "opt/runnext/memory";
    let mut bytes = [0; MAX_REGIONS * RECORD];
    if let Some(Ok(size)) = FwCfg::probe().map(|mut device| device.read_file(NAME, &mut bytes)) {
        let (records, bytes) = parse_regions(&bytes, size, out);
        if bytes > 0 {
            ::log::warn!("fw_cfg: {NAME}: last {bytes} bytes ignored");
        }
        ::log::info!("memory map: {} regions added from outside, {records} ignored", out.len());
    }
    out
}

pub type Regions = ArrayVec<MemoryRegion, MAX_REGIONS>;

const RECORD: usize = 24; // bytes

/// The regions of a file of `size` bytes that begins with `bytes`, in `out`. The kinds are those of
/// the BIOS: 1 is usable, 2 reserved. Regions may lie anywhere and be nonsense, as in a map of
/// broken firmware. Returns what was ignored: records of another kind, and bytes at the end.
fn parse_regions(bytes: &[u8], size: usize, out: &mut Regions) -> (usize, usize) {
    let (records, _) = bytes[..bytes.len().min(size)].as_chunks::<RECORD>();
    for record in records.iter().take(MAX_REGIONS) {
        let words = record.as_chunks::<8>().0;
        let [start, end, kind] = core::array::from_fn(|i| u64::from_le_bytes(words[i]));
        let kind = match kind {
            1 => MemoryRegionKind::Usable,
            2 => MemoryRegionKind::UnknownBios(2),
            _ => continue,
        };
        out.push(MemoryRegion { start, end, kind });
    }
    let read = records.len().min(MAX_REGIONS);
    (read - out.len(), size - read * RECORD)
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

/// The firmware, from the kind that the loader gives to memory regions it does not know.
pub fn firmware(boot: &BootInfo) -> &'static str {
    let kinds = || boot.memory_regions.iter().map(|region| region.kind);
    let is_uefi = kinds().any(|kind| matches!(kind, MemoryRegionKind::UnknownUefi(_)));
    let is_bios = kinds().any(|kind| matches!(kind, MemoryRegionKind::UnknownBios(_)));
    match (is_uefi, is_bios) {
        (true, _) => "UEFI",
        (_, true) => "BIOS",
        _ => "unknown",
    }
}

/// Reads the command line: the file on the boot disk first, then fw_cfg, whose words win.
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
    ::log::set_max_level(options.log);
    options.report();
    options
}

/// Reports which CPU features are missing, on serial port and screen, and ends the machine.
pub fn refuse_cpu(boot: &'static mut BootInfo) -> ! {
    init_screen(boot);
    arch::missing_features().for_each(|feature| ::log::error!("this CPU has {feature}"));
    ::log::error!("the kernel needs what this CPU lacks; the machine ends");
    arch::exit(crate::fail::end::EXIT_CPU, log::print_line)
}

pub fn init_screen(boot: &'static mut BootInfo) {
    if let Optional::Some(framebuffer) = core::mem::replace(&mut boot.framebuffer, Optional::None) {
        let info = framebuffer.info();
        match Screen::take(framebuffer.into_buffer(), info) {
            Some(screen) => log::attach_screen(screen),
            None => ::log::warn!("the framebuffer cannot show text: {info:?}"),
        }
    }
}

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

fn fw_cfg_file(name: &str, max: usize) -> Option<Vec<u8>> {
    let file = FwCfg::probe()?.file(name, max);
    if let Err(error @ (FileError::TooLarge(_) | FileError::NoMemory)) = file {
        ::log::warn!("fw_cfg: {name} ignored: {error}");
    }
    file.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(start: u64, end: u64, kind: u64) -> Vec<u8> {
        [start, end, kind].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn parsed(bytes: &[u8]) -> (Regions, (usize, usize)) {
        let mut out = Regions::new();
        let ignored = parse_regions(bytes, bytes.len(), &mut out);
        (out, ignored)
    }

    #[test]
    fn records_are_regions_and_what_is_none_is_counted() {
        let file = [record(1, 2, 1), record(3, 4, 7), record(6, 5, 2), vec![0; 23]].concat();
        let (kept, ignored) = parsed(&file);
        let kinds = [MemoryRegionKind::Usable, MemoryRegionKind::UnknownBios(2)];
        let regions = [(1, 2, kinds[0]), (6, 5, kinds[1])];
        let regions = regions.map(|(start, end, kind)| MemoryRegion { start, end, kind });
        assert_eq!(kept[..], regions);
        assert_eq!(ignored, (1, 23));
        assert_eq!(parsed(&[]), (Regions::new(), (0, 0)));
    }

    #[test]
    fn a_file_that_is_too_long_counts_as_far_as_it_is_taken() {
        let (kept, ignored) = parsed(&record(0, 1, 1).repeat(MAX_REGIONS + 2));
        assert_eq!(kept.len(), MAX_REGIONS);
        assert_eq!(ignored, (0, 2 * RECORD));
    }
}
