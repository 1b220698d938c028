//! FADT and HPET: clocks to calibrate against, the power button, and the ways to switch off and to
//! reset.
//!
//! Only addresses are read here; whether the device behind one works is for its driver to find out,
//! within a bound.

use super::power_button::PowerButton;
use super::tables::layout;
use ::acpi::address::RawGenericAddress;
use ::acpi::sdt::ExtendedField;
use ::acpi::sdt::fadt::Fadt;
use ::acpi::sdt::hpet::HpetTable;
use core::mem::offset_of;

pub(super) const HPET_MIN_BYTES: usize = size_of::<HpetTable>();
/// The FADT of ACPI 1.0; later ones only added to its end.
pub(super) const FADT_MIN_BYTES: usize = offset_of!(Fadt, reset_reg);

/// What the FADT says that we can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FixedHardware {
    /// The port of the ACPI power management timer, and a mask of its 24 or 32 bits.
    pub pm_timer: Option<(u16, u32)>,
    /// The port and the byte that reset the machine.
    pub reset: Option<(u16, u8)>,
    /// The ports and the words that switch the machine off: PM1a's, and PM1b's on few machines.
    pub power_off: [Option<(u16, u16)>; 2],
    /// The power button, if it is fixed hardware.
    pub power_button: Option<PowerButton>,
    /// The register of the real-time clock's memory that has the century.
    pub century: Option<u8>,
}

/// Address spaces of an address structure (ACPI 6.5, 5.2.3.2).
const SYSTEM_MEMORY: u8 = 0;
const SYSTEM_IO: u8 = 1;

/// The address of the registers, from a validated HPET table of at least [`HPET_MIN_BYTES`].
pub(super) fn read_hpet(table: &[u8]) -> Option<u64> {
    // SAFETY: whole numbers.
    let RawGenericAddress { address_space, address, .. } =
        unsafe { layout::<HpetTable>(table) }.base_address;
    (address_space == SYSTEM_MEMORY && address != 0).then_some(address)
}

/// Reads a validated FADT of at least [`FADT_MIN_BYTES`]. Fields that an older table does not have
/// are zero, which means "not there" for each of them. `dsdt` loads the DSDT from an address.
pub(super) fn read_fadt<'m>(
    table: &[u8],
    dsdt: impl FnOnce(u64) -> Option<&'m [u8]>,
) -> FixedHardware {
    // SAFETY: whole numbers.
    let fadt = unsafe { layout::<Fadt>(table) };
    let flags = fadt.flags;
    // One in memory or PCI space is rare, and then the chipset's port is there too (`exit`).
    let RawGenericAddress { address_space, address, .. } = fadt.reset_reg;
    let has_port = flags.supports_system_reset_via_fadt() && address_space == SYSTEM_IO;
    let port = u16::try_from(address).ok().filter(|port| has_port && *port != 0);
    let reset = port.map(|port| (port, fadt.reset_value));
    if flags.system_is_hw_reduced_acpi() {
        return FixedHardware { reset, ..FixedHardware::default() };
    }

    let mask = if flags.pm_timer_is_32_bit() { u32::MAX } else { 0xff_ffff };
    let control = [
        port_in(fadt.pm1a_control_block, fadt.x_pm1a_control_block),
        port_in(fadt.pm1b_control_block, fadt.x_pm1b_control_block),
    ];
    let at = wide(fadt.x_dsdt_address);
    let at = if at != 0 { at } else { fadt.dsdt_address.into() };
    let off = dsdt(at).and_then(read_soft_off);
    FixedHardware {
        pm_timer: port_in(fadt.pm_timer_block, fadt.x_pm_timer_block).map(|port| (port, mask)),
        reset,
        power_off: [0, 1].map(|i| control[i].zip(off.map(|words| words[i]))),
        power_button: control[0].and_then(|control| power_button(&fadt, control)),
        // Below are the registers of the clock itself.
        century: Some(fadt.century).filter(|index| (0x0e..0x80).contains(index)),
    }
}

/// The power button. Its ports are written to while the machine runs, so a table that names ports
/// of other devices is not believed: then there is no button.
fn power_button(fadt: &Fadt, control: u16) -> Option<PowerButton> {
    const COMMAND_PORT: u32 = 0xb2; // for commands to the firmware, in all chipsets of PCs
    let handover = match (fadt.smi_cmd_port, fadt.acpi_enable) {
        (0, _) | (_, 0) => None,
        (COMMAND_PORT, value) => Some((COMMAND_PORT as u16, value)),
        _ => return None,
    };
    let line = u8::try_from(fadt.sci_interrupt).ok().filter(|line| (1..16).contains(line))?;
    let half = Some(fadt.pm1_event_length / 2).filter(|half| (2..=4).contains(half))?;
    let pair = |narrow, wide| {
        let status = port_in(narrow, wide)?;
        let enable = status.checked_add(half.into())?;
        (is_acpi_port(status) && is_acpi_port(enable)).then_some((status, enable))
    };
    let first = pair(fadt.pm1a_event_block, fadt.x_pm1a_event_block)?;
    let second = pair(fadt.pm1b_event_block, fadt.x_pm1b_event_block);
    let is_fixed = !{ fadt.flags }.power_button_is_control_method() && is_acpi_port(control);
    is_fixed.then_some(PowerButton { line, events: [Some(first), second], control, handover })
}

/// Whether a chipset may have a register of ACPI's at this port: the ports below 0x400 are those of
/// old devices, and those around 0xcf8 lead to PCI and reset the machine.
fn is_acpi_port(port: u16) -> bool {
    port >= 0x400 && !(0xcf0..0xd00).contains(&port) && port.is_multiple_of(2)
}

/// A field that later revisions added; zero in others, whatever the table says of its revision.
fn wide<T: Copy>(field: ExtendedField<T, 2>) -> T {
    // SAFETY: `layout` has filled all fields.
    unsafe { field.access(2) }.expect("of this revision")
}

/// A port: from the wide field if it is in use, else from the old one.
fn port_in(narrow: u32, in_wide: ExtendedField<RawGenericAddress, 2>) -> Option<u16> {
    let RawGenericAddress { address_space, address, .. } = wide(in_wide);
    let port = match (address_space, address) {
        (_, 0) => narrow.into(),
        (SYSTEM_IO, port) => port,
        _ => return None,
    };
    u16::try_from(port).ok().filter(|port| *port != 0)
}

/// Finds the sleep type of S5 (ACPI 6.5, 4.8.3.2 and 7.4.2) in a validated DSDT. Returns the words
/// for the two control ports.
///
/// The DSDT is bytecode, which the kernel does not run. In all known firmware the value is a
/// package of constants, `Name (\_S5, Package () { a, b, .. })`, so the function searches for its
/// bytes.
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
