//! QEMU's fw_cfg device: the command line in a virtual machine.
//!
//! Finds files by name that were given to QEMU on its command line (`-fw_cfg name=opt/…,file=…`).
//! The boot code is the only caller: for the command line, for ACPI tables that replace those of
//! the firmware, and for memory regions that are added to its map.
//!
//! The device has two ports: a selector that chooses an item and goes to its start, and a data port
//! that gives its bytes one by one, and zeros after the last. So every count and size that it
//! reports is bounded before use.

use crate::arch::text_enum;
use alloc::vec::Vec;
use raw_cpuid::CpuId;
use x86_64::instructions::port::Port;

const SELECTOR_PORT: u16 = 0x510;
const DATA_PORT: u16 = 0x511;

/// The item that gives [`SIGNATURE`], and the one that lists the files.
const SIGNATURE_ITEM: u16 = 0x0000;
const DIRECTORY_ITEM: u16 = 0x0019;
const SIGNATURE: [u8; 4] = *b"QEMU";

/// The most files that are searched. QEMU itself makes some 30 of them.
const MAX_FILES: u32 = 1024;

/// Bytes of a file's name in the directory, NUL included.
const NAME_SIZE: usize = 56;

pub trait Registers {
    fn select(&mut self, item: u16);
    fn read(&mut self) -> u8;
}

pub struct Ports;

impl Registers for Ports {
    fn select(&mut self, item: u16) {
        // SAFETY: in a virtual machine, says `probe`, where the port is the device's or unused.
        unsafe { Port::new(SELECTOR_PORT).write(item) }
    }

    fn read(&mut self) -> u8 {
        // SAFETY: as above; reading moves the device's own position only.
        unsafe { Port::new(DATA_PORT).read() }
    }
}

text_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum FileError {
        NotFound => "there is no such file",
        TooLarge(size: u32) => "it is too large: {size} bytes",
        NoMemory => "no memory to hold it",
    }
}

pub struct FwCfg<R: Registers = Ports>(R);

impl FwCfg {
    /// The device, where this is a virtual machine that has one. On real machines the ports
    /// are not touched: they may belong to another device.
    pub fn probe() -> Option<FwCfg> {
        let is_virtual = CpuId::new().get_feature_info().is_some_and(|f| f.has_hypervisor());
        if is_virtual { FwCfg::probe_on(Ports) } else { None }
    }
}

impl<R: Registers> FwCfg<R> {
    pub fn probe_on(mut registers: R) -> Option<Self> {
        registers.select(SIGNATURE_ITEM);
        (read_bytes(&mut registers) == SIGNATURE).then_some(FwCfg(registers))
    }

    /// The contents of the file `name`, if it has at most `max` bytes.
    pub fn file(&mut self, name: &str, max: usize) -> Result<Vec<u8>, FileError> {
        let size = self.find(name)?;
        if size as usize > max {
            return Err(FileError::TooLarge(size));
        }
        let mut contents = Vec::new();
        contents.try_reserve_exact(size as usize).map_err(|_| FileError::NoMemory)?;
        contents.extend((0..size).map(|_| self.0.read()));
        Ok(contents)
    }

    /// Fills `buffer` with the start of the file `name`; returns the file's size. Needs no heap.
    pub fn read_file(&mut self, name: &str, buffer: &mut [u8]) -> Result<usize, FileError> {
        let size = self.find(name)? as usize;
        buffer.iter_mut().take(size).for_each(|byte| *byte = self.0.read());
        Ok(size)
    }

    /// Chooses the file `name`; returns its size. An entry is a big-endian size, a big-endian item
    /// number, two unused bytes and the name.
    fn find(&mut self, name: &str) -> Result<u32, FileError> {
        self.0.select(DIRECTORY_ITEM);
        let count = u32::from_be_bytes(read_bytes(&mut self.0));
        for _ in 0..count.min(MAX_FILES) {
            let size = u32::from_be_bytes(read_bytes(&mut self.0));
            let item = u16::from_be_bytes(read_bytes(&mut self.0));
            let _unused: [u8; 2] = read_bytes(&mut self.0);
            let entry: [u8; NAME_SIZE] = read_bytes(&mut self.0);
            let end = entry.iter().position(|&byte| byte == 0).unwrap_or(NAME_SIZE);
            if &entry[..end] == name.as_bytes() {
                self.0.select(item);
                return Ok(size);
            }
        }
        Err(FileError::NotFound)
    }
}

fn read_bytes<const N: usize>(registers: &mut impl Registers) -> [u8; N] {
    core::array::from_fn(|_| registers.read())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// A device with items; all bytes after an item are `filler`.
    struct Fake {
        items: HashMap<u16, Vec<u8>>,
        filler: u8,
        item: u16,
        position: usize,
        reads: usize,
    }

    impl Registers for Fake {
        fn select(&mut self, item: u16) {
            self.item = item;
            self.position = 0;
        }

        fn read(&mut self) -> u8 {
            self.reads += 1;
            let byte = self.items.get(&self.item).and_then(|item| item.get(self.position));
            self.position += 1;
            byte.copied().unwrap_or(self.filler)
        }
    }

    /// A device whose directory says `count` and has `files` as (name, size, item).
    fn device(count: u32, files: &[(&[u8], u32, u16)], filler: u8) -> Fake {
        let mut directory = count.to_be_bytes().to_vec();
        for (name, size, item) in files {
            directory.extend_from_slice(&size.to_be_bytes());
            directory.extend_from_slice(&item.to_be_bytes());
            directory.extend_from_slice(&[0; 2]);
            let mut field = [0; NAME_SIZE];
            field[..name.len()].copy_from_slice(name);
            directory.extend_from_slice(&field);
        }
        let items = HashMap::from([
            (SIGNATURE_ITEM, SIGNATURE.to_vec()),
            (DIRECTORY_ITEM, directory),
            (0x20, b"hello".to_vec()),
        ]);
        Fake { items, filler, item: 0, position: 0, reads: 0 }
    }

    #[test]
    fn files_are_found_by_their_whole_name() {
        let files: [(&[u8], u32, u16); 3] =
            [(b"opt/a", 1, 0x21), (b"opt/ab", 5, 0x20), (b"opt/empty", 0, 0x22)];
        let mut fw_cfg = FwCfg::probe_on(device(3, &files, 0)).expect("signature");
        assert_eq!(fw_cfg.file("opt/ab", 100).as_deref(), Ok(&b"hello"[..]));
        assert_eq!(fw_cfg.file("opt/empty", 100).as_deref(), Ok(&b""[..]));
        assert_eq!(fw_cfg.file("opt", 100), Err(FileError::NotFound));
        assert_eq!(fw_cfg.file("opt/abc", 100), Err(FileError::NotFound));
    }

    #[test]
    fn device_without_signature_is_refused() {
        let mut floating = device(0, &[], 0xff);
        floating.items.clear();
        assert!(FwCfg::probe_on(floating).is_none());
    }

    #[test]
    fn file_larger_than_wanted_is_an_error() {
        let mut fw_cfg =
            FwCfg::probe_on(device(1, &[(b"big", u32::MAX, 0x20)], 0)).expect("signature");
        assert_eq!(fw_cfg.file("big", 4096), Err(FileError::TooLarge(u32::MAX)));
        let mut fw_cfg = FwCfg::probe_on(device(1, &[(b"f", 5, 0x20)], 0)).expect("signature");
        assert_eq!(fw_cfg.file("f", 4), Err(FileError::TooLarge(5)));
        assert!(fw_cfg.file("f", 5).is_ok());
    }

    #[test]
    fn a_buffer_is_filled_as_far_as_both_go() {
        let mut fw_cfg = FwCfg::probe_on(device(1, &[(b"f", 5, 0x20)], b'x')).expect("signature");
        let mut read = |bytes: usize| {
            let mut buffer = vec![b'-'; bytes];
            (fw_cfg.read_file("f", &mut buffer), buffer)
        };
        assert_eq!(read(3), (Ok(5), b"hel".to_vec()));
        assert_eq!(read(7), (Ok(5), b"hello--".to_vec()));
        assert_eq!(fw_cfg.read_file("g", &mut []), Err(FileError::NotFound));
    }

    #[test]
    fn huge_directory_is_read_in_part() {
        for filler in [0, 0xff, b'x'] {
            let mut fw_cfg = FwCfg::probe_on(device(u32::MAX, &[], filler)).expect("signature");
            assert_eq!(fw_cfg.file("opt/a", 100), Err(FileError::NotFound));
            assert!(fw_cfg.0.reads <= 8 + 64 * MAX_FILES as usize);
        }
    }

    #[test]
    fn name_without_an_end_is_survived() {
        let name = [b'n'; NAME_SIZE];
        let mut fw_cfg = FwCfg::probe_on(device(1, &[(&name, 5, 0x20)], 0)).expect("signature");
        assert_eq!(fw_cfg.file("n", 100), Err(FileError::NotFound));
        assert!(fw_cfg.file(core::str::from_utf8(&name).expect("ASCII"), 100).is_ok());
    }
}
