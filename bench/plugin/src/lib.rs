//! Inside QEMU: counts the locked instructions that the guest executes.
//!
//! QEMU loads this library (`-plugin libplugin.so,mark=0x…,out=path`) and asks
//! about every block of code that it translates. Instructions that lock the bus
//! get a call that counts each time they are executed; the instruction at `mark`
//! gets a call that writes the sum into `out`, a line a call. The guest
//! calls a function at that address before and after what is measured, so the
//! figure is the difference of two lines. Exact, whoever executes it: kernel or
//! program, ours or Linux. `bench` (its file `locked.rs`) starts it and reads.
//!
//! [`decode`] says what a locked instruction is; [`qemu`] holds QEMU's own names.

pub mod decode;
#[cfg(not(test))] // nobody but QEMU has what it links against
mod qemu;
