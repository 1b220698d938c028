//! QEMU's fw_cfg device: the command line in a virtual machine.
