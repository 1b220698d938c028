//! FADT and HPET: clocks to calibrate against, the power button, and the ways to switch off and
//! to reset.
//!
//! Only addresses are read here; whether the device behind one works is for its driver to find out,
//! within a bound.

use super::power_button::PowerButton;
use super::tables::{HEADER_BYTES, little_endian};
use ::acpi::sdt::fadt::Fadt;
use ::acpi::sdt::hpet::HpetTable;
use core::mem::{offset_of, size_of};

/// The HPET table has one size.
pub(super) const HPET_MIN_BYTES: usize = size_of::<HpetTable>();
/// The FADT of ACPI 1.0; later ones only added to its end.
pub(super) const FADT_MIN_BYTES: usize = 116;

/// What the FADT says that we can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FixedHardware {
    /// The port of the ACPI power management timer, and a mask of its 24 or 32 bits.
    pub pm_timer: Option<(u16, u32)>,
    /// The port and the byte that reset the machine.
    pub reset: Option<(u16, u8)>,
    /// The ports and the words that switch the machine off. Few machines have two.
    pub power_off: [Option<(u16, u16)>; 2],
    /// The power button, if it is fixed hardware.
    pub power_button: Option<PowerButton>,
}

/// Address spaces of an address structure (ACPI 6.5, 5.2.3.2).
const SYSTEM_MEMORY: u8 = 0;
const SYSTEM_IO: u8 = 1;

/// Bits of the FADT's flags: the button is a device of the DSDT's; the PM timer has 32 bits; there
/// is a reset register; there is no fixed hardware.
const BUTTON_IN_AML: u64 = 1 << 4;
const TIMER_32_BITS: u64 = 1 << 8;
const HAS_RESET: u64 = 1 << 10;
const HARDWARE_REDUCED: u64 = 1 << 20;

/// The address of the registers, from a validated HPET table of at least [`HPET_MIN_BYTES`].
pub(super) fn read_hpet(table: &[u8]) -> Option<u64> {
    let at = offset_of!(HpetTable, base_address);
    let address = little_endian(&table[at + 4..at + 12]);
    (table[at] == SYSTEM_MEMORY && address != 0).then_some(address)
}

/// A FADT at its full length. Fields that an older table does not have read as zero, which means
/// "not there" for each of them.
struct Fields([u8; size_of::<Fadt>()]);

impl Fields {
    fn number(&self, at: usize, len: usize) -> u64 {
        little_endian(&self.0[at..at + len])
    }

    /// A port: from the wide field if it is in use, else from the old one.
    fn port(&self, narrow: usize, wide: usize) -> Option<u16> {
        let port = match (self.0[wide], self.number(wide + 4, 8)) {
            (_, 0) => self.number(narrow, 4),
            (SYSTEM_IO, port) => port,
            _ => return None,
        };
        u16::try_from(port).ok().filter(|port| *port != 0)
    }
}

/// Reads a validated FADT of at least [`FADT_MIN_BYTES`]. `dsdt` loads the DSDT from an address.
pub(super) fn read_fadt<'m>(
    table: &[u8],
    dsdt: impl FnOnce(u64) -> Option<&'m [u8]>,
) -> FixedHardware {
    let mut fadt = Fields([0; _]);
    let len = table.len().min(fadt.0.len());
    fadt.0[..len].copy_from_slice(&table[..len]);
    let flags = fadt.number(offset_of!(Fadt, flags), 4);

    // One in memory or PCI space is rare, and then the chipset's port is there too (`exit`).
    let at = offset_of!(Fadt, reset_reg);
    let has_port = flags & HAS_RESET != 0 && fadt.0[at] == SYSTEM_IO;
    let port = u16::try_from(fadt.number(at + 4, 8)).ok().filter(|port| has_port && *port != 0);
    let reset = port.map(|port| (port, fadt.0[offset_of!(Fadt, reset_value)]));
    if flags & HARDWARE_REDUCED != 0 {
        return FixedHardware { reset, ..FixedHardware::default() };
    }

    let mask = if flags & TIMER_32_BITS != 0 { u32::MAX } else { 0xff_ffff };
    let pm_timer = fadt.port(offset_of!(Fadt, pm_timer_block), offset_of!(Fadt, x_pm_timer_block));
    let control = [
        fadt.port(offset_of!(Fadt, pm1a_control_block), offset_of!(Fadt, x_pm1a_control_block)),
        fadt.port(offset_of!(Fadt, pm1b_control_block), offset_of!(Fadt, x_pm1b_control_block)),
    ];
    let at = match fadt.number(offset_of!(Fadt, x_dsdt_address), 8) {
        0 => fadt.number(offset_of!(Fadt, dsdt_address), 4),
        wide => wide,
    };
    let [off_a, off_b] = dsdt(at).and_then(read_soft_off).map_or([None; 2], |off| off.map(Some));
    FixedHardware {
        pm_timer: pm_timer.map(|port| (port, mask)),
        reset,
        power_off: [control[0].zip(off_a), control[1].zip(off_b)],
        power_button: control[0].and_then(|control| power_button(&fadt, flags, control)),
    }
}

/// The ports of the power button. They are written to while the machine runs, so what
/// cannot be right is refused: then there is no button.
fn power_button(fadt: &Fields, flags: u64, control: u16) -> Option<PowerButton> {
    /// The port for commands to the firmware, in all chipsets of PCs.
    const COMMAND_PORT: u16 = 0xb2;
    let line = fadt.number(offset_of!(Fadt, sci_interrupt), 2);
    let half = u16::from(fadt.0[offset_of!(Fadt, pm1_event_length)] / 2);
    let is_sound = (1..16).contains(&line) && (2..=4).contains(&half) && is_acpi_port(control);
    if flags & BUTTON_IN_AML != 0 || !is_sound {
        return None;
    }
    let events = [
        (offset_of!(Fadt, pm1a_event_block), offset_of!(Fadt, x_pm1a_event_block)),
        (offset_of!(Fadt, pm1b_event_block), offset_of!(Fadt, x_pm1b_event_block)),
    ];
    let events = events.map(|(narrow, wide)| {
        let status = fadt.port(narrow, wide)?;
        let enable = status.checked_add(half)?;
        (is_acpi_port(status) && is_acpi_port(enable)).then_some((status, enable))
    });
    events[0]?;
    let command = fadt.number(offset_of!(Fadt, smi_cmd_port), 4);
    let handover = match (command, fadt.0[offset_of!(Fadt, acpi_enable)]) {
        (0, _) | (_, 0) => None,
        (port, value) if port == u64::from(COMMAND_PORT) => Some((COMMAND_PORT, value)),
        _ => return None,
    };
    Some(PowerButton { line: line as u8, events, control, handover })
}

/// Whether a chipset may have a register of ACPI's at this port: the ports below 0x400
/// are those of old devices, and those around 0xcf8 lead to PCI and reset the machine.
fn is_acpi_port(port: u16) -> bool {
    port >= 0x400 && !(0xcf0..0xd00).contains(&port) && port.is_multiple_of(2)
}

/// Finds the sleep type of S5 (ACPI 6.5, 4.8.3.2 and 7.4.2) in a validated DSDT. Gives the words
/// for the two control ports.
///
/// The table is a program, which we do not run. But in all firmware that is known this value is a
/// package of constants, `Name (\_S5, Package () { a, b, .. })`, so its bytes are looked for.
fn read_soft_off(dsdt: &[u8]) -> Option<[u16; 2]> {
    const NAME: u8 = 0x08;
    const ROOT: u8 = b'\\';
    const PACKAGE: u8 = 0x12;
    const SLEEP_NOW: u16 = 1 << 13;
    dsdt.windows(4).enumerate().filter(|(_, name)| name == b"_S5_").find_map(|(at, _)| {
        let before = &dsdt[..at];
        let before = before.strip_suffix(&[ROOT]).unwrap_or(before);
        if before.last() != Some(&NAME) {
            return None;
        }
        let rest = dsdt[at + 4..].strip_prefix(&[PACKAGE])?;
        // The package's length takes one to four bytes, as the first says; then the element count.
        let rest = rest.get(usize::from(rest.first()? >> 6) + 2..)?;
        let (pm1a, rest) = constant(rest)?;
        let (pm1b, _) = constant(rest)?;
        Some([pm1a, pm1b].map(|kind| u16::from(kind & 7) << 10 | SLEEP_NOW))
    })
}

/// A small constant at the beginning of `code`, and what follows.
fn constant(code: &[u8]) -> Option<(u8, &[u8])> {
    match code {
        [value @ (0 | 1), rest @ ..] | [0x0a, value, rest @ ..] => Some((*value, rest)),
        _ => None,
    }
}

const _: () = assert!(offset_of!(Fadt, reset_reg) == FADT_MIN_BYTES);
const _: () = assert!(offset_of!(Fadt, x_pm_timer_block) == 208);
const _: () = assert!(HPET_MIN_BYTES == HEADER_BYTES + 20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_off_is_found_where_the_dsdt_names_it() {
        let found = |code: &[u8]| read_soft_off(code);
        let off = |pm1a: u16, pm1b: u16| Some([pm1a << 10 | 1 << 13, pm1b << 10 | 1 << 13]);
        assert_eq!(found(b"DSDT..\x08_S5_\x12\x06\x04\x0a\x05\x0a\x07\0\0"), off(5, 7));
        assert_eq!(found(b"\x08\\_S5_\x12\x06\x04\0\x01\0\0"), off(0, 1));
        // A length of two bytes, and a name that is only called before.
        assert_eq!(found(b"x_S5_\x08_S5_\x12\x46\x00\x04\x01\x01"), off(1, 1));
    }

    #[test]
    fn a_dsdt_without_a_way_off_or_cut_short_has_none() {
        let whole = b"\x08_S5_\x12\x06\x04\x0a\x05\x0a\x07";
        for len in 0..whole.len() {
            assert_eq!(read_soft_off(&whole[..len]), None, "{len} bytes");
        }
        assert_eq!(read_soft_off(b"\x14_S5_\x12\x06\x04\0\0"), None, "a method, not a name");
    }
}
