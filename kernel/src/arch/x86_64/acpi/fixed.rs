//! FADT and HPET: clocks to calibrate against, and the ways to reset.
//!
//! Only addresses are read here; whether the device behind one works is for the
//! clock code to find out, within a bound.

use super::tables::{HEADER_BYTES, little_endian, view};
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
    /// How to reset the machine.
    pub reset: Option<Reset>,
    /// What to write to the sleep ports so that the machine switches itself off.
    pub soft_off: Option<SoftOff>,
    /// The port through which the machine is put to sleep or switched off.
    pub pm1a_control: Option<u16>,
    /// The second such port, on the few machines that have two.
    pub pm1b_control: Option<u16>,
    /// The power button, if it is fixed hardware.
    pub power_button: Option<PowerButtonPorts>,
}

/// Where the power button is heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerButtonPorts {
    /// The ISA line of the system control interrupt.
    pub sci: u8,
    /// Status and enable registers, one pair or two.
    pub events: [Option<PowerButtonEvents>; 2],
    /// The register that routes the events to the firmware or to the kernel.
    pub control: u16,
    /// The port and the byte by which the firmware is told to hand over, if it must be.
    pub handover: Option<(u16, u8)>,
}

/// Two registers of 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerButtonEvents {
    /// What has happened.
    pub status: u16,
    /// What is told of.
    pub enable: u16,
}

/// The sleep type of the state S5 (ACPI 6.5, 4.8.3.2 and 7.4.2), for either port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftOff {
    /// For `pm1a_control`: three bits.
    pub pm1a: u8,
    /// For `pm1b_control`.
    pub pm1b: u8,
}

/// Writing `value` to `port` resets the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reset {
    /// The port of one byte.
    pub port: u16,
    /// The byte.
    pub value: u8,
}

/// Address spaces of an address structure (ACPI 6.5, 5.2.3.2).
const SYSTEM_MEMORY: u8 = 0;
const SYSTEM_IO: u8 = 1;

/// The physical address of the registers, from a validated HPET table of at
/// least [`HPET_MIN_BYTES`].
pub(super) fn read_hpet(table: &[u8]) -> Option<u64> {
    let at = view::<HpetTable>(table)?.base_address;
    Some(at.address).filter(|address| at.address_space == SYSTEM_MEMORY && *address != 0)
}

/// Reads a validated FADT of at least [`FADT_MIN_BYTES`].
pub(super) fn read_fadt(table: &[u8]) -> FixedHardware {
    // Fields that an older table does not have read as zero, which means "not
    // there" for each of them.
    let mut bytes = [0; size_of::<Fadt>()];
    let len = table.len().min(bytes.len());
    bytes[..len].copy_from_slice(&table[..len]);
    let Some(fadt) = view::<Fadt>(&bytes) else { return FixedHardware::default() };

    let flags = fadt.flags;
    // A register in memory or in PCI space is rare, and where it is, the
    // chipset's port is there too (`exit`).
    let at = fadt.reset_reg;
    let has_port = flags.supports_system_reset_via_fadt() && at.address_space == SYSTEM_IO;
    let reset_port = u16::try_from(at.address).ok().filter(|port| has_port && *port != 0);
    let reset = reset_port.map(|port| Reset { port, value: fadt.reset_value });
    if flags.system_is_hw_reduced_acpi() {
        return FixedHardware { reset, ..FixedHardware::default() };
    }

    let mask = if flags.pm_timer_is_32_bit() { u32::MAX } else { 0xff_ffff };
    let port = |narrow, wide| port(&bytes, narrow, wide);
    let pm_timer = port(offset_of!(Fadt, pm_timer_block), offset_of!(Fadt, x_pm_timer_block));
    let [pm1a_control, pm1b_control] = [
        port(offset_of!(Fadt, pm1a_control_block), offset_of!(Fadt, x_pm1a_control_block)),
        port(offset_of!(Fadt, pm1b_control_block), offset_of!(Fadt, x_pm1b_control_block)),
    ];
    FixedHardware {
        pm_timer: pm_timer.map(|port| (port, mask)),
        reset,
        soft_off: None,
        pm1a_control,
        pm1b_control,
        power_button: pm1a_control.and_then(|control| power_button(&bytes, control)),
    }
}

/// The ports of the power button. They are written to while the machine runs, so what
/// cannot be right is refused: then there is no button.
fn power_button(fadt: &[u8; size_of::<Fadt>()], control: u16) -> Option<PowerButtonPorts> {
    const IS_IN_AML: u8 = 1 << 4; // the button is a device of the DSDT's
    const SCI: usize = 46;
    const HANDOVER_PORT: usize = 48;
    const HANDOVER_VALUE: usize = 52;
    const EVENTS: [(usize, usize); 2] = [(56, 148), (60, 160)];
    const EVENT_BYTES: usize = 88;
    const FLAGS: usize = 112;
    /// The port for commands to the firmware, in all chipsets of PCs.
    const COMMAND_PORT: u64 = 0xb2;
    let sci = u8::try_from(little_endian(&fadt[SCI..SCI + 2]))
        .ok()
        .filter(|line| (1..16).contains(line))?;
    let half = u16::from(fadt[EVENT_BYTES] / 2);
    if fadt[FLAGS] & IS_IN_AML != 0 || !(2..=4).contains(&half) || !is_acpi_port(control) {
        return None;
    }
    let events = EVENTS.map(|(narrow, wide)| {
        let status = port(fadt, narrow, wide)?;
        let enable = status.checked_add(half)?;
        (is_acpi_port(status) && is_acpi_port(enable))
            .then_some(PowerButtonEvents { status, enable })
    });
    events[0]?;
    let value = fadt[HANDOVER_VALUE];
    let handover = match (little_endian(&fadt[HANDOVER_PORT..HANDOVER_PORT + 4]), value) {
        (0, _) | (_, 0) => None,
        (COMMAND_PORT, value) => Some((COMMAND_PORT as u16, value)),
        _ => return None,
    };
    Some(PowerButtonPorts { sci, events, control, handover })
}

/// Whether a chipset may have a register of ACPI's at this port: the ports below 0x400
/// are those of old devices, and those around 0xcf8 lead to PCI and reset the machine.
fn is_acpi_port(port: u16) -> bool {
    port >= 0x400 && !(0xcf0..0xd00).contains(&port) && port.is_multiple_of(2)
}

/// Where a validated FADT says that the DSDT is.
pub(super) fn dsdt_address(fadt: &[u8]) -> Option<u64> {
    let field = |at: usize, len: usize| fadt.get(at..at + len).map(little_endian);
    let [wide, narrow] = [field(X_DSDT, 8), field(DSDT, 4)];
    wide.filter(|at| *at != 0).or(narrow).filter(|at| *at != 0)
}

/// The offsets of the DSDT's two addresses in the FADT.
const DSDT: usize = 40;
const X_DSDT: usize = 140;

/// Finds the sleep type of S5 in a validated DSDT.
///
/// The table is a program, which we do not run. But this value is a package of
/// constants in all firmware that is known: `Name (\_S5, Package () { a, b, .. })`.
/// So its bytes are looked for; where they look different, there is none.
pub(super) fn read_soft_off(dsdt: &[u8]) -> Option<SoftOff> {
    const NAME: u8 = 0x08;
    const ROOT: u8 = b'\\';
    const PACKAGE: u8 = 0x12;
    dsdt.windows(4).enumerate().filter(|(_, name)| name == b"_S5_").find_map(|(at, _)| {
        let before = &dsdt[..at];
        let before = before.strip_suffix(&[ROOT]).unwrap_or(before);
        if before.last() != Some(&NAME) {
            return None;
        }
        let rest = dsdt[at + 4..].strip_prefix(&[PACKAGE])?;
        // The length of the package takes one to four bytes: the first says how
        // many. Behind it, the number of elements.
        let rest = rest.get(usize::from(rest.first()? >> 6) + 2..)?;
        let (pm1a, rest) = constant(rest)?;
        let (pm1b, _) = constant(rest)?;
        Some(SoftOff { pm1a: pm1a & 7, pm1b: pm1b & 7 })
    })
}

/// A small constant at the beginning of `code`, and what follows.
fn constant(code: &[u8]) -> Option<(u8, &[u8])> {
    match code {
        [value @ (0 | 1), rest @ ..] | [0x0a, value, rest @ ..] => Some((*value, rest)),
        _ => None,
    }
}

/// A port: from the wide field at that offset if it is in use, else from the old
/// one. The crate asks the revision whether the wide field exists, and a revision
/// can lie about the length.
fn port(fadt: &[u8; size_of::<Fadt>()], narrow: usize, wide: usize) -> Option<u16> {
    let port = match (fadt[wide], little_endian(&fadt[wide + 4..wide + 12])) {
        (_, 0) => little_endian(&fadt[narrow..narrow + 4]),
        (SYSTEM_IO, port) => port,
        _ => return None,
    };
    u16::try_from(port).ok().filter(|port| *port != 0)
}

const _: () = assert!(offset_of!(Fadt, reset_reg) == FADT_MIN_BYTES);
const _: () = assert!(offset_of!(Fadt, x_pm_timer_block) == 208);
const _: () = assert!(HPET_MIN_BYTES == HEADER_BYTES + 20);
const _: () = assert!(offset_of!(Fadt, x_pm_timer_block) - 68 == X_DSDT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_off_is_found_where_the_dsdt_names_it() {
        let found = |code: &[u8]| read_soft_off(code);
        let off = |pm1a, pm1b| Some(SoftOff { pm1a, pm1b });
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
