//! I/O APICs, and the legacy PIC put to sleep.
