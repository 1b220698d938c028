//! The serial port.
