//! Where a stream leaves the machine, and whose turn it is to write.
//!
//! The debug console, if the emulator has one; else the second serial port. The
//! port is in [`PORT`] while nobody writes; who does has it ([`Turn`]), and others
//! find that it is away. So blocks of two writers never mix, and nothing is locked
//! for the time that a write takes.
#![forbid(unsafe_code)]

use super::wire::Out;
use crate::drivers::debugcon::DebugCon;
use crate::drivers::serial::Serial;
use crate::lock::IrqLock;

/// Where bytes can go.
enum Port {
    DebugCon(DebugCon),
    Serial(Serial),
}

/// The port, while nobody writes.
static PORT: IrqLock<Option<Port>> = IrqLock::new(None);

/// The right to write, until it is dropped.
pub(super) struct Turn(Option<Port>);

impl Turn {
    /// The first turn, if there is a port. For one caller, who keeps others out.
    pub(super) fn first() -> Option<Turn> {
        let serial = || Serial::probe_second().map(Port::Serial);
        DebugCon::probe().map(Port::DebugCon).or_else(serial).map(|port| Turn(Some(port)))
    }

    /// None: somebody writes, or there is no port. Waits for nobody, so that a
    /// machine that panics can ask as well.
    pub(super) fn take() -> Option<Turn> {
        PORT.try_lock()?.take().map(|port| Turn(Some(port)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let port = self.0.take();
        *PORT.lock() = port;
    }
}

impl Out for Turn {
    fn write(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Some(Port::DebugCon(port)) => port.write(bytes),
            Some(Port::Serial(port)) => port.write_raw(bytes),
            None => {}
        }
    }
}
