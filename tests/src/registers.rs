//! Reads the registers of every CPU from what QEMU's monitor prints.
//!
//! `info registers -a` is text for people, but its shape has been the same for
//! twenty years: `CPU#n`, then `NAME=hex` words. A CPU in 16- or 32-bit mode has
//! EIP where a 64-bit one has RIP.

/// What one CPU was doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// QEMU's number of it.
    pub index: usize,
    /// The next instruction.
    pub rip: u64,
    /// The frame of the current function, if frame pointers are kept.
    pub rbp: u64,
    /// The stack.
    pub rsp: u64,
    /// The page tables.
    pub cr3: u64,
    /// The address of the last page fault.
    pub cr2: u64,
    /// Whether interrupts are enabled.
    pub takes_interrupts: bool,
    /// Whether it sits in `hlt`.
    pub is_halted: bool,
}

/// Bit 9 of the flags: interrupts enabled.
const RFLAGS_IF: u64 = 1 << 9;

/// All CPUs in the text of `info registers -a`.
///
/// ```
/// let text = "CPU#0\r\nRBP=10 RSP=20\r\nRIP=30 RFL=00000246 [---Z-P-] HLT=1\r\nCR3=40";
/// let cpus = tests::registers::parse(text);
/// assert_eq!((cpus.len(), cpus[0].rip, cpus[0].is_halted), (1, 0x30, true));
/// ```
pub fn parse(text: &str) -> Vec<Cpu> {
    let mut cpus: Vec<Cpu> = Vec::new();
    for word in text.split_whitespace() {
        if let Some(index) = word.strip_prefix("CPU#") {
            let index = index.parse().unwrap_or(cpus.len());
            cpus.push(Cpu { index, ..Cpu::default() });
        } else if let (Some(cpu), Some((name, value))) = (cpus.last_mut(), word.split_once('=')) {
            cpu.set(name, value);
        }
    }
    cpus
}

impl Cpu {
    fn set(&mut self, name: &str, value: &str) {
        let Ok(value) = u64::from_str_radix(value, 16) else { return };
        match name {
            "RIP" | "EIP" => self.rip = value,
            "RBP" | "EBP" => self.rbp = value,
            "RSP" | "ESP" => self.rsp = value,
            "CR2" => self.cr2 = value,
            "CR3" => self.cr3 = value,
            "RFL" | "EFL" => self.takes_interrupts = value & RFLAGS_IF != 0,
            "HLT" => self.is_halted = value == 1,
            _ => {}
        }
    }
}

/// The numbers in the text of `x /2gx address`: `…: 0x… 0x…`.
pub fn parse_memory(text: &str) -> Vec<u64> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .flat_map(|(_, words)| words.split_whitespace())
        .filter_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From QEMU 7.2, shortened.
    const TWO_CPUS: &str = "\r\nCPU#0\r\n\
        RAX=0000000000000000 RBX=0000000000000000 RCX=0000000000000000 RDX=00000000000003f8\r\n\
        RSI=0000000000000001 RDI=0000000000000001 RBP=ffff800000123f40 RSP=ffff800000123f00\r\n\
        RIP=ffffffff80001234 RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=1\r\n\
        ES =0010 0000000000000000 ffffffff 00cf9300 DPL=0 DS   [-WA]\r\n\
        CR0=80010011 CR2=0000000000001000 CR3=0000000000101000 CR4=00000020\r\n\r\nCPU#1\r\n\
        EAX=00000000 EBX=00000000 ECX=00000000 EDX=00000663\r\n\
        ESI=00000000 EDI=00000000 EBP=00000000 ESP=00000000\r\n\
        EIP=0000fff0 EFL=00000002 [-------] CPL=0 II=0 A20=1 SMM=0 HLT=0\r\n";

    #[test]
    fn every_cpu_is_read_in_long_and_in_real_mode() {
        let cpus = parse(TWO_CPUS);
        assert_eq!(cpus.len(), 2);
        let first = Cpu {
            index: 0,
            rip: 0xffff_ffff_8000_1234,
            rbp: 0xffff_8000_0012_3f40,
            rsp: 0xffff_8000_0012_3f00,
            cr2: 0x1000,
            cr3: 0x10_1000,
            takes_interrupts: true,
            is_halted: true,
        };
        assert_eq!(cpus[0], first);
        assert_eq!((cpus[1].index, cpus[1].rip), (1, 0xfff0));
        assert!(!cpus[1].is_halted && !cpus[1].takes_interrupts);
    }

    #[test]
    fn nonsense_is_no_cpu() {
        assert_eq!(parse(""), []);
        assert_eq!(parse("RIP=10 Error: not supported"), []);
        assert_eq!(parse("CPU#x RIP=zz"), [Cpu::default()]);
    }

    #[test]
    fn memory_words_are_read() {
        let text = "ffff800000123f40: 0xffff800000123f80 0xffffffff80001300\r\n";
        assert_eq!(parse_memory(text), [0xffff_8000_0012_3f80, 0xffff_ffff_8000_1300]);
        assert!(parse_memory("Cannot access memory\r\n").is_empty());
    }
}
