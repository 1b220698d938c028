//! The port for a stream, and the exclusive right to write to it.
//!
//! The debug console, if the emulator has one; else the second serial port. The port is in [`PORT`]
//! while it is not in use; the writer takes it out ([`Turn`]), and other writers find it absent. So
//! blocks of two writers never mix, and no lock is held for the duration of a write.
#![forbid(unsafe_code)]

use super::wire::Out;
use crate::arch::lock::IrqLock;
use crate::drivers::debugcon::DebugCon;
use crate::drivers::serial::Serial;

/// The kinds of ports.
enum Port {
    DebugCon(DebugCon),
    Serial(Serial),
}

/// The port, while it is not in use.
static PORT: IrqLock<Option<Port>> = IrqLock::new(None);

/// The right to write, until it is dropped.
pub(crate) struct Turn(Option<Port>);

impl Turn {
    /// The first turn, if there is a port. One caller at a time, which it must ensure.
    pub(crate) fn first() -> Option<Turn> {
        let serial = || Serial::probe_second().map(Port::Serial);
        DebugCon::probe().map(Port::DebugCon).or_else(serial).map(|port| Turn(Some(port)))
    }

    /// None: another writer has it, or there is no port. Never waits, so that a machine that panics
    /// can call it as well.
    pub(crate) fn take() -> Option<Turn> {
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
